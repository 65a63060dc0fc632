//! `queue`: shows lengths and entries of queues; requeues and drops dead letters.

use clap::{Args, Subcommand};
use client::Client;
use output::objects::queues;
use output::stderr;
use output::{ListStyle, OutputFormat};

use super::edit_dead_letter;
use super::object_name;
use crate::commands::batch::BatchResult;
use crate::commands::context::{self, Context};
use crate::commands::error::CommandError;
use crate::commands::flag_values;
use crate::commands::watch_list;
use crate::exit::Exit;

const DEFAULT_LIMIT: u32 = 20;

/// Arguments of `queue`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<QueueCommand>,
}

impl QueueArgs {
    pub(crate) fn command(self) -> Result<QueueCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, QueueCommand::Ls)
    }
}

/// Subcommands of `queue`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show the length of each queue.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show the entries of a queue, the next one to be taken first.
    Peek {
        /// Key of the queue in Redis: sq, dq, uq, pq:worker1, rq:worker1, cs:worker1.
        #[arg(value_name = "QUEUE", value_parser = object_name::queue)]
        key: String,
        /// Maximum number of entries.
        #[arg(long, default_value_t = DEFAULT_LIMIT, value_parser = flag_values::page_size)]
        limit: u32,
    },
    /// Move dead letters back to their queues.
    Requeue(RequeueArgs),
    /// Correct a dead letter in $EDITOR and move it back to its queue.
    Edit {
        /// Id, as `kubeleet queue peek dq` shows it.
        #[arg(value_name = "DEAD_LETTER")]
        id: String,
    },
    /// Drop dead letters for good.
    #[command(visible_alias = "rm")]
    Drop(DeadLetterArgs),
}

/// Arguments of `queue ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    /// Show empty node queues as well.
    #[arg(long, short)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

/// Arguments of `requeue`.
#[derive(Debug, Args)]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    dead_letters: DeadLetterArgs,
    /// File with a corrected payload that replaces the one of the dead letter, or - for standard input.
    #[arg(long, short, value_name = "FILE", conflicts_with = "all")]
    file: Option<String>,
}

/// Arguments of `requeue` and `drop`.
#[derive(Debug, Args)]
pub(crate) struct DeadLetterArgs {
    /// Ids, as `kubeleet queue peek dq` shows them.
    #[arg(
        value_name = "DEAD_LETTER",
        required_unless_present = "all",
        conflicts_with = "all",
        value_parser = object_name::dead_letter
    )]
    ids: Vec<String>,
    /// All current dead letters; requires --yes.
    #[arg(long, requires = "yes")]
    all: bool,
    /// Confirms --all.
    #[arg(long)]
    yes: bool,
}

impl QueueCommand {
    pub(crate) fn peek(key: &str) -> Self {
        Self::Peek { key: key.to_owned(), limit: DEFAULT_LIMIT }
    }

    pub(crate) fn drop_dead_letters(ids: Vec<String>) -> Self {
        Self::Drop(DeadLetterArgs { ids, all: false, yes: false })
    }
}

pub(crate) async fn run(command: QueueCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        QueueCommand::Ls(args) => list(&args, context).await,
        QueueCommand::Peek { key, limit } => peek(&key, limit as usize, context).await,
        QueueCommand::Requeue(RequeueArgs { dead_letters, file: None }) => {
            change_dead_letters(&dead_letters, DeadLetterAction::Requeue, context).await
        }
        QueueCommand::Requeue(RequeueArgs { dead_letters, file: Some(file) }) => {
            edit_dead_letter::requeue_from_file(&dead_letters.ids, &file, context).await
        }
        QueueCommand::Edit { id } => edit_dead_letter::edit(&id, context).await,
        QueueCommand::Drop(args) => change_dead_letters(&args, DeadLetterAction::Drop, context).await,
    }
}

async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    if args.style.watch {
        context.output.list_style = args.style;
        // Includes empty queues: a queue that has become empty has changed.
        let read = async |client: &Client| Ok(queues::rows(&client.queues().await?, true));
        return watch_list::run(read, context).await;
    }
    let lengths = context.client.queues().await?;
    match context.output.format {
        // Scripts get the API's shape.
        OutputFormat::Json | OutputFormat::Yaml => context.output.print_document(&lengths, String::new)?,
        OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => {
            context.output.list_style = args.style;
            let all = args.all || context.output.format == OutputFormat::Wide;
            context.output.print_list(&queues::rows(&lengths, all), "no queues")?;
        }
    }
    Ok(Exit::Ok)
}

async fn peek(key: &str, limit: usize, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    if key == "dq" {
        if context.output.list_style.watch {
            let read = async |client: &Client| Ok(client.dead_letters(limit).await?.items);
            return watch_list::run(read, context).await;
        }
        let newest = context.client.dead_letters(limit).await?;
        context.output.print_list(&newest.items, "no dead letters")?;
        return Ok(Exit::Ok);
    }
    let queue = context.client.queue(key, limit).await?;
    if queue.items.is_empty() && !matches!(context.output.format, OutputFormat::Json | OutputFormat::Yaml) {
        stderr::note(&format!("{key} is empty"));
        return Ok(Exit::Ok);
    }
    context.output.print_document(&queue, || queues::payloads(&queue))?;
    if queue.left_out > 0 {
        stderr::note(&format!("{} more are not shown: together they are too large", queue.left_out));
    }
    Ok(Exit::Ok)
}

#[derive(Debug, Clone, Copy)]
enum DeadLetterAction {
    Requeue,
    Drop,
}

async fn change_dead_letters(
    args: &DeadLetterArgs,
    action: DeadLetterAction,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let ids: Vec<String> = match args.all {
        true => context.client.all_dead_letters().await?.into_iter().map(|dead| dead.id).collect(),
        false => args.ids.clone(),
    };
    if ids.is_empty() {
        stderr::note("no dead letters");
    }
    let mut batch = BatchResult::new();
    for id in &ids {
        let (result, done) = match action {
            DeadLetterAction::Requeue => (context.client.requeue_dead_letter(id, None).await, "requeued"),
            DeadLetterAction::Drop => (context.client.delete_dead_letter(id).await, "dropped"),
        };
        if batch.accept(result.map_err(CommandError::from))?.is_some() {
            let text = format!("dead letter {id} {done}");
            context.output.print_named_result(&queues::dead_letter_name(id), &text, done)?;
        }
    }
    Ok(batch.exit())
}
