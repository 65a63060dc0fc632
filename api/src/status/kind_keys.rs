//! Keys of jobs and crons besides their record.

use model::ids::ServiceName;
use model::service::Service;
use model::spec::Kind;
use store::{RedisKey, Store, StoreError};

use crate::cluster::broken::BrokenKeys;

pub(super) async fn check(
    store: &Store,
    service: &Service,
    broken: &mut BrokenKeys,
) -> Result<(), StoreError> {
    match service.kind() {
        Kind::Service => {}
        Kind::Job => _ = completions(store, &service.name, broken).await?,
        Kind::Cron => _ = runs(store, &service.name, broken).await?,
    }
    Ok(())
}

pub(super) async fn completions(
    store: &Store,
    job: &ServiceName,
    broken: &mut BrokenKeys,
) -> Result<u64, StoreError> {
    broken.take(store.job_completions(job).await, RedisKey::Done(job))
}

pub(super) async fn runs(
    store: &Store,
    cron: &ServiceName,
    broken: &mut BrokenKeys,
) -> Result<Vec<ServiceName>, StoreError> {
    let runs = broken.take(store.runs_of(cron).await, RedisKey::Runs(cron))?;
    Ok(runs.into_iter().map(|(name, _)| name).collect())
}
