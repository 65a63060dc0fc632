//! Observes a cluster by counters that cost Redis little, read seldom while the end is far.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::pipe;

/// A count that does not grow for this time never grows again.
const STALL_LIMIT: Duration = Duration::from_secs(120);
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(60);

pub fn info<'a>(text: &'a str, field: &str) -> &'a str {
    let prefix = format!("{field}:");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().trim()
}

pub async fn dataset(redis: &kubeleet_tests::Redis) -> f64 {
    let text: String = redis.cli(&["INFO", "memory"]).await;
    info(&text, "used_memory_dataset").parse().unwrap()
}

pub async fn silence(redis: &kubeleet_tests::Redis, node: &str) -> Duration {
    let last_beat: f64 = redis.cli(&["ZSCORE", "beats", node]).await;
    let (seconds, micros): (f64, f64) = redis.cli(&["TIME"]).await;
    Duration::from_secs_f64(seconds + micros / 1e6 - last_beat / 1000.0)
}

pub async fn in_flight_lists(connection: &mut MultiplexedConnection) -> Vec<String> {
    let ids: Vec<String> =
        redis::cmd("ZRANGE").arg(&["schedulers", "0", "-1"]).query_async(connection).await.unwrap();
    ids.into_iter().map(|id| format!("fq:{id}")).collect()
}

/// All pods of the service, less those in `sq`, in an in-flight list or in `uq`. Takes a few O(1) commands.
pub async fn placed(connection: &mut MultiplexedConnection, service: &str, in_flight: &[String]) -> u64 {
    let mut query = pipe();
    query.atomic().cmd("HLEN").arg(format!("slots:{service}"));
    query.cmd("LLEN").arg("sq").cmd("HLEN").arg("uq");
    for list in in_flight {
        query.cmd("LLEN").arg(list);
    }
    let counts: Vec<u64> = query.query_async(connection).await.unwrap();
    counts[0].saturating_sub(counts[1..].iter().sum())
}

pub async fn running(connection: &mut MultiplexedConnection, nodes: &[String]) -> u64 {
    let mut sum = 0;
    // In chunks, so that no other client waits long.
    for chunk in nodes.chunks(250) {
        let mut query = pipe();
        for node in chunk {
            query.cmd("SCARD").arg(format!("cs:{node}"));
        }
        let counts: Vec<u64> = query.query_async(connection).await.unwrap();
        sum += counts.iter().sum::<u64>();
    }
    sum
}

/// Waits half of the estimated remaining time between reads. Panics if the count stops growing.
pub async fn until(what: &str, wanted: u64, begin: Instant, mut count: impl AsyncFnMut() -> u64) -> Duration {
    let first_read = Instant::now();
    let (mut last, mut grew_at) = (0, first_read);
    loop {
        let now = count().await;
        let elapsed = begin.elapsed();
        if now >= wanted {
            return elapsed;
        }
        if now > last {
            (last, grew_at) = (now, Instant::now());
        }
        assert!(
            grew_at.elapsed() < STALL_LIMIT,
            "{what}: {last} of {wanted}, and the count does not grow any more"
        );
        let spent = if now == 0 { Duration::ZERO } else { first_read.elapsed() };
        let pause = spent.mul_f64((wanted - now) as f64 / now.max(1) as f64 / 2.0);
        tokio::time::sleep(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)).await;
    }
}

#[derive(Debug, Clone, Default)]
pub struct Counters {
    pub scripts: u64,
    pub commands: u64,
    /// Calls, and microseconds within Redis. Scripts include their commands.
    pub by_name: BTreeMap<String, (u64, u64)>,
    /// In microseconds; upper bounds, because Redis' histogram has powers of two.
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

/// `cmdstat_hset:calls=1,usec=2,…`
fn command_statistics(line: &str) -> Option<(String, (u64, u64))> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let number = |field: &str| rest.split(',').find_map(|part| part.strip_prefix(field)?.parse().ok());
    Some((name.to_owned(), (number("calls=")?, number("usec=")?)))
}

/// Empty before Redis 7.
async fn histogram(connection: &mut MultiplexedConnection) -> Vec<(u64, u64)> {
    let reply = redis::cmd("LATENCY").arg("HISTOGRAM").arg("evalsha").query_async(connection).await;
    let Ok(value) = reply else { return Vec::new() };
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
