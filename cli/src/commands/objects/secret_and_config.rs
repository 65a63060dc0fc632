//! `secret` and `config`.

use std::io::Read;
use std::path::PathBuf;

use api_types::{ServiceView, ValueInput, ValueView};
use clap::{Args, Subcommand};
use client::{Client, ClientError};
use model::ids::ValueName;
use model::spec::ContainerSpec;
use model::value::secret_key::SecretKey;
use model::value::{MAX_VALUE_BYTES, ValueBytes, ValueKind};
use output::objects::secrets_and_configs::{self, ValueRow};
use output::stderr;
use output::{ListStyle, Output};

use super::object_name::{self, ObjectType};
use crate::commands::batch;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_of_object;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::flag_values;
use crate::commands::lists;
use crate::commands::type_args::TypeArgs;
use crate::exit::Exit;

pub(crate) type SecretArgs = TypeArgs<ListStyle, SecretCommand>;

pub(crate) type ConfigArgs = TypeArgs<ListStyle, ValueCommand>;

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
    Ls(ListStyle),
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
        /// Delete it even if services use it: their next pods wait for it.
        #[arg(short, long)]
        force: bool,
    },
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
    #[arg(long, value_name = "TEXT", value_parser = flag_values::hidden)]
    from_literal: Option<ValueBytes>,
}

pub(crate) fn print_key(output: &mut Output) -> CommandResult {
    let key = SecretKey::generate().map_err(CommandError::Other)?;
    output.print_bytes(format!("{key}\n").as_bytes())?;
    Ok(Exit::Ok)
}

pub(crate) async fn secret(args: SecretArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(|style| SecretCommand::Value(ValueCommand::Ls(style)))? {
        SecretCommand::Value(command) => run(ValueKind::Secret, command, context).await,
        SecretCommand::Key => print_key(&mut context.output),
    }
}

pub(crate) async fn config(args: ConfigArgs, context: &mut Context<'_>) -> CommandResult {
    run(ValueKind::Config, args.or_list(ValueCommand::Ls)?, context).await
}

async fn run(kind: ValueKind, command: ValueCommand, context: &mut Context<'_>) -> CommandResult {
    match command {
        ValueCommand::Ls(style) => list(kind, style, context).await,
        ValueCommand::Create(args) => create(kind, args, context).await,
        ValueCommand::Rotate(args) => rotate(kind, args, context).await,
        ValueCommand::Describe { name } => describe(kind, &name, context).await,
        ValueCommand::Rm { names, force } => remove(kind, &names, force, context).await,
    }
}

pub(crate) async fn list(kind: ValueKind, style: ListStyle, context: &mut Context<'_>) -> CommandResult {
    let none = format!("no {kind}s; `kubeleet {kind} create NAME` creates one");
    lists::show(style, &none, async |client| rows(kind, client).await, context).await
}

pub(crate) async fn rows(kind: ValueKind, client: &Client) -> Result<Vec<ValueRow>, ClientError> {
    Ok(secrets_and_configs::rows(kind, client.list(kind.as_str()).await?))
}

async fn create(kind: ValueKind, args: ContentArgs, context: &mut Context<'_>) -> CommandResult {
    let name = ValueName::new(args.name.clone()).map_err(|error| CommandError::Usage(error.to_string()))?;
    let input = ValueInput::new(Some(name), &content(args)?);
    let value = context.client.create_value(kind, &input).await?;
    warn_of_object(kind, &value.name, value.durability.as_ref());
    context.output.print_result(&secrets_and_configs::row(kind, value), "created")?;
    Ok(Exit::Ok)
}

async fn rotate(kind: ValueKind, args: ContentArgs, context: &mut Context<'_>) -> CommandResult {
    let name = args.name.clone();
    let input = ValueInput::new(None, &content(args)?);
    let before: ValueView = context.client.get(kind.as_str(), &name).await?;
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

pub(crate) async fn describe(kind: ValueKind, name: &str, context: &mut Context<'_>) -> CommandResult {
    let value = secrets_and_configs::row(kind, context.client.get(kind.as_str(), name).await?);
    let users = users_of(kind, name, &context.client.services(None).await?);
    context.output.print_object(&value, |now| secrets_and_configs::describe(&value, &users, now))?;
    Ok(Exit::Ok)
}

pub(crate) async fn remove(
    kind: ValueKind,
    names: &[String],
    force: bool,
    context: &mut Context<'_>,
) -> CommandResult {
    let object_type = match kind {
        ValueKind::Secret => ObjectType::Secret,
        ValueKind::Config => ObjectType::Config,
    };
    let remove = async |client: &Client, name: &str| {
        client.delete_value(kind, name, force).await?;
        Ok(format!("{kind} {name} removed"))
    };
    batch::for_each(object_type, names, "removed", remove, context).await
}

pub(crate) fn users_of(kind: ValueKind, name: &str, services: &[ServiceView]) -> Vec<String> {
    let uses = |container: &ContainerSpec| {
        let files = if kind == ValueKind::Secret { &container.secrets } else { &container.configs };
        files.iter().any(|file| file.source.as_str() == name)
    };
    let users = services.iter().filter(|service| service.pod.containers.iter().any(uses));
    users.map(|service| service.name.to_string()).collect()
}

/// kubectl's `KEY=VALUE`. Base64 may end with `=`.
fn has_key(text: &[u8]) -> bool {
    let Some(at) = text.iter().position(|byte| *byte == b'=') else { return false };
    let (key, value) = (&text[..at], &text[at + 1..]);
    let is_word = key.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    is_word && !key.is_empty() && value.iter().any(|byte| *byte != b'=')
}

fn content(args: ContentArgs) -> CommandResult<ValueBytes> {
    if let Some(literal) = args.from_literal {
        if has_key(literal.expose()) {
            stderr::note(&format!(
                "all of the text is the content, also what is before the `=`: there are no keys. If only the rest is \
                 meant: `--from-literal TEXT` without a key, with `rotate {}` if it is stored by now",
                args.name
            ));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_before_the_content_is_noticed() {
        for (text, expected) in [
            ("k=v", true),
            ("tls.crt=a b", true),
            ("hunter2", false),
            ("aHVudGVyMg==", false),
            ("=v", false),
            ("postgres://db/shop?ssl=on", false),
        ] {
            assert_eq!(has_key(text.as_bytes()), expected, "{text}");
        }
    }
}
