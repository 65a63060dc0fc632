//! `-l`: pods have their service's labels.

use clap::Args;
use model::service::selector::LabelSelector;

/// Selects objects by label.
#[derive(Debug, Default, Clone, PartialEq, Args)]
pub(crate) struct SelectorArgs {
    /// Only objects with these labels: a=b, a!=b, `a in (x,y)`, `a notin (x,y)`, a or !a, joined by commas;
    /// repeatable. A pod has the labels of its service.
    #[arg(long = "label", short, visible_alias = "selector", value_name = "SELECTOR", value_parser = selector)]
    label: Vec<String>,
}

impl SelectorArgs {
    pub(super) fn is_empty(&self) -> bool {
        self.label.is_empty()
    }

    pub(super) fn text(&self) -> Option<String> {
        (!self.label.is_empty()).then(|| self.label.join(","))
    }

    /// The parser has checked its texts.
    pub(super) fn selector(&self) -> LabelSelector {
        self.text().and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// Returns the text unchanged: the API evaluates it.
fn selector(text: &str) -> Result<String, String> {
    text.parse::<LabelSelector>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}
