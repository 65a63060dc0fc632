//! The program in the sandbox of a pod with several containers, which holds their network.

use crate::signal;

pub(crate) async fn run() -> anyhow::Result<()> {
    signal::stop_requested()?.await;
    Ok(())
}
