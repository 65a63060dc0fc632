//! Copies bytes both ways after a pod has accepted an upgrade.

use std::time::Duration;

use gate::Pass;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::websocket::WebSocketClient;
use crate::pod::pod_path;
use crate::pod::routing_table::InFlight;

const GOODBYE_WITHIN: Duration = Duration::from_secs(2);

pub(super) async fn pass_bytes(
    client: OnUpgrade,
    pod: OnUpgrade,
    is_websocket: bool,
    (pass, in_flight): (Option<Pass>, InFlight),
) {
    let mut cut = pass.as_ref().map(Pass::cut);
    let upgraded = tokio::select! {
        upgraded = async { tokio::try_join!(client, pod) } => upgraded,
        () = pod_path::until_cut(cut.as_mut()) => return,
    };
    let (client, pod) = match upgraded {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "Connection was not upgraded"),
    };
    let mut client = WebSocketClient::new(TokioIo::new(client), is_websocket);
    let mut pod = TokioIo::new(pod);
    tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut client, &mut pod) => {
            if let Err(error) = copied {
                tracing::debug!(%error, "Upgraded connection ended");
            }
        }
        () = pod_path::until_cut(cut.as_mut()) => {}
    }
    // The connection to the pod ends before the gate learns that it has.
    drop(pod);
    drop((in_flight, pass));
    let _ = tokio::time::timeout(GOODBYE_WITHIN, say_goodbye(&mut client)).await;
}

/// Waits for the client's end: a reset would discard the last bytes.
async fn say_goodbye(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    if client.shutdown().await.is_ok() {
        while let Ok(1..) = client.read(&mut [0; 1024]).await {}
    }
}
