//! The file with this host's pods, for a restarted proxy before workers reconnect. A reboot, which pods do
//! not survive, empties its directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::state_file::StateFile;
use model::ids::NodeName;
use model::network::handover::LocalPod;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::take_over::PodsOfNodes;
use crate::workers::Workers;

/// Workers reconnect within about the same time.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default, Serialize, Deserialize)]
struct SavedPodsFile {
    nodes: Vec<NodePods>,
}

#[derive(Serialize, Deserialize)]
struct NodePods {
    node: NodeName,
    pods: Vec<LocalPod>,
}

pub(crate) fn path(socket: &Path) -> PathBuf {
    socket.with_extension("pods.json")
}

/// Empty if unreadable: workers will report their pods.
pub(crate) fn read(path: &Path) -> PodsOfNodes {
    let loss = "pods are served when their workers have said where they are";
    let file: SavedPodsFile = state_file(path).load_or_default(loss);
    file.nodes.into_iter().map(|node| (node.node, node.pods)).collect()
}

pub(crate) async fn keep_in_file(workers: Arc<Workers>, path: PathBuf, shutdown: CancellationToken) {
    keep(workers, |pods, was_written| save(pods, path.clone(), was_written), shutdown).await;
}

/// Calls `write` after each change until `shutdown`, and then once more. Passes its last result.
pub(crate) async fn keep<F: Future<Output = bool>>(
    workers: Arc<Workers>,
    write: impl Fn(PodsOfNodes, bool) -> F,
    shutdown: CancellationToken,
) {
    let mut changes = workers.changes();
    let mut was_written = true;
    workers.note_saved(Some(*changes.borrow()));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            changed = changes.changed() => if changed.is_err() { break },
        }
        let version = *changes.borrow_and_update();
        was_written = write(workers.rows(), was_written).await;
        workers.note_saved(Some(version));
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(MIN_INTERVAL) => {}
        }
    }
    write(workers.rows(), was_written).await;
    workers.note_saved(None);
}

async fn save(pods: PodsOfNodes, path: PathBuf, was_written: bool) -> bool {
    let nodes = pods.into_iter().map(|(node, pods)| NodePods { node, pods }).collect();
    let content = serde_json::to_vec(&SavedPodsFile { nodes }).expect("texts and numbers serialize");
    let written = state_file(&path).write_on_thread(content).await;
    if let (Err(error), true) = (&written, was_written) {
        tracing::warn!(
            "the pods of this host cannot be saved to {}: {error}; a proxy that is restarted serves nothing until the \
             workers speak",
            path.display()
        );
    }
    written.is_ok()
}

fn state_file(path: &Path) -> StateFile {
    StateFile::new(path).private().until_reboot()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_file_counts_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("proxy.pods.json");
        assert!(read(&path).is_empty());
        std::fs::write(&path, "{").unwrap();
        assert!(read(&path).is_empty());
        let node = NodeName::new("n").unwrap();
        let nodes = vec![NodePods { node: node.clone(), pods: Vec::new() }];
        state_file(&path).save(&SavedPodsFile { nodes }).unwrap();
        assert_eq!(read(&path), [(node, Vec::new())]);
    }
}
