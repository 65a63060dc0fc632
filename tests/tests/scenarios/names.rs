//! Two workers with one node name, on two machines: the newcomer is refused. `NAME_TRIES=20` is the long
//! form.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::processes::leaders_below;
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess, Http};
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    A,
    B,
}

impl Machine {
    fn folder(self, cluster: &Cluster, kind: &str) -> PathBuf {
        cluster.folder().join(kind).join(format!("{self:?}"))
    }

    fn worker(self, cluster: &Cluster) -> DaemonProcess {
        let (state, data) = (self.folder(cluster, "state"), self.folder(cluster, "data"));
        let node = cluster.node("w");
        let settings = [
            ("KUBELEET_NODE", node.as_str()),
            ("KUBELEET_STATE_DIR", state.to_str().unwrap()),
            ("KUBELEET_DATA_DIR", data.to_str().unwrap()),
        ];
        cluster.worker_with(&format!("machine-{self:?}"), "process", &settings)
    }

    fn pods(self, cluster: &Cluster) -> BTreeSet<(String, i64)> {
        leaders_below(&self.folder(cluster, "data")).into_iter().collect()
    }
}

struct Try {
    refused_after: Duration,
    /// From the SIGKILL of worker and supervisor to the next registration.
    back_after: Duration,
}

async fn try_once(
    cluster: &Cluster,
    http: &Http,
    first: &mut DaemonProcess,
    on: Machine,
    newcomer: Machine,
) -> Try {
    let (before, pods) = (cluster.incarnation("w").await, on.pods(cluster));
    assert_eq!(pods.len(), 4);
    let begin = Instant::now();
    let mut second = newcomer.worker(cluster);
    eventually_within(SOON, "the newcomer ends", || async {
        check(second.ended_with() == Some(4), || second.log())
    })
    .await;
    let refused_after = begin.elapsed();
    let log = second.log();
    let sentence = format!("another worker has been node {} since 20", cluster.node("w"));
    assert!(log.contains(&sentence) && log.contains("KUBELEET_NODE"), "{log}");
    assert_eq!(newcomer.pods(cluster), BTreeSet::new());
    assert_eq!((cluster.incarnation("w").await, on.pods(cluster)), (before.clone(), pods.clone()));
    assert_eq!(first.ended(), None);
    second.kill();

    let begin = Instant::now();
    first.start_again();
    eventually_within(SOON, "the killed worker is back", || async {
        check(cluster.incarnation("w").await != before, || first.log())
    })
    .await;
    let back_after = begin.elapsed();
    http.runs(SOON, "stop", 2).await;
    http.runs(SOON, "keep", 2).await;
    assert_eq!(on.pods(cluster), pods, "the same processes");
    Try { refused_after, back_after }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newcomer_of_two_workers_with_one_name_is_refused() {
    let _lock = beside_others().await;
    let tries = std::env::var("NAME_TRIES").ok().and_then(|tries| tries.parse().ok()).unwrap_or(2);
    for (on, newcomer) in [(Machine::A, Machine::B), (Machine::B, Machine::A)] {
        let cluster = Cluster::new(ClusterTiming::Short).await;
        let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
        let http = api.http();
        let mut first = on.worker(&cluster);
        http.nodes_ready(1).await;
        for name in ["stop", "keep"] {
            http.post("/service", &sleeper(name, 2, name)).await;
            http.runs(SOON, name, 2).await;
        }
        let mut measured = Vec::new();
        for _ in 0..tries {
            measured.push(try_once(&cluster, &http, &mut first, on, newcomer).await);
        }
        let before = cluster.incarnation("w").await;
        assert!(first.terminate().is_some_and(|status| status.success()));
        let begin = Instant::now();
        let second = newcomer.worker(&cluster);
        eventually_within(SOON, "the other machine has the name", || async {
            check(cluster.incarnation("w").await != before, || second.log())
        })
        .await;
        report(on, &measured, begin.elapsed());
    }
}

#[allow(clippy::print_stderr, reason = "figures of the long form")]
fn report(on: Machine, measured: &[Try], moved_after: Duration) {
    let span = |what: &dyn Fn(&Try) -> Duration| {
        let times: Vec<Duration> = measured.iter().map(what).collect();
        let (shortest, longest) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        format!("{shortest:.1?} to {longest:.1?}")
    };
    eprintln!(
        "{} tries with the first worker on machine {on:?}: the newcomer ended after {}, a killed first worker \
         was back after {}; when it had ended, the other machine had the name after {moved_after:.1?}",
        measured.len(),
        span(&|one| one.refused_after),
        span(&|one| one.back_after),
    );
}
