//! Delays between the end of a container, its record and its restart. `KUBELEET_ENDS` sets the number of
//! ends.

use std::path::Path;
use std::time::Duration;

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming};
use serde_json::{Value, json};
use testkit::eventually::eventually_within;

use crate::SOON;

const BACKOFF: Duration = Duration::from_millis(100);

/// In milliseconds of the Unix epoch.
#[derive(Debug)]
struct Runs {
    starts: Vec<i64>,
    ends: Vec<i64>,
}

/// Nearest rank.
fn quantile(sorted: &[i64], percent: usize) -> i64 {
    sorted[(sorted.len() * percent).div_ceil(100) - 1]
}

#[derive(Default)]
struct Delays {
    record: Vec<i64>,
    /// Without the backoff.
    restart: Vec<i64>,
}

impl Delays {
    fn add(&mut self, pod: &Value, runs: &Runs) {
        let recorded: jiff::Timestamp = pod["since"].as_str().unwrap().parse().unwrap();
        let Runs { starts, ends } = runs;
        let ([_, second], [first_end, last_end]) =
            (starts[..].try_into().unwrap(), ends[..].try_into().unwrap());
        let [second, first_end, last_end]: [i64; 3] = [second, first_end, last_end];
        self.record.push(recorded.as_millisecond() - last_end);
        self.restart.push(second - first_end - BACKOFF.as_millis() as i64);
    }

    /// Alone on a machine the figures are a tenth of the limit.
    #[allow(clippy::print_stderr, reason = "figures")]
    fn report(mut self, of: &str) {
        let restart = format!("from the end of {of} to its next start, beyond the backoff");
        for (what, delays) in
            [(format!("from the end of {of} to its record"), &mut self.record), (restart, &mut self.restart)]
        {
            delays.sort_unstable();
            let (p50, p99) = (quantile(delays, 50), quantile(delays, 99));
            eprintln!("{what}: p50 {p50} ms, p99 {p99} ms, of {}", delays.len());
            assert!(p50 <= 1000, "{what}: {delays:?}");
        }
    }
}

fn ends_measured() -> usize {
    std::env::var("KUBELEET_ENDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Some runs end before their start is recorded, and some between two listings.
fn run_time(number: usize) -> String {
    format!("0.{}", number % 10)
}

/// Jobs fail once and then succeed.
async fn measure(
    cluster: &Cluster,
    runtime: &str,
    command: impl Fn(usize) -> Value,
    runs: impl AsyncFn(usize, &Value) -> Runs,
) -> Delays {
    let backoff = format!("{}ms", BACKOFF.as_millis());
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let worker = cluster.worker_with("w1", runtime, &[("KUBELEET_RESTART_BACKOFF", &backoff)]);
    let http = api.http();
    let mut delays = Delays::default();
    for number in 0..ends_measured() {
        let name = format!("job-{number}");
        let job = json!({"name": name, "image": IMAGE, "command": command(number), "restart": "on-failure"});
        http.post("/service", &job).await;
        let pod = eventually_within(SOON, "the pod has succeeded", || async {
            let pods = http.pods(&format!("service={name}")).await;
            pods.into_iter().find(|pod| pod["phase"] == "succeeded").ok_or_else(|| worker.log())
        })
        .await;
        assert_eq!(pod["restarts"], 1, "{pod}");
        delays.add(&pod, &runs(number, &pod).await);
        let (status, _) = http.send(reqwest::Method::DELETE, &format!("/service/{name}"), None).await;
        assert_eq!(status.as_u16(), 202);
    }
    delays
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_container_is_recorded_and_it_is_restarted_at_once() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let command = |number: usize| {
        let seconds = run_time(number);
        let script = format!("code=3; [ -e /again ] && code=0; : >/again; sleep {seconds}; exit $code");
        json!(["/bin/sh", "-c", script])
    };
    let runs = async |_: usize, pod: &Value| {
        let [starts, ends] = docker.starts_and_ends(pod["uuid"].as_str().unwrap()).await;
        Runs { starts, ends }
    };
    measure(&cluster, "docker", command, runs).await.report("a container");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_process_is_recorded_and_it_is_restarted_at_once() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |number: usize| folder.path().join(number.to_string());
    let command = |number: usize| {
        let file = file(number).display().to_string();
        let script = format!(
            "date +'start %s%3N' >>{file}; [ -e {file}.again ]; code=$((3 * $?)); : >{file}.again; \
             sleep {}; date +'end %s%3N' >>{file}; exit $code",
            run_time(number)
        );
        json!(["/bin/sh", "-c", script])
    };
    let runs = async |number: usize, _: &Value| read_runs(&file(number));
    measure(&cluster, "process", command, runs).await.report("a process");
}

fn read_runs(file: &Path) -> Runs {
    let text = std::fs::read_to_string(file).unwrap();
    let times = |word: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
        lines.collect()
    };
    Runs { starts: times("start"), ends: times("end") }
}
