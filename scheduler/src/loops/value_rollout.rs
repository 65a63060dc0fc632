//! Restarts the services that use a changed secret or config. The script compares times, so two schedulers
//! restart a service once.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use model::ids::{SchedulerId, ServiceName};
use model::service::{Service, ServiceState};
use model::spec::{ContainerSpec, OnChange};
use model::value::ValueKind;
use store::{RestartOutcome, Store, StoreError, ValueRollout, ValueRolloutNote};

use crate::context::SchedulerContext;

const CHECK_INTERVAL: Duration = Duration::from_secs(2);
const LEASE_TIME: Duration = Duration::from_secs(8);

pub(crate) struct ValueRolloutLoop {
    store: Store,
    id: SchedulerId,
    /// Services that wait because a key is broken. Only they are retried: with a clock that is behind, the
    /// script would restart the others again.
    unfinished: HashMap<ValueRolloutNote, BTreeSet<ServiceName>>,
}

impl Loop<StoreError> for ValueRolloutLoop {
    /// Also the name of the lease.
    const NAME: &'static str = "rollout";

    async fn step(&mut self) -> Result<Next, StoreError> {
        // Usually none: one command is all.
        let notes = self.store.value_rollout_notes().await?;
        self.unfinished.retain(|note, _| notes.contains(note));
        if notes.is_empty() || !self.store.lease(Self::NAME, &self.id, LEASE_TIME).await? {
            return Ok(Next::Rest);
        }
        let names = self.names_to_read(&notes).await?;
        let (services, unreadable) = self.store.services(&names).await?.separate(&names);
        for note in &notes {
            self.roll_out(note, &services, &unreadable).await?;
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(CHECK_INTERVAL).await;
        Ok(())
    }
}

impl ValueRolloutLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self { store: context.store.clone(), id: context.id.clone(), unfinished: HashMap::new() }
    }

    /// All if one of the notes is new.
    async fn names_to_read(&self, notes: &[ValueRolloutNote]) -> Result<Vec<ServiceName>, StoreError> {
        if notes.iter().any(|note| !self.unfinished.contains_key(note)) {
            return self.store.service_names().await;
        }
        let names: BTreeSet<&ServiceName> = self.unfinished.values().flatten().collect();
        Ok(names.into_iter().cloned().collect())
    }

    /// Removes the note last: if this scheduler dies, the next one continues. A broken key keeps it.
    async fn roll_out(
        &mut self,
        note: &ValueRolloutNote,
        services: &[Service],
        unreadable: &[(ServiceName, StoreError)],
    ) -> Result<(), StoreError> {
        let Some(rollout) = note.rollout() else { return self.store.forget_value_rollout(note).await };
        let ValueRollout { kind, name: value, version, .. } = &rollout;
        let before = self.unfinished.get(note);
        let is_due = |name: &ServiceName| before.is_none_or(|names| names.contains(name));
        let unreadable = unreadable.iter().filter(|(name, _)| is_due(name));
        let mut broken: Vec<(&ServiceName, String)> =
            unreadable.map(|(name, error)| (name, error.to_string())).collect();
        for service in services.iter().filter(|one| is_due(&one.name) && is_restarted(one, &rollout)) {
            let name = &service.name;
            match self.store.restart_for(name, &rollout).await {
                Ok(RestartOutcome::Restarted { generation }) => {
                    tracing::info!(service = %name, generation, "{kind} {value} has version {version}: pods are replaced");
                }
                Ok(_) => {}
                Err(error) if error.is_broken_key() => broken.push((name, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        if broken.is_empty() {
            return self.store.forget_value_rollout(note).await;
        }
        if before.is_none() {
            for (service, error) in &broken {
                tracing::warn!(
                    %service,
                    "{kind} {value} has version {version}, but this service cannot be restarted: {error}; \
                     fix the key, and it is restarted if it uses the {kind}"
                );
            }
        }
        let names = broken.into_iter().map(|(name, _)| name.clone()).collect();
        self.unfinished.insert(note.clone(), names);
        Ok(())
    }
}

/// The pods of a job would run again.
fn is_restarted(service: &Service, rollout: &ValueRollout) -> bool {
    let containers = &service.pod.containers;
    let uses = |container: &ContainerSpec| {
        let files = match rollout.kind {
            ValueKind::Secret => &container.secrets,
            ValueKind::Config => &container.configs,
        };
        files.iter().any(|file| file.source == rollout.name && file.on_change() == OnChange::Restart)
    };
    service.state == ServiceState::Active
        && service.pod.restarts_always().is_some()
        && containers.iter().any(uses)
}

#[cfg(test)]
mod tests {
    use model::ids::ValueName;
    use serde_json::json;
    use testkit::fixtures;

    use super::*;

    #[test]
    fn services_that_use_a_value_are_restarted_but_jobs_and_those_that_do_not_want_it() {
        let rollout = |kind| ValueRollout { kind, name: ValueName::new("db").unwrap(), version: 2, at: 1 };
        let (secret, config) = (rollout(ValueKind::Secret), rollout(ValueKind::Config));
        let silent = json!([{"source": "db", "on_change": "none"}]);
        let loud = json!([{"source": "db", "on_change": "restart"}]);
        for (fields, by_secret, by_config) in [
            (json!({}), false, false),
            (json!({"secrets": ["db"]}), true, false),
            (json!({"configs": ["db"]}), false, true),
            (json!({"secrets": ["other"]}), false, false),
            (json!({"secrets": [{"source": "db", "on_change": "signal"}]}), false, false),
            (json!({"secrets": silent, "configs": loud}), false, true),
            (json!({"secrets": ["db"], "restart": "on-failure"}), false, false),
            (json!({"secrets": ["db"], "restart": "never"}), false, false),
        ] {
            let mut service = fixtures::service();
            let mut container = json!({"image": "web"});
            container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            service.pod.containers = vec![serde_json::from_value(container).unwrap()];
            assert_eq!(
                (is_restarted(&service, &secret), is_restarted(&service, &config)),
                (by_secret, by_config),
                "{fields}"
            );
            service.state = ServiceState::Deleting;
            assert!(!is_restarted(&service, &secret) && !is_restarted(&service, &config), "{fields}");
        }
    }

    #[test]
    fn a_sidecar_does_not_have_a_finite_container_run_again() {
        let change =
            ValueRollout { kind: ValueKind::Config, name: ValueName::new("db").unwrap(), version: 2, at: 1 };
        for (restart, expected) in [("never", false), ("on-failure", false), ("always", true)] {
            let mut service = fixtures::service();
            let containers = json!([
                {"name": "main", "image": "web", "restart": restart, "configs": ["db"]},
                {"name": "log", "image": "log", "sidecar": true, "configs": ["db"]},
            ]);
            service.pod.containers = serde_json::from_value(containers).unwrap();
            assert_eq!(is_restarted(&service, &change), expected, "{restart}");
        }
    }
}
