//! A Docker or Podman engine: its identity, lists, logs and hints.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::container::LogOutput;
use bollard::models::{EventMessage, SystemVersion};
use bollard::query_parameters::{
    EventsOptionsBuilder, ListContainersOptionsBuilder, LogsOptionsBuilder, RemoveImageOptionsBuilder,
    TagImageOptionsBuilder,
};
use bytes::Bytes;
use daemon::config::PodPolicy;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use model::ids::{ClusterId, NodeName, PodId};
use parking_lot::Mutex;

use super::client::EngineClient;
use super::commands::exec::UnfinishedCommands;
use super::commands::main_process::FirstConnections;
use super::deadlines::{INSPECT_IN_LIST, PING, READ, WRITE};
use super::engine_record::EngineRecord;
use super::errors::{EngineCall, EngineFailure};
use super::filters::label_filters;
use super::first_processes::FirstProcesses;
use super::images::image::{self, Images};
use super::view::{self, Listed};
use super::{binds, containers, lenient, network};
use crate::lines::StampedEntries;
use crate::usage::cgroup::Cgroups;
use crate::{Container, EngineInfo, Hint, LineQuery, LineStream, RuntimeError, label};

/// Longer than a list may lag.
const REPLAYED_EVENTS: Duration = Duration::from_secs(2);
const EVENTS: [&str; 11] = [
    "create",
    "start",
    "restart",
    "die",
    "stop",
    "kill",
    "oom",
    "destroy",
    "pause",
    "unpause",
    "health_status",
];

pub(super) const PODMAN: &str = "podman";

pub struct DockerRuntime {
    pub(super) client: Arc<EngineClient>,
    pub(super) images: Images,
    pub(super) unfinished: UnfinishedCommands,
    pub(super) first_connections: FirstConnections,
    pub(super) dropped_capabilities: Vec<String>,
    pub(super) bind_prefixes: Vec<PathBuf>,
    /// Cached: an engine starts programs to answer. Dropped when a ping fails: a newer version may return.
    pub(super) info: Mutex<Option<EngineInfo>>,
    /// Id of the engine that answered first, which has the known volumes.
    pub(super) first_id: OnceLock<String>,
    pub(super) record: Option<EngineRecord>,
    pub(super) sandbox_image: tokio::sync::Mutex<()>,
    pub(super) network: network::PodNetwork,
    pub(super) cgroups: Arc<Cgroups>,
    pub(super) first_processes: Arc<FirstProcesses>,
}

impl DockerRuntime {
    /// `host` has the forms of `DOCKER_HOST`, which is its default. Connects at the first call.
    pub fn connect(host: Option<&str>) -> Result<Self, RuntimeError> {
        let client = Arc::new(EngineClient::new(host)?);
        let dropped_capabilities = PodPolicy::default().dropped_capabilities;
        Ok(Self {
            client,
            images: Images::default(),
            unfinished: UnfinishedCommands::default(),
            first_connections: FirstConnections::default(),
            dropped_capabilities,
            bind_prefixes: Vec::new(),
            info: Mutex::default(),
            first_id: OnceLock::new(),
            record: None,
            sandbox_image: tokio::sync::Mutex::default(),
            network: network::PodNetwork::default(),
            cgroups: Arc::default(),
            first_processes: Arc::default(),
        })
    }

    /// The file is written by `docker login`.
    pub fn with_registry_config(mut self, path: Option<PathBuf>) -> Self {
        self.images.registries.path = path;
        self
    }

    pub fn recorded(mut self, record: EngineRecord) -> Self {
        if let Some(former) = record.former(self.client.shown()) {
            self.first_id = OnceLock::from(former.to_owned());
        }
        self.record = Some(record);
        self
    }

    pub fn dropping_capabilities(self, dropped_capabilities: Vec<String>) -> Self {
        Self { dropped_capabilities, ..self }
    }

    pub fn allowing_binds(self, bind_prefixes: Vec<PathBuf>) -> Self {
        Self { bind_prefixes, ..self }
    }

    /// Keeps the network while a container uses it.
    pub async fn remove_pod_network(&self, cluster: &ClusterId) -> Result<(), RuntimeError> {
        network::remove(&self.client, cluster).await
    }

    pub async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        Ok(image::inspect(&self.client, image).await?.is_some())
    }

    pub(super) async fn image_labels(
        &self,
        image: &str,
    ) -> Result<Option<(String, HashMap<String, String>)>, RuntimeError> {
        let found = image::inspect(&self.client, image).await?;
        Ok(found.map(|image| {
            let labels = image.config.and_then(|config| config.labels).unwrap_or_default();
            (image.id.unwrap_or_default(), labels)
        }))
    }

    pub(super) async fn tag_image(&self, image: &str, name: &str) -> Result<(), RuntimeError> {
        image::check_path(image)?;
        let (repo, tag) = image::split(name);
        let options = TagImageOptionsBuilder::default().repo(repo).tag(tag).build();
        let call = self.client.docker()?.tag_image(image, Some(options));
        Ok(self.client.within(EngineCall::Import, READ, call).await?)
    }

    /// The image goes with its last tag. Fails if it is in use.
    pub async fn remove_image(&self, tag: &str) -> Result<(), RuntimeError> {
        image::check_path(tag)?;
        let options = RemoveImageOptionsBuilder::default().build();
        let call = self.client.docker()?.remove_image(tag, Some(options), None);
        match self.client.within(EngineCall::RemoveImage, WRITE, call).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) async fn ping_engine(&self) -> Result<EngineInfo, RuntimeError> {
        let known = || self.info.lock();
        let docker = self.client.docker()?;
        let pinged = self.client.within(EngineCall::Ping, PING, docker.ping()).await;
        if let Err(failure) = pinged {
            *known() = None;
            return Err(failure.into());
        }
        if let Some(info) = known().clone() {
            return Ok(info);
        }
        let mut info = engine_info(self.client.within(EngineCall::Version, READ, docker.version()).await?);
        if info.runtime == "docker" {
            let found = self.client.within(EngineCall::Info, READ, docker.info()).await?;
            info.id = found.id.unwrap_or_default();
        }
        self.check_id(&info.id)?;
        if let Some(record) = &self.record {
            record.save(&info.id, self.client.shown());
        }
        *known() = Some(info.clone());
        Ok(info)
    }

    /// Fails if another engine answered before: a replica would start on an empty volume.
    fn check_id(&self, id: &str) -> Result<(), RuntimeError> {
        let first = self.first_id.get_or_init(|| id.to_owned());
        if first == id {
            return Ok(());
        }
        let refusal = self.record.as_ref().and_then(|record| record.refusal(id, self.client.shown()));
        if let Some(refusal) = refusal {
            return Err(RuntimeError::Engine(refusal));
        }
        Err(RuntimeError::Engine(format!(
            "another one does, with the id {id} and not {first}: the volumes of this node are not there. If it was set up \
             anew, restart this worker, and what ran here is moved"
        )))
    }

    /// A container may only restart if its host paths lead where they did at its creation.
    pub(super) async fn check_binds(&self, handle: &str) -> Result<(), RuntimeError> {
        if self.bind_prefixes.is_empty() {
            return Ok(());
        }
        let sources = containers::bind_sources(&self.client, handle).await?;
        let prefixes = self.bind_prefixes.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let found = binds::led_astray(sources.iter().map(PathBuf::as_path), &prefixes);
            found.map(|(source, now)| (source.to_owned(), now))
        });
        let failed = || RuntimeError::Failed("looking at the paths of its binds took too long".to_owned());
        let found = tokio::time::timeout(READ, looked).await.map_err(|_| failed())?;
        let Some((source, now)) = found.map_err(|_| failed())? else { return Ok(()) };
        tracing::warn!(
            container = handle,
            path = %source.display(), now = %now.display(),
            "a path of the host leads elsewhere than when this container was created: it is removed, and its pod is \
             started anew"
        );
        containers::stop(&self.client, handle, Duration::ZERO).await?;
        Err(RuntimeError::NotFound(format!("container {handle}")))
    }

    pub(super) async fn ensure_first_engine(&self) -> Result<(), RuntimeError> {
        let is_known = self.info.lock().is_some();
        if is_known || self.first_id.get().is_none() {
            return Ok(());
        }
        self.ping_engine().await.map(drop)
    }

    pub(super) async fn list_containers(&self, node: &NodeName) -> Result<Vec<Container>, RuntimeError> {
        let (mut containers, ended) = self.list_rows(node, READ).await?;
        self.first_processes.learn_later(&self.client, &containers);
        // Only inspection shows how a container ended. Engines answer inspections one by one.
        let inspections = ended.into_iter().map(|container| self.inspect_ended(container));
        let inspected: Vec<_> = stream::iter(inspections).buffer_unordered(4).collect().await;
        containers.extend(inspected.into_iter().flatten());
        Ok(containers)
    }

    /// Returns live and ended containers.
    pub(super) async fn list_rows(
        &self,
        node: &NodeName,
        limit: Duration,
    ) -> Result<(Vec<Container>, Vec<Container>), RuntimeError> {
        // Another engine would list none of them, and they would count as lost.
        self.ensure_first_engine().await?;
        let options = ListContainersOptionsBuilder::default().all(true).filters(&label_filters(node)).build();
        let call = self.client.docker()?.list_containers(Some(options));
        let rows = match self.client.within(EngineCall::List, limit, call).await {
            Ok(rows) => rows.into_iter().map(view::listed).collect(),
            Err(failure) => match failure.not_understood.as_ref().and_then(lenient::rows) {
                Some(rows) => rows,
                None => return Err(failure.into()),
            },
        };
        let (mut live, mut ended) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in rows {
            match row {
                Listed::Known(container) => live.push(container),
                Listed::Ended(container) => ended.push(container),
                Listed::Skip => {}
            }
        }
        Ok((live, ended))
    }

    async fn inspect_ended(&self, container: Container) -> Option<Container> {
        match containers::inspect_within(&self.client, &container.handle, INSPECT_IN_LIST).await {
            Ok(found) => found?.container,
            Err(error) => {
                tracing::debug!(container = container.handle, %error, "a container cannot be inspected");
                Some(container)
            }
        }
    }

    pub(super) async fn open_logs(
        &self,
        handle: &str,
        tail: usize,
        follow: bool,
    ) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
        if containers::inspect(&self.client, handle).await?.is_none() {
            return Err(RuntimeError::NotFound(format!("container {handle}")));
        }
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .follow(follow)
            .tail(&tail.to_string())
            .build();
        let lines = self.client.docker()?.clone().with_timeout(WRITE).logs(handle, Some(options));
        let host = self.client.shown().to_owned();
        let lines = lines.map(move |line| match line {
            Ok(output) => Ok(output.into_bytes()),
            Err(error) => Err(EngineFailure::of(EngineCall::Logs, &host, &error).error),
        });
        Ok(lines.boxed())
    }

    pub(super) async fn open_lines(
        &self,
        handle: &str,
        query: LineQuery,
    ) -> Result<LineStream, RuntimeError> {
        if containers::inspect(&self.client, handle).await?.is_none() {
            return Err(RuntimeError::NotFound(format!("container {handle}")));
        }
        let tail = query.tail.map_or_else(|| "all".to_owned(), |lines| lines.to_string());
        // Engines count whole seconds here; older lines are filtered below.
        let since = i32::try_from(query.after / 1_000_000_000).unwrap_or(i32::MAX);
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .follow(query.follow)
            .since(since)
            .tail(&tail)
            .build();
        let entries = self.client.docker()?.clone().with_timeout(WRITE).logs(handle, Some(options));
        let host = self.client.shown().to_owned();
        let entries = entries.map(Some).chain(stream::once(std::future::ready(None)));
        let mut stamped: [StampedEntries; 2] = Default::default();
        let lines = entries.map(move |entry| {
            let mut lines = match entry {
                Some(Ok(output)) => {
                    let is_error = matches!(output, LogOutput::StdErr { .. });
                    stamped[usize::from(is_error)].add(&output.into_bytes())
                }
                Some(Err(error)) => return Err(EngineFailure::of(EngineCall::Logs, &host, &error).error),
                None => stamped.iter_mut().filter_map(StampedEntries::finish).collect(),
            };
            lines.retain(|line| line.time > query.after);
            Ok(lines)
        });
        Ok(lines.boxed())
    }

    pub(super) async fn open_hints(&self, node: &NodeName) -> Result<BoxStream<'static, Hint>, RuntimeError> {
        // The answer begins with the first event: only a ping tells a dead engine from a quiet one.
        self.ping_engine().await?;
        // Given several labels, Podman matches events with any of them.
        let mut filters = HashMap::from([("label".to_owned(), vec![format!("{}={node}", label::NODE)])]);
        filters.insert("type".to_owned(), vec!["container".to_owned()]);
        filters.insert("event".to_owned(), EVENTS.map(str::to_owned).to_vec());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = now.saturating_sub(REPLAYED_EVENTS).as_secs().to_string();
        let options = EventsOptionsBuilder::default().filters(&filters).since(&since).build();
        let events = self.client.docker()?.clone().with_timeout(WRITE).events(Some(options));
        let hints =
            events.map_ok(hint).map_err(|error| tracing::debug!(%error, "the stream of engine events ended"));
        Ok(hints
            .take_while(|event| std::future::ready(event.is_ok()))
            .filter_map(|event| async { event.ok() })
            .boxed())
    }
}

fn hint(event: EventMessage) -> Hint {
    let actor = event.actor.unwrap_or_default();
    let (handle, attributes) = (actor.id, actor.attributes.unwrap_or_default());
    let is_start = event.action.is_some_and(|action| action == "create" || action == "start");
    let pod = attributes.get(label::POD).and_then(|pod| PodId::new(pod.as_str()).ok());
    Hint { pod, handle, is_start }
}

fn engine_info(version: SystemVersion) -> EngineInfo {
    let components = version.components.unwrap_or_default();
    let podman = components.iter().find(|part| part.name == "Podman Engine");
    match podman {
        // Podman's id changes with each call.
        Some(podman) => EngineInfo { runtime: PODMAN, version: podman.version.clone(), id: String::new() },
        None => {
            let number = version.version.unwrap_or_else(|| "(unknown version)".to_owned());
            EngineInfo { runtime: "docker", version: number, id: String::new() }
        }
    }
}
