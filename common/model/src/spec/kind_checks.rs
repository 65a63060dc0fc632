//! Fields that contradict the kind of a service, or `mode: global`.

use super::container::RestartPolicy;
use super::job::{CronPolicy, JobPolicy};
use super::kind::Kind;
use super::placement::Placement;
use super::pod::PodSpec;
use super::service_fields::ServiceFields;
use super::violation::Violation;
use crate::ids::ServiceName;

/// Its jobs append a time, and are host names.
pub const MAX_CRON_NAME: usize = 52;

pub(super) fn violations(
    name: &ServiceName,
    replicas: u32,
    fields: &ServiceFields,
    pod: &PodSpec,
) -> Vec<Violation> {
    // Jobs and services share the first seven.
    let ServiceFields {
        labels: _,
        app: _,
        depends_on: _,
        placement: _,
        scheduler: _,
        priority: _,
        preemption: _,
        ingress,
        allow_from,
        aliases,
        update,
        min_available,
        job,
        cron,
    } = fields;
    let kind = pod.kind;
    let mut found = Vec::new();
    let mut refuse = |is_wrong: bool, field: &str, why: &str| {
        if is_wrong {
            found.push(Violation::new(format!("/{field}"), why));
        }
    };
    refuse(kind.is_service() && job.is_some(), "job", "needs `kind: job` or `kind: cron`");
    refuse(kind != Kind::Cron && cron.is_some(), "cron", "needs `kind: cron`");
    refuse(
        kind == Kind::Cron && cron.is_none(),
        "cron",
        "is missing: a cron needs at least its `schedule`, such as `cron: {schedule: \"30 2 * * *\"}`",
    );
    let is_long = kind == Kind::Cron && name.as_str().len() > MAX_CRON_NAME;
    refuse(is_long, "name", "the name of a cron has at most 52 characters: its jobs have a time behind it");
    if kind.is_service() {
        return found;
    }
    refuse(
        replicas != 1,
        "replicas",
        "is for services; how many pods a job has in all and at a time is in `job.completions` and `job.parallelism`",
    );
    refuse(!ingress.is_empty(), "ingress", "is for services: the pods of a job end");
    let nameless = "is for services: the pods of a job have no name that leads to them";
    refuse(allow_from.is_some(), "allow_from", nameless);
    refuse(!aliases.is_empty(), "aliases", nameless);
    refuse(pod.stateful.is_some(), "stateful", "is for services: the pods of a job end");
    refuse(update.is_some(), "update", "is for services: the pods of a job are not replaced");
    refuse(min_available.is_some(), "min_available", "is for services: the pods of a job are not moved");
    let endless = pod.containers.iter().position(|one| !one.sidecar && one.restart != RestartPolicy::Never);
    if let Some(index) = endless {
        let pointer = if pod.containers.len() == 1 {
            "/restart".into()
        } else {
            format!("/containers/{index}/restart")
        };
        let why = "must be `never`, or left out: a job tries again itself what has failed, up to `job.backoff_limit`";
        found.push(Violation::new(pointer, why));
    }
    found.extend(job.iter().flat_map(JobPolicy::violations));
    found.extend(cron.iter().flat_map(CronPolicy::violations));
    found
}

/// Refuses fields about a number of pods for a global service.
pub(super) fn global_violations(replicas: u32, fields: &ServiceFields, pod: &PodSpec) -> Vec<Violation> {
    if !pod.mode.is_global() {
        return Vec::new();
    }
    let Placement { constraints: _, preferences: _, spread, max_per_node, affinity, anti_affinity } =
        fields.placement.clone().unwrap_or_default();
    let one_each = "a global service has one pod on each eligible node: leave it out";
    let wrong = [
        (!pod.kind.is_service(), "/mode", "is for services: a job has a number of completions"),
        (pod.kind.is_service() && replicas != 1, "/replicas", one_each),
        (pod.stateful.is_some(), "/stateful", "the pods of a global service are known by their nodes"),
        (!spread.is_empty(), "/placement/spread", one_each),
        (max_per_node.is_some(), "/placement/max_per_node", one_each),
        (!affinity.is_empty(), "/placement/affinity", one_each),
        (!anti_affinity.is_empty(), "/placement/anti_affinity", one_each),
    ];
    let wrong = wrong.into_iter().filter(|(is_wrong, ..)| *is_wrong);
    wrong.map(|(_, pointer, why)| Violation::new(pointer, why)).collect()
}
