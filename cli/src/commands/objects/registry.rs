//! `registry`: log in, list, log out. Credentials belong to the cluster: all workers pull with them.

use std::io::Read;

use api_types::RegistryInput;
use clap::{Args, Subcommand};
use client::Client;
use model::ids::RegistryHost;
use model::value::ValueBytes;
use model::value::registry::MAX_PASSWORD_BYTES;
use output::ListStyle;
use output::objects::registries;
use output::stderr;

use super::object_name;
use crate::commands::batch::BatchResult;
use crate::commands::context::{self, Context};
use crate::commands::durability_warning::warn_of_object;
use crate::commands::error::CommandError;
use crate::commands::watch_list;
use crate::exit::Exit;

/// Arguments of `registry`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct RegistryArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<RegistryCommand>,
}

impl RegistryArgs {
    pub(crate) fn command(self) -> Result<RegistryCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, RegistryCommand::Ls)
    }
}

/// Subcommands of `registry`.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// List the registries with a login, without passwords.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Store the user and password that workers pull images of a registry with.
    Login(LoginArgs),
    /// Show who pulls from a registry.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// The registry, as in the names of its images.
        #[arg(value_name = "REGISTRY", value_parser = object_name::registry)]
        host: String,
    },
    /// Delete the user and password for registries.
    #[command(visible_aliases = ["rm", "remove", "delete"])]
    Logout {
        /// The registries, as in the names of their images.
        #[arg(value_name = "REGISTRY", required = true, value_parser = object_name::registry)]
        hosts: Vec<String>,
        /// Delete also what services pull their images with.
        #[arg(short, long)]
        force: bool,
    },
}

/// Arguments of `registry ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

/// Arguments of `registry login`.
#[derive(Debug, Args)]
#[command(
    after_help = "A worker that has credentials of its own for the registry, from `docker login` on its node, \
                        pulls with those."
)]
pub(crate) struct LoginArgs {
    /// The registry, as in the names of its images; docker.io is Docker Hub.
    #[arg(value_name = "REGISTRY", value_parser = object_name::registry)]
    host: String,
    /// The name of the user.
    #[arg(short, long, alias = "user", value_name = "USER")]
    username: String,
    /// Read the password or token from standard input. There is no other way: other users of a machine see
    /// its command lines.
    #[arg(long, required = true)]
    password_stdin: bool,
}

pub(crate) async fn run(command: RegistryCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        RegistryCommand::Ls(args) => list(&args, context).await,
        RegistryCommand::Login(args) => login(args, context).await,
        RegistryCommand::Describe { host } => describe(&host, context).await,
        RegistryCommand::Logout { hosts, force } => logout(&hosts, force, context).await,
    }
}

async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    context.output.list_style = args.style;
    if args.style.watch {
        let read = async |client: &Client| client.registries().await;
        return watch_list::run(read, context).await;
    }
    let rows = context.client.registries().await?;
    let none = "no logins; `kubeleet registry login REGISTRY -u USER --password-stdin` stores one";
    context.output.print_list(&rows, none)?;
    Ok(Exit::Ok)
}

async fn login(args: LoginArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let host = normalized(&args.host)?;
    let input = RegistryInput { user: args.username, password: password()? };
    let registry = context.client.put_registry(&host, &input).await?;
    warn_of_object("registry", &host, registry.durability.as_ref());
    let result = format!("stored; workers pull as {} from now on", registry.user);
    context.output.print_result(&registry, &result)?;
    if let Some(warning) = registry.warning {
        stderr::note(&format!(
            "{warning}; it shows at the next pull, and a pod that it refuses is ImagePullBackOff; `kubeleet run --rm \
             --pull always {host}/IMAGE` tries it"
        ));
    }
    Ok(Exit::Ok)
}

async fn describe(host: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let registry = context.client.registry(&normalized(host)?).await?;
    let now = context.output.now();
    context.output.print_object(&registry, || registries::describe(&registry, now))?;
    Ok(Exit::Ok)
}

async fn logout(hosts: &[String], force: bool, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut batch = BatchResult::new();
    for host in hosts {
        let host = normalized(host)?;
        let result = context.client.delete_registry(&host, force).await.map_err(CommandError::from);
        if batch.accept(result)?.is_some() {
            let text = format!("login for {host} removed");
            context.output.print_named_result(&format!("registry/{host}"), &text, "removed")?;
        }
    }
    Ok(batch.exit())
}

/// Accepts addresses as `docker login` does, with `https://` and a path.
fn normalized(host: &str) -> Result<RegistryHost, CommandError> {
    RegistryHost::of_address(host).map_err(|error| CommandError::Usage(error.to_string()))
}

fn password() -> Result<ValueBytes, CommandError> {
    // Reads slightly more than allowed: the API reports the excess, and an endless input ends.
    let limit = MAX_PASSWORD_BYTES as u64 + 3;
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| CommandError::Other(format!("cannot read standard input: {error}")))?;
    // `echo` adds it, and no password ends with one.
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Ok(ValueBytes::new(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
}
