//! Conditions for the start of a service's pods. Pure.

use std::collections::BTreeMap;

use super::{DependsOn, StartCondition, Violation, circle};
use crate::ids::{AppName, ServiceName};
use crate::pod::PodRecord;
use crate::pod::lifecycle::Phase;
use document::json_pointer;

const MAX_DEPENDENCIES: usize = 32;

/// With these reasons a pod runs.
const RUNS_WITH: [&str; 5] = ["", "Starting", "NotReady", "Unhealthy", "Restarted"];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceProgress {
    pub wanted: u32,
    /// Running, ready or not.
    pub started: u32,
    pub ready: u32,
    /// Complete indices of the current generation.
    pub completed: u32,
    /// Indices of the current generation that have failed for good.
    pub failed: u32,
}

impl ServiceProgress {
    /// `is_current` is false if the record is older than its machine's last start.
    pub fn add(&mut self, record: &PodRecord, generation: u64, is_current: bool) {
        let is_new = record.generation == generation;
        match record.phase {
            Phase::Running if is_current && RUNS_WITH.contains(&record.reason.as_str()) => {
                self.started += 1;
                self.ready += u32::from(record.reason.is_empty());
            }
            Phase::Succeeded => {
                self.started += 1;
                self.completed += u32::from(is_new);
            }
            Phase::Failed => self.failed += u32::from(is_new),
            Phase::Pending | Phase::Assigned | Phase::Running | Phase::Stopping | Phase::Stopped => {}
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    pub service: String,
    pub condition: StartCondition,
    /// `None` if it does not exist or is being deleted.
    pub progress: Option<ServiceProgress>,
}

impl Dependency {
    /// One started or ready pod is enough, but all must complete. A service without desired pods meets every
    /// condition.
    pub fn obstacle(&self) -> Option<String> {
        let name = &self.service;
        let Some(progress) = self.progress else {
            return Some(format!(
                "waits for service {name}, which does not exist: create it, or take it out of depends_on"
            ));
        };
        let ServiceProgress { wanted, started, ready, completed, failed } = progress;
        let (is_met, count, word) = match self.condition {
            StartCondition::ServiceStarted => (started > 0, started, "started"),
            StartCondition::ServiceHealthy => (ready > 0, ready, "ready"),
            StartCondition::ServiceCompletedSuccessfully => (completed >= wanted, completed, "completed"),
        };
        if is_met || wanted == 0 {
            return None;
        }
        let hint = match failed > 0 {
            true => format!(", {failed} failed: see `kubeleet logs {name}`, then `kubeleet restart {name}`"),
            false => String::new(),
        };
        Some(format!("waits for service {name}: {count} of {wanted} {word}{hint}"))
    }
}

impl DependsOn {
    pub fn services(&self) -> impl Iterator<Item = ServiceName> {
        self.0.keys().filter_map(|name| ServiceName::new(name.as_str()).ok())
    }

    /// Within an app, short names mean its services.
    pub(super) fn of_app(self, app: Option<&AppName>) -> Self {
        let Some(app) = app else { return self };
        let whole = |name: String| match ServiceName::new(name.as_str()) {
            Ok(service) if app.short_name(&service).is_some() => name,
            _ => format!("{app}-{name}"),
        };
        Self(self.0.into_iter().map(|(name, condition)| (whole(name), condition)).collect())
    }

    pub(super) fn service_violations(&self, service: &ServiceName) -> Vec<Violation> {
        let too_many = (self.0.len() > MAX_DEPENDENCIES).then(|| {
            Violation::new("/depends_on", format!("a service depends on at most {MAX_DEPENDENCIES} others"))
        });
        let problem = |name: &String| match ServiceName::new(name.as_str()) {
            Err(error) => Some(error.to_string()),
            Ok(other) if other == *service => Some(format!("a circle: {service} -> {service}")),
            Ok(_) => None,
        };
        let problems = self.0.keys().filter_map(|name| {
            Some(Violation::new(format!("/depends_on/{}", json_pointer::escape(name)), problem(name)?))
        });
        too_many.into_iter().chain(problems).collect()
    }
}

/// For example `shop-web -> shop-db -> shop-web`. `known` has the others' dependencies.
pub fn circle_with(service: &str, needs: &DependsOn, known: &BTreeMap<String, DependsOn>) -> Option<String> {
    let of_one = |name: &str| -> Vec<&str> {
        let own = if name == service { Some(needs) } else { known.get(name) };
        own.into_iter().flat_map(|own| own.0.keys().map(String::as_str)).collect()
    };
    let found = circle(&[service], of_one)?;
    // Circles among other services are not this one's.
    let at = found.iter().position(|name| *name == service)?;
    let path: Vec<&str> = found[at..].iter().chain(&found[..at]).copied().collect();
    Some(format!("{} -> {service}", path.join(" -> ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn needs(json: &str) -> DependsOn {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_condition_holds_or_says_what_is_missing() {
        use StartCondition::{ServiceCompletedSuccessfully, ServiceHealthy, ServiceStarted};
        let of = |wanted, started, ready, completed, failed| {
            Some(ServiceProgress { wanted, started, ready, completed, failed })
        };
        for (condition, progress, expected) in [
            (ServiceStarted, of(1, 0, 0, 0, 0), "waits for service db: 0 of 1 started"),
            (ServiceStarted, of(3, 1, 0, 0, 0), ""),
            (ServiceHealthy, of(1, 1, 0, 0, 0), "waits for service db: 0 of 1 ready"),
            (ServiceHealthy, of(3, 3, 1, 0, 0), ""),
            (ServiceCompletedSuccessfully, of(2, 2, 0, 1, 0), "waits for service db: 1 of 2 completed"),
            (ServiceCompletedSuccessfully, of(2, 0, 0, 2, 0), ""),
            (ServiceHealthy, of(0, 0, 0, 0, 0), ""),
            (ServiceHealthy, None, "waits for service db, which does not exist: create it, or take it"),
            (
                ServiceCompletedSuccessfully,
                of(1, 0, 0, 0, 1),
                "waits for service db: 0 of 1 completed, 1 failed: see `kubeleet logs db`",
            ),
        ] {
            let dependency = Dependency { service: "db".to_owned(), condition, progress };
            let found = dependency.obstacle().unwrap_or_default();
            assert_eq!(found.is_empty(), expected.is_empty(), "{condition:?} {progress:?}: {found}");
            assert!(found.starts_with(expected), "{condition:?} {progress:?}: {found}");
        }
    }

    #[test]
    fn within_an_app_services_are_called_by_their_short_or_whole_names() {
        let app: AppName = "shop".parse().unwrap();
        let whole = needs(r#"["db","shop-cache"]"#).of_app(Some(&app));
        assert_eq!(whole, needs(r#"["shop-cache","shop-db"]"#));
        assert_eq!(needs(r#"["db"]"#).of_app(None), needs(r#"["db"]"#));
    }

    #[test]
    fn a_circle_is_found_with_its_path() {
        let known = BTreeMap::from([
            ("db".to_owned(), needs(r#"["cache"]"#)),
            ("cache".to_owned(), needs(r#"["web"]"#)),
            ("x".to_owned(), needs(r#"["y"]"#)),
            ("y".to_owned(), needs(r#"["x"]"#)),
        ]);
        for (service, on, expected) in [
            ("web", r#"["db"]"#, Some("web -> db -> cache -> web")),
            ("web", r#"["other"]"#, None),
            ("web", r#"["x"]"#, None),
        ] {
            assert_eq!(circle_with(service, &needs(on), &known).as_deref(), expected, "{on}");
        }
    }
}
