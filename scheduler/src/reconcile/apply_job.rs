//! Reads the input of a job's plan and executes it; also deletes crons.

use model::RedisMillis;
use model::ids::ServiceName;
use model::service::{Service, ServiceState};
use store::{CreateOutcome, JobIndices, Store, StoreError};

use super::apply::carry_out;
use super::job::{JobPlan, JobStep};

/// Future times become that of the failover, as in [`super::apply::settle_times`].
pub(crate) async fn settle_job_times(
    store: &Store,
    job: &mut Service,
    indices: &mut JobIndices,
    seen_now: RedisMillis,
) -> Result<(), StoreError> {
    let progress = &mut job.progress;
    let own = progress.started_at.iter_mut().chain(&mut progress.ended_at);
    let of_failures = indices.failed.values_mut().map(|result| &mut result.at);
    let mut future: Vec<&mut RedisMillis> = own.chain(of_failures).filter(|at| **at > seen_now).collect();
    if future.is_empty() {
        return Ok(());
    }
    let now = store.redis_now().await?;
    let taken_over_at = store.master_changed_at().await?.map_or(now, |at| at.min(now));
    future.iter_mut().filter(|at| ***at > now).for_each(|at| **at = taken_over_at);
    Ok(())
}

/// As [`super::apply::carry_out`].
pub(crate) async fn carry_out_job(store: &Store, job: &Service, plan: &JobPlan) -> Result<bool, StoreError> {
    let name = &job.name;
    let mut needs_another = match &plan.step {
        None => false,
        Some(JobStep::Count(pods)) => {
            let counted = store.count_job_pods(name, pods).await?;
            tracing::warn!(job = %name, "counted {counted} pods that had ended and were not counted");
            counted > 0
        }
        Some(JobStep::Complete) => store.end_job(name, None).await?,
        Some(JobStep::Fail(reason, message)) => {
            let is_ended = store.end_job(name, Some((reason, message))).await?;
            if is_ended {
                tracing::warn!(job = %name, "the job has failed: {reason}: {message}");
            }
            is_ended
        }
        Some(JobStep::Expire) => {
            tracing::info!(job = %name, "the job ended longer ago than its ttl: it is deleted");
            store.delete_service_if(name, Some(job.revision)).await?;
            true
        }
    };
    needs_another |= carry_out(store, job, &plan.pods).await?;
    if !plan.start.is_empty() {
        let created = store.create_job_pods(job, &plan.start).await?;
        needs_another |= !matches!(created, CreateOutcome::Created(_) | CreateOutcome::Unconfirmed);
        needs_another |= matches!(created, CreateOutcome::Created(count) if count < plan.start.len());
    }
    Ok(needs_another)
}

/// Returns true if there was anything to do.
pub(crate) async fn end_cron(store: &Store, cron: &Service) -> Result<bool, StoreError> {
    if cron.state != ServiceState::Deleting {
        return Ok(false);
    }
    let runs = store.runs_of(&cron.name).await?;
    let names: Vec<ServiceName> = runs.into_iter().map(|(name, _)| name).collect();
    let jobs = store.services(&names).await?;
    store.forget_runs(&cron.name, &jobs.missing(&names)).await?;
    let (jobs, unreadable) = jobs.separate(&names);
    let is_of_cron = |job: &&Service| job.progress.of_cron.as_ref().is_some_and(|(of, _)| *of == cron.name);
    let left = jobs.iter().filter(is_of_cron).count() + unreadable.len();
    for job in jobs.iter().filter(is_of_cron).filter(|job| job.state == ServiceState::Active) {
        store.delete_service_if(&job.name, Some(job.revision)).await?;
    }
    if left == 0 && store.forget_service(cron).await? {
        tracing::info!(cron = %cron.name, "deleted cron removed");
    }
    Ok(true)
}
