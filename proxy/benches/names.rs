//! Compares the resolver with unbound on the same cores.
//!
//! `make bench ARGS=names`. `dnsperf` asks both over UDP for the same 100 services. Rounds alternate. Needs
//! dnsperf and unbound (`apt-get install dnsperf unbound`). `SECONDS` and `ROUNDS` change the defaults.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a bench prints, fails by panicking, and has no users"
)]

mod cpu;
mod process;

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use kubeleet_proxy::names::answer_without_limit;
use store::{LinkOptions, Store};
use testkit::Redis;
use testkit::child_guard::ChildGuard;

use cpu::cpu;
use process::{local, number};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The value is the URL of Redis.
const IS_RESOLVER: &str = "KUBELEET_BENCH_RESOLVER";
const RESOLVER_PORT: u16 = 18086;
const UNBOUND_PORT: u16 = 18087;
const SERVICES: u32 = 100;

fn main() {
    if let Ok(redis) = std::env::var(IS_RESOLVER) {
        return serve(&redis);
    }
    if !process::is_asked_for("names") {
        return;
    }
    let has = |program, argument| Command::new(program).arg(argument).output().is_ok();
    if !has("dnsperf", "-h") || !has("unbound", "-V") {
        println!("SKIPPED: dnsperf and unbound are needed (apt-get install dnsperf unbound)");
        return;
    }
    measure(if process::is_smoke() { (1, 1) } else { (5, 3) });
}

fn serve(redis: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, RESOLVER_PORT));
    let store = Store::new(redis.parse().unwrap(), LinkOptions::default());
    runtime.block_on(async { answer_without_limit(address, store).await.unwrap() });
}

fn resolver(redis: &Redis) -> ChildGuard {
    for number in 0..SERVICES {
        let key = format!("service:service-{number}");
        let words = ["HSET", key.as_str(), "state", "active", "replicas", "2"];
        let _added: i64 = redis.blocking_cli(&words);
    }
    process::start(&mut process::this_program_as(IS_RESOLVER, &redis.url()), local(RESOLVER_PORT))
}

fn unbound(directory: &Path) -> ChildGuard {
    let file = directory.join("unbound.conf");
    let directory = directory.display();
    let mut text = format!(
        "server:\n interface: 127.0.0.1\n port: {UNBOUND_PORT}\n num-threads: 2\n do-daemonize: no\n use-syslog: no\n \
         verbosity: 0\n chroot: \"\"\n username: \"\"\n directory: \"{directory}\"\n pidfile: \"\"\n \
         logfile: \"\"\n module-config: \"iterator\"\n local-zone: \"kubeleet.\" static\n"
    );
    for number in 0..SERVICES {
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 10)) + number);
        writeln!(text, " local-data: \"service-{number}.kubeleet. 30 IN A {address}\"").unwrap();
    }
    std::fs::write(&file, text).unwrap();
    process::start(Command::new("unbound").arg("-d").arg("-c").arg(&file), local(UNBOUND_PORT))
}

struct Round {
    answers: f64,
    lost: f64,
    per_second: f64,
    latency_micros: f64,
    most_millis: f64,
    cpu_micros: f64,
}

/// `limit` is the number of rounds or of seconds, with its option.
fn dnsperf(port: u16, questions: &Path, limit: [&str; 2], server: &ChildGuard) -> Round {
    let before = cpu(server);
    let output = Command::new("dnsperf")
        .args(["-s", "127.0.0.1", "-c", "8", "-q", "100", "-p", &port.to_string()])
        .args(limit)
        .arg("-d")
        .arg(questions)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = |label: &str| -> Vec<f64> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        let line = line.unwrap_or_else(|| panic!("{label}: {text}"));
        line.split([' ', ',', '(', ')', '%']).filter_map(|word| word.parse().ok()).collect()
    };
    let answers = after("Queries completed:")[0];
    assert_eq!(after("Response codes:       NOERROR")[0], answers, "{text}");
    let latency: Vec<f64> = after("Average Latency (s):");
    Round {
        answers,
        lost: after("Queries lost:")[0],
        per_second: after("Queries per second:")[0],
        latency_micros: latency[0] * 1e6,
        most_millis: latency[2] * 1e3,
        cpu_micros: (cpu(server) - before).as_secs_f64() * 1e6 / answers,
    }
}

fn measure(defaults: (u64, u64)) {
    let (seconds, rounds) = (number("SECONDS", defaults.0), number("ROUNDS", defaults.1));
    let directory = tempfile::tempdir().unwrap();
    let questions = directory.path().join("questions");
    let names: String = (0..SERVICES).map(|number| format!("service-{number}.kubeleet A\n")).collect();
    std::fs::write(&questions, names).unwrap();
    let redis = Redis::blocking_start();
    let (unbound, resolver) = (unbound(directory.path()), resolver(&redis));
    let servers = [("unbound", UNBOUND_PORT, &unbound), ("kubeleet", RESOLVER_PORT, &resolver)];
    for (_, port, server) in servers {
        dnsperf(port, &questions, ["-n", "1"], server);
    }
    println!("\n           questions/s | lost | CPU µs/question | latency µs | longest ms");
    let mut totals = HashMap::new();
    for _ in 0..rounds {
        for (name, port, server) in servers {
            let round = dnsperf(port, &questions, ["-l", &seconds.to_string()], server);
            let Round { answers, lost, per_second, latency_micros, most_millis, cpu_micros } = round;
            println!(
                "{name:>10} | {per_second:>9.0} | {lost:>4} | {cpu_micros:>15.2} | {latency_micros:>10.0} | {most_millis:>10.1}"
            );
            let total: &mut (f64, f64, f64) = totals.entry(name).or_default();
            total.0 += per_second;
            total.1 += cpu_micros * answers;
            total.2 += answers;
        }
    }
    let (own, other) = (totals["kubeleet"], totals["unbound"]);
    println!(
        "kubeleet of unbound: questions/s × {:.2}, CPU per question × {:.2}",
        own.0 / other.0,
        (own.1 / own.2) / (other.1 / other.2)
    );
}
