//! The loop that measures volumes with a `space`: engines' volumes have no limit on most file systems. A
//! worker in a container may not see the folders, and then measures nothing.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use engine::{EngineVolume, RuntimeError, VolumeOwner};
use model::service::volume::{LocalExcess, VolumeSize};

use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;

/// A volume with more files is not worth the cost.
const MAX_FILES: usize = 200_000;
const BLOCK: u64 = 512;

pub(crate) struct VolumeSizeLoop {
    context: Arc<SessionContext>,
    noted: BTreeSet<String>,
}

impl Loop<RuntimeError> for VolumeSizeLoop {
    const NAME: &'static str = "volume sizes";
    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));
    const LOGS_FAILURES: bool = false;

    async fn step(&mut self) -> Result<Next, RuntimeError> {
        let worker = self.context.worker.clone();
        let mut own = worker.own_volumes().await?;
        own.retain(|volume| volume.space.is_some());
        self.noted.retain(|noted| own.iter().any(|volume| volume.handle == *noted));
        if own.is_empty() {
            return Ok(Next::Rest);
        }
        let Some(directory) = worker.runtime.volumes_directory().await else { return Ok(Next::Rest) };
        let (mut persistent, mut local) = (Vec::new(), Vec::new());
        for volume in own {
            let Some(used) = measured(directory.join(&volume.handle)).await else { continue };
            let over = excess(&volume, used);
            match volume.owner {
                VolumeOwner::Replica(claim) => {
                    persistent.push(VolumeSize { name: claim.name, used, over: over.unwrap_or_default() });
                }
                VolumeOwner::Pod(pod, _) => match over {
                    Some(over) if self.noted.insert(volume.handle.clone()) => {
                        local.push(LocalExcess { pod, over });
                    }
                    Some(_) => {}
                    None => drop(self.noted.remove(&volume.handle)),
                },
            }
        }
        if !persistent.is_empty() || !local.is_empty() {
            let reply = self.context.session.report_volume_sizes(&persistent, &local).await;
            let reply = self.context.classify("reporting the sizes of volumes", reply);
            if !matches!(reply, ReplyClass::Reply(())) {
                self.noted.clear();
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), RuntimeError> {
        tokio::time::sleep(self.context.worker.timings.measure_interval).await;
        Ok(())
    }
}

impl VolumeSizeLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, noted: BTreeSet::new() }
    }
}

fn excess(volume: &EngineVolume, used: u64) -> Option<String> {
    let space = volume.space.filter(|space| used > *space)?;
    let name = match &volume.owner {
        VolumeOwner::Replica(claim) => claim.name.to_string(),
        VolumeOwner::Pod(..) => volume.handle.clone(),
    };
    Some(format!(
        "volume {name} holds {used} bytes, and its space is {space}: raise `space`, or make room in it before the disk \
         of its node is full"
    ))
}

async fn measured(path: PathBuf) -> Option<u64> {
    let measured = tokio::task::spawn_blocking(move || size_of(&path, MAX_FILES)).await.ok()?;
    measured.ok().flatten()
}

/// Follows no links, and does not leave the file system.
fn size_of(path: &Path, max_files: usize) -> io::Result<Option<u64>> {
    let root = fs::symlink_metadata(path)?;
    let (mut folders, mut files, mut blocks) = (vec![path.to_path_buf()], 0, root.blocks());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // A file removed meanwhile uses nothing.
            let Ok(metadata) = entry.metadata() else { continue };
            files += 1;
            if files > max_files {
                return Ok(None);
            }
            blocks += metadata.blocks();
            if metadata.is_dir() && metadata.dev() == root.dev() {
                folders.push(entry.path());
            }
        }
    }
    Ok(Some(blocks * BLOCK))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_folder_takes_what_its_files_take_and_links_lead_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("inside"), root.path().join("outside"));
        fs::create_dir_all(inside.join("deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        for file in [inside.join("a"), inside.join("deep/b"), outside.join("c")] {
            fs::write(file, vec![1; 1 << 20]).unwrap();
        }
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let size = size_of(&inside, 100).unwrap().unwrap();
        assert!((2 << 20..5 << 19).contains(&size), "{size}");
        assert_eq!(size_of(&inside, 2).unwrap(), None, "too many files");
        assert!(size_of(&root.path().join("none"), 100).is_err());
    }
}
