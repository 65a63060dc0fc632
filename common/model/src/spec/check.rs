//! Reads and checks a service's document.

use super::{REPLICAS_NAMES, ServiceInput, Violation};
use document::json_pointer;
use document::{DocumentNode, Mistake, Reading};

impl ServiceInput {
    /// In no order.
    pub fn check(document: &DocumentNode) -> Reading<Self> {
        let Reading { value, mut mistakes } = Self::read(document);
        let violations =
            value.iter().flat_map(|service: &Self| service.clone().normalize().err().unwrap_or_default());
        let new: Vec<Mistake> = violations
            .filter(|violation| !is_consequence(violation, &mistakes))
            .map(|violation| at_its_place(violation, document))
            .collect();
        mistakes.extend(new);
        Reading { value, mistakes }
    }
}

/// True if the violation follows from a faulty value that was left out.
fn is_consequence(violation: &Violation, mistakes: &[Mistake]) -> bool {
    let is_inside = |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}/"));
    mistakes.iter().any(|mistake| is_inside(&mistake.pointer, &violation.pointer))
}

fn at_its_place(violation: Violation, document: &DocumentNode) -> Mistake {
    let Violation { pointer, detail } = violation;
    let written = match pointer.as_str() {
        "/replicas" => REPLICAS_NAMES.iter().find(|name| document.has_field(name)),
        _ => None,
    };
    let place = document.place_of(&written.map_or(pointer.clone(), |name| format!("/{name}")));
    Mistake { detail: format!("{}: {detail}", json_pointer::readable(&pointer)), place, pointer }
}
