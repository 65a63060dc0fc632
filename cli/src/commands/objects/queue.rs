//! `queue`: lengths and entries of queues; dead letters.

use api_types::QueueView;
use clap::{Args, Subcommand};
use client::{Client, Method};
use output::objects::queues;
use output::stderr;
use output::{ListStyle, OutputFormat};

use super::edit_dead_letter;
use super::object_name::ObjectType;
use crate::commands::batch;
use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::commands::flag_values;
use crate::commands::lists;
use crate::commands::type_args::TypeArgs;
use crate::exit::Exit;

pub(crate) const DEFAULT_LIMIT: u32 = 20;

pub(crate) type QueueArgs = TypeArgs<ListArgs, QueueCommand>;

/// Subcommands of `queue`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show the length of each queue.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show the entries of a queue, the next one to be taken first.
    Peek {
        /// Key of the queue in Redis: sq, dq, uq, pq:worker1, rq:worker1, cs:worker1.
        #[arg(value_name = "QUEUE", value_parser = ObjectType::Queue.names())]
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
        value_parser = ObjectType::DeadLetter.names()
    )]
    ids: Vec<String>,
    /// All current dead letters; requires --yes.
    #[arg(long, requires = "yes")]
    all: bool,
    /// Confirms --all.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: QueueArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(QueueCommand::Ls)? {
        QueueCommand::Ls(args) => list(&args, context).await,
        QueueCommand::Peek { key, limit } => peek(&key, limit, context).await,
        QueueCommand::Requeue(RequeueArgs { dead_letters, file: None }) => {
            let ids = ids(dead_letters, context).await?;
            let requeue = async |client: &Client, id: &str| {
                client.requeue_dead_letter(id, None).await?;
                Ok(format!("dead letter {id} requeued"))
            };
            batch::for_each(ObjectType::DeadLetter, &ids, "requeued", requeue, context).await
        }
        QueueCommand::Requeue(RequeueArgs { dead_letters, file: Some(file) }) => {
            edit_dead_letter::requeue_from_file(&dead_letters.ids, &file, context).await
        }
        QueueCommand::Edit { id } => edit_dead_letter::edit(&id, context).await,
        QueueCommand::Drop(args) => drop_dead_letters(&ids(args, context).await?, context).await,
    }
}

pub(crate) async fn list(args: &ListArgs, context: &mut Context<'_>) -> CommandResult {
    // Scripts get the API's shape.
    if !args.style.watch && matches!(context.output.format, OutputFormat::Json | OutputFormat::Yaml) {
        let lengths = context.client.queues().await?;
        context.output.print_document(&lengths, String::new)?;
        return Ok(Exit::Ok);
    }
    // A watch includes empty queues: a queue that has become empty has changed.
    let all = args.all || args.style.watch || context.output.format == OutputFormat::Wide;
    let read = async |client: &Client| Ok(queues::rows(&client.queues().await?, all));
    lists::show(args.style, "no queues", read, context).await
}

pub(crate) async fn list_dead_letters(
    style: ListStyle,
    limit: u32,
    context: &mut Context<'_>,
) -> CommandResult {
    let read = async |client: &Client| client.dead_letters(Some(limit)).await;
    lists::show(style, "no dead letters", read, context).await
}

pub(crate) async fn peek(key: &str, limit: u32, context: &mut Context<'_>) -> CommandResult {
    if key == "dq" {
        return list_dead_letters(ListStyle::default(), limit, context).await;
    }
    let call = context.client.call(Method::GET, &["queue", key], format!("reading queue {key}"));
    let queue: QueueView = call.query("limit", Some(limit)).view().await?;
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

async fn ids(args: DeadLetterArgs, context: &Context<'_>) -> CommandResult<Vec<String>> {
    let ids = match args.all {
        true => context.client.dead_letters(None).await?.into_iter().map(|dead| dead.id).collect(),
        false => args.ids,
    };
    if ids.is_empty() {
        stderr::note("no dead letters");
    }
    Ok(ids)
}

pub(crate) async fn drop_dead_letters(ids: &[String], context: &mut Context<'_>) -> CommandResult {
    let drop = async |client: &Client, id: &str| {
        let call = client.call(Method::DELETE, &["queue", "dq", id], format!("deleting dead letter {id}"));
        call.done().await?;
        Ok(format!("dead letter {id} dropped"))
    };
    batch::for_each(ObjectType::DeadLetter, ids, "dropped", drop, context).await
}
