//! `-w`: prints a list, and then a row for each change.

use std::time::{Duration, Instant};

use client::{Client, ClientError};
use output::TableRow;
use output::changed_rows::ChangedRows;
use output::stderr;

use super::context::Context;
use super::error::CommandError;
use crate::exit::Exit;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum pause as a multiple of the last read's duration: a long list is expensive for the API.
const PAUSE_PER_READ_TIME: u32 = 4;

/// Watches a list until the process is stopped. A failed first read is an error.
pub(super) async fn run<T: TableRow + PartialEq + Clone>(
    read: impl AsyncFn(&Client) -> Result<Vec<T>, ClientError>,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let mut rows = ChangedRows::default();
    let mut items = read(&context.client).await?;
    let mut read_time = Duration::ZERO;
    let mut is_connected = true;
    loop {
        let changed = rows.changed(items);
        context.output.print_changes(&changed, &mut rows)?;
        items = loop {
            tokio::time::sleep(POLL_INTERVAL.max(read_time * PAUSE_PER_READ_TIME)).await;
            let started = Instant::now();
            match read(&context.client).await {
                Ok(items) => break items,
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
