//! Locks between tests that would disturb each other. nextest keeps scenarios apart by its groups
//! (`.config/nextest.toml`); under plain `cargo test`, [`alone`] and [`beside_others`] do.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

const MACHINE: &str = "heavy";

#[derive(Debug)]
pub struct LockGuard(#[allow(dead_code, reason = "it holds the lock by being open")] File);

pub async fn exclusive(name: &str) -> LockGuard {
    lock(name, FlockOperation::LockExclusive).await
}

/// For measuring tests: waits until no scenario runs.
pub async fn alone() -> Option<LockGuard> {
    if is_under_nextest() { None } else { Some(exclusive(MACHINE).await) }
}

/// Waits until no measuring test runs.
pub async fn beside_others() -> Option<LockGuard> {
    if is_under_nextest() { None } else { Some(lock(MACHINE, FlockOperation::LockShared).await) }
}

fn is_under_nextest() -> bool {
    std::env::var_os("NEXTEST").is_some()
}

async fn lock(name: &str, operation: FlockOperation) -> LockGuard {
    let path = std::env::temp_dir().join(format!("kubeleet-test-{name}.lock"));
    let lock = move || {
        let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
        flock(&file, operation).unwrap();
        LockGuard(file)
    };
    tokio::task::spawn_blocking(lock).await.unwrap()
}
