//! A thousand checks every second. Measures, so it runs alone and in release: `cargo test --release -p
//! kubeleet-health -- --ignored --nocapture a_thousand_checks`.

#![allow(clippy::print_stderr, reason = "it prints figures")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use daemon::clock::BootClock;
use engine::sim::{SimOptions, SimRuntime};
use futures_util::future::BoxFuture;
use model::spec::ProbeMethod;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::judge::ProbeOutcome;
use crate::monitor::HealthMonitor;
use crate::probe::{Prober, RuntimeProber};

const CHECKS: usize = 1000;
const MEASURED: Duration = Duration::from_secs(20);

struct Recorder {
    inner: RuntimeProber,
    begin: Instant,
    probes: Mutex<HashMap<String, Vec<f64>>>,
    not_passed: Mutex<Vec<ProbeOutcome>>,
}

impl Prober for Recorder {
    fn probe<'a>(
        &'a self,
        handle: &'a str,
        address: Option<IpAddr>,
        method: &'a ProbeMethod,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeOutcome> {
        let at = self.begin.elapsed().as_secs_f64();
        self.probes.lock().entry(handle.to_owned()).or_default().push(at);
        Box::pin(async move {
            let outcome = self.inner.probe(handle, address, method, limit).await;
            if outcome != ProbeOutcome::Passed {
                self.not_passed.lock().push(outcome.clone());
            }
            outcome
        })
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn serve() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = [0; 1024];
                    let _ = stream.read(&mut head).await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                });
            }
        });
    });
    receiver.recv().unwrap()
}

/// Returns the number of false alarms.
fn measure(name: &str, spec: &str) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sim = Arc::new(SimRuntime::new(SimOptions::default()));
        let (probes, not_passed, inner) = (Mutex::default(), Mutex::default(), RuntimeProber(sim));
        let recorder = Arc::new(Recorder { inner, begin: Instant::now(), probes, not_passed });
        let (monitor, mut changes) = HealthMonitor::new(recorder.clone(), Arc::new(BootClock));
        for n in 0..CHECKS {
            let address = Ipv4Addr::new(127, 1, (n / 250) as u8, (n % 250 + 1) as u8);
            let check = check(&format!("pod-{n}"), spec, &BootClock);
            monitor.set(ContainerCheck { address: Some(address.into()), ..check });
        }
        let (begin, cpu) = (Instant::now(), thread_cpu());
        let _end = tokio::time::timeout(MEASURED, monitor.run()).await;
        let (wall, cpu) = (begin.elapsed(), thread_cpu() - cpu);
        let probes = recorder.probes.lock();
        let late = lateness(&probes);
        let number: usize = probes.values().map(Vec::len).sum();
        let percentile = |p: f64| late[((late.len() - 1) as f64 * p) as usize] * 1000.0;
        let alarms = std::iter::from_fn(|| changes.try_recv().ok())
            .filter(|change| change.health == Health::Unhealthy)
            .count();
        eprintln!(
            "{name}: {number} probes in {:.1} s, {:.1} % of a core ({:.0} us each), late p50 {:.1} ms, p99 {:.1} ms, \
             max {:.1} ms, not passed {}, false alarms {alarms}",
            wall.as_secs_f64(),
            cpu.as_secs_f64() / wall.as_secs_f64() * 100.0,
            cpu.as_secs_f64() / number as f64 * 1e6,
            percentile(0.5),
            percentile(0.99),
            percentile(1.0),
            recorder.not_passed.lock().len(),
        );
        alarms
    })
}

fn lateness(probes: &HashMap<String, Vec<f64>>) -> Vec<f64> {
    let mut all: Vec<f64> = Vec::new();
    for times in probes.values() {
        let offsets: Vec<f64> =
            times.iter().map(|at| at - times[0]).map(|passed| passed - passed.round()).collect();
        let earliest = offsets.iter().copied().fold(f64::INFINITY, f64::min);
        all.extend(offsets.iter().map(|offset| offset - earliest));
    }
    all.sort_by(f64::total_cmp);
    all
}

#[test]
#[ignore = "measures for a minute"]
fn a_thousand_checks_every_second_cost_little_and_raise_no_false_alarm() {
    let port = serve().port();
    let http = format!(r#"{{"http":{{"port":{port},"path":"/healthz"}},"interval":"1s","timeout":"1s"}}"#);
    let tcp = format!(r#"{{"tcp":{{"port":{port}}},"interval":"1s","timeout":"1s"}}"#);
    let mut alarms = measure("http", &http) + measure("tcp", &tcp);
    let is_over = Arc::new(AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let busy: Vec<_> = (0..cores * 4)
        .map(|_| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    alarms += measure("http, four busy threads on each core", &http);
    is_over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(alarms, 0);
}
