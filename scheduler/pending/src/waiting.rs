//! The classes of pods that fit no node, and which of them fit by now.
//!
//! Pods of one class fit the same nodes, whatever happens to nodes and services: one that fits speaks for
//! all. So the pods of a service that may change for itself what they need are of other classes.
//!
//! Tests: beside the code, scheduler::tests::waking

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use model::RedisMillis;
use model::pod::Refusal;
use model::spec::PlacementProfile;
use placement::{ClusterSnapshot, PlacementPolicy, Requirements, count_fitting};
use store::{Store, StoreError, UnschedulableClass};

use crate::intake::{Intake, PendingPod};
use crate::priorities::{urgency, waited_seconds};
use crate::services::read_rules;

/// The number of pods of a class that each look wakes although they fit nowhere, if pods of a lower priority
/// may be stopped for them.
const PREEMPTING_PODS: usize = 10;

/// The class of a pod whose service was read. Another build may name classes otherwise: they are looked at
/// once more.
pub fn class_of(pod: &PendingPod) -> String {
    let Requirements {
        request,
        needs_only_image,
        host_ports,
        named,
        host,
        needs_shared_directory,
        needs_newest_form,
        rules,
        zone: _,
        profile,
        volumes: _,
    } = &pod.request.requirements;
    let mut hasher = DefaultHasher::new();
    (request.cpu_millis, request.memory_bytes, request.pids, request.disk_bytes).hash(&mut hasher);
    (needs_only_image, host_ports, named, host).hash(&mut hasher);
    (needs_shared_directory, needs_newest_form, rules, profile).hash(&mut hasher);
    (pod.priority.get(), pod.preempts).hash(&mut hasher);
    let has_own_node = pod.request.ordinal.is_some() || pod.is_global();
    let may_change = rules.is_some() || *profile != PlacementProfile::Default;
    if has_own_node || may_change {
        pod.request.name().hash(&mut hasher);
    }
    if has_own_node {
        pod.payload.replica.hash(&mut hasher);
    }
    for claim in &pod.volumes {
        claim.name.as_str().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// Pods of a class that are about to be woken.
#[derive(Debug, Clone)]
pub struct ClassLook<'a> {
    pub class: &'a UnschedulableClass,
    pub wakes: usize,
    /// If none of them fits.
    pub refusals: Option<Arc<[Refusal]>>,
}

/// Returns how many pods of each class fit at `now`, by what `snapshot` knows of the nodes and Redis of the
/// services and volumes. A class whose example has another one by now counts with all its pods.
///
/// # Errors
/// Only transient ones: a class whose example is unreadable is left out.
pub async fn look_at_classes<'a>(
    store: &Store,
    snapshot: &mut ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    classes: &'a [UnschedulableClass],
    max: usize,
) -> Result<Vec<ClassLook<'a>>, StoreError> {
    let mut intake = Intake::read(store, classes.iter().map(|class| class.example.clone()).collect()).await?;
    snapshot.set_placed(read_rules(store, profile, &mut intake.pending).await?);
    let by_example: HashMap<&Bytes, &UnschedulableClass> =
        classes.iter().map(|class| (&class.example, class)).collect();
    let examples = intake.pending.iter().filter_map(|pod| Some((pod, *by_example.get(&pod.payload.raw)?)));
    let (mut current, outdated): (Vec<_>, Vec<_>) =
        examples.partition(|(pod, class)| class_of(pod) == class.class);
    current.sort_by_key(|(pod, class)| {
        let waited = waited_seconds(class.since, now);
        (Reverse(urgency(pod.priority, waited)), class.since)
    });
    let requests: Vec<_> = current.iter().map(|(pod, class)| (&pod.request, class.pods)).collect();
    let fitting = count_fitting(snapshot, now, policy, &requests, max);
    let counts: Vec<usize> = fitting.iter().map(|fitting| *fitting.as_ref().unwrap_or(&0)).collect();
    let woken = woken(&current, &counts);
    let looks = current.iter().zip(woken).zip(fitting);
    let looks =
        looks.map(|(((_, class), wakes), fitting)| ClassLook { class, wakes, refusals: fitting.err() });
    let outdated = outdated.iter().map(|(_, class)| {
        let wakes = class.pods.min(max);
        ClassLook { class, wakes, refusals: None }
    });
    Ok(looks.chain(outdated).collect())
}

/// Returns how many pods of each class are woken. With those of a class that fits, others of a higher
/// priority that fit too, for a batch decides which of them get the room.
fn woken(classes: &[(&PendingPod, &UnschedulableClass)], fitting: &[usize]) -> Vec<usize> {
    let below = |priority| {
        let lower = classes.iter().zip(fitting).filter(|((pod, _), _)| pod.priority < priority);
        lower.map(|(_, fitting)| fitting).sum::<usize>()
    };
    let of_class = |((pod, class), fitting): (&(&PendingPod, &UnschedulableClass), &usize)| {
        let least = if pod.preempts { PREEMPTING_PODS } else { 0 };
        let all = if *fitting > 0 { fitting.saturating_add(below(pod.priority)) } else { 0 };
        all.max(least).min(class.pods)
    };
    classes.iter().zip(fitting).map(of_class).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use model::ids::{NodeName, SpecId};
    use model::pod::payload::Payload;
    use model::spec::ServiceInput;
    use placement::{NodeRules, Target};
    use serde_json::json;

    use super::*;
    use crate::intake::pending_pod;

    fn pod(service: &str, replica: u32, mut input: serde_json::Value) -> PendingPod {
        (input["name"], input["image"]) = (service.into(), "nginx".into());
        let spec = ServiceInput::from_value(&input).unwrap().normalize().unwrap().pod;
        let (id, spec_id) = (format!("{service}-{replica}").parse().unwrap(), SpecId::random());
        let name = service.parse().unwrap();
        let payload = Payload::for_service(name, id, "nginx", replica, spec_id);
        pending_pod(payload, &spec, Some(service.parse().unwrap()))
    }

    #[test]
    fn pods_have_one_class_if_nothing_can_make_one_fit_and_not_the_other() {
        let memory = |mebibytes: u64| json!({"memory": format!("{mebibytes}MiB")});
        let plain = |service, replica| pod(service, replica, memory(50));
        let with = |service, change: fn(&mut PendingPod)| {
            let mut pod = plain(service, 0);
            change(&mut pod);
            pod
        };
        let ruled: fn(&mut PendingPod) = |pod| {
            let constraints = vec!["disk == ssd".parse().unwrap()];
            let rules = NodeRules { constraints, ..NodeRules::default() };
            pod.request.requirements.rules = Some(Arc::new(rules));
        };
        let profiled: fn(&mut PendingPod) = |pod| pod.request.requirements.profile = PlacementProfile::Greedy;
        let planned: fn(&mut PendingPod) =
            |pod| pod.request.target = Some(Target::Planned(NodeName::new("a").unwrap()));
        let global: fn(&mut PendingPod) = |pod| pod.request.target = Some(Target::Nowhere);
        assert_eq!(class_of(&plain("web", 0)), class_of(&plain("db", 7)));
        assert_eq!(class_of(&plain("web", 0)), class_of(&with("web", planned)));
        assert_eq!(class_of(&with("web", ruled)), class_of(&with("web", ruled)));
        let stateful = json!({"memory": "50MiB", "stateful": true});
        let volume = json!({"memory": "50MiB", "volumes": ["data:/data"]});
        let different = [
            plain("web", 0),
            pod("web", 0, memory(60)),
            pod("web", 0, json!({"memory": "50MiB", "cpus": 1})),
            with("web", ruled),
            with("db", ruled),
            with("web", profiled),
            with("db", profiled),
            with("web", global),
            pod("web", 0, stateful.clone()),
            pod("web", 1, stateful),
            pod("web", 0, volume.clone()),
            pod("web", 1, volume),
        ];
        let classes: BTreeSet<String> = different.iter().map(class_of).collect();
        assert_eq!(classes.len(), different.len(), "{classes:?}");
        assert!(classes.iter().all(|class| !class.contains(' ') && class.len() == 16));
    }
}
