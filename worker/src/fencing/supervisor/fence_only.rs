//! The last resort, when worker and supervisor are gone and may not come back.

use std::sync::Arc;
use std::time::Duration;

use daemon::config::Config;

use super::error::SupervisorError;
use super::fencing::Fencing;
use super::observed_lease::ObservedLease;
use crate::fencing::lease_file;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Consecutive scans without findings.
const CLEAN_LOOKS_NEEDED: u32 = 3;

pub async fn fence_only(config: Arc<Config>) -> Result<(), SupervisorError> {
    let boot_id = lease_file::boot_id()?;
    let first = ObservedLease::read(&config, &boot_id);
    if let Some(remaining) = first.remaining() {
        tracing::info!(node = %config.node, "no worker runs: waiting {remaining:?} for its lease to expire");
    }
    let mut fencing = Fencing::new(config.clone());
    let mut clean_looks = 0;
    while clean_looks < CLEAN_LOOKS_NEEDED {
        let now = ObservedLease::read(&config, &boot_id);
        if now.deadline > first.deadline {
            tracing::info!(node = %config.node, "a worker is back: nothing to fence");
            return Ok(());
        }
        match now.remaining() {
            // The clock of sleeps stops while the machine is suspended, so sleeps are short.
            Some(remaining) => tokio::time::sleep(remaining.min(POLL_INTERVAL)).await,
            None => {
                fencing.begin(now.deadline);
                clean_looks = if fencing.end().await { clean_looks + 1 } else { 0 };
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
    tracing::info!(node = %config.node, "no pod with `on_disconnect: stop` runs on this node");
    Ok(())
}
