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

/// Each call is forwarded. `as "op"` evaluates the failpoints of `op` around it.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty $(as $op:literal)?;)*) => {$(
        fn $name<'a>(&'a self, $($argument: $type),*) -> BoxFuture<'a, $answer> {
            let call = self.0.$name($($argument),*);
            $(let call = with_failpoints($op, call);)?
            call
        }
    )*};
}

impl Runtime for FailpointRuntime {
    calls! {
        ping() -> Result<EngineInfo, RuntimeError> as "ping";
        volumes_directory() -> Option<PathBuf>;
        list(node: &'a NodeName) -> Result<Vec<Container>, RuntimeError> as "list";
        find(node: &'a NodeName, handle: &'a str) -> Result<Option<Container>, RuntimeError> as "find";
        list_live(node: &'a NodeName) -> Result<Vec<Container>, RuntimeError> as "list";
        ensure_image(image: &'a str, policy: PullPolicy, logins: &'a Arc<dyn RegistryLogins>)
            -> Result<(), RuntimeError> as "ensure_image";
        local_image(image: &'a str) -> Result<Option<LocalImage>, RuntimeError>;
        run_began_at(handle: &'a str) -> Result<Option<u64>, RuntimeError>;
        run(request: &'a ContainerRequest) -> Result<Container, RuntimeError> as "run";
        join_pod_network(cluster: &'a ClusterId) -> Result<Gateway, RuntimeError>;
        run_sandbox(identity: &'a Identity, ports: &'a [Port])
            -> Result<Container, RuntimeError> as "run_sandbox";
        image_check(image: &'a str) -> Result<Option<HealthCheck>, RuntimeError>;
        halt(handle: &'a str, grace: Duration) -> Result<(), RuntimeError> as "halt";
        signal(handle: &'a str, signal: StopSignal) -> Result<(), RuntimeError>;
        volumes(node: &'a NodeName) -> Result<Vec<EngineVolume>, RuntimeError> as "volumes";
        remove_volume(handle: &'a str) -> Result<bool, RuntimeError> as "remove_volume";
        restart(handle: &'a str) -> Result<(), RuntimeError> as "restart";
        stop(handle: &'a str, grace: Duration) -> Result<(), RuntimeError> as "stop";
        end_all(containers: &'a [Container], kill_by: Instant) -> Result<(), RuntimeError>;
        logs(handle: &'a str, tail: usize, follow: bool)
            -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> as "logs";
        came_from_registry(image: &'a str) -> Result<bool, RuntimeError>;
        check_login(host: &'a RegistryHost, login: &'a RegistryLogin) -> LoginVerdict;
        remove_image(image: &'a str) -> Result<(), RuntimeError>;
        lines(handle: &'a str, query: LineQuery) -> Result<LineStream, RuntimeError> as "logs";
        exec(handle: &'a str, command: &'a [String], limit: Duration)
            -> Result<ExecResult, RuntimeError> as "exec";
        counters(handles: &'a [String]) -> Vec<Option<Counters>>;
        start_command(handle: &'a str, request: &'a CommandRequest) -> Result<RunningCommand, RuntimeError>;
        attach(handle: &'a str, size: Option<TerminalSize>) -> Result<RunningCommand, RuntimeError>;
        unpack(handle: &'a str, directory: &'a str, archive: BoxStream<'static, io::Result<Bytes>>)
            -> Result<(), RuntimeError>;
        archive(handle: &'a str, path: &'a str)
            -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>;
        hints(node: &'a NodeName) -> Result<BoxStream<'static, Hint>, RuntimeError> as "hints";
    }

    fn has_images(&self) -> bool {
        self.0.has_images()
    }

    fn has_pod_networks(&self) -> bool {
        self.0.has_pod_networks()
    }

    fn leave_pod_network(&self) {
        self.0.leave_pod_network();
    }

    fn has_sandboxes(&self) -> bool {
        self.0.has_sandboxes()
    }

    fn uses_host_network(&self) -> bool {
        self.0.uses_host_network()
    }

    fn handle_of(&self, identity: &Identity) -> String {
        self.0.handle_of(identity)
    }
}
