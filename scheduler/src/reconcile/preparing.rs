//! Before a pod is stopped whose successor cannot start beside it, the next node must have the image, and the
//! dependencies must be ready. Otherwise a typo in a tag would take down running pods.

use std::collections::BTreeMap;
use std::time::Duration;

use model::RedisMillis;
use model::ids::NodeName;
use model::service::Service;
use model::spec::Dependency;
use store::{PreparedImages, ReplacedPod, Store, StoreError};

use super::plan::ReconcilePlan;
use super::rollout::{self, Judgement};

/// A node's worker may be gone.
const ANSWER_TIME: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(crate) struct Preparation {
    missing: Option<String>,
    images: BTreeMap<NodeName, PreparedImages>,
}

/// Asks nodes to pull missing images.
pub(crate) async fn look(
    store: &Store,
    service: &Service,
    plan: &ReconcilePlan,
    silent_after: Duration,
    now: RedisMillis,
) -> Result<Preparation, StoreError> {
    let silent_after = silent_after.as_millis() as RedisMillis;
    let dependencies = match service.fields.depends_on.is_empty() {
        true => Vec::new(),
        false => store.dependencies(std::slice::from_ref(&service.name), silent_after).await?,
    };
    let obstacles: Vec<String> = dependencies.iter().flatten().filter_map(Dependency::obstacle).collect();
    let mut nodes: Vec<NodeName> =
        without_successor(plan).map(|pod| next_node(service, pod).clone()).collect();
    nodes.sort();
    nodes.dedup();
    let known = store.prepared_images(&service.spec_id, &nodes).await?;
    let mut images = BTreeMap::new();
    for (node, known) in nodes.into_iter().zip(known) {
        let known = match known {
            Some(known) => known,
            None => {
                store.ask_to_prepare(service, &node, now).await?;
                PreparedImages::Requested(now)
            }
        };
        images.insert(node, known);
    }
    Ok(Preparation { missing: (!obstacles.is_empty()).then(|| obstacles.join("; ")), images })
}

fn without_successor(plan: &ReconcilePlan) -> impl Iterator<Item = &ReplacedPod> {
    plan.replace.iter().filter(|pod| pod.successor.is_none())
}

/// Where its successor will probably start: without a move, on the same node.
fn next_node<'a>(service: &'a Service, pod: &'a ReplacedPod) -> &'a NodeName {
    let moved = service.moves.by_replica().values().find(|one| one.pod == pod.id);
    moved.map_or(&pod.node, |one| &one.to)
}

pub(crate) fn is_needed(plan: &ReconcilePlan) -> bool {
    without_successor(plan).next().is_some()
}

/// Removes early stops and holds the rollout, or fails it if an image cannot be pulled.
pub(crate) fn hold_back(
    service: &Service,
    plan: &mut ReconcilePlan,
    preparation: &Preparation,
    now: RedisMillis,
) {
    let Preparation { missing, images } = preparation;
    let may_stop = |node: &NodeName| match images.get(node) {
        _ if missing.is_some() => false,
        Some(PreparedImages::Requested(at)) => {
            // A future time comes from a former master.
            now.abs_diff(*at) >= ANSWER_TIME.as_millis() as RedisMillis
        }
        Some(PreparedImages::Ready) => true,
        Some(PreparedImages::Pulling | PreparedImages::Failed(_)) | None => false,
    };
    plan.replace.retain(|pod| pod.successor.is_some() || may_stop(next_node(service, pod)));
    if let Some(missing) = missing {
        plan.held = Some(missing.clone());
        return;
    }
    let failed = images.iter().filter_map(|(node, images)| match images {
        PreparedImages::Failed(why) => Some(format!("{node}: {why}; the pods that run stay")),
        _ => None,
    });
    let failed: Vec<String> = failed.collect();
    if let Some(first) = failed.first().cloned()
        && plan.rollout.is_none()
    {
        // A move fails no rollout that was good.
        if !rollout::is_judged(service) {
            plan.held = Some(first);
            return;
        }
        let Judgement { step, held } = rollout::with_bad(service, &service.replacing_policy(false), failed);
        plan.held = held.or_else(|| step.is_none().then_some(first));
        plan.rollout = step;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::PodId;
    use model::service::ServiceState;
    use model::spec::ServiceFields;

    use super::super::plan::testing::service;
    use super::super::rollout::RolloutStep;
    use super::*;

    const NOW: RedisMillis = 1_000_000;

    fn stopped(update: Option<&str>, missing: Option<&str>, images: PreparedImages) -> (usize, String) {
        let node = NodeName::new("a").unwrap();
        let update = update.map(|json| serde_json::from_str(json).unwrap());
        let fields = ServiceFields { update, ..ServiceFields::default() };
        let service = Service { fields, ..service(1, 2, ServiceState::Active) };
        let replaced = |successor| ReplacedPod { id: PodId::random(), node: node.clone(), successor };
        let mut plan = ReconcilePlan {
            replace: vec![replaced(None), replaced(Some(PodId::random()))],
            ..ReconcilePlan::default()
        };
        assert!(is_needed(&plan));
        let images = BTreeMap::from([(node.clone(), images)]);
        hold_back(&service, &mut plan, &Preparation { missing: missing.map(str::to_owned), images }, NOW);
        let said = match plan.rollout {
            Some(RolloutStep::Pause(why)) => format!("pause: {why}"),
            Some(RolloutStep::RollBack(why)) => format!("back: {why}"),
            _ => plan.held.unwrap_or_default(),
        };
        (plan.replace.len() - 1, said)
    }

    #[test]
    fn no_pod_in_service_is_stopped_before_its_successor_could_start() {
        let failed = || PreparedImages::Failed("pulling nginx:1.255 failed: no such tag".to_owned());
        let stays = "a: pulling nginx:1.255 failed: no such tag; the pods that run stay";
        for (update, missing, images, expected, said) in [
            (None, None, PreparedImages::Ready, 1, String::new()),
            (None, None, PreparedImages::Pulling, 0, String::new()),
            (None, None, PreparedImages::Requested(NOW - 19_999), 0, String::new()),
            (None, None, PreparedImages::Requested(NOW - 20_000), 1, String::new()),
            (None, None, failed(), 0, stays.to_owned()),
            (
                None,
                Some("waits for service migrate"),
                PreparedImages::Ready,
                0,
                "waits for service migrate".to_owned(),
            ),
            (Some("{}"), None, failed(), 0, format!("pause: {stays}")),
            (Some(r#"{"on_failure":"rollback"}"#), None, failed(), 0, format!("back: {stays}")),
            (Some(r#"{"on_failure":"continue"}"#), None, failed(), 0, stays.to_owned()),
        ] {
            let case = format!("{update:?} {missing:?} {images:?}");
            assert_eq!(stopped(update, missing, images), (expected, said), "{case}");
        }
    }
}
