//! Refuses requests that exceed the cluster's limits, or that would fill Redis: a full one accepts no new
//! service or pod, so there must be room for everything else.

use std::time::{Duration, Instant};

use bytesize::ByteSize;
use daemon::config::GrowthLimits;
use model::service::Service;
use model::spec::DesiredService;
use parking_lot::Mutex;
use store::{ClusterSize, RedisMemory, Store};

use crate::http::problem::{ApiProblem, ProblemKind};

/// Approximate, for an unschedulable pod; a running pod takes half.
pub(crate) const BYTES_PER_POD: u64 = 1_229;
/// Besides the specification, which is stored twice.
const BYTES_PER_SERVICE: u64 = 2_048;
/// Per version, besides its content.
const BYTES_PER_VALUE: u64 = 512;
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// A pause is also this multiple of the time that the last reading took.
const PAUSE_FACTOR: u32 = 20;
const READING_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    services: u64,
    pods: u64,
    /// Secrets and configs; the store counts them.
    values: u64,
    bytes: u64,
}

impl Growth {
    pub(crate) fn of(desired: &DesiredService, existing: Option<&Service>) -> Self {
        let pods = existing.map_or(0, |service| service.replicas);
        let (services, base) = if existing.is_some() { (0, 0) } else { (1, BYTES_PER_SERVICE) };
        let spec = serde_json::to_vec(&desired.pod).map_or(0, |json| json.len() as u64);
        let growth = Self::of_pods(pods, desired.replicas);
        Self { services, bytes: growth.bytes + base + 2 * spec, ..growth }
    }

    pub(crate) fn of_pods(before: u32, after: u32) -> Self {
        let pods = u64::from(after.saturating_sub(before));
        Self { pods, bytes: pods * BYTES_PER_POD, ..Self::default() }
    }

    /// Encryption adds a third.
    pub(crate) fn of_value(bytes: usize) -> Self {
        Self { values: 1, bytes: (bytes as u64) * 4 / 3 + BYTES_PER_VALUE, ..Self::default() }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            services: self.services.saturating_add(other.services),
            pods: self.pods.saturating_add(other.pods),
            values: self.values.saturating_add(other.values),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct GrowthUsage {
    memory: RedisMemory,
    size: ClusterSize,
    admitted: Growth,
}

#[derive(Debug, Default)]
struct KnownUsage {
    usage: Option<GrowthUsage>,
    next_reading: Option<Instant>,
}

#[derive(Default)]
pub(crate) struct GrowthGate {
    known: Mutex<KnownUsage>,
    reading: tokio::sync::Mutex<()>,
}

impl GrowthGate {
    /// Growth without new services, pods or values is always admitted: Redis itself refuses writes when full.
    pub(crate) async fn admit(
        &self,
        store: &Store,
        limits: &GrowthLimits,
        growth: Growth,
    ) -> Result<(), ApiProblem> {
        if growth.services == 0 && growth.pods == 0 && growth.values == 0 {
            return Ok(());
        }
        self.refresh(store).await;
        let mut known = self.known.lock();
        let Some(usage) = known.usage.as_mut() else { return Ok(()) };
        if let Some(problem) = refusal(usage, limits, growth) {
            return Err(problem);
        }
        usage.admitted = usage.admitted.plus(growth);
        Ok(())
    }

    async fn refresh(&self, store: &Store) {
        if !self.is_due() {
            return;
        }
        let is_known = self.known.lock().usage.is_some();
        let turn = if is_known { self.reading.try_lock().ok() } else { Some(self.reading.lock().await) };
        if turn.is_none() || !self.is_due() {
            return;
        }
        let started = Instant::now();
        let read = async { tokio::try_join!(store.memory(), store.cluster_size()) };
        let usage = match tokio::time::timeout(READING_TIMEOUT, read).await {
            Ok(Ok((memory, size))) => Some(GrowthUsage { memory, size, admitted: Growth::default() }),
            Ok(Err(error)) => {
                tracing::debug!(%error, "how full Redis is cannot be read");
                None
            }
            Err(_) => None,
        };
        let pause = MIN_INTERVAL.max(started.elapsed() * PAUSE_FACTOR);
        *self.known.lock() = KnownUsage { usage, next_reading: Some(Instant::now() + pause) };
    }

    fn is_due(&self) -> bool {
        self.known.lock().next_reading.is_none_or(|at| Instant::now() >= at)
    }
}

pub(crate) fn headroom(memory: RedisMemory, limits: &GrowthLimits) -> Option<u64> {
    Some(threshold(memory.limit?, limits).saturating_sub(memory.used))
}

fn threshold(limit: u64, limits: &GrowthLimits) -> u64 {
    (u128::from(limit) * u128::from(limits.memory_percent) / 100) as u64
}

fn refusal(usage: &GrowthUsage, limits: &GrowthLimits, growth: Growth) -> Option<ApiProblem> {
    let (admitted, after) = (usage.admitted, usage.admitted.plus(growth));
    let (services, pods) = (
        usage.size.services.saturating_add(admitted.services),
        usage.size.pods.saturating_add(admitted.pods),
    );
    let counts = [
        ("services", services, growth.services, limits.max_services, "SERVICES"),
        ("pods", pods, growth.pods, limits.max_pods, "PODS"),
    ];
    for (what, current, added, max, setting) in counts {
        if added > 0 && current.saturating_add(added) > max {
            let detail = format!(
                "the cluster has {current} {what}, this request adds {added}, and at most {max} are allowed: \
                 delete or scale down services, or raise KUBELEET_CLUSTER_MAX_{setting} of the API"
            );
            return Some(ApiProblem::new(ProblemKind::ClusterLimit, detail));
        }
    }
    let limit = usage.memory.limit?;
    let not_created = usage.size.missing_pods.saturating_mul(BYTES_PER_POD);
    let projected = usage.memory.used.saturating_add(not_created).saturating_add(after.bytes);
    if projected <= threshold(limit, limits) {
        return None;
    }
    let size = |bytes: u64| ByteSize(bytes).display().iec().to_string();
    let detail = format!(
        "Redis uses {} of its maxmemory of {}, pods that are being created take about {}, and this request \
         would add about {}; the API adds nothing beyond {} % (KUBELEET_REDIS_MEMORY_LIMIT): delete or scale \
         down services, or raise maxmemory",
        size(usage.memory.used),
        size(limit),
        size(not_created.saturating_add(usage.admitted.bytes)),
        size(growth.bytes),
        limits.memory_percent,
    );
    Some(ApiProblem::new(ProblemKind::RedisMemory, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn usage(used: u64, limit: Option<u64>, size: ClusterSize) -> GrowthUsage {
        let memory = RedisMemory { used, limit };
        GrowthUsage { memory, size, admitted: Growth::default() }
    }

    fn kind(usage: &GrowthUsage, growth: Growth) -> Option<ProblemKind> {
        let limits =
            GrowthLimits { memory_percent: 80, max_services: 10, max_pods: 500_000, max_secrets: 10 };
        refusal(usage, &limits, growth).map(|problem| problem.kind)
    }

    #[test]
    fn a_request_that_would_fill_redis_is_refused() {
        let pods = |count| Growth::of_pods(0, count);
        let size = ClusterSize { services: 1, pods: 1, missing_pods: 0 };
        let limit = Some(512 * MIB);
        let table = [
            (usage(100 * MIB, limit, size), pods(1_000), None, "there is room"),
            (usage(100 * MIB, None, size), pods(450_000), None, "no limit"),
            (usage(100 * MIB, limit, size), pods(450_000), Some(ProblemKind::RedisMemory), "one POST"),
            (usage(410 * MIB, limit, size), pods(1), Some(ProblemKind::RedisMemory), "beyond 80 %"),
            (
                usage(100 * MIB, limit, ClusterSize { pods: 400_000, missing_pods: 400_000, ..size }),
                pods(1_000),
                Some(ProblemKind::RedisMemory),
                "another POST before, whose pods are being created",
            ),
            (
                usage(0, None, ClusterSize { pods: 499_999, ..size }),
                pods(2),
                Some(ProblemKind::ClusterLimit),
                "too many pods",
            ),
            (usage(0, None, ClusterSize { pods: 499_999, ..size }), pods(1), None, "the last pod"),
            (
                usage(0, None, ClusterSize { services: 10, ..size }),
                Growth { services: 1, ..Growth::default() },
                Some(ProblemKind::ClusterLimit),
                "too many services",
            ),
        ];
        for (usage, growth, expected, case) in table {
            assert_eq!(kind(&usage, growth), expected, "{case}");
        }
    }

    #[test]
    fn what_was_admitted_since_the_last_reading_counts() {
        let mut usage = usage(100 * MIB, Some(512 * MIB), ClusterSize::default());
        let half = Growth::of_pods(0, 150_000);
        assert_eq!(kind(&usage, half), None);
        usage.admitted = half;
        assert_eq!(kind(&usage, half), Some(ProblemKind::RedisMemory));
    }

    #[test]
    fn shrinking_adds_nothing() {
        assert_eq!(Growth::of_pods(5, 3), Growth::default());
    }
}
