//! Label selectors in kubectl's syntax: `tier=front,env!=test`, `zone in (a,b)`, `!legacy`.

use std::collections::BTreeMap;
use std::str::FromStr;

/// As in the API's description: languages differ about all others.
const SPACES: [char; 2] = [' ', '\t'];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

/// Of one label: a selector without commas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    key: String,
    condition: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Condition {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a label selector: write key=value, key!=value, key in (a,b), key notin (a,b), key or !key, \
     joined by commas"
)]
pub struct InvalidSelector {
    text: String,
}

impl LabelSelector {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.holds(labels.get(&requirement.key).map(String::as_str)))
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn extend(&mut self, other: LabelSelector) {
        self.requirements.extend(other.requirements);
    }
}

impl FromStr for LabelSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let requirements =
            split_at_commas(text).into_iter().map(LabelRequirement::parse).collect::<Option<_>>();
        let requirements = requirements.ok_or_else(|| InvalidSelector { text: text.to_owned() })?;
        Ok(Self { requirements })
    }
}

impl LabelRequirement {
    pub fn key(&self) -> &str {
        &self.key
    }

    #[must_use]
    pub fn with_key(self, key: String) -> Self {
        Self { key, ..self }
    }

    /// `None` if there is no such label.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let is_in = |values: &[String], value: &str| values.iter().any(|one| one == value);
        match &self.condition {
            Condition::Exists => value.is_some(),
            Condition::Missing => value.is_none(),
            Condition::In(values) => value.is_some_and(|value| is_in(values, value)),
            Condition::NotIn(values) => value.is_none_or(|value| !is_in(values, value)),
        }
    }

    /// A value with which it holds; `None` if it holds without the label.
    pub fn satisfied_by(&self) -> Option<&str> {
        match &self.condition {
            Condition::Exists => Some("true"),
            Condition::In(values) => values.first().map(String::as_str),
            Condition::Missing | Condition::NotIn(_) => None,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches(SPACES);
        let (key, condition) = if let Some(key) = text.strip_prefix('!') {
            (key, Condition::Missing)
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, Condition::NotIn(vec![single_value(value)?]))
        } else if let Some((key, value)) = text.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key, Condition::In(vec![single_value(value)?]))
        } else if let Some(list) = text.strip_suffix(')') {
            let (left, values) = list.split_once('(')?;
            let (key, operator) = left.trim_end_matches(SPACES).rsplit_once(SPACES)?;
            match operator {
                "in" => (key, Condition::In(value_list(values)?)),
                "notin" => (key, Condition::NotIn(value_list(values)?)),
                _ => return None,
            }
        } else {
            (text, Condition::Exists)
        };
        let key = key.trim_matches(SPACES);
        let is_valid = !key.is_empty() && !key.contains(|c: char| SPACES.contains(&c) || "=!()".contains(c));
        is_valid.then(|| Self { key: key.to_owned(), condition })
    }
}

/// An operator in a value is a typing error.
fn single_value(text: &str) -> Option<String> {
    let value = text.trim_matches(SPACES);
    let is_valid =
        !value.contains(|c: char| SPACES.contains(&c) || "!()".contains(c)) && !value.starts_with('=');
    is_valid.then(|| value.to_owned())
}

fn value_list(text: &str) -> Option<Vec<String>> {
    text.split(',').map(single_value).collect()
}

fn split_at_commas(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn selects_by_value_set_and_presence() {
        let labels: BTreeMap<String, String> =
            [("app", "shop"), ("tier", "front"), ("empty", ""), ("url", "a=b")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        for (selector, expected) in [
            ("app=shop", true),
            ("app==shop", true),
            (" app = shop , tier=front ", true),
            ("app=shop,tier=back", false),
            ("app!=shop", false),
            ("app!=blog", true),
            ("zone!=a", true),
            ("tier in (front,back)", true),
            ("tier in ( front , back ),app", true),
            ("tier in(back)", false),
            ("tier notin (back)", true),
            ("tier notin (front, back)", false),
            ("zone notin (a)", true),
            ("zone in (a)", false),
            ("app", true),
            ("zone", false),
            ("!zone", true),
            ("! app", false),
            ("empty=", true),
            ("app=", false),
            ("url=a=b", true),
            ("in=x", false),
        ] {
            let parsed: LabelSelector = selector.parse().unwrap();
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
    }

    #[test]
    fn a_selector_without_requirements_selects_everything() {
        let mut selector = LabelSelector::default();
        assert!(selector.is_empty() && selector.matches(&BTreeMap::new()));
        selector.extend("app".parse().unwrap());
        assert!(!selector.is_empty() && !selector.matches(&BTreeMap::new()));
    }

    #[test]
    fn a_text_that_is_no_selector_is_refused() {
        for bad in [
            "",
            "=x",
            "!",
            "!=x",
            "app!",
            "app=a b",
            "app===x",
            "app in",
            "app in a",
            "app in (a",
            "app in a)",
            "app of (a)",
            "(a)",
            "in (a)",
            "a,,b",
            "a,",
            "app!x=y",
            "app=(a)",
            "!app=x",
            "a b",
        ] {
            assert!(bad.parse::<LabelSelector>().is_err(), "{bad}");
        }
        let error = "app in a".parse::<LabelSelector>().unwrap_err().to_string();
        assert!(error.contains("\"app in a\"") && error.contains("key in (a,b)"), "{error}");
    }
}
