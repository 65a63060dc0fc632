//! The intervals and timeouts of all loops, derived from `KUBELEET_DEAD_AFTER`. Comments give the default
//! values.

use std::time::Duration;

use daemon::redis_url::RedisUrl;
use model::node::timing::Timing;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoopTimings {
    /// 2 s; also the heartbeat interval of an idle scheduler.
    pub(crate) queue_block: Duration,
    /// 20 s.
    pub(crate) dead_after: Duration,
    pub(crate) detection: Timing,
    /// 10 s; then the silence of nodes counts anew.
    pub(crate) max_write_gap: Duration,
    /// 1 s.
    pub(crate) death_check_interval: Duration,
    /// 30 s, without Sentinels 20 s.
    pub(crate) master_change_pause: Duration,
    /// 2 s, in the whole cluster.
    pub(crate) min_death_interval: Duration,
    /// 5 s.
    pub(crate) drain_interval: Duration,
    /// 5 s; also for obsolete dead letters.
    pub(crate) reclaim_interval: Duration,
    /// 20 s.
    pub(crate) reclaim_after: Duration,
    /// 30 s.
    pub(crate) full_pass_interval: Duration,
    /// 60 s; then a pod leaves a node that does not satisfy its service's constraints.
    pub(crate) violation_time: Duration,
    /// 60 s after a node joined, the nodes are balanced.
    pub(crate) calm_time: Duration,
    /// 3 min; then pressure lasts.
    pub(crate) pressure_time: Duration,
    /// 30 s; then a pod may have lost its payload.
    pub(crate) settle_time: Duration,
    /// 20 s, for reports of held pods.
    pub(crate) lost_record_wait: Duration,
    /// 500 ms per page of keys.
    pub(crate) scan_interval: Duration,
    /// 2 s; also the pause between two scans.
    pub(crate) external_worker_interval: Duration,
}

impl LoopTimings {
    pub(crate) fn of(timing: &Timing, redis: &RedisUrl) -> Self {
        let dead_after = timing.dead_after;
        let queue_block = Duration::from_secs(2);
        let death_check_interval = (dead_after / 10).clamp(ms(50), ms(1_000));
        Self {
            queue_block,
            dead_after,
            detection: *timing,
            // Slow writes fail. If this process stood still, a live worker was heard in the other half, or in
            // one heartbeat.
            max_write_gap: timing.heartbeat.max(dead_after / 2),
            death_check_interval,
            master_change_pause: timing.master_change_pause(redis.has_sentinels()),
            min_death_interval: (dead_after / 10).min(ms(2_000)),
            drain_interval: (dead_after / 4).clamp(ms(100), ms(5_000)),
            reclaim_interval: (dead_after / 4).clamp(ms(100), ms(5_000)),
            // At least three heartbeats of an idle scheduler.
            reclaim_after: dead_after.clamp(queue_block * 3, ms(20_000)),
            full_pass_interval: (dead_after * 3 / 2).clamp(ms(1_000), ms(30_000)),
            violation_time: (dead_after * 3).clamp(ms(1_000), ms(60_000)),
            calm_time: (dead_after * 3).clamp(ms(1_000), ms(60_000)),
            pressure_time: (dead_after * 9).clamp(ms(3_000), ms(180_000)),
            settle_time: (dead_after * 3 / 2).clamp(ms(1_000), ms(30_000)),
            lost_record_wait: dead_after.min((timing.heartbeat * 4).max(ms(20_000))),
            scan_interval: ms(500),
            external_worker_interval: (dead_after / 10).clamp(ms(100), ms(2_000)),
        }
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn sentinels() -> RedisUrl {
        "redis+sentinel://a:1,b:1,c:1/mymaster".parse().unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_the_comments() {
        let timings = LoopTimings::of(&Timing::default(), &sentinels());
        let expected_seconds = [
            (timings.death_check_interval, 1),
            (timings.max_write_gap, 10),
            (timings.master_change_pause, 30),
            (timings.min_death_interval, 2),
            (timings.drain_interval, 5),
            (timings.reclaim_interval, 5),
            (timings.reclaim_after, 20),
            (timings.full_pass_interval, 30),
            (timings.settle_time, 30),
            (timings.lost_record_wait, 20),
            (timings.external_worker_interval, 2),
        ];
        for (interval, seconds) in expected_seconds {
            assert_eq!(interval, Duration::from_secs(seconds));
        }
        let single = LoopTimings::of(&Timing::default(), &"redis://a".parse().unwrap());
        assert_eq!(single.master_change_pause, Duration::from_secs(20));
    }

    #[test]
    fn a_long_dead_after_makes_no_other_loop_slow() {
        let timing = Timing { dead_after: Duration::from_secs(600), ..Timing::default() };
        let timings = LoopTimings {
            dead_after: Timing::default().dead_after,
            detection: Timing::default(),
            max_write_gap: Duration::from_secs(10),
            ..LoopTimings::of(&timing, &sentinels())
        };
        assert_eq!(timings, LoopTimings::of(&Timing::default(), &sentinels()));
    }
}
