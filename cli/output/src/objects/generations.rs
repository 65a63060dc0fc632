//! Generations of a service as table rows.

use api_types::{GenerationOutcomeView, GenerationView};
use jiff::Timestamp;
use serde::Serialize;

use crate::{TableRow, Titles, humanize};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct GenerationRow {
    view: GenerationView,
    #[serde(skip)]
    changed: Vec<String>,
}

/// `changed` are the fields that differ from the previous generation.
pub fn row(view: GenerationView, changed: Vec<String>) -> GenerationRow {
    GenerationRow { view, changed }
}

impl TableRow for GenerationRow {
    const TITLES: Titles = &["GENERATION", "WANTED", "OUTCOME", "IMAGE", "CHANGED"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        let GenerationView { generation, until, containers, outcome, .. } = &self.view;
        let wanted =
            until.as_ref().map_or("now".to_owned(), |at| format!("until {} ago", humanize::age(at, now)));
        let image = containers.first().map(|container| container.image.clone()).unwrap_or_default();
        let outcome = match outcome {
            Some(GenerationOutcomeView::Good) => "good",
            Some(GenerationOutcomeView::Failed) => "failed",
            Some(GenerationOutcomeView::RolledBack) => "rolled back",
            None => "",
        };
        vec![generation.to_string(), wanted, outcome.to_owned(), image, self.changed.join(", ")]
    }

    fn name(&self) -> String {
        format!("generation/{}", self.view.generation)
    }
}
