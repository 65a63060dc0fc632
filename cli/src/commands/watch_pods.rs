//! `ps -w`: prints the pods, and then a row for each change.

use std::time::{Duration, Instant};

use super::context::Context;
use super::error::CommandError;
use crate::client::PodFilter;
use crate::exit::Exit;
use crate::output::changed_rows::ChangedRows;
use crate::stderr;

/// Time between two reads of the pods.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A list of many pods is expensive for the API: the pause is at least this many times as long as the last
/// read took.
const PAUSE_PER_READ_TIME: u32 = 4;

/// Watches pods until the process is stopped. If the first read fails, that is an error.
pub(super) async fn run(filter: &PodFilter, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut rows = ChangedRows::new();
    let mut pods = context.client.pods(filter).await?;
    let mut read_time = Duration::ZERO;
    let mut is_connected = true;
    loop {
        let changed = rows.changed(pods);
        context.output.print_changes(&changed, &mut rows)?;
        pods = loop {
            tokio::time::sleep(POLL_INTERVAL.max(read_time * PAUSE_PER_READ_TIME)).await;
            let started = Instant::now();
            match context.client.pods(filter).await {
                Ok(pods) => break pods,
                Err(error) if error.is_transient() => {
                    if std::mem::take(&mut is_connected) {
                        stderr::warning(&format!("{error}; trying again"));
                    }
                }
                Err(error) => return Err(error.into()),
            }
            read_time = started.elapsed();
        };
        is_connected = true;
    }
}
