//! The order of stops: the reverse of the starts, sidecars after the others, the sandbox last. Pure.

use engine::Container;
use model::spec::PodSpec;

pub(crate) fn groups<'a>(spec: &PodSpec, containers: &'a [Container]) -> Vec<Vec<&'a Container>> {
    let mut ranked: Vec<(Rank, &Container)> =
        containers.iter().map(|container| (rank(spec, container), container)).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let groups = ranked.chunk_by(|(one, _), (next, _)| one == next);
    groups.map(|group| group.iter().map(|(_, container)| *container).collect()).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Ordinary(std::cmp::Reverse<usize>),
    Sidecar(std::cmp::Reverse<usize>),
    /// The sandbox, and containers outside the specification.
    Last,
}

fn rank(spec: &PodSpec, container: &Container) -> Rank {
    let Some(index) = index_of(spec, container) else { return Rank::Last };
    let depth = std::cmp::Reverse(depth(spec, index, spec.containers.len()));
    if spec.containers[index].sidecar { Rank::Sidecar(depth) } else { Rank::Ordinary(depth) }
}

pub(crate) fn index_of(spec: &PodSpec, container: &Container) -> Option<usize> {
    match (&container.name, spec.containers.as_slice()) {
        (None, [_]) => Some(0),
        (None, _) => None,
        (Some(name), several) => several.iter().position(|one| one.name.as_ref() == Some(name)),
    }
}

fn depth(spec: &PodSpec, index: usize, limit: usize) -> usize {
    if limit == 0 {
        return 0;
    }
    let before = spec.dependencies(&spec.containers[index]).into_iter();
    before.map(|(other, _)| depth(spec, other, limit - 1) + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::ContainerName;

    use super::*;
    use engine::testing::identity;
    use engine::{ContainerState, Identity};

    #[test]
    fn the_reverse_of_the_starts_then_sidecars_then_the_sandbox() {
        let spec: PodSpec = serde_json::from_str(
            r#"{"containers":[
                {"image":"i","name":"log","sidecar":true,"depends_on":["web"]},
                {"image":"i","name":"cache"},
                {"image":"i","name":"web","depends_on":["cache","queue"]},
                {"image":"i","name":"queue"}
            ]}"#,
        )
        .unwrap();
        let container = |name: Option<&str>| {
            let container = name.map(|name| ContainerName::new(name).unwrap());
            let identity = Identity { container, ..identity("n", "p", "a") };
            Container::new(name.unwrap_or("sandbox").to_owned(), &identity, ContainerState::Running)
        };
        let containers = [None, Some("log"), Some("cache"), Some("web"), Some("queue")].map(container);
        let groups = groups(&spec, &containers);
        let handles: Vec<Vec<&str>> =
            groups.iter().map(|group| group.iter().map(|one| one.handle.as_str()).collect()).collect();
        assert_eq!(handles, [vec!["web"], vec!["cache", "queue"], vec!["log"], vec!["sandbox"]]);
    }
}
