//! A TCP proxy between one process and its Redis that can be cut: connections stay open.

use std::pin::pin;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub struct CuttableProxy {
    port: u16,
    cut: watch::Sender<bool>,
    task: AbortHandle,
}

impl CuttableProxy {
    pub async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, is_cut) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(forward(client, target, is_cut.clone()));
            }
        });
        Self { port, cut, task: task.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Forwards new connections again, and closes the old ones.
    pub fn join(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for CuttableProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut client: TcpStream, target: u16, mut cut: watch::Receiver<bool>) {
    let forwarding = async {
        let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await
    };
    let mut forwarding = pin!(forwarding);
    let mut is_cut = cut.clone();
    let is_cut = tokio::select! {
        biased;
        is_cut = is_cut.wait_for(|cut| *cut) => is_cut.is_ok(),
        _ended = &mut forwarding => false,
    };
    if is_cut {
        // Until the proxy is joined again or dropped.
        let _joined = cut.wait_for(|cut| !cut).await.is_ok();
    }
}
