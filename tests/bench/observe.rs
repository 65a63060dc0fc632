//! Watching a cluster without disturbing it: counters that cost Redis little, asked for seldom while the end is far.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::pipe;

/// When nothing has happened for so long it never will.
const GIVE_UP: Duration = Duration::from_secs(120);
const CLOSE: Duration = Duration::from_millis(2);
const FAR: Duration = Duration::from_millis(60);

/// One field of an INFO text.
pub fn info<'a>(text: &'a str, field: &str) -> &'a str {
    let prefix = format!("{field}:");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().trim()
}

/// Bytes of data in Redis, without what connections take.
pub async fn dataset(redis: &kubeleet_tests::Redis) -> f64 {
    let text: String = redis.cli(&["INFO", "memory"]).await;
    info(&text, "used_memory_dataset").parse().unwrap()
}

/// How long ago a node's last heartbeat was, on Redis' clock.
pub async fn silence(redis: &kubeleet_tests::Redis, node: &str) -> Duration {
    let last_beat: f64 = redis.cli(&["ZSCORE", "beats", node]).await;
    let (seconds, micros): (f64, f64) = redis.cli(&["TIME"]).await;
    Duration::from_secs_f64(seconds + micros / 1e6 - last_beat / 1000.0)
}

/// The schedulers there are: their in-flight lists.
pub async fn in_flight_lists(connection: &mut MultiplexedConnection) -> Vec<String> {
    let ids: Vec<String> =
        redis::cmd("ZRANGE").arg(&["schedulers", "0", "-1"]).query_async(connection).await.unwrap();
    ids.into_iter().map(|id| format!("fq:{id}")).collect()
}

/// How many pods of the service wait for nothing from a scheduler any more: all that were made, less those in `sq`, in
/// a scheduler's hands, or unschedulable. A handful of O(1) commands in one transaction.
pub async fn placed(connection: &mut MultiplexedConnection, service: &str, in_flight: &[String]) -> u64 {
    let mut ask = pipe();
    ask.atomic().cmd("HLEN").arg(format!("slots:{service}"));
    ask.cmd("LLEN").arg("sq").cmd("HLEN").arg("uq");
    for list in in_flight {
        ask.cmd("LLEN").arg(list);
    }
    let counts: Vec<u64> = ask.query_async(connection).await.unwrap();
    counts[0].saturating_sub(counts[1..].iter().sum())
}

/// How many payloads are in the container sets of these nodes: pods acknowledged as running.
pub async fn running(connection: &mut MultiplexedConnection, nodes: &[String]) -> u64 {
    let mut sum = 0;
    // In parts, so that nobody waits long for Redis because of us.
    for part in nodes.chunks(250) {
        let mut ask = pipe();
        for node in part {
            ask.cmd("SCARD").arg(format!("cs:{node}"));
        }
        let counts: Vec<u64> = ask.query_async(connection).await.unwrap();
        sum += counts.iter().sum::<u64>();
    }
    sum
}

/// Waits until the count is reached; gives when. Between two looks it waits half the time the rest will take at the
/// pace so far, so that there are few looks however long it takes, and close ones at the end.
///
/// # Panics
/// When the count does not grow any more.
pub async fn until(what: &str, wanted: u64, begun: Instant, mut count: impl AsyncFnMut() -> u64) -> Duration {
    let looking_since = Instant::now();
    let (mut last, mut grew_at) = (0, looking_since);
    loop {
        let now = count().await;
        let elapsed = begun.elapsed();
        if now >= wanted {
            return elapsed;
        }
        if now > last {
            (last, grew_at) = (now, Instant::now());
        }
        assert!(grew_at.elapsed() < GIVE_UP, "{what}: {last} of {wanted}, and no more come");
        // Before the first there is no pace.
        let pace = if now == 0 { Duration::ZERO } else { looking_since.elapsed() };
        let left = pace.mul_f64((wanted - now) as f64 / now.max(1) as f64 / 2.0);
        tokio::time::sleep(left.clamp(CLOSE, FAR)).await;
    }
}

/// What Redis counted since [`Counters::reset`].
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Calls of scripts.
    pub scripts: u64,
    /// Commands, those within scripts included.
    pub commands: u64,
    /// The same by name: calls, and microseconds within Redis (those of scripts include their commands').
    pub by_name: BTreeMap<String, (u64, u64)>,
    /// How long scripts took, in microseconds: half of them, 99.9 % of them, and the longest (each an upper bound: Redis
    /// counts in powers of two).
    pub script_p50: u64,
    pub script_p999: u64,
    pub script_max: u64,
}

impl Counters {
    pub async fn reset(connection: &mut MultiplexedConnection) {
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(connection).await.unwrap();
    }

    pub async fn read(connection: &mut MultiplexedConnection) -> Self {
        let text: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
        let by_name: BTreeMap<String, (u64, u64)> = text.lines().filter_map(command_statistics).collect();
        let histogram = histogram(connection).await;
        Self {
            scripts: by_name.get("evalsha").map_or(0, |(calls, _)| *calls),
            commands: by_name.values().map(|(calls, _)| calls).sum(),
            by_name,
            script_p50: quantile(&histogram, 0.5),
            script_p999: quantile(&histogram, 0.999),
            script_max: quantile(&histogram, 1.0),
        }
    }
}

/// `cmdstat_hset:calls=1,usec=2,…`.
fn command_statistics(line: &str) -> Option<(String, (u64, u64))> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let number = |field: &str| rest.split(',').find_map(|part| part.strip_prefix(field)?.parse().ok());
    Some((name.to_owned(), (number("calls=")?, number("usec=")?)))
}

/// Upper bounds in microseconds and how many calls took at most that. Empty before Redis 7.
async fn histogram(connection: &mut MultiplexedConnection) -> Vec<(u64, u64)> {
    let asked = redis::cmd("LATENCY").arg("HISTOGRAM").arg("evalsha").query_async(connection).await;
    let Ok(value) = asked else { return Vec::new() };
    let mut numbers = Vec::new();
    flatten(&value, &mut numbers);
    // evalsha, calls, N, histogram_usec, then pairs.
    numbers[1.min(numbers.len())..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

fn flatten(value: &redis::Value, into: &mut Vec<u64>) {
    match value {
        redis::Value::Int(number) => into.push(*number as u64),
        redis::Value::Array(values) => values.iter().for_each(|value| flatten(value, into)),
        redis::Value::Map(pairs) => pairs.iter().for_each(|(key, value)| {
            flatten(key, into);
            flatten(value, into);
        }),
        _ => {}
    }
}

fn quantile(histogram: &[(u64, u64)], share: f64) -> u64 {
    let total = histogram.last().map_or(0, |(_, count)| *count) as f64;
    histogram.iter().find(|(_, count)| *count as f64 >= share * total).map_or(0, |(bound, _)| *bound)
}
