//! The failpoints at which a test can end a process. See `daemon::failpoint`.

use std::sync::LazyLock;

use store::{ProcessKind, SCRIPTS};

pub static API: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let other_calls = [
        "redis.WAIT",
        "redis.PING",
        "redis.HGETALL",
        "redis.SMEMBERS",
        "redis.LRANGE",
        "redis.LLEN",
        "redis.TIME",
        "redis.XREVRANGE",
    ];
    scripts_of(ProcessKind::Api).chain(other_calls).collect()
});
pub static SCHEDULER: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let other_calls = [
        "redis.HLEN",
        "redis.BRPOPLPUSH",
        "redis.ZRANGEBYSCORE",
        "redis.HGETALL",
        "redis.SMEMBERS",
        "redis.TIME",
        "redis.GET",
    ];
    scripts_of(ProcessKind::Scheduler).chain(other_calls).collect()
});
/// With any runtime.
pub static WORKER: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let other_calls = [
        "redis.BRPOPLPUSH",
        "redis.LLEN",
        "redis.LRANGE",
        "redis.SSCAN",
        "redis.GET",
        "engine.ping",
        "engine.list",
        "engine.find",
        "engine.ensure_image",
        "engine.run",
        "engine.restart",
        "engine.stop",
        "engine.hints",
    ];
    scripts_of(ProcessKind::Worker).chain(other_calls).collect()
});
/// Only of workers with a Docker engine.
pub const DOCKER: &[&str] = &[
    "docker.ping",
    "docker.version",
    "docker.list",
    "docker.inspect",
    "docker.inspect_image",
    "docker.create",
    "docker.start",
    "docker.stop",
    "docker.remove",
    "engine.logs",
    "redis.lost",
];

/// Chaos does not wait for these calls.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("redis.address", "no process asks for an address yet"),
    ("redis.certificate_begin", "chaos has no authority; the scenarios with Pebble kill who orders"),
    ("redis.certificate_challenge", "as above"),
    ("redis.certificate_fail", "as above"),
    ("redis.certificate_store", "as above"),
    ("redis.pod_requeue", "only after a failover that lost writes"),
    ("redis.slot_free", "only after a failover that lost writes"),
];

fn scripts_of(process: ProcessKind) -> impl Iterator<Item = &'static str> {
    let scripts = SCRIPTS.iter().filter(move |script| script.run_by.contains(&process));
    let steps = scripts.map(|script| &*format!("redis.{}", script.name).leak());
    steps.filter(|step| !DOCKER.contains(step) && LEFT_OUT.iter().all(|(left_out, _)| left_out != step))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> Vec<&'static str> {
        [&API[..], &SCHEDULER[..], &WORKER[..], DOCKER].concat()
    }

    #[test]
    fn every_script_is_a_step_of_a_process() {
        let known: BTreeSet<&str> = all().into_iter().chain(LEFT_OUT.iter().map(|(call, _)| *call)).collect();
        for script in SCRIPTS {
            let step = format!("redis.{}", script.name);
            assert!(known.contains(step.as_str()), "{step} is in no list of steps");
        }
    }

    fn sources(folder: &std::path::Path) -> String {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: std::path::PathBuf| match path.is_dir() {
            true => sources(&path),
            false => std::fs::read_to_string(path).unwrap(),
        };
        entries.map(read).collect()
    }

    #[test]
    fn every_step_is_a_call_that_is_made() {
        let source = |path: &str| {
            let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let store = sources(concat!(env!("CARGO_MANIFEST_DIR"), "/../common/store/src").as_ref());
        let store = store + &source("common/redis-link/src/durable.rs");
        let engine = source("worker/engine/src/failpoints.rs");
        let docker = source("worker/engine/src/docker/errors.rs");
        for step in all() {
            let (seam, call) = step.split_once('.').unwrap();
            let is_script = SCRIPTS.iter().any(|script| script.name == call);
            let made = match seam {
                "redis" => is_script || store.contains(&format!("cmd(\"{call}\")")),
                "engine" => engine.contains(&format!("\"{call}\"")),
                _ => docker.contains(&format!("\"{call}\"")),
            };
            assert!(made, "no process calls {step}");
        }
    }
}
