//! Failpoints `engine.<op>.before` and `engine.<op>.after`; see [`daemon::failpoint`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::failpoint::{self, Side};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::ids::{ClusterId, NodeName, RegistryHost};
use model::network::handover::Gateway;
use model::spec::{HealthCheck, Port, PullPolicy, StopSignal};
use model::stream::channel::TerminalSize;
use model::value::registry::{LoginVerdict, RegistryLogin};
use tokio::time::Instant;

use crate::{
    CommandRequest, Container, ContainerRequest, Counters, EngineInfo, EngineVolume, ExecResult, Hint,
    Identity, LineQuery, LineStream, LocalImage, RegistryLogins, RunningCommand, Runtime, RuntimeError,
};

const COMPONENT: &str = "engine";

pub struct FailpointRuntime(pub Arc<dyn Runtime>);

fn with_failpoints<'a, T: 'a>(op: &'static str, call: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
    Box::pin(async move {
        failpoint::check(COMPONENT, op, Side::Before);
        let answer = call.await;
        failpoint::check(COMPONENT, op, Side::After);
        answer
    })
}

impl Runtime for FailpointRuntime {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        with_failpoints("ping", self.0.ping())
    }

    fn volumes_directory(&self) -> BoxFuture<'_, Option<PathBuf>> {
        self.0.volumes_directory()
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        with_failpoints("list", self.0.list(node))
    }

    fn find<'a>(
        &'a self,
        node: &'a NodeName,
        handle: &'a str,
    ) -> BoxFuture<'a, Result<Option<Container>, RuntimeError>> {
        with_failpoints("find", self.0.find(node, handle))
    }

    fn list_live<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        with_failpoints("list", self.0.list_live(node))
    }

    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        policy: PullPolicy,
        logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        with_failpoints("ensure_image", self.0.ensure_image(image, policy, logins))
    }

    fn has_images(&self) -> bool {
        self.0.has_images()
    }

    fn local_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<LocalImage>, RuntimeError>> {
        self.0.local_image(image)
    }

    fn run_began_at<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<Option<u64>, RuntimeError>> {
        self.0.run_began_at(handle)
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        with_failpoints("run", self.0.run(request))
    }

    fn has_pod_networks(&self) -> bool {
        self.0.has_pod_networks()
    }

    fn join_pod_network<'a>(
        &'a self,
        cluster: &'a ClusterId,
    ) -> BoxFuture<'a, Result<Gateway, RuntimeError>> {
        self.0.join_pod_network(cluster)
    }

    fn leave_pod_network(&self) {
        self.0.leave_pod_network();
    }

    fn has_sandboxes(&self) -> bool {
        self.0.has_sandboxes()
    }

    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        with_failpoints("run_sandbox", self.0.run_sandbox(identity, ports))
    }

    fn uses_host_network(&self) -> bool {
        self.0.uses_host_network()
    }

    fn handle_of(&self, identity: &Identity) -> String {
        self.0.handle_of(identity)
    }

    fn image_check<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<HealthCheck>, RuntimeError>> {
        self.0.image_check(image)
    }

    fn halt<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        with_failpoints("halt", self.0.halt(handle, grace))
    }

    fn signal<'a>(&'a self, handle: &'a str, signal: StopSignal) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.0.signal(handle, signal)
    }

    fn volumes<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        with_failpoints("volumes", self.0.volumes(node))
    }

    fn remove_volume<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        with_failpoints("remove_volume", self.0.remove_volume(handle))
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        with_failpoints("restart", self.0.restart(handle))
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        with_failpoints("stop", self.0.stop(handle, grace))
    }

    fn end_all<'a>(
        &'a self,
        containers: &'a [Container],
        kill_by: Instant,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.0.end_all(containers, kill_by)
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        with_failpoints("logs", self.0.logs(handle, tail, follow))
    }

    fn came_from_registry<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        self.0.came_from_registry(image)
    }

    fn check_login<'a>(
        &'a self,
        host: &'a RegistryHost,
        login: &'a RegistryLogin,
    ) -> BoxFuture<'a, LoginVerdict> {
        self.0.check_login(host, login)
    }

    fn remove_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.0.remove_image(image)
    }

    fn lines<'a>(
        &'a self,
        handle: &'a str,
        query: LineQuery,
    ) -> BoxFuture<'a, Result<LineStream, RuntimeError>> {
        with_failpoints("logs", self.0.lines(handle, query))
    }

    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>> {
        with_failpoints("exec", self.0.exec(handle, command, limit))
    }

    fn counters<'a>(&'a self, handles: &'a [String]) -> BoxFuture<'a, Vec<Option<Counters>>> {
        self.0.counters(handles)
    }

    fn start_command<'a>(
        &'a self,
        handle: &'a str,
        request: &'a CommandRequest,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        self.0.start_command(handle, request)
    }

    fn attach<'a>(
        &'a self,
        handle: &'a str,
        size: Option<TerminalSize>,
    ) -> BoxFuture<'a, Result<RunningCommand, RuntimeError>> {
        self.0.attach(handle, size)
    }

    fn unpack<'a>(
        &'a self,
        handle: &'a str,
        directory: &'a str,
        archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.0.unpack(handle, directory, archive)
    }

    fn archive<'a>(
        &'a self,
        handle: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        self.0.archive(handle, path)
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        with_failpoints("hints", self.0.hints(node))
    }
}
