//! The address of this host's proxy.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::config::Config;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

const MAX_WAIT: Duration = Duration::from_secs(2);

pub type ProxyStream = Box<dyn ReadWrite>;

pub trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for S {}

pub trait ProxySocket: Send + Sync {
    fn connect(&self) -> BoxFuture<'_, io::Result<ProxyStream>>;
}

impl ProxySocket for PathBuf {
    fn connect(&self) -> BoxFuture<'_, io::Result<ProxyStream>> {
        UnixStream::connect(self).map(|stream| Ok(Box::new(stream?) as ProxyStream)).boxed()
    }
}

pub(crate) fn configured(config: &Config) -> Option<Arc<dyn ProxySocket>> {
    config.proxy_socket.clone().map(|path| Arc::new(path) as Arc<dyn ProxySocket>)
}

pub(super) async fn dial(socket: &dyn ProxySocket) -> io::Result<ProxyStream> {
    tokio::time::timeout(MAX_WAIT, socket.connect()).await?
}
