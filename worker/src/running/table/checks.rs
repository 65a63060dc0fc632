//! The checks of a container and their results.

use std::sync::Arc;

use daemon::clock::BootInstant;
use model::pod::health::Health;
use model::spec::{CheckTiming, ContainerSpec, HealthCheck, ProbeMethod};

use super::reasons::{NOT_READY, STARTING, UNHEALTHY};
use health::{CheckChange, CheckKind, ContainerCheck, HealthChange};

#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerChecks {
    healthcheck: Option<CheckState>,
    readiness: Option<CheckState>,
}

#[derive(Debug, Clone)]
struct CheckState {
    check: Arc<(ProbeMethod, CheckTiming)>,
    health: Health,
    message: String,
    /// Empty if nothing is wrong.
    failing: String,
    /// Empty while probes are conclusive.
    inconclusive: String,
}

impl CheckState {
    fn of(check: Option<&HealthCheck>) -> Option<Self> {
        let check = check?;
        let check = Arc::new((check.method()?, check.timing()));
        let (message, failing, inconclusive) = (String::new(), String::new(), String::new());
        Some(Self { check, health: Health::Starting, message, failing, inconclusive })
    }

    fn set(&mut self, health: Health, message: &str) {
        (self.health, self.message) = (health, message.to_owned());
        (self.failing, self.inconclusive) = (String::new(), String::new());
    }

    fn sentence(&self) -> String {
        let parts = [&self.message, &self.inconclusive].into_iter().filter(|part| !part.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

impl ContainerChecks {
    /// `of_image` applies if the specification has no health check, or only its times.
    pub(crate) fn of(spec: &ContainerSpec, of_image: Option<&HealthCheck>) -> Self {
        let healthcheck = match (&spec.healthcheck, of_image) {
            (Some(own), Some(of_image)) if own.has_only_times() => Some(own.of_image_with_times(of_image)),
            (Some(own), _) => Some(own.clone()),
            (None, of_image) => of_image.cloned(),
        };
        Self {
            healthcheck: CheckState::of(healthcheck.as_ref()),
            readiness: CheckState::of(spec.readiness.as_ref()),
        }
    }

    pub(crate) fn exist(&self) -> bool {
        self.healthcheck.is_some() || self.readiness.is_some()
    }

    pub(crate) fn health(&self) -> Option<Health> {
        self.healthcheck.as_ref().map(|state| state.health)
    }

    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        let states = [(UNHEALTHY, &self.healthcheck), (NOT_READY, &self.readiness)];
        let of = |health: Health| {
            let found =
                states.iter().find(|(_, state)| state.as_ref().is_some_and(|state| state.health == health));
            found.and_then(|(reason, state)| Some((*reason, state.as_ref()?.sentence())))
        };
        let starting = || of(Health::Starting).map(|_| (STARTING, self.pending()));
        of(Health::Unhealthy).or_else(starting)
    }

    pub(crate) fn inconclusive(&self) -> Option<String> {
        let mut states = [&self.healthcheck, &self.readiness].into_iter().flatten();
        states.find(|state| !state.inconclusive.is_empty()).map(|state| state.inconclusive.clone())
    }

    fn pending(&self) -> String {
        let what = "waiting for its health check to pass";
        let mut states = [&self.healthcheck, &self.readiness].into_iter().flatten();
        let failing = states.find(|state| !state.failing.is_empty()).map(|state| state.failing.clone());
        let why = self.inconclusive().or(failing);
        why.map_or_else(|| what.to_owned(), |why| format!("{what}: {why}"))
    }

    pub(crate) fn set_all(&mut self, health: Health) {
        for state in [&mut self.healthcheck, &mut self.readiness].into_iter().flatten() {
            state.set(health, "");
        }
    }

    pub(crate) fn note(&mut self, change: &HealthChange) {
        let state = match change.kind {
            CheckKind::Healthcheck => &mut self.healthcheck,
            CheckKind::Readiness => &mut self.readiness,
        };
        let Some(state) = state else { return };
        match change.change {
            CheckChange::Health => state.set(change.health, &change.message),
            CheckChange::Inconclusive => state.inconclusive.clone_from(&change.message),
            CheckChange::Conclusive => state.inconclusive.clear(),
            CheckChange::Failing => state.failing.clone_from(&change.message),
        }
    }

    pub(crate) fn to_probe(
        &self,
        handle: &str,
        address: Option<std::net::IpAddr>,
        started: BootInstant,
    ) -> Vec<ContainerCheck> {
        let states = [(CheckKind::Healthcheck, &self.healthcheck), (CheckKind::Readiness, &self.readiness)];
        let check = |(kind, state): (CheckKind, &Option<CheckState>)| {
            let state = state.as_ref()?;
            let (method, timing) = (*state.check).clone();
            let (handle, health) = (handle.to_owned(), state.health);
            Some(ContainerCheck { handle, kind, method, timing, address, started, health })
        };
        states.into_iter().filter_map(check).collect()
    }
}
