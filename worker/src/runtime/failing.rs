//! Failpoints around a runtime: `engine.<op>.before` and `engine.<op>.after`. See [`common::failpoint`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::failpoint::{self, Side};
use common::ids::NodeName;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use super::{Container, ContainerRequest, EngineInfo, Hint, Runtime, RuntimeError};

const SEAM: &str = "engine";

/// Does what the runtime in it does.
pub(crate) struct Failing(pub(crate) Arc<dyn Runtime>);

fn around<'a, T: 'a>(op: &'static str, call: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
    Box::pin(async move {
        failpoint::pass(SEAM, op, Side::Before);
        let answer = call.await;
        failpoint::pass(SEAM, op, Side::After);
        answer
    })
}

impl Runtime for Failing {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        around("ping", self.0.ping())
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        around("list", self.0.list(node))
    }

    fn ensure_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        around("ensure_image", self.0.ensure_image(image))
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        around("run", self.0.run(request))
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        around("restart", self.0.restart(handle))
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        around("stop", self.0.stop(handle, grace))
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        around("logs", self.0.logs(handle, tail, follow))
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        around("hints", self.0.hints(node))
    }
}
