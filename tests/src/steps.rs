//! The calls at which a process can be told to end: the names that failpoints go by. See `common::failpoint`.

/// Of an API.
pub const API: &[&str] = &[
    "redis.service_put",
    "redis.service_scale",
    "redis.service_delete",
    "redis.writes_confirmed",
    "redis.pods_create",
    "redis.pods_stop",
    "redis.cordon",
    "redis.letter_requeue",
    "redis.WAIT",
    "redis.PING",
    "redis.HGETALL",
    "redis.SMEMBERS",
    "redis.LRANGE",
    "redis.LLEN",
    "redis.TIME",
    "redis.XREVRANGE",
];
/// Of a scheduler.
pub const SCHEDULER: &[&str] = &[
    "redis.take",
    "redis.assign",
    "redis.park",
    "redis.unpark",
    "redis.reject",
    "redis.declare_dead",
    "redis.drain",
    "redis.return_orphans",
    "redis.lease",
    "redis.pods_create",
    "redis.pods_stop",
    "redis.service_forget",
    "redis.guest_beat",
    "redis.guest_ack",
    "redis.writes_unconfirmed",
    "redis.writes_confirmed",
    "redis.HLEN",
    "redis.BRPOPLPUSH",
    "redis.ZRANGEBYSCORE",
    "redis.HGETALL",
    "redis.SMEMBERS",
    "redis.TIME",
    "redis.GET",
];
/// Of a worker, whatever runs its pods.
pub const WORKER: &[&str] = &[
    "redis.register",
    "redis.heartbeat",
    "redis.claim",
    "redis.ack",
    "redis.finish",
    "redis.report",
    "redis.reject",
    "redis.BRPOPLPUSH",
    "redis.LLEN",
    "redis.take_work",
    "redis.LRANGE",
    "redis.SSCAN",
    "redis.GET",
    "engine.ping",
    "engine.list",
    "engine.ensure_image",
    "engine.run",
    "engine.restart",
    "engine.stop",
    "engine.hints",
];
/// Of a worker with an engine, and what plain processes do not come to.
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

/// Calls that chaos does not wait for, each with the reason.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("redis.pod_requeue", "only after a failover that lost writes"),
    ("redis.slot_free", "only after a failover that lost writes"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ablation::SCRIPTS;

    #[test]
    fn every_script_has_its_steps() {
        let all = [API, SCHEDULER, WORKER, DOCKER].concat();
        let known: BTreeSet<&str> = all.into_iter().chain(LEFT_OUT.iter().map(|(call, _)| *call)).collect();
        for (script, _) in SCRIPTS {
            assert!(known.contains(format!("redis.{script}").as_str()), "{script}: who ends at it?");
        }
    }

    #[test]
    fn every_step_is_a_call_that_is_made() {
        let source = |path: &str| {
            let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../common/src/store");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let store: String =
            files.filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let store = store + &source("common/src/store/link/durable.rs");
        let engine = source("worker/src/runtime/failing.rs");
        let docker = source("worker/src/runtime/docker/errors.rs");
        for step in [API, SCHEDULER, WORKER, DOCKER].concat() {
            let (seam, call) = step.split_once('.').unwrap();
            let is_script = SCRIPTS.iter().any(|(script, _)| *script == call);
            let made = match seam {
                "redis" => is_script || store.contains(&format!("cmd(\"{call}\")")),
                "engine" => engine.contains(&format!("\"{call}\"")),
                _ => docker.contains(&format!("\"{call}\"")),
            };
            assert!(made, "nobody calls {step}");
        }
    }
}
