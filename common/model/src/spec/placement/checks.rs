//! Checks that several rules share.

use super::node_constraint::{HOST_NAME, LABELS};
use crate::spec::Violation;

const MAX_WEIGHT: u32 = 100;
const MAX_KEY: usize = 63;

pub(in crate::spec) fn default_weight() -> u32 {
    50
}

pub(in crate::spec) fn label_of(by: &str) -> &str {
    by.strip_prefix(LABELS).unwrap_or(by)
}

pub(in crate::spec) fn label_violation(by: &str, pointer: &str) -> Option<Violation> {
    let key = label_of(by);
    let is_attribute = key.starts_with("node.") && key != HOST_NAME;
    let is_wrong = key.is_empty() || key.len() > MAX_KEY || is_attribute || key.contains(char::is_whitespace);
    let why = || format!("is a label of the nodes, such as zone, or {HOST_NAME}");
    is_wrong.then(|| Violation::new(pointer, why()))
}

pub(in crate::spec) fn weight_violation(weight: u32, pointer: &str) -> Option<Violation> {
    let is_valid = (1..=MAX_WEIGHT).contains(&weight);
    (!is_valid).then(|| Violation::new(format!("{pointer}/weight"), format!("is from 1 to {MAX_WEIGHT}")))
}
