//! The services of clients, and the meaning of their images.

pub(crate) const SERVICES: [&str; 3] = ["a", "b", "c"];

/// Containers of the broken image end at once.
pub(crate) struct Judged {
    pub(crate) good: &'static str,
    pub(crate) other: &'static str,
    pub(crate) broken: &'static str,
}
pub(crate) const STOP_FIRST: Judged =
    Judged { good: "stop:good", other: "stop:other", broken: "stop:broken" };
pub(crate) const START_FIRST: Judged =
    Judged { good: "keep:good", other: "keep:other", broken: "keep:broken" };
/// The health check always fails in containers of the broken one.
pub(crate) const CHECKED: Judged = Judged { good: "keep:well", other: "keep:fit", broken: "keep:sick" };
pub(crate) const CHECK_RETRIES: u32 = 3;

pub(crate) fn image_in_the_end(image: &str) -> String {
    let taken_back = [STOP_FIRST, START_FIRST, CHECKED].into_iter().find(|images| images.broken == image);
    taken_back.map_or(image, |images| images.good).to_owned()
}

pub(crate) fn update_order(image: &str) -> Option<&'static str> {
    let orders = [(STOP_FIRST, "stop-first"), (START_FIRST, "start-first"), (CHECKED, "start-first")];
    let judged = orders.into_iter().find(|(of, _)| [of.good, of.other, of.broken].contains(&image));
    judged.map(|(_, order)| order)
}

pub(crate) fn starts_first(image: &str) -> bool {
    update_order(image) == Some("start-first")
}

pub(crate) fn is_broken(image: &str) -> bool {
    image.ends_with(":broken")
}

pub(crate) fn is_sick(image: &str) -> bool {
    image == CHECKED.broken
}

pub(crate) fn has_check(image: &str) -> bool {
    [CHECKED.good, CHECKED.other, CHECKED.broken].contains(&image)
}

pub(crate) fn has_several_containers(image: &str) -> bool {
    image.ends_with(":2")
}

pub(crate) const MAX_PER_NODE: usize = 2;

/// Its service runs only on nodes with the label `disk`, and of its pods at most [`MAX_PER_NODE`] on each.
pub(crate) fn has_rules(image: &str) -> bool {
    image.contains(":disk")
}

/// Services `a` and `b` keep away from each other, and each has a node on which the other one never runs.
pub(crate) fn keeps_away(image: &str) -> bool {
    image.contains(":apart")
}

pub(crate) fn away_from(service: &str) -> Option<&'static str> {
    match service {
        "a" => Some("b"),
        "b" => Some("a"),
        _ => None,
    }
}

pub(crate) fn has_volume(image: &str) -> bool {
    image.ends_with("volume")
}

/// Its service is global, on nodes with the label `disk`.
pub(crate) fn is_global(image: &str) -> bool {
    image.contains(":global")
}

/// Its service is stateful.
pub(crate) fn has_ordinals(image: &str) -> bool {
    image.contains(":ordinal")
}

/// Of its service, which has only these images.
pub(crate) fn priority_of(image: &str) -> Option<i64> {
    image.split_once(":prio")?.1.parse().ok()
}

/// Its pods get ids of named resources.
pub(crate) fn has_ids(image: &str) -> bool {
    image.contains(":gpu")
}
