//! The fields of a service itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Aliases, AllowFrom, CronPolicy, DependsOn, JobPolicy, Kind, MinAvailable, Placement, PlacementProfile,
    PodSpec, Preemption, Priority, UpdatePolicy, Violation,
};
use crate::ids::{AppName, ServiceName};
use crate::network::ingress::{self, IngressRule};
use document::json_pointer;

/// The fields of a service besides its name, its number of replicas and what its pods are: as a user
/// describes them, and in normal form as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServiceFields {
    /// Labels for selecting and grouping services.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The app that the service belongs to; the name of the service must begin with it and `-`. `kubeleet
    /// apply` sets it for the services of a Compose file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "shop")]
    pub app: Option<AppName>,
    /// Other services that have to be started, healthy or completed before the containers of a pod are
    /// started for the first time, and again after its machine was down: a list of names, or a map of names
    /// to conditions. Within an app, the names are those in the app.
    #[serde(default, skip_serializing_if = "DependsOn::is_empty")]
    #[schema(example = json!({"db": "service_healthy"}))]
    pub depends_on: DependsOn,
    /// Access from outside the cluster, on every node with a proxy: requests for a host and path, or
    /// connections to a port, go to a port of the pods. No other service can have the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64, example = json!([{"host": "web.example", "port": 80}]))]
    pub ingress: Vec<IngressRule>,
    /// The services whose pods reach this one by name; without it all do. Its own pods always do, and
    /// `ingress` and `ports` are not concerned. Within an app, the names are those in the app, and
    /// `web.kubeleet` is the service `web` of no app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_from: Option<AllowFrom>,
    /// Further names by which the pods of the same app reach it, such as `database` or `db.internal`. Each
    /// belongs to one service of the app, and comes before the names of services.
    #[serde(default, skip_serializing_if = "Aliases::is_empty")]
    pub aliases: Aliases,
    /// How the pods are replaced when their specification changes: `order`, which is `stop-first` or
    /// `start-first`, `parallelism`, `max_surge`, `max_unavailable`, `canary`, `delay`, `monitor`,
    /// `deadline`, `max_failure_ratio`, `on_failure`, which is `pause`, `rollback` or `continue`, and
    /// `rollback`, which changes fields while the service goes back. Without it a quarter of them at a time,
    /// and a pod that does not become ready holds up the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"on_failure": "rollback"}))]
    pub update: Option<UpdatePolicy>,
    /// Rules for the nodes that run the pods: `constraints`, `preferences`, `spread`, `max_per_node`,
    /// `affinity` and `anti_affinity`. They hold when a pod is placed. A pod whose node no longer satisfies
    /// the constraints moves a minute later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"constraints": ["disk == ssd"]}))]
    pub placement: Option<Placement>,
    /// The placement profile: how the nodes that can run a pod are compared. Without it that of
    /// `KUBELEET_PLACEMENT_PROFILE`. A change of it moves no pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<PlacementProfile>,
    /// How many replicas stay in service while pods are moved to other nodes, as by a drain: a number, or a
    /// part of them in percent, rounded up. Without it as many as during an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<MinAvailable>,
    /// The higher, the earlier the pods are placed if there is not enough room for all: from -1000 to 1000,
    /// without it 0. Each second of waiting counts as one more. A change of it moves no pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Whether pods of services with a lower priority are stopped for a pod that fits nowhere: `lower`, which
    /// is the default for a `priority` above 0, or `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    /// How the pods of a job run: `completions`, `parallelism`, `backoff_limit`, `backoff`, `deadline` and
    /// `ttl`. Also of the jobs that a cron creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"completions": 10, "parallelism": 3}))]
    pub job: Option<JobPolicy>,
    /// When a cron creates a job: `schedule`, `time_zone`, `concurrency`, `catch_up`, `history` and
    /// `suspend`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"schedule": "30 2 * * *", "time_zone": "Europe/Berlin"}))]
    pub cron: Option<CronPolicy>,
}

impl ServiceFields {
    /// Only a service that names a port is known to listen on its machine.
    pub fn update_in_force(&self, pod: &PodSpec, with_machine_ports: bool) -> UpdatePolicy {
        let listens = !self.ingress.is_empty() || pod.containers.iter().any(|one| !one.ports.is_empty());
        UpdatePolicy::in_force(self.update.as_ref(), pod, with_machine_ports && listens)
    }

    /// Expands names of other services, and defaults of rules.
    pub(super) fn of_app(self) -> Self {
        let app = self.app.as_ref();
        Self {
            depends_on: self.depends_on.of_app(app),
            ingress: self.ingress.into_iter().map(IngressRule::normalize).collect(),
            allow_from: self.allow_from.map(|allowed| allowed.of_app(app)),
            placement: self.placement.map(|placement| placement.of_app(app)),
            ..self
        }
    }

    pub(super) fn violations(&self, name: &ServiceName, pod: &PodSpec) -> Vec<Violation> {
        // `kind_checks::violations` checks jobs and crons.
        let Self {
            labels,
            app,
            depends_on,
            ingress,
            allow_from,
            aliases,
            update,
            placement,
            scheduler: _,
            min_available: _,
            priority,
            preemption,
            job: _,
            cron: _,
        } = self;
        let mut violations = label_violations(labels);
        violations.extend(app.as_ref().and_then(|app| app_violation(app, name)));
        violations.extend(depends_on.service_violations(name));
        violations.extend(ingress::violations(ingress));
        violations.extend(allow_from.iter().flat_map(AllowFrom::violations));
        violations.extend(aliases.violations(name, app.as_ref()));
        violations.extend(update.iter().flat_map(|update| update.violations(pod)));
        violations.extend(placement.iter().flat_map(|placement| placement.violations(name)));
        if *preemption == Some(Preemption::Lower) && priority.unwrap_or_default().get() <= 0 {
            let why = "`lower` needs a `priority` above 0: pods are only stopped for those of a positive one";
            violations.push(Violation::new("/preemption", why));
        }
        violations
    }

    pub(super) fn normal(self, kind: Kind) -> Self {
        let job = (!kind.is_service()).then(|| self.job.unwrap_or_default());
        Self { aliases: self.aliases.normal(), job, ..self }
    }
}

fn label_violations(labels: &BTreeMap<String, String>) -> Vec<Violation> {
    let invalid = labels.iter().filter(|(key, value)| key.is_empty() || key.len() > 128 || value.len() > 256);
    invalid
        .map(|(key, _)| {
            let pointer = format!("/labels/{}", json_pointer::escape(key));
            Violation::new(pointer, "the key of a label has 1 to 128 bytes, its value at most 256 bytes")
        })
        .collect()
}

/// Within its app a service is called by its short name.
fn app_violation(app: &AppName, name: &ServiceName) -> Option<Violation> {
    app.short_name(name).is_none().then(|| {
        Violation::new(
            "/app",
            format!("the name of a service of app {app} begins with {app}-, but this is {name}"),
        )
    })
}
