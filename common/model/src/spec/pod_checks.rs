//! Rules among the containers of a pod.

use std::collections::BTreeSet;

use super::{ContainerSpec, PodSpec, RestartPolicy, StartCondition, Violation, circle};
use crate::ids::ContainerName;

pub(super) const MAX_CONTAINERS: usize = 16;

impl PodSpec {
    /// Pointers are below `/containers`.
    pub fn containers_violations(&self) -> Vec<Violation> {
        let containers = &self.containers;
        let number = match containers.len() {
            0 => Some("a pod has at least one container".to_owned()),
            1..=MAX_CONTAINERS => None,
            more => Some(format!("a pod has at most {MAX_CONTAINERS} containers, not {more}")),
        };
        let only_sidecars = !containers.is_empty() && containers.iter().all(|container| container.sidecar);
        let only_sidecars = only_sidecars.then(|| "not all containers of a pod can be sidecars".to_owned());
        let of_list = number.into_iter().chain(only_sidecars);
        let mut violations: Vec<Violation> =
            of_list.map(|detail| Violation::new("/containers", detail)).collect();
        violations.extend(self.name_violations());
        violations.extend(self.dependency_violations());
        violations.extend(self.shared_volume_violations());
        violations.extend(self.hostname_violations());
        violations
    }

    fn name_violations(&self) -> Vec<Violation> {
        let mut names = BTreeSet::new();
        let problem = |container: &ContainerSpec| match &container.name {
            Some(name) if !names.insert(name.clone()) => Some(format!("another container is named {name}")),
            None if self.containers.len() > 1 => {
                Some("each of several containers needs a name, such as `cache`".to_owned())
            }
            Some(_) | None => None,
        };
        let problems = self.containers.iter().map(problem);
        let indexed = problems.enumerate().filter_map(|(index, problem)| Some((index, problem?)));
        indexed.map(|(index, problem)| Violation::new(format!("/containers/{index}/name"), problem)).collect()
    }

    fn hostname_violations(&self) -> Vec<Violation> {
        let several = self.containers.iter().enumerate().filter(|_| self.containers.len() > 1);
        several
            .filter(|(_, container)| container.hostname.is_some())
            .map(|(index, _)| {
                let detail = "the containers of a pod share the name of its sandbox: leave it out";
                Violation::new(format!("/containers/{index}/hostname"), detail)
            })
            .collect()
    }

    fn dependency_violations(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (index, container) in self.containers.iter().enumerate() {
            let problems = container.depends_on.iter().filter_map(|(name, condition)| {
                let problem = match self.container(name) {
                    None => self.unknown_container(name),
                    Some(other) => never_true(name, other, condition)?,
                };
                Some(Violation::new(format!("/containers/{index}/depends_on"), problem))
            });
            violations.extend(problems);
        }
        let names: Vec<&str> =
            self.containers.iter().filter_map(|c| c.name.as_ref()).map(ContainerName::as_str).collect();
        let needs = |name: &str| {
            let container = self.container(name);
            container
                .into_iter()
                .flat_map(|container| container.depends_on.iter())
                .map(|(name, _)| name)
                .collect()
        };
        if let Some(circle) = circle(&names, needs) {
            let first = circle.first().copied().unwrap_or_default();
            let detail = format!("a circle: {} -> {first}; none of them could start", circle.join(" -> "));
            let index =
                self.containers.iter().position(|c| c.name.as_ref().is_some_and(|n| n.as_str() == first));
            let pointer = format!("/containers/{}/depends_on", index.unwrap_or_default());
            violations.push(Violation::new(pointer, detail));
        }
        violations
    }

    fn container(&self, name: &str) -> Option<&ContainerSpec> {
        let has_name = |one: &&ContainerSpec| one.name.as_ref().is_some_and(|own| own.as_str() == name);
        self.containers.iter().find(has_name)
    }

    fn unknown_container(&self, name: &str) -> String {
        let names: Vec<&str> =
            self.containers.iter().filter_map(|c| c.name.as_ref()).map(ContainerName::as_str).collect();
        format!("the pod has no container {name:?}; it has {}", names.join(", "))
    }
}

fn never_true(name: &str, other: &ContainerSpec, condition: StartCondition) -> Option<String> {
    match condition {
        StartCondition::ServiceCompletedSuccessfully if other.restart == RestartPolicy::Always => {
            Some(format!(
                "{name} never completes, because it is restarted whenever it ends: give it `restart: on-failure`"
            ))
        }
        StartCondition::ServiceHealthy
            if other.healthcheck.as_ref().is_some_and(|check| check.method().is_none()) =>
        {
            Some(format!("{name} has its health check disabled: use the condition `service_started`"))
        }
        // The image may have a check.
        StartCondition::ServiceHealthy
        | StartCondition::ServiceCompletedSuccessfully
        | StartCondition::ServiceStarted => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::ServiceInput;

    fn problems(containers: &str) -> Vec<String> {
        let text = format!(r#"{{"name":"web","containers":{containers}}}"#);
        let input = ServiceInput::from_value(&serde_json::from_str(&text).unwrap()).unwrap();
        match input.normalize() {
            Ok(_) => Vec::new(),
            Err(violations) => violations.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn several_containers_need_names_and_conditions_that_can_hold() {
        let table = [
            (r#"[{"image":"a"}]"#, ""),
            (r#"[{"image":"a","name":"a"},{"image":"b","name":"b"}]"#, ""),
            (r#"[{"image":"a","name":"a"},{"image":"b"}]"#, "/containers/1/name: each of several containers"),
            (r#"[{"image":"a","name":"a"},{"image":"b","name":"a"}]"#, "another container is named a"),
            ("[]", "at least one container"),
            (r#"[{"image":"a","name":"a","sidecar":true}]"#, "not all containers of a pod can be sidecars"),
            (
                r#"[{"image":"a","name":"a","depends_on":["x"]}]"#,
                "/containers/0/depends_on: the pod has no container \"x\"; it has a",
            ),
            (
                r#"[{"image":"a","name":"a","depends_on":["b"]},{"image":"b","name":"b","depends_on":["a"]}]"#,
                "a circle: a -> b -> a",
            ),
            (
                r#"[{"image":"a","name":"a","depends_on":{"b":"completed_successfully"}},{"image":"b","name":"b"}]"#,
                "b never completes",
            ),
        ];
        for (containers, expected) in table {
            let problems = problems(containers).join("; ");
            assert_eq!(problems.is_empty(), expected.is_empty(), "{containers}: {problems}");
            assert!(problems.contains(expected), "{containers}: {problems}");
        }
    }
}
