//! The wire between one process and its Redis, to be cut: packets vanish, and nobody is told.

use std::pin::pin;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A port that leads to another one. Dropped, it hangs up.
pub struct Wire {
    port: u16,
    cut: watch::Sender<bool>,
    task: AbortHandle,
}

impl Wire {
    /// Leads to this port on loopback.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (cut, is_cut) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(connection(client, port, is_cut.clone()));
            }
        });
        Self { port: own, cut, task: task.abort_handle() }
    }

    /// `redis://127.0.0.1:<port>` of this end.
    pub fn url(&self) -> String {
        crate::redis::url(self.port)
    }

    /// Nothing comes through any more; connections stay open.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// New connections come through again; the old ones are closed.
    pub fn join(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection(mut client: TcpStream, port: u16, mut cut: watch::Receiver<bool>) {
    let carried = async {
        let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await
    };
    let mut carried = pin!(carried);
    let mut is_cut = cut.clone();
    let is_cut = tokio::select! {
        biased;
        is_cut = is_cut.wait_for(|cut| *cut) => is_cut.is_ok(),
        _ended = &mut carried => false,
    };
    if is_cut {
        // Held open at both ends, and nothing is carried any more.
        let _joined = cut.wait_for(|cut| !cut).await.is_ok();
    }
}
