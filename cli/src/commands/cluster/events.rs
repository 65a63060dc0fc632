//! `events`: shows recent events, or follows new ones.

use std::time::Duration;

use clap::Args;
use client::{ClientError, EventStream, EventsFrom};
use output::objects::events::line;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::exit::Exit;

const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `events`.
#[derive(Debug, Args)]
pub(crate) struct EventArgs {
    /// Follow new events.
    #[arg(long, short, visible_alias = "follow")]
    watch: bool,
    /// Number of recent events to show [default: 50; with --watch 10]
    #[arg(long, value_name = "EVENTS")]
    tail: Option<usize>,
}

impl EventArgs {
    pub(crate) fn of(watch: bool) -> Self {
        Self { watch, tail: None }
    }
}

pub(crate) async fn run(args: &EventArgs, context: &mut Context<'_>) -> CommandResult {
    if args.watch {
        return watch(args.tail.unwrap_or(10), context).await;
    }
    for event in context.client.last_events(args.tail.unwrap_or(50)).await? {
        context.output.print_stream_item(&event, || line(&event))?;
    }
    Ok(Exit::Ok)
}

/// A lost connection resumes after the last event received.
async fn watch(tail: usize, context: &mut Context<'_>) -> CommandResult {
    let mut from = EventsFrom::Tail(tail);
    let mut stream = context.client.watch(&from).await?;
    loop {
        let error = loop {
            match stream.next().await {
                Ok(event) => {
                    context.output.print_stream_item(&event, || line(&event))?;
                    from = EventsFrom::After(event.id);
                }
                Err(error) => break error,
            }
        };
        stderr::warning(&format!("{error}; reconnecting"));
        stream = reconnect(&from, context).await?;
    }
}

async fn reconnect(from: &EventsFrom, context: &Context<'_>) -> Result<EventStream, ClientError> {
    loop {
        match context.client.watch(from).await {
            Err(error) if error.is_transient() => tokio::time::sleep(RECONNECT_INTERVAL).await,
            other => return other,
        }
    }
}
