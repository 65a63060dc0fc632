//! The loop that updates the files of running containers when their secret or config changes: `on_change:
//! signal`. It compares the files with Redis: a container gets its signal at least once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use daemon::log_limit::LogLimit;
use engine::Identity;
use model::RedisMillis;
use model::ids::ValueName;
use model::value::ValueKind;
use store::StoreError;

use crate::session::context::SessionContext;
use crate::start::container_files::{self, Reloaded};

const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The time of storage too: a value that was created again starts with 1.
type ValueVersion = (u64, RedisMillis);

pub(crate) struct ReloadLoop {
    context: Arc<SessionContext>,
    /// By container handle and file name.
    seen: HashMap<(String, String), ValueVersion>,
    failures: LogLimit<String>,
}

struct Mounted {
    handle: String,
    identity: Identity,
    file: Reloaded,
}

impl Loop<StoreError> for ReloadLoop {
    const NAME: &'static str = "reload";
    const BACKOFF: Backoff = Backoff::new(POLL_INTERVAL, Duration::from_secs(10));
    const LOGS_FAILURES: bool = false;

    async fn step(&mut self) -> Result<Next, StoreError> {
        let mounted = self.mounted();
        self.seen.retain(|(handle, _), _| mounted.iter().any(|one| one.handle == *handle));
        if mounted.is_empty() || !self.context.link.is_in_touch() {
            return Ok(Next::Rest);
        }
        let versions = self.versions(&mounted).await?;
        for one in &mounted {
            let key = (one.handle.clone(), one.file.name.clone());
            let version = versions.get(&(one.file.kind, one.file.file.source.clone()));
            if let Some(version) = version.filter(|version| self.seen.get(&key) != Some(*version))
                && self.reload(one, version.0).await
            {
                self.seen.insert(key, *version);
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(POLL_INTERVAL).await;
        Ok(())
    }
}

impl ReloadLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, seen: HashMap::new(), failures: LogLimit::of_retries() }
    }

    fn mounted(&self) -> Vec<Mounted> {
        let worker = &self.context.worker;
        let of_pod = |pod: &crate::running::table::ManagedPod| {
            let containers = pod.containers.iter().enumerate().filter_map(|(index, container)| {
                let request = pod.request(worker, index)?;
                Some((container.handle.clone()?, request))
            });
            let files = containers.flat_map(|(handle, request)| {
                let files = container_files::reloaded(worker, &request.container);
                files.into_iter().map(move |file| Mounted {
                    handle: handle.clone(),
                    identity: request.identity.clone(),
                    file,
                })
            });
            files.collect::<Vec<_>>()
        };
        self.context.table.reloading().iter().flat_map(of_pod).collect()
    }

    /// Containers keep their files while values are missing or unreadable.
    async fn versions(
        &self,
        mounted: &[Mounted],
    ) -> Result<HashMap<(ValueKind, ValueName), ValueVersion>, StoreError> {
        let mut versions = HashMap::new();
        for kind in [ValueKind::Secret, ValueKind::Config] {
            let of_kind = mounted.iter().filter(|one| one.file.kind == kind);
            let mut names: Vec<ValueName> = of_kind.map(|one| one.file.file.source.clone()).collect();
            names.sort();
            names.dedup();
            let infos = self.context.worker.store.value_infos(kind, &names).await?.found().into_iter();
            versions.extend(infos.map(|info| ((kind, info.name), (info.version, info.updated_at))));
        }
        Ok(versions)
    }

    async fn reload(&mut self, one: &Mounted, version: u64) -> bool {
        let worker = &self.context.worker;
        let Reloaded { name, kind, file, signal } = &one.file;
        let (node, container, value) = (&worker.node, &one.handle, &file.source);
        let problem = match container_files::reload(worker, &one.identity, &one.file).await {
            Ok(false) => return true,
            Ok(true) => match worker.runtime.signal(&one.handle, *signal).await {
                Ok(()) => {
                    worker.files.note_told(&one.identity, name);
                    tracing::info!(%node, container, "{kind} {value} has version {version}: its file was replaced \
                        and {signal} sent");
                    return true;
                }
                Err(error) => error.to_string(),
            },
            Err(unavailable) => unavailable.message,
        };
        if self.failures.admit(format!("{container} {name}")) {
            tracing::warn!(%node, container, "version {version} of {kind} {value} is not there yet: {problem}");
        }
        false
    }
}
