//! Containers on a Docker engine, 20.10 or newer, or on Podman through the same socket protocol.
//!
//! [`client`] is the connection and its deadlines, [`create`] the allow-list of what a container may have,
//! [`errors`] what the engine's complaints mean, [`containers`] and [`image`] the calls that change something,
//! [`view`] the engine's words in ours. Nothing is remembered here but which pulls are under way and which
//! images were just seen.

mod client;
mod containers;
mod create;
mod errors;
mod image;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::{EventMessage, SystemVersion};
use bollard::query_parameters::{
    CreateImageOptionsBuilder, EventsOptionsBuilder, ListContainersOptionsBuilder, LogsOptionsBuilder,
    RemoveImageOptionsBuilder, TagImageOptionsBuilder,
};
use bytes::Bytes;
use common::ids::{NodeName, PodId};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};

use self::client::Client;
use self::errors::{Doing, Fault};
use self::view::Listed;
use super::{Container, ContainerRequest, EngineInfo, Hint, Runtime, RuntimeError, label};

/// Asked with each heartbeat: slower than this counts as no answer.
const PING: Duration = Duration::from_secs(3);
/// Calls that only read.
const QUICK: Duration = Duration::from_secs(10);
/// Calls that make or remove; an engine under load takes its time.
const SLOW: Duration = Duration::from_secs(60);
/// Writing an image to the engine's disk.
const IMPORT: Duration = Duration::from_secs(300);

/// Events after which a list may show something else.
const EVENTS: [&str; 10] =
    ["create", "start", "restart", "die", "stop", "kill", "oom", "destroy", "pause", "health_status"];

/// A Docker or Podman engine.
pub struct DockerRuntime {
    client: Arc<Client>,
    images: image::Images,
    /// Asked once, for an engine runs programs to answer; forgotten when a ping fails, for it may come back newer.
    info: Mutex<Option<EngineInfo>>,
}

impl DockerRuntime {
    /// An engine at `host`, in the forms of `DOCKER_HOST` (`unix:///path`, `tcp://host:port`). `None` reads
    /// `DOCKER_HOST`, and takes the usual socket when that is unset. Connects with the first call: only an address
    /// that can not be meant is an error here.
    pub fn connect(host: Option<&str>) -> Result<Self, RuntimeError> {
        let client = Arc::new(Client::new(host)?);
        Ok(Self { client, images: image::Images::default(), info: Mutex::default() })
    }

    /// Whether the engine has this image already.
    pub async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        image::is_present(&self.client, image).await
    }

    /// Id and labels of an image; `None` when it is absent.
    pub(super) async fn image_labels(
        &self,
        image: &str,
    ) -> Result<Option<(String, HashMap<String, String>)>, RuntimeError> {
        image::check_path(image)?;
        let call = self.client.docker()?.inspect_image(image);
        match self.client.within(Doing::InspectImage, QUICK, call).await {
            Ok(answer) => {
                let labels = answer.config.and_then(|config| config.labels).unwrap_or_default();
                Ok(Some((answer.id.unwrap_or_default(), labels)))
            }
            Err(fault) if fault.is_not_found() => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Makes an image of a tar of its files. `changes` are lines of a Dockerfile, without `FROM`.
    pub(super) async fn import_tar(
        &self,
        name: &str,
        changes: Vec<String>,
        tar: impl stream::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), RuntimeError> {
        image::check_path(name)?;
        let (repo, tag) = image::split(name);
        let options =
            CreateImageOptionsBuilder::default().from_src("-").repo(repo).tag(tag).changes(changes).build();
        let body = bollard::body_try_stream(tar);
        let progress = self.client.docker()?.create_image(Some(options), Some(body), None);
        let call = progress.try_for_each(|_| std::future::ready(Ok(())));
        Ok(self.client.within(Doing::Import, IMPORT, call).await?)
    }

    /// Gives an image another name. What had that name before keeps only its id.
    pub(super) async fn tag_image(&self, image: &str, name: &str) -> Result<(), RuntimeError> {
        image::check_path(image)?;
        let (repo, tag) = image::split(name);
        let options = TagImageOptionsBuilder::default().repo(repo).tag(tag).build();
        let call = self.client.docker()?.tag_image(image, Some(options));
        Ok(self.client.within(Doing::Import, QUICK, call).await?)
    }

    /// Removes an image's tag, and the image with its last one. Absent already is success; an image in use is not.
    pub async fn remove_image(&self, tag: &str) -> Result<(), RuntimeError> {
        image::check_path(tag)?;
        let options = RemoveImageOptionsBuilder::default().build();
        let call = self.client.docker()?.remove_image(tag, Some(options), None);
        match self.client.within(Doing::RemoveImage, SLOW, call).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.is_not_found() => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn ping_engine(&self) -> Result<EngineInfo, RuntimeError> {
        let known = || self.info.lock().unwrap_or_else(PoisonError::into_inner);
        let docker = self.client.docker()?;
        let pinged = self.client.within(Doing::Ping, PING, docker.ping()).await;
        if let Err(fault) = pinged {
            *known() = None;
            return Err(fault.into());
        }
        if let Some(info) = known().clone() {
            return Ok(info);
        }
        let info = engine_info(self.client.within(Doing::Version, QUICK, docker.version()).await?);
        *known() = Some(info.clone());
        Ok(info)
    }

    async fn list_containers(&self, node: &NodeName) -> Result<Vec<Container>, RuntimeError> {
        let options = ListContainersOptionsBuilder::default().all(true).filters(&label_filters(node)).build();
        let call = self.client.docker()?.list_containers(Some(options));
        let rows = self.client.within(Doing::List, QUICK, call).await?;
        let mut containers = Vec::with_capacity(rows.len());
        let mut ended = Vec::new();
        for row in rows {
            match view::listed(row) {
                Listed::Known(container) => containers.push(container),
                Listed::Ended(handle) => ended.push(handle),
                Listed::Skip => {}
            }
        }
        // The list has neither exit code nor out-of-memory; a few at a time, engines answer these one by one anyway.
        let client = &self.client;
        let looks = ended.into_iter().map(|handle| async move { containers::inspect(client, &handle).await });
        let seen: Vec<_> = stream::iter(looks).buffer_unordered(4).try_collect().await?;
        containers.extend(seen.into_iter().flatten().filter_map(|found| found.container));
        Ok(containers)
    }

    async fn open_logs(
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
        // The limit covers the time to the answer's beginning; what follows comes when the container writes.
        let lines = self.client.docker()?.clone().with_timeout(SLOW).logs(handle, Some(options));
        let host = self.client.shown().to_owned();
        let lines = lines.map(move |line| match line {
            Ok(output) => Ok(output.into_bytes()),
            Err(error) => Err(Fault::of(Doing::Logs, &host, &error).error),
        });
        Ok(lines.boxed())
    }

    async fn open_hints(&self, node: &NodeName) -> Result<BoxStream<'static, Hint>, RuntimeError> {
        // The events' own answer says nothing until there is one: the ping tells a dead engine from a quiet one.
        self.ping_engine().await?;
        let mut filters = label_filters(node);
        filters.insert("type".to_owned(), vec!["container".to_owned()]);
        filters.insert("event".to_owned(), EVENTS.map(str::to_owned).to_vec());
        let options = EventsOptionsBuilder::default().filters(&filters).build();
        let events = self.client.docker()?.clone().with_timeout(SLOW).events(Some(options));
        let hints = events.map_ok(hint).map_err(|error| tracing::debug!(%error, "the engine's events end"));
        Ok(hints
            .take_while(|event| std::future::ready(event.is_ok()))
            .filter_map(|event| async { event.ok() })
            .boxed())
    }
}

fn label_filters(node: &NodeName) -> HashMap<String, Vec<String>> {
    let labels = vec![format!("{}=kubeleet", label::ORCHESTRATOR), format!("{}={node}", label::NODE)];
    HashMap::from([("label".to_owned(), labels)])
}

fn hint(event: EventMessage) -> Hint {
    let attributes = event.actor.and_then(|actor| actor.attributes).unwrap_or_default();
    let began = event.action.is_some_and(|action| action == "create" || action == "start");
    Hint { pod: attributes.get(label::POD).and_then(|pod| PodId::new(pod.as_str()).ok()), began }
}

fn engine_info(version: SystemVersion) -> EngineInfo {
    let components = version.components.unwrap_or_default();
    let podman = components.iter().find(|part| part.name == "Podman Engine");
    match podman {
        Some(podman) => EngineInfo { runtime: "podman", version: format!("Podman {}", podman.version) },
        None => {
            let number = version.version.unwrap_or_else(|| "of unknown version".to_owned());
            EngineInfo { runtime: "docker", version: format!("Docker Engine {number}") }
        }
    }
}

impl Runtime for DockerRuntime {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        Box::pin(self.ping_engine())
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(self.list_containers(node))
    }

    fn ensure_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(image::ensure(&self.client, &self.images, image))
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        Box::pin(async {
            let run = containers::run(&self.client, request).await;
            if matches!(run, Err(RuntimeError::Image(_))) {
                self.images.is_gone(&request.container.image);
            }
            run
        })
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(containers::restart(&self.client, handle))
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(containers::stop(&self.client, handle, grace))
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(self.open_logs(handle, tail, follow))
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        Box::pin(self.open_hints(node))
    }
}
