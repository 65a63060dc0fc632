//! `secret` and `config`: create, rotate, list, describe, remove; and the encryption key of secrets.

use std::io::Read;
use std::path::PathBuf;

use api_types::{ServiceView, ValueInput};
use clap::{Args, Subcommand};
use client::Client;
use model::ids::ValueName;
use model::spec::ContainerSpec;
use model::value::secret_key::SecretKey;
use model::value::{MAX_VALUE_BYTES, ValueBytes, ValueKind};
use output::objects::secrets_and_configs;
use output::stderr;
use output::{ListStyle, Output};

use super::object_name;
use crate::commands::batch::BatchResult;
use crate::commands::context::{self, Context};
use crate::commands::durability_warning::warn_of_object;
use crate::commands::error::CommandError;
use crate::commands::watch_list;
use crate::exit::Exit;

/// Arguments of `secret`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct SecretArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<SecretCommand>,
}

/// Arguments of `config`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<ValueCommand>,
}

/// Subcommands of `secret`.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    #[command(flatten)]
    Value(ValueCommand),
    /// Print a new key for secrets, for KUBELEET_SECRET_KEY_FILE of APIs and workers.
    Key,
}

/// Subcommands of `config`, and of `secret`.
#[derive(Debug, Subcommand)]
pub(crate) enum ValueCommand {
    /// List them, without their contents.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Store a new one, from standard input unless an option says otherwise.
    #[command(visible_alias = "add")]
    Create(ContentArgs),
    /// Store the next version; the pods that use it are replaced, unless `on_change` says otherwise.
    #[command(visible_alias = "update")]
    Rotate(ContentArgs),
    /// Show one without its content, and the services that use it.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Its name.
        #[arg(value_name = "NAME", value_parser = object_name::value)]
        name: String,
    },
    /// Remove them with all versions; containers that run keep their files.
    #[command(visible_aliases = ["remove", "delete"])]
    Rm {
        /// Their names.
        #[arg(value_name = "NAME", required = true, value_parser = object_name::value)]
        names: Vec<String>,
        /// Delete also what services use: their next pods wait for it.
        #[arg(short, long)]
        force: bool,
    },
}

/// Arguments of `ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

/// Arguments of `create` and `rotate`.
#[derive(Debug, Args)]
pub(crate) struct ContentArgs {
    /// The name.
    #[arg(value_name = "NAME", value_parser = object_name::value)]
    name: String,
    /// File with the content; `-` is standard input, which is also the default.
    #[arg(value_name = "FILE", conflicts_with_all = ["from_file", "from_literal"])]
    file: Option<PathBuf>,
    /// File with the content.
    #[arg(long, value_name = "FILE", conflicts_with = "from_literal")]
    from_file: Option<PathBuf>,
    /// The content itself. Other users of the machine can see it while the command runs, and the shell may
    /// keep it.
    #[arg(long, value_name = "TEXT", value_parser = literal)]
    from_literal: Option<ValueBytes>,
}

/// Hides the value from the moment it is parsed.
fn literal(text: &str) -> Result<ValueBytes, std::convert::Infallible> {
    Ok(ValueBytes::new(text.as_bytes().to_vec()))
}

impl SecretArgs {
    pub(crate) fn command(self) -> Result<SecretCommand, CommandError> {
        let list = |args| SecretCommand::Value(ValueCommand::Ls(args));
        context::subcommand_or_list(self.command, self.list, list)
    }
}

impl ConfigArgs {
    pub(crate) fn command(self) -> Result<ValueCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, ValueCommand::Ls)
    }
}

pub(crate) fn print_key(mut output: Output) -> Result<Exit, CommandError> {
    let key = SecretKey::generate().map_err(CommandError::Other)?;
    output.print_bytes(format!("{key}\n").as_bytes())?;
    Ok(Exit::Ok)
}

pub(crate) async fn run(
    kind: ValueKind,
    command: ValueCommand,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    match command {
        ValueCommand::Ls(args) => list(kind, &args, context).await,
        ValueCommand::Create(args) => create(kind, args, context).await,
        ValueCommand::Rotate(args) => rotate(kind, args, context).await,
        ValueCommand::Describe { name } => describe(kind, &name, context).await,
        ValueCommand::Rm { names, force } => remove(kind, &names, force, context).await,
    }
}

async fn list(kind: ValueKind, args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    context.output.list_style = args.style;
    if args.style.watch {
        let read = async |client: &Client| Ok(secrets_and_configs::rows(kind, client.values(kind).await?));
        return watch_list::run(read, context).await;
    }
    let rows = secrets_and_configs::rows(kind, context.client.values(kind).await?);
    context.output.print_list(&rows, &format!("no {kind}s; `kubeleet {kind} create NAME` creates one"))?;
    Ok(Exit::Ok)
}

async fn create(kind: ValueKind, args: ContentArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let name = ValueName::new(args.name.clone()).map_err(|error| CommandError::Usage(error.to_string()))?;
    let input = ValueInput::new(Some(name), &content(args)?);
    let value = context.client.create_value(kind, &input).await?;
    warn_of_object(kind, &value.name, value.durability.as_ref());
    context.output.print_result(&secrets_and_configs::row(kind, value), "created")?;
    Ok(Exit::Ok)
}

async fn rotate(kind: ValueKind, args: ContentArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let name = args.name.clone();
    let input = ValueInput::new(None, &content(args)?);
    let before = context.client.value(kind, &name).await?;
    let value = context.client.rotate_value(kind, &name, &input).await?;
    warn_of_object(kind, &value.name, value.durability.as_ref());
    let version = value.version;
    if version == before.version {
        let result = format!("unchanged: version {version} has this content");
        context.output.print_result(&secrets_and_configs::row(kind, value), &result)?;
        return Ok(Exit::Ok);
    }
    context
        .output
        .print_result(&secrets_and_configs::row(kind, value), &format!("rotated to version {version}"))?;
    let users = users_of(kind, &name, &context.client.services(None).await?);
    if !users.is_empty() {
        stderr::note(&format!(
            "pods are replaced step by step, unless `on_change` says otherwise or they end by themselves: {}",
            users.join(" ")
        ));
    }
    Ok(Exit::Ok)
}

async fn describe(kind: ValueKind, name: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let value = secrets_and_configs::row(kind, context.client.value(kind, name).await?);
    let users = users_of(kind, name, &context.client.services(None).await?);
    let now = context.output.now();
    context.output.print_object(&value, || secrets_and_configs::describe(&value, &users, now))?;
    Ok(Exit::Ok)
}

async fn remove(
    kind: ValueKind,
    names: &[String],
    force: bool,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let mut batch = BatchResult::new();
    for name in names {
        let result = context.client.delete_value(kind, name, force).await.map_err(CommandError::from);
        if batch.accept(result)?.is_some() {
            let text = format!("{kind} {name} removed");
            context.output.print_named_result(&format!("{kind}/{name}"), &text, "removed")?;
        }
    }
    Ok(batch.exit())
}

pub(crate) fn users_of(kind: ValueKind, name: &str, services: &[ServiceView]) -> Vec<String> {
    let uses = |container: &ContainerSpec| {
        let files = if kind == ValueKind::Secret { &container.secrets } else { &container.configs };
        files.iter().any(|file| file.source.as_str() == name)
    };
    let users = services.iter().filter(|service| service.pod.containers.iter().any(uses));
    users.map(|service| service.name.to_string()).collect()
}

fn content(args: ContentArgs) -> Result<ValueBytes, CommandError> {
    if let Some(literal) = args.from_literal {
        return Ok(literal);
    }
    let path = args.file.or(args.from_file).filter(|path| path.as_os_str() != "-");
    // One byte more than allowed: an endless file ends.
    let limit = MAX_VALUE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let (read, from) = match &path {
        Some(path) => {
            let file = std::fs::File::open(path);
            (file.and_then(|file| file.take(limit).read_to_end(&mut bytes)), path.display().to_string())
        }
        None => (std::io::stdin().take(limit).read_to_end(&mut bytes), "standard input".to_owned()),
    };
    match read {
        Ok(_) if bytes.len() > MAX_VALUE_BYTES => Err(CommandError::Usage(format!(
            "{from} has more than {MAX_VALUE_BYTES} bytes ({} KiB), the most that a secret or config may have: give pods \
             large files as a volume or in their image",
            MAX_VALUE_BYTES / 1024
        ))),
        Ok(_) => Ok(ValueBytes::new(bytes)),
        Err(error) => Err(CommandError::Other(format!("cannot read {from}: {error}"))),
    }
}
