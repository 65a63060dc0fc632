//! A Docker or Podman engine as a [`Runtime`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::ids::{ClusterId, NodeName, RegistryHost};
use model::network::handover::Gateway;
use model::spec::{HealthCheck, Port, PullPolicy, StopSignal};
use model::stream::channel::TerminalSize;
use model::value::registry::{LoginVerdict, RegistryLogin};
use tokio::time::Instant;

use super::commands::{exec, interactive};
use super::deadlines::{INSPECT_IN_LIST, LIST_FOR_FENCE};
use super::engine::{DockerRuntime, PODMAN};
use super::images::{image, login_check};
use super::{archive, binds, containers, run, sandbox, volumes};
use crate::{
    CommandRequest, Container, ContainerRequest, Counters, EngineInfo, EngineVolume, ExecResult, Hint,
    Identity, LineQuery, LineStream, LocalImage, RegistryLogins, RunningCommand, Runtime, RuntimeError,
};

impl Runtime for DockerRuntime {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        Box::pin(self.ping_engine())
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(self.list_containers(node))
    }

    fn find<'a>(
        &'a self,
        _node: &'a NodeName,
        handle: &'a str,
    ) -> BoxFuture<'a, Result<Option<Container>, RuntimeError>> {
        Box::pin(async {
            self.ensure_first_engine().await?;
            let found = containers::inspect_within(&self.client, handle, INSPECT_IN_LIST).await?;
            Ok(found.and_then(|found| found.container))
        })
    }

    fn list_live<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(async { Ok(self.list_rows(node, LIST_FOR_FENCE).await?.0) })
    }

    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        policy: PullPolicy,
        logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(image::ensure(&self.client, &self.images, image, policy, logins))
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        Box::pin(async {
            self.ensure_first_engine().await?;
            let request = &*binds::resolved(request, &self.bind_prefixes, self.client.socket()).await?;
            let run = run::run(self, request).await;
            if matches!(run, Err(RuntimeError::Image(_))) {
                self.images.mark_missing(&request.container.image);
            }
            run
        })
    }

    fn has_sandboxes(&self) -> bool {
        true
    }

    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        Box::pin(async move {
            self.ensure_first_engine().await?;
            sandbox::run(self, identity, ports).await
        })
    }

    fn has_pod_networks(&self) -> bool {
        true
    }

    fn join_pod_network<'a>(
        &'a self,
        cluster: &'a ClusterId,
    ) -> BoxFuture<'a, Result<Gateway, RuntimeError>> {
        Box::pin(async {
            let on_demand = self.ping_engine().await?.runtime == PODMAN;
            let address = self.network.join(&self.client, cluster).await?;
            Ok(Gateway { address, on_demand })
        })
    }

    fn leave_pod_network(&self) {
        self.network.leave();
    }

    fn image_check<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<HealthCheck>, RuntimeError>> {
        Box::pin(image::check_of(&self.client, &self.images, image))
    }

    fn halt<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(containers::halt(&self.client, handle, grace))
    }

    fn signal<'a>(&'a self, handle: &'a str, signal: StopSignal) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(containers::signal(&self.client, handle, signal))
    }

    fn volumes_directory(&self) -> BoxFuture<'_, Option<PathBuf>> {
        Box::pin(volumes::directory(&self.client))
    }

    fn volumes<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        Box::pin(async move {
            self.ensure_first_engine().await?;
            volumes::list(&self.client, node).await
        })
    }

    fn remove_volume<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(async move {
            self.ensure_first_engine().await?;
            volumes::remove(&self.client, handle).await
        })
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.ensure_first_engine().await?;
            self.first_processes.forget(handle);
            self.check_binds(handle).await?;
            containers::restart(&self.client, handle).await
        })
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            containers::stop(&self.client, handle, grace).await?;
            self.unfinished.forget(handle);
            Ok(())
        })
    }

    fn end_all<'a>(
        &'a self,
        containers: &'a [Container],
        kill_by: Instant,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(self.first_processes.end_all(&self.client, containers.to_vec(), kill_by))
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(self.open_logs(handle, tail, follow))
    }

    fn has_images(&self) -> bool {
        true
    }

    fn local_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<LocalImage>, RuntimeError>> {
        Box::pin(image::local(&self.client, image))
    }

    fn run_began_at<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<Option<u64>, RuntimeError>> {
        Box::pin(async move {
            let found = containers::inspect(&self.client, handle).await?;
            Ok(found.and_then(|found| found.run_began_at))
        })
    }

    fn came_from_registry<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(image::came_from_registry(&self.client, image))
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            DockerRuntime::remove_image(self, image).await?;
            self.images.mark_missing(image);
            Ok(())
        })
    }

    fn check_login<'a>(
        &'a self,
        host: &'a RegistryHost,
        login: &'a RegistryLogin,
    ) -> BoxFuture<'a, LoginVerdict> {
        Box::pin(login_check::check(&self.client, host, login))
    }

    fn lines<'a>(
        &'a self,
        handle: &'a str,
        query: LineQuery,
    ) -> BoxFuture<'a, Result<LineStream, RuntimeError>> {
        Box::pin(self.open_lines(handle, query))
    }

    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>> {
        Box::pin(exec::exec(&self.client, &self.unfinished, handle, command, limit))
    }

    fn counters<'a>(&'a self, handles: &'a [String]) -> BoxFuture<'a, Vec<Option<Counters>>> {
        let (cgroups, handles) = (self.cgroups.clone(), handles.to_vec());
        Box::pin(async move {
            let count = handles.len();
            let read = move || handles.iter().map(|id| cgroups.read(id)).collect();
            tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| vec![None; count])
        })
    }

    fn start_command<'a>(
        &'a self,
        handle: &'a str,
        request: &'a CommandRequest,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        Box::pin(interactive::start(&self.client, handle, request))
    }

    fn attach<'a>(
        &'a self,
        handle: &'a str,
        size: Option<TerminalSize>,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        Box::pin(self.first_connections.attach(&self.client, handle, size))
    }

    fn unpack<'a>(
        &'a self,
        handle: &'a str,
        directory: &'a str,
        archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(archive::unpack(&self.client, handle, directory, archive))
    }

    fn archive<'a>(
        &'a self,
        handle: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(archive::read(&self.client, handle, path))
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        Box::pin(self.open_hints(node))
    }
}
