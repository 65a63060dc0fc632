//! Problems in the records of persistent volumes. Pure.

use super::finding::{Finding, Repair, finding};
use super::key_copy::{KeyCopy, VolumeCopy};
use model::ids::VolumeName;

/// A key that no volume can have.
const NO_RECORD: &str = "volume:/";

/// An unlisted record would outlive its service. A listed name without a record has no effect.
pub(super) fn unlisted_and_unknown(copy: &KeyCopy) -> Vec<Finding> {
    let unlisted = copy.volumes.keys().filter(|name| !copy.volume_names.contains(*name));
    let unlisted = unlisted.map(|name| {
        let repair = Repair::add(name, format!("volume:{name}"));
        finding("volumes", format!("does not list {name}, which has a record"), repair)
    });
    let unknown = copy.volume_names.iter().map(|name| ("volumes".to_owned(), name));
    let removals = copy.removals.iter();
    let removals =
        removals.flat_map(|(node, names)| names.iter().map(move |name| (format!("rv:{node}"), name)));
    // A former copy is removed without a record.
    let removals = removals.filter(|(_, name)| !copy.former_volumes.contains(*name));
    let unknown = unknown.chain(removals).filter(|(_, name)| !copy.volumes.contains_key(*name));
    let unknown = unknown.map(|(key, name)| {
        // An invalid name has no record, whatever key exists.
        let is_name = VolumeName::new(name.as_str()).is_ok();
        let record = if is_name { format!("volume:{name}") } else { NO_RECORD.to_owned() };
        let repair = Repair::remove(name.as_str(), record);
        finding(key, format!("lists {name:.100}, which has no record"), repair)
    });
    unlisted.chain(unknown).collect()
}

/// Moving a broken record away could place its replica on an empty volume, so an operator decides.
pub(super) fn broken_or_without_node(copy: &KeyCopy) -> Vec<Finding> {
    let of_volume = |(name, volume): (&String, &VolumeCopy)| {
        let (problem, what) = match &volume.unreadable {
            Some(problem) => (
                format!("cannot be read: {problem}"),
                "delete it while the worker of the node with its data runs, which writes it again",
            ),
            None if !volume.conflict.is_empty() => (
                format!("has copies on {}, and which one is wanted is not known", volume.conflict),
                "choose one with `kubeleet volume bind`",
            ),
            None if volume.is_lost => (
                format!("is lost: {} does not have its data any more", volume.node),
                "begin anew with `kubeleet volume rm`, or choose a former copy with `kubeleet volume bind`",
            ),
            None if !volume.is_shared && !copy.node_records.contains(&volume.node) => (
                format!("has its data on {}, which is no node", volume.node),
                "start a worker of that name where the data is, or give it up with `kubeleet volume rm`",
            ),
            None => return None,
        };
        Some(finding(format!("volume:{name}"), problem, Repair::Decide { what }))
    };
    copy.volumes.iter().filter_map(of_volume).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_lists_that_do_not_belong_together_are_found() {
        let volume = |node: &str| VolumeCopy { node: node.to_owned(), ..VolumeCopy::default() };
        let shared = VolumeCopy { is_shared: true, ..volume("") };
        let broken = VolumeCopy { unreadable: Some("no replica".to_owned()), ..volume("w1") };
        let copy = KeyCopy {
            volumes: [
                ("a", volume("w1")),
                ("b", volume("gone")),
                ("c", broken),
                ("d", volume("w1")),
                ("l", VolumeCopy { is_lost: true, ..volume("w1") }),
                ("s", shared),
                ("t", VolumeCopy { conflict: "w1 and w2".to_owned(), ..volume("") }),
            ]
            .map(|(name, volume)| (name.to_owned(), volume))
            .into(),
            volume_names: ["a", "b", "c", "l", "lost", "s", "t"].map(str::to_owned).into(),
            removals: [("w1".to_owned(), ["a", "former", "removed"].map(str::to_owned).into())].into(),
            former_volumes: ["former".to_owned()].into(),
            node_records: ["w1".to_owned()].into(),
            ..KeyCopy::default()
        };
        let mut found = unlisted_and_unknown(&copy);
        found.extend(broken_or_without_node(&copy));
        let found: Vec<String> =
            found.into_iter().map(|found| format!("{}: {}", found.key, found.problem)).collect();
        let expected = [
            "volumes: does not list d, which has a record",
            "volumes: lists lost, which has no record",
            "rv:w1: lists removed, which has no record",
            "volume:b: has its data on gone, which is no node",
            "volume:c: cannot be read: no replica",
            "volume:l: is lost: w1 does not have its data any more",
            "volume:t: has copies on w1 and w2, and which one is wanted is not known",
        ];
        assert_eq!(found, expected);
    }
}
