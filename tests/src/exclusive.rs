//! One heavy test at a time on this machine, also across test binaries and under runners with a process for each test.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

/// The right to load the machine. Given back when dropped, or when the process ends.
#[derive(Debug)]
pub struct Exclusive(#[allow(dead_code, reason = "it holds the lock by being open")] File);

/// Waits until no other test holds this lock.
pub async fn exclusive(name: &str) -> Exclusive {
    let path = std::env::temp_dir().join(format!("kubeleet-test-{name}.lock"));
    let lock = move || {
        let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        Exclusive(file)
    };
    tokio::task::spawn_blocking(lock).await.unwrap()
}
