//! Mistakes of an operator in redis-cli, undone some seconds later.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, Http};
use testkit::eventually::{check, eventually_within};

use super::report;
use crate::{SOON, sleeper};

/// Three seconds until the nodes are silent, and five more.
const SAID_WITHIN: Duration = Duration::from_secs(8);

struct Mistake {
    typed: &'static [&'static str],
    taken_back: &'static [&'static str],
    said: &'static str,
    /// No heartbeat can be stored, so `stop` pods may be stopped.
    stops_writes: bool,
    is_short: bool,
}

const NO_WRITES: Mistake = Mistake {
    typed: &[],
    taken_back: &[],
    said: "Redis takes no writes",
    stops_writes: true,
    is_short: false,
};
const HARMLESS: Mistake =
    Mistake { typed: &[], taken_back: &["PING"], said: "", stops_writes: false, is_short: false };

const MISTAKES: &[Mistake] = &[
    Mistake {
        typed: &["CONFIG", "SET", "min-replicas-to-write", "1"],
        taken_back: &["CONFIG", "SET", "min-replicas-to-write", "0"],
        is_short: true,
        ..NO_WRITES
    },
    Mistake {
        typed: &["ACL", "SETUSER", "default", "-@scripting"],
        taken_back: &["ACL", "SETUSER", "default", "+@all"],
        is_short: true,
        ..NO_WRITES
    },
    Mistake {
        typed: &["ACL", "SETUSER", "default", "resetkeys"],
        taken_back: &["ACL", "SETUSER", "default", "allkeys"],
        said: "NOPERM",
        ..NO_WRITES
    },
    Mistake { typed: &["CLIENT", "PAUSE", "9000", "WRITE"], taken_back: &["CLIENT", "UNPAUSE"], ..NO_WRITES },
    Mistake {
        typed: &["CONFIG", "SET", "maxmemory", "1"],
        taken_back: &["CONFIG", "SET", "maxmemory", "0"],
        ..HARMLESS
    },
    Mistake {
        typed: &["SWAPDB", "0", "1"],
        taken_back: &["SWAPDB", "0", "1"],
        said: "does not know",
        stops_writes: true,
        is_short: true,
    },
    Mistake { typed: &["XTRIM", "events", "MAXLEN", "0"], ..HARMLESS },
    Mistake { typed: &["SCRIPT", "FLUSH"], ..HARMLESS },
    Mistake { typed: &["CLIENT", "KILL", "TYPE", "normal"], ..HARMLESS },
    Mistake { typed: &["DEL", "nodes"], ..HARMLESS },
    Mistake { typed: &["DEL", "slots:a"], ..HARMLESS },
    Mistake {
        typed: &["CONFIG", "SET", "timeout", "1"],
        taken_back: &["CONFIG", "SET", "timeout", "0"],
        ..HARMLESS
    },
];

async fn running(cluster: &Cluster, http: &Http, of: &[&str]) -> BTreeSet<(String, i64)> {
    let mut pods = BTreeSet::new();
    for service in of {
        let listed = http.pods(&format!("service={service}")).await;
        pods.extend(listed.iter().filter_map(|pod| Some(pod["uuid"].as_str()?.to_owned())));
    }
    cluster.processes.leaders().into_iter().filter(|(pod, _)| pods.contains(pod)).collect()
}

async fn status(http: &Http) -> Result<String, String> {
    let answer = http.try_send(reqwest::Method::GET, "/status", None).await;
    let answer = answer.map_err(|error| error.to_string())?;
    answer.text().await.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_in_redis_cli_and_taken_back_costs_no_pod() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    for (name, replicas, on_disconnect) in [("a", 4, "keep"), ("b", 3, "stop"), ("c", 2, "keep")] {
        http.post("/service", &sleeper(name, replicas, on_disconnect)).await;
        http.runs(SOON, name, replicas).await;
    }
    let is_long = std::env::var_os("MISTAKES_SECONDS").is_some();
    for mistake in MISTAKES.iter().filter(|mistake| is_long || mistake.is_short) {
        let typed = mistake.typed.join(" ");
        let kept = if mistake.stops_writes { &["a", "c"][..] } else { &["a", "b", "c"] };
        let before = running(&cluster, &http, kept).await;
        let () = cluster.redis.cli(mistake.typed).await;
        let begun = Instant::now();
        if !mistake.said.is_empty() {
            eventually_within(SAID_WITHIN, &format!("status tells of {typed}"), || async {
                let status = status(&http).await?;
                check(status.contains(mistake.said), || status)
            })
            .await;
        }
        // Longer than a node may be silent.
        let lasts = cluster.timing().dead_after() * 2;
        tokio::time::sleep(lasts.saturating_sub(begun.elapsed())).await;
        let () = cluster.redis.cli(mistake.taken_back).await;
        cluster.comes_to_rest(SOON, &["w1", "w2"], || async { cluster.processes.running() }).await;
        // A death that it has caused comes within this time.
        tokio::time::sleep(cluster.timing().dead_after() * 3 / 2).await;
        cluster.comes_to_rest(SOON, &["w1", "w2"], || async { cluster.processes.running() }).await;
        let after = running(&cluster, &http, kept).await;
        assert_eq!(before, after, "{typed}: pods that it did not name were moved or started again");
        let keyspace = cluster.keyspace().await;
        for short in ["w1", "w2"] {
            let died = keyspace.field(&format!("node:{}", cluster.node(short)), "dead_at");
            assert!(died.is_empty(), "{typed}: node {short} was declared dead");
        }
        report(&format!("{typed}: {} pods as before", before.len()));
    }
}
