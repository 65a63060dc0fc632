//! When this worker last used each image. Only these are ever removed, because others share the engine.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daemon::config::{Config, RuntimeKind};
use daemon::state_file::StateFile;
use parking_lot::Mutex;

const MAX_IMAGES: usize = 10_000;

pub(crate) struct ImageUses {
    file: Option<StateFile>,
    /// Seconds since the Unix epoch, by image; and true if the file is outdated.
    uses: Mutex<(BTreeMap<String, u64>, bool)>,
}

impl ImageUses {
    /// Images of an unreadable file are forgotten, and stay.
    pub(crate) fn load(config: &Config, uses_machine: bool) -> Self {
        let has_images = config.runtime == RuntimeKind::Docker && uses_machine;
        let path = config.data_dir.join(format!("{}.images", config.node));
        Self::of(has_images.then(|| StateFile::new(path)))
    }

    fn of(file: Option<StateFile>) -> Self {
        let uses = file.as_ref().and_then(|file| file.load().ok().flatten()).unwrap_or_default();
        Self { file, uses: Mutex::new((uses, false)) }
    }

    pub(crate) fn note(&self, image: &str) {
        if self.file.is_some() {
            let mut uses = self.uses.lock();
            uses.0.insert(image.to_owned(), now());
            uses.1 = true;
        }
    }

    pub(super) fn forget(&self, image: &str) {
        let mut uses = self.uses.lock();
        uses.1 |= uses.0.remove(image).is_some();
    }

    pub(super) fn ages(&self) -> BTreeMap<String, Duration> {
        let now = now();
        let age = |at: &u64| Duration::from_secs(now.saturating_sub(*at));
        self.uses.lock().0.iter().map(|(image, at)| (image.clone(), age(at))).collect()
    }

    pub(super) async fn save(&self) {
        let Some(file) = &self.file else { return };
        let uses = {
            let mut uses = self.uses.lock();
            if !std::mem::take(&mut uses.1) {
                return;
            }
            while uses.0.len() > MAX_IMAGES
                && let Some(oldest) = uses.0.iter().min_by_key(|(_, at)| **at).map(|(image, _)| image.clone())
            {
                uses.0.remove(&oldest);
            }
            serde_json::to_vec(&uses.0).unwrap_or_default()
        };
        if let Err(error) = file.write_on_thread(uses).await {
            tracing::warn!(%error, "it could not be written which images were used; they are not removed");
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[tokio::test]
    async fn uses_are_known_to_the_next_worker() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("w1.images");
        let new = || ImageUses::of(Some(StateFile::new(&path)));
        let uses = new();
        uses.note("nginx:1");
        uses.note("nginx:2");
        uses.forget("nginx:1");
        uses.save().await;
        let later = new();
        let ages = later.ages();
        assert_eq!(ages.keys().collect::<Vec<_>>(), ["nginx:2"]);
        assert!(ages["nginx:2"] < Duration::from_secs(60));
        std::fs::write(&path, "damaged").unwrap();
        assert!(new().ages().is_empty());
    }
}
