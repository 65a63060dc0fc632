//! Containers of ended pods, kept for their logs across restarts of the worker.

use std::time::Duration;

use daemon::clock::BootInstant;
use engine::{Container, ContainerState};
use model::ids::PodId;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;

use crate::running::table::EndedPod;
use crate::session::context::SessionContext;

/// Keeps ended containers and returns the others. If Redis does not answer, an ended one is neither kept nor
/// returned: the next pass asks again.
pub(crate) async fn keep<'a>(context: &SessionContext, containers: Vec<&'a Container>) -> Vec<&'a Container> {
    let has_ended = |container: &&Container| matches!(container.state, ContainerState::Exited { .. });
    let (ended, mut others): (Vec<&Container>, _) = containers.into_iter().partition(has_ended);
    if ended.is_empty() {
        return others;
    }
    let worker = &context.worker;
    let ids: Vec<PodId> = ended.iter().map(|container| container.pod.clone()).collect();
    let read = tokio::try_join!(worker.store.pods(&ids), worker.store.redis_now());
    let (records, redis_now) = match read {
        Ok(read) => read,
        Err(error) => {
            worker.redis_log.failed(&error);
            return others;
        }
    };
    for (container, record) in ended.into_iter().zip(records) {
        let Ok(record) = record else { continue };
        match record.filter(|record| is_end_of(context, record, container)) {
            Some(record) => {
                let age = Duration::from_millis(redis_now.saturating_sub(record.since));
                let ended_at = worker.now().millis.saturating_sub(age.as_millis() as u64);
                context.table.keep_ended(EndedPod {
                    pod: container.pod.clone(),
                    assignment: container.assignment.clone(),
                    phase: record.phase,
                    ended_at: BootInstant { millis: ended_at },
                });
            }
            None => others.push(container),
        }
    }
    others
}

/// Without an answer containers stay until they are too old.
pub(crate) async fn release_deleted(context: &SessionContext) {
    let worker = &context.worker;
    let kept = context.table.ended();
    let ids: Vec<PodId> = kept.iter().map(|ended| ended.pod.clone()).collect();
    if ids.is_empty() {
        return;
    }
    match worker.store.pods(&ids).await {
        Ok(records) => {
            for (ended, record) in kept.iter().zip(records) {
                if let Ok(Some(record)) = record
                    && !matches!(record.phase, Phase::Succeeded | Phase::Failed)
                {
                    context.table.release_ended(&ended.pod, &ended.assignment);
                }
            }
        }
        Err(error) => worker.redis_log.failed(&error),
    }
}

fn is_end_of(context: &SessionContext, record: &PodRecord, container: &Container) -> bool {
    matches!(record.phase, Phase::Succeeded | Phase::Failed)
        && record.node.as_ref() == Some(&context.worker.node)
        && record.assignment.as_ref() == Some(&container.assignment)
}
