//! After a pod has agreed to upgrade, bytes are passed both ways as they are.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::gate::Pass;

use super::pods::InFlight;
use super::way;

/// Passes bytes between the two ends until both have ended, or the pod is stopped.
pub(super) async fn pass_bytes(
    client: OnUpgrade,
    pod: OnUpgrade,
    (pass, in_flight): (Option<Pass>, InFlight),
) {
    let mut cut = pass.as_ref().map(Pass::cut);
    let both = async {
        let (client, pod) = tokio::try_join!(client, pod)?;
        let copied = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(pod)).await;
        if let Err(error) = copied {
            tracing::debug!(%error, "Upgraded connection ended");
        }
        Ok::<_, hyper::Error>(())
    };
    tokio::select! {
        ended = both => {
            if let Err(error) = ended {
                tracing::debug!(%error, "Connection was not upgraded");
            }
        }
        () = way::until_cut(cut.as_mut()) => {}
    }
    drop((in_flight, pass));
}
