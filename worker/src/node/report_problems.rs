//! The loop that reports this node's problems and held pods, and checks that files which must outlive this
//! process can be written.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use model::ids::NodeName;
use model::node::HeldPod;
use store::StoreError;
use tokio::time::Instant;

use crate::session::context::SessionContext;

const INTERVAL: Duration = Duration::from_secs(1);
const TRY_INTERVAL: Duration = Duration::from_secs(5);
/// A failover may have lost a report.
const REPORT_AGAIN: Duration = Duration::from_secs(60);
/// Records vanish, and the node's record may be among them.
const REPORT_HELD_AGAIN: Duration = Duration::from_secs(5);
/// A full disk may have space for a few bytes.
const TRIED_BYTES: usize = 64 << 10;

pub(crate) struct ProblemsLoop {
    context: Arc<SessionContext>,
    reported: Option<(Vec<String>, Instant)>,
    reported_held: Option<(Vec<HeldPod>, Instant)>,
    try_due: Instant,
}

impl Loop<StoreError> for ProblemsLoop {
    const NAME: &'static str = "node problems";
    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.try_directories().await;
        let problems = self.context.worker.problems.all();
        if !is_known(self.reported.as_ref(), &problems, REPORT_AGAIN) {
            let reply = self.context.session.report_node_problems(&problems).await;
            let reply = self.context.classify("reporting problems of this node", reply).reply();
            self.reported = reply.map(|()| (problems, Instant::now()));
        }
        self.report_held().await;
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(INTERVAL).await;
        Ok(())
    }
}

impl ProblemsLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, reported: None, reported_held: None, try_due: Instant::now() }
    }

    /// The report of an earlier session stands until this one's first listing.
    async fn report_held(&mut self) {
        if !self.context.first_listing_done.is_cancelled() {
            return;
        }
        let held = self.context.held.of_services();
        if !is_known(self.reported_held.as_ref(), &held, REPORT_HELD_AGAIN) {
            let reply = self.context.session.report_held_pods(&held).await;
            let reply = self.context.classify("reporting held pods of this node", reply).reply();
            self.reported_held = reply.map(|()| (held, Instant::now()));
        }
    }

    async fn try_directories(&mut self) {
        let worker = &self.context.worker;
        if !worker.backup.is_on_disk() || Instant::now() < self.try_due {
            return;
        }
        self.try_due = Instant::now() + TRY_INTERVAL;
        let (node, config) = (worker.node.clone(), &worker.config);
        let (data, state) = (config.data_dir.clone(), config.state_dir.clone());
        let identity = worker.identity.store_and_holder();
        let tried = tokio::task::spawn_blocking(move || {
            if let Some((store, holder)) = identity {
                store.keep_holder(&holder);
            }
            [data_problem(&data, &node), state_problem(&state, &node)]
        });
        let Ok([data, state]) = tried.await else { return };
        worker.problems.set("data directory", data);
        worker.problems.set("state directory", state);
    }
}

fn is_known<T: PartialEq>(reported: Option<&(Vec<T>, Instant)>, now: &[T], report_again: Duration) -> bool {
    reported.is_some_and(|(known, at)| known == now && (now.is_empty() || at.elapsed() < report_again))
}

fn data_problem(directory: &Path, node: &NodeName) -> Option<String> {
    let error = try_to_write(directory, node).err()?;
    Some(format!(
        "cannot save its pods, logs and ids in {}: {error}. If Redis is lost, `kubeleet cluster recover` does not \
         find what runs here: make room, or make the directory writable (KUBELEET_DATA_DIR)",
        directory.display()
    ))
}

fn state_problem(directory: &Path, node: &NodeName) -> Option<String> {
    let error = try_to_write(directory, node).err()?;
    Some(format!(
        "cannot write its lease in {}: {error}. When this worker is started again it stops its pods with \
         `on_disconnect: stop`: make room, or make the directory writable (KUBELEET_STATE_DIR)",
        directory.display()
    ))
}

fn try_to_write(directory: &Path, node: &NodeName) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let path: PathBuf = directory.join(format!("{node}.probe"));
    let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(&[0; TRIED_BYTES]));
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_named_with_what_follows_and_what_to_do() {
        let node = NodeName::new("n1").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let good = directory.path().join("not/there/yet");
        assert_eq!((data_problem(&good, &node), state_problem(&good, &node)), (None, None));
        assert_eq!(std::fs::read_dir(&good).unwrap().count(), 0, "nothing is left");
        let full = Path::new("/dev/full");
        for (problem, setting) in [
            (data_problem(Path::new("/proc/nowhere"), &node), "KUBELEET_DATA_DIR"),
            (state_problem(full, &node), "KUBELEET_STATE_DIR"),
        ] {
            let problem = problem.unwrap();
            assert!(problem.starts_with("cannot ") && problem.contains(setting), "{problem}");
        }
    }
}
