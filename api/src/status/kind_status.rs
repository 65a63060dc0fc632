//! Adds the status of jobs and crons to the views of services.

use api_types::{CronStatus, IndexResultView, JobPhase, JobStatus, ServiceStatus, ServiceView};
use model::RedisMillis;
use model::service::{Service, ServiceState};
use model::spec::Kind;
use model::time::rfc3339;
use store::{IndexResult, JobResults, Store, StoreError};

use super::kind_keys::{completions, runs};
use super::pod_counts;
use crate::cluster::broken::BrokenKeys;

pub(crate) async fn view(store: &Store, service: Service) -> Result<ServiceView, StoreError> {
    let status = pod_counts::service_status(store, &service).await?;
    view_with(store, service, status).await
}

pub(crate) async fn view_with(
    store: &Store,
    service: Service,
    status: ServiceStatus,
) -> Result<ServiceView, StoreError> {
    let mut broken = BrokenKeys::default();
    let (mut job_status, mut cron_status) = (None, None);
    match service.kind() {
        Kind::Service => {}
        Kind::Job => {
            let succeeded = completions(store, &service.name, &mut broken).await?;
            job_status = Some(job(&service, succeeded, &status));
        }
        Kind::Cron => cron_status = Some(cron(store, &service, &mut broken).await?),
    }
    let mut view = of_parts(service, status, job_status, cron_status);
    broken.append_to(&mut view.status.message);
    Ok(view)
}

pub(crate) fn new_view(service: Service, status: ServiceStatus) -> ServiceView {
    let job_status = (service.kind() == Kind::Job).then(|| job(&service, 0, &status));
    let cron_status = (service.kind() == Kind::Cron)
        .then(|| CronStatus { next_at: next_tick(&service, service.created_at), ..CronStatus::default() });
    of_parts(service, status, job_status, cron_status)
}

fn of_parts(
    service: Service,
    mut status: ServiceStatus,
    job_status: Option<JobStatus>,
    cron_status: Option<CronStatus>,
) -> ServiceView {
    if service.state == ServiceState::Active {
        if let Some(job) = &job_status {
            status.summary = job.phase.as_str().to_owned();
            if job.phase != JobPhase::Running {
                status.message.clone_from(&job.message);
            }
        }
        if let Some(cron) = &service.fields.cron {
            status.summary = if cron.suspend { "suspended" } else { "scheduled" }.to_owned();
        }
    }
    ServiceView { job_status, cron_status, ..ServiceView::new(service, status) }
}

fn job(service: &Service, succeeded: u64, pods: &ServiceStatus) -> JobStatus {
    let progress = &service.progress;
    let completions = service.fields.job.as_ref().map_or(0, |job| u64::from(job.completions));
    let (reason, message) = progress.failure.clone().unwrap_or_default();
    JobStatus {
        phase: if progress.failure.is_some() {
            JobPhase::Failed
        } else if progress.is_complete() {
            JobPhase::Complete
        } else {
            JobPhase::Running
        },
        completions,
        succeeded,
        active: pods.pending + pods.assigned + pods.running + pods.stopping,
        failures: u64::from(progress.failures),
        started_at: progress.started_at.map(rfc3339),
        ended_at: progress.ended_at.map(rfc3339),
        reason,
        message,
        cron: progress.of_cron.as_ref().map(|(cron, _)| cron.clone()),
        // Tick 0 means a manual run (`POST …/run`), outside the schedule.
        scheduled_at: progress.of_cron.as_ref().filter(|(_, tick)| *tick > 0).map(|(_, tick)| of_tick(*tick)),
    }
}

/// Without jobs if their list is unreadable.
async fn cron(store: &Store, service: &Service, broken: &mut BrokenKeys) -> Result<CronStatus, StoreError> {
    let now = store.redis_now().await?;
    let jobs = store.services(&runs(store, &service.name, broken).await?).await?.found();
    let active = jobs.iter().filter(|job| job.progress.is_running()).map(|job| job.name.clone()).collect();
    Ok(CronStatus {
        next_at: next_tick(service, now),
        last_at: service.schedule.ticks.last().map(of_tick),
        active,
        jobs: jobs.len() as u64,
    })
}

fn next_tick(service: &Service, now: RedisMillis) -> Option<String> {
    let cron = service.fields.cron.as_ref().filter(|cron| !cron.suspend)?;
    let now = i64::try_from(now / 1000).ok()?;
    service.schedule.ticks.next_after(&cron.schedule, &cron.time_zone, now).map(of_tick)
}

fn of_tick(tick: i64) -> String {
    rfc3339(RedisMillis::try_from(tick).unwrap_or_default().saturating_mul(1000))
}

pub(crate) fn results(results: JobResults) -> Vec<IndexResultView> {
    let JobResults { done, failed } = results;
    let mut all = failed;
    let is_done: std::collections::BTreeSet<u32> = done.keys().copied().collect();
    all.extend(done);
    all.into_iter().map(|(index, result)| result_view(index, is_done.contains(&index), result)).collect()
}

fn result_view(index: u32, succeeded: bool, result: IndexResult) -> IndexResultView {
    let IndexResult { failures, at, node, exit_code, run } = result;
    IndexResultView {
        index,
        succeeded,
        attempts: failures.saturating_add(u32::from(succeeded)),
        exit_code,
        node,
        ended_at: rfc3339(at),
        ran_for_ms: run.as_ref().and_then(|run| run.ran_for_ms),
        last_output: run.map(|run| run.last_output).unwrap_or_default(),
    }
}
