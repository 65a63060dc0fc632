//! Schedulers: signs of life, failure detection times, in-flight pods, and leases on loops.

use std::fmt;
use std::time::Duration;

use redis::cmd;

use crate::reply::{parse, read, unexpected, verdict};
use crate::scripts::{lease, reclaim_in_flight, scheduler_beat};
use crate::service::stored_spec::NEWEST_FORM;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{ClusterId, SchedulerId};
use model::node::timing::Timing;

/// Schedulers show a sign of life every few seconds.
const FRESH: Duration = Duration::from_secs(30);

impl Store {
    /// Returns their last signs of life. Silent ones are forgotten after an hour; one that shut down counts
    /// as silent for almost that long.
    pub async fn schedulers(&self) -> Result<Vec<(SchedulerId, RedisMillis)>, StoreError> {
        let mut range = cmd("ZRANGE");
        range.arg(keys::SCHEDULERS).arg(0).arg(-1).arg("WITHSCORES");
        let found: Vec<(Vec<u8>, f64)> = self.link.query(&range).await?;
        let read = |(id, at): (Vec<u8>, f64)| Some((parse(&id)?, at as u64));
        Ok(found.into_iter().filter_map(read).collect())
    }

    /// Success shows that Redis takes writes. Returns its time, and the cluster that it belongs to.
    pub async fn scheduler_beat(
        &self,
        id: &SchedulerId,
        timing: &Timing,
    ) -> Result<(RedisMillis, Option<ClusterId>), StoreError> {
        let beat = scheduler_beat::Head {
            scheduler_key: keys::scheduler(id),
            forms_key: keys::scheduler_forms(id),
            times: timing.to_stored(id),
            forms: NEWEST_FORM,
        };
        let reply = self.link.script(&beat.call()).await?;
        let (time, cluster): (_, Vec<u8>) = read("showing that Redis takes writes", reply)?;
        Ok((time, parse(&cluster)))
    }

    /// Returns `None` if nothing was recorded within a minute.
    pub async fn scheduler_timings(&self, ids: &[SchedulerId]) -> Result<Vec<Option<Timing>>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = cmd("MGET");
        get.arg(ids.iter().map(keys::scheduler).collect::<Vec<_>>());
        let found: Vec<Option<Vec<u8>>> = self.link.query(&get).await?;
        let read =
            |(text, id): (Option<Vec<u8>>, _)| Timing::from_stored(&String::from_utf8(text?).ok()?, id);
        Ok(found.into_iter().zip(ids).map(read).collect())
    }

    /// Returns the live ones that cannot read every specification which this program stores.
    pub async fn older_schedulers(&self) -> Result<Vec<SchedulerId>, StoreError> {
        let since = self.redis_now().await?.saturating_sub(FRESH.as_millis() as RedisMillis);
        let live = self.schedulers().await?.into_iter().filter(|(_, at)| *at >= since);
        let live: Vec<SchedulerId> = live.map(|(id, _)| id).collect();
        if live.is_empty() {
            return Ok(live);
        }
        let mut get = cmd("MGET");
        get.arg(live.iter().map(keys::scheduler_forms).collect::<Vec<_>>());
        let forms: Vec<Option<Vec<u8>>> = self.link.query(&get).await?;
        let is_older = |forms: Option<Vec<u8>>| {
            forms.as_deref().and_then(parse::<u32>).is_none_or(|newest| newest < NEWEST_FORM)
        };
        Ok(live.into_iter().zip(forms).filter_map(|(id, forms)| is_older(forms).then_some(id)).collect())
    }

    /// Returns the number of requeued pods; `None` if the scheduler is alive.
    pub async fn reclaim_in_flight(
        &self,
        id: &SchedulerId,
        silent: Duration,
        max: usize,
    ) -> Result<Option<usize>, StoreError> {
        self.reclaim(id, silent, max, false).await
    }

    /// Returns `None` if the scheduler showed a sign of life in this very millisecond: retry. Without pods it
    /// is soon forgotten.
    pub async fn retire_scheduler(&self, id: &SchedulerId, max: usize) -> Result<Option<usize>, StoreError> {
        self.reclaim(id, Duration::ZERO, max, true).await
    }

    async fn reclaim(
        &self,
        id: &SchedulerId,
        silent: Duration,
        max: usize,
        has_ended: bool,
    ) -> Result<Option<usize>, StoreError> {
        let what = "reclaiming payloads in flight";
        let reclaim = reclaim_in_flight::Head {
            sq: keys::SQ,
            in_flight: keys::in_flight(id),
            schedulers: keys::SCHEDULERS,
            scheduler: id,
            silent_ms: silent,
            max_count: max,
            has_ended,
        };
        let (answer, rest) = verdict(what, self.link.script(&reclaim.call()).await?)?;
        match (answer.as_str(), rest.into_iter().next()) {
            ("ALIVE", _) => Ok(None),
            ("OK", Some(count)) => Ok(Some(read(what, count)?)),
            (other, _) => Err(unexpected(what, other)),
        }
    }

    /// It only saves work: correctness never depends on it.
    pub async fn lease(
        &self,
        name: &str,
        holder: &impl fmt::Display,
        period: Duration,
    ) -> Result<bool, StoreError> {
        let lease =
            lease::Head { lease_key: keys::lease(name), caller: holder.to_string(), period_ms: period };
        Ok(read::<u8>("taking a lease", self.link.script(&lease.call()).await?)? == 1)
    }
}
