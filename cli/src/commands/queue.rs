//! `queue`: lengths, contents, and what becomes of dead letters.

use clap::{Args, Subcommand};

use super::failure::Failure;
use super::{Context, Tally};
use crate::exit::{self, Exit};
use crate::output::{Format, queues};

/// What to do with queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// How many pods stand in each queue.
    #[command(visible_alias = "list")]
    Ls {
        /// Empty queues of nodes, too.
        #[arg(long, short)]
        all: bool,
    },
    /// What stands in one queue, the next to be taken first.
    Peek {
        /// Its key in Redis: sq, dq, pq:worker1, rq:worker1, cs:worker1.
        key: String,
        /// How many at most.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Give dead letters another try.
    Requeue(Letters),
    /// Throw dead letters away for ever.
    #[command(visible_alias = "rm")]
    Drop(Letters),
}

/// Which dead letters.
#[derive(Debug, Args)]
pub(crate) struct Letters {
    /// Ids, as `kubeleet queue peek dq` shows them.
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// All there are now; needs --yes.
    #[arg(long, requires = "yes")]
    all: bool,
    /// Confirms --all.
    #[arg(long)]
    yes: bool,
}

/// Carries it out.
pub(super) async fn run(command: QueueCommand, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match command {
        QueueCommand::Ls { all } => list(all, context).await,
        QueueCommand::Peek { key, limit } => peek(&key, limit as usize, context).await,
        QueueCommand::Requeue(letters) => decide(&letters, true, context).await,
        QueueCommand::Drop(letters) => decide(&letters, false, context).await,
    }
}

async fn list(all: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let found = context.client.queues().await?;
    match context.output.format {
        // Scripts get the API's own shape.
        Format::Json | Format::Yaml => context.output.whole(&found, String::new)?,
        Format::Table | Format::Wide | Format::Name => {
            let all = all || context.output.format == Format::Wide;
            context.output.list(&queues::lines(&found, all), "no queues")?;
        }
    }
    Ok(Exit::Ok)
}

async fn peek(key: &str, limit: usize, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if key == "dq" {
        let letters = context.client.letters(limit).await?;
        context.output.list(&letters.items, "no dead letters")?;
        return Ok(Exit::Ok);
    }
    let queue = context.client.queue(key, limit).await?;
    if queue.items.is_empty() && !matches!(context.output.format, Format::Json | Format::Yaml) {
        exit::note(&format!("nothing stands in {key}"));
        return Ok(Exit::Ok);
    }
    context.output.whole(&queue, || queues::payloads(&queue))?;
    Ok(Exit::Ok)
}

async fn decide(letters: &Letters, requeue: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let ids = match letters.all {
        true => context.client.all_letters().await?.into_iter().map(|letter| letter.id).collect(),
        false => letters.ids.clone(),
    };
    if ids.is_empty() {
        exit::note("no dead letters");
    }
    let mut tally = Tally::new();
    for id in &ids {
        let (result, done) = match requeue {
            true => (context.client.requeue_letter(id).await, "requeued"),
            false => (context.client.drop_letter(id).await, "dropped"),
        };
        if tally.take(result.map_err(Failure::from))?.is_some() {
            context.output.done_by_name(&format!("letter/{id}"), done)?;
        }
    }
    Ok(tally.0)
}
