//! The monitor with paused time and scripted answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::sim::{SimOptions, SimRuntime};
use engine::testing::identity;
use engine::{ContainerRequest, Runtime};
use futures_util::future::BoxFuture;
use model::spec::ProbeMethod;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::*;
use crate::judge::ProbeOutcome;
use crate::monitor::HealthMonitor;
use crate::probe::Prober;
use crate::{CheckChange, HealthChange};

/// One character per probe: `+`, `-`, `?` inconclusive, `!` panics, `.` never answers. The last one is
/// repeated.
#[derive(Default)]
struct Script {
    answers: HashMap<String, String>,
    probes: Mutex<Vec<(String, tokio::time::Instant)>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

impl Script {
    fn of(answers: &[(&str, &str)]) -> Arc<Self> {
        let answers = answers.iter().map(|(handle, script)| ((*handle).to_owned(), (*script).to_owned()));
        Arc::new(Self { answers: answers.collect(), ..Self::default() })
    }

    fn number(&self, handle: &str) -> usize {
        self.probes.lock().iter().filter(|(probed, _)| probed == handle).count()
    }
}

struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Prober for Script {
    fn probe<'a>(
        &'a self,
        handle: &'a str,
        _address: Option<IpAddr>,
        _method: &'a ProbeMethod,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeOutcome> {
        let at = self.number(handle);
        self.probes.lock().push((handle.to_owned(), tokio::time::Instant::now()));
        let script = self.answers.get(handle).map_or("+", String::as_str);
        let answer = script.chars().nth(at).or(script.chars().last()).unwrap();
        self.most_in_flight.fetch_max(self.in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let in_flight = InFlight(&self.in_flight);
        Box::pin(async move {
            let _in_flight = in_flight;
            match answer {
                '+' => ProbeOutcome::Passed,
                '-' => ProbeOutcome::Failed("no".to_owned()),
                '?' => ProbeOutcome::Inconclusive("the engine does not answer".to_owned()),
                '!' => panic!("as the script says"),
                _ => {
                    tokio::time::sleep(limit).await;
                    ProbeOutcome::Failed("no answer".to_owned())
                }
            }
        })
    }
}

struct Fixture {
    monitor: Arc<HealthMonitor>,
    clock: Arc<TokioClock>,
    changes: UnboundedReceiver<HealthChange>,
    run: JoinHandle<()>,
}

impl Fixture {
    fn new(prober: Arc<dyn Prober>) -> Self {
        let clock = Arc::new(TokioClock::new());
        let (monitor, changes) = HealthMonitor::new(prober, clock.clone());
        let running = monitor.clone();
        let run = tokio::spawn(async move { running.run().await });
        Self { monitor, clock, changes, run }
    }

    fn set(&self, handle: &str, spec: &str) {
        self.monitor.set(check(handle, spec, self.clock.as_ref()));
    }

    async fn change(&mut self) -> HealthChange {
        tokio::time::timeout(600 * SECOND, self.changes.recv()).await.unwrap().unwrap()
    }

    async fn pass(&mut self, time: Duration) -> Vec<HealthChange> {
        tokio::time::sleep(time).await;
        std::iter::from_fn(|| self.changes.try_recv().ok()).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.run.abort();
    }
}

const COMMAND: &str = r#"{"command":["true"],"interval":"1s","retries":3}"#;

#[tokio::test(start_paused = true)]
async fn a_container_is_unhealthy_exactly_at_the_probe_of_its_threshold() {
    for retries in [1, 3, 7] {
        let script = Script::of(&[("a", "++-+-")]);
        let mut fixture = Fixture::new(script.clone());
        let begin = fixture.clock.now();
        fixture.set("a", &format!(r#"{{"tcp":{{"port":1}},"interval":"1s","retries":{retries}}}"#));
        let healthy = fixture.change().await;
        assert_eq!((healthy.health, healthy.message.as_str()), (Health::Healthy, ""));
        assert!(healthy.at.since(begin) <= SECOND);
        if retries == 1 {
            assert_eq!(fixture.change().await.at.since(healthy.at), 2 * SECOND);
            assert_eq!(fixture.change().await.health, Health::Healthy);
        }
        let unhealthy = fixture.change().await;
        assert_eq!(unhealthy.health, Health::Unhealthy);
        let probes = 4 + retries as usize;
        assert_eq!(script.number("a"), probes, "not one more, not one less");
        assert_eq!(unhealthy.at.since(healthy.at), SECOND * (probes as u32 - 1));
        let expected = if retries == 1 { "no".to_owned() } else { format!("no ({retries} times in a row)") };
        assert_eq!(unhealthy.message, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn results_of_a_removed_or_replaced_check_are_dropped() {
    let script = Script::of(&[("removed", "."), ("replaced", ".+")]);
    let mut fixture = Fixture::new(script.clone());
    let spec = r#"{"command":["true"],"interval":"10s","timeout":"30s","retries":1}"#;
    fixture.set("removed", spec);
    fixture.set("replaced", spec);
    assert_eq!(fixture.pass(20 * SECOND).await, []);
    assert_eq!(script.in_flight.load(Ordering::SeqCst), 2, "both wait for an answer");
    fixture.monitor.remove("removed");
    fixture.set("replaced", spec);
    let changes = fixture.pass(600 * SECOND).await;
    assert_eq!(script.in_flight.load(Ordering::SeqCst), 0);
    let changed: Vec<_> = changes.iter().map(|change| (change.handle.as_str(), change.health)).collect();
    assert_eq!(changed, [("replaced", Health::Healthy)]);
    assert_eq!(fixture.monitor.get("removed", CheckKind::Healthcheck).map(|judge| judge.health), None);
}

#[tokio::test(start_paused = true)]
async fn setting_the_same_check_again_forgets_nothing() {
    let script = Script::of(&[("a", "+-")]);
    let mut fixture = Fixture::new(script.clone());
    let check = check("a", COMMAND, fixture.clock.as_ref());
    let mut changes = Vec::new();
    for _ in 0..100 {
        fixture.monitor.set(ContainerCheck { health: Health::Healthy, ..check.clone() });
        changes.extend(fixture.pass(SECOND / 20).await);
    }
    let health: Vec<Health> = changes.iter().map(|change| change.health).collect();
    assert_eq!(health, [Health::Unhealthy], "it was known to be healthy");
    assert!((4..=5).contains(&script.number("a")), "{}", script.number("a"));
}

#[tokio::test(start_paused = true)]
async fn commands_that_hang_hold_up_no_connection() {
    let script = Script::of(&[("network", "+")]);
    let hanging: Vec<(String, String)> = (0..200).map(|n| (format!("hangs-{n}"), ".".to_owned())).collect();
    let mut answers = script.answers.clone();
    answers.extend(hanging.iter().cloned());
    let script = Arc::new(Script { answers, ..Script::default() });
    let mut fixture = Fixture::new(script.clone());
    for (handle, _) in &hanging {
        fixture.set(handle, r#"{"command":["true"],"interval":"1s","timeout":"30s"}"#);
    }
    fixture.pass(5 * SECOND).await;
    assert_eq!(script.in_flight.load(Ordering::SeqCst), 64);
    fixture.set("network", r#"{"tcp":{"port":1},"interval":"1s"}"#);
    fixture.pass(10 * SECOND).await;
    assert!(script.number("network") >= 10, "{}", script.number("network"));
    fixture.pass(200 * SECOND).await;
    assert_eq!(script.most_in_flight.load(Ordering::SeqCst), 65);
    for (handle, _) in &hanging {
        assert!(script.number(handle) >= 1, "each has its turn: {handle}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_checks_that_begin_together_are_spread() {
    let script = Script::of(&[]);
    let mut fixture = Fixture::new(script.clone());
    for n in 0..1000 {
        fixture.set(&format!("pod-{n}"), COMMAND);
    }
    let begin = tokio::time::Instant::now();
    fixture.pass(10 * SECOND).await;
    let mut per_slice = vec![0; 100];
    for (_, at) in script.probes.lock().iter() {
        per_slice[((*at - begin).as_millis() / 100).min(99) as usize] += 1;
    }
    assert_eq!(per_slice.iter().sum::<i32>(), 10_000);
    assert!(per_slice.iter().all(|number| (60..=150).contains(number)), "{per_slice:?}");
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_about_the_container_changes_nothing() {
    let script = Script::of(&[("engine", "+-?????-????-"), ("bug", "+!-!--")]);
    let mut fixture = Fixture::new(script.clone());
    fixture.set("engine", COMMAND);
    fixture.set("bug", COMMAND);
    let mut changes = HashMap::new();
    for _ in 0..7 {
        let change = fixture.change().await;
        let number = script.number(&change.handle);
        let of_one: &mut Vec<_> = changes.entry(change.handle).or_default();
        of_one.push((number, change.change, change.health, change.message));
    }
    let healthy = (1, CheckChange::Health, Health::Healthy, String::new());
    let unhealthy =
        |probe| (probe, CheckChange::Health, Health::Unhealthy, "no (3 times in a row)".to_owned());
    assert_eq!(changes["bug"], [healthy.clone(), unhealthy(6)]);
    let inconclusive = |probe| {
        let message = "the last 3 probes of its health check had no result, so its health stays as it was: the \
            engine does not answer; see whether the container has this command, and whether the engine of its \
            node answers";
        (probe, CheckChange::Inconclusive, Health::Healthy, message.to_owned())
    };
    let conclusive = (8, CheckChange::Conclusive, Health::Healthy, String::new());
    assert_eq!(changes["engine"], [healthy, inconclusive(5), conclusive, inconclusive(11), unhealthy(13)]);
}

#[tokio::test(start_paused = true)]
async fn readiness_recovers_and_is_separate_from_health() {
    let sim = Arc::new(SimRuntime::new(SimOptions::default()));
    let container = model::spec::ContainerSpec::from_image("x");
    let request = ContainerRequest::new(identity("n", "p", "a"), container);
    let container = sim.run(&request).await.unwrap();
    let mut fixture = Fixture::new(Arc::new(crate::probe::RuntimeProber(sim.clone())));
    let check = check(&container.handle, r#"{"command":["x"],"interval":"1s","retries":2}"#, &*fixture.clock);
    fixture.monitor.set(ContainerCheck { kind: CheckKind::Readiness, ..check.clone() });
    fixture.monitor.set(check);
    for _ in 0..2 {
        assert_eq!(fixture.change().await.health, Health::Healthy);
    }
    sim.set_exec_exit_code(&container.pod, Some(7));
    for _ in 0..2 {
        let change = fixture.change().await;
        assert_eq!(change.message, "the command exited with 7 (2 times in a row)");
    }
    sim.set_exec_exit_code(&container.pod, Some(0));
    for _ in 0..2 {
        assert_eq!(fixture.change().await.health, Health::Healthy);
    }
    assert!(sim.exit(&container.pod, 1));
    let changes = fixture.pass(60 * SECOND).await;
    assert!(changes.iter().all(|change| change.change == CheckChange::Inconclusive), "{changes:?}");
    sim.restart(&container.handle).await.unwrap();
    sim.set_exec_exit_code(&container.pod, None);
    let mut change = fixture.change().await;
    while change.change != CheckChange::Health {
        change = fixture.change().await;
    }
    assert!(change.message.starts_with("the command did not end within 30 s"), "{change:?}");
}
