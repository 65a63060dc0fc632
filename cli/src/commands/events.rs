//! `events`: what happened last, or happens now.

use std::time::Duration;

use clap::Args;

use super::Context;
use super::failure::Failure;
use crate::client::{ClientError, EventsFrom};
use crate::exit::{self, Exit};
use crate::output::events::line;

/// Between two tries to reach an API that went away.
const RETRY: Duration = Duration::from_secs(1);

/// Which events.
#[derive(Debug, Args)]
pub(crate) struct EventArgs {
    /// Go on with what happens.
    #[arg(long, short, visible_alias = "follow")]
    watch: bool,
    /// How many of the last events [default: 50; with --watch 10]
    #[arg(long, value_name = "EVENTS")]
    tail: Option<usize>,
}

/// Shows events until there are no more, or, watching, until somebody stops it.
pub(super) async fn run(args: &EventArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if args.watch {
        return watch(args.tail.unwrap_or(10), context).await;
    }
    for event in context.client.last_events(args.tail.unwrap_or(50)).await? {
        context.output.next(&event, || line(&event))?;
    }
    Ok(Exit::Ok)
}

/// The first connection must succeed; later ones are tried again, from the last event seen, so that none is missed.
async fn watch(tail: usize, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut from = EventsFrom::Tail(tail);
    let mut stream = context.client.watch(&from).await?;
    loop {
        let error = loop {
            match stream.next().await {
                Ok(event) => {
                    context.output.next(&event, || line(&event))?;
                    from = EventsFrom::After(event.id);
                }
                Err(error) => break error,
            }
        };
        exit::warn(&format!("{error}; trying again"));
        stream = reconnect(&from, context).await?;
    }
}

async fn reconnect(
    from: &EventsFrom,
    context: &Context<'_>,
) -> Result<crate::client::EventStream, ClientError> {
    loop {
        match context.client.watch(from).await {
            Err(error) if error.is_passing() => tokio::time::sleep(RETRY).await,
            other => return other,
        }
    }
}
