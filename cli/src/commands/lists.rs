//! Lists of objects; with `-w` also a row for each change.

use std::time::{Duration, Instant};

use client::{Client, ClientError};
use output::changed_rows::ChangedRows;
use output::stderr;
use output::{ListStyle, TableRow};

use super::context::Context;
use super::error::CommandResult;
use crate::exit::Exit;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A long list is expensive for the API.
const PAUSE_PER_READ_TIME: u32 = 4;

/// `none` stands in the place of an empty table.
pub(super) async fn show<T: TableRow + PartialEq + Clone>(
    style: ListStyle,
    none: &str,
    read: impl AsyncFn(&Client) -> Result<Vec<T>, ClientError>,
    context: &mut Context<'_>,
) -> CommandResult {
    context.output.list_style = style;
    if style.watch {
        return watch(read, context).await;
    }
    context.output.print_list(&read(&context.client).await?, none)?;
    Ok(Exit::Ok)
}

async fn watch<T: TableRow + PartialEq + Clone>(
    read: impl AsyncFn(&Client) -> Result<Vec<T>, ClientError>,
    context: &mut Context<'_>,
) -> CommandResult {
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
