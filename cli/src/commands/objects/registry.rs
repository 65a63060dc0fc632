//! `registry`: logins of the cluster, which all workers pull with.

use std::io::Read;

use api_types::{RegistryInput, RegistryView};
use clap::{Args, Subcommand};
use client::Method;
use model::ids::RegistryHost;
use model::value::ValueBytes;
use model::value::registry::MAX_PASSWORD_BYTES;
use output::ListStyle;
use output::objects::registries;
use output::stderr;

use super::object_name::ObjectType;
use crate::commands::batch::BatchResult;
use crate::commands::containers::terminal::{self, TerminalMode};
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_of_object;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::flag_values;
use crate::commands::lists;
use crate::commands::type_args::TypeArgs;
use crate::exit::Exit;

pub(crate) type RegistryArgs = TypeArgs<ListStyle, RegistryCommand>;

/// Subcommands of `registry`.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// List the registries with a login, without passwords.
    #[command(visible_alias = "list")]
    Ls(ListStyle),
    /// Store the user and password that workers pull images of a registry with.
    Login(LoginArgs),
    /// Show who pulls from a registry.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// The registry, as in the names of its images.
        #[arg(value_name = "REGISTRY", value_parser = ObjectType::Registry.names())]
        host: String,
    },
    /// Delete the user and password for registries.
    #[command(visible_aliases = ["rm", "remove", "delete"])]
    Logout {
        /// The registries, as in the names of their images.
        #[arg(value_name = "REGISTRY", required = true, value_parser = ObjectType::Registry.names())]
        hosts: Vec<String>,
        /// Delete the login even if services pull their images with it.
        #[arg(short, long)]
        force: bool,
    },
}

/// Arguments of `registry login`.
#[derive(Debug, Args)]
#[command(
    after_help = "A worker that has credentials of its own for the registry, from `docker login` on its node, \
                        pulls with those."
)]
pub(crate) struct LoginArgs {
    /// The registry, as in the names of its images; docker.io is Docker Hub.
    #[arg(value_name = "REGISTRY", value_parser = ObjectType::Registry.names())]
    host: String,
    /// The name of the user.
    #[arg(short, long, alias = "user", value_name = "USER")]
    username: String,
    /// The password or token. The shell keeps it, and other users of the machine can see it while the command
    /// runs: prefer --password-stdin.
    #[arg(long, short, value_name = "PASSWORD", value_parser = flag_values::hidden)]
    password: Option<ValueBytes>,
    /// Read the password or token from standard input. Without this and -p it is asked for in a terminal.
    #[arg(long, conflicts_with = "password")]
    password_stdin: bool,
}

pub(crate) async fn run(args: RegistryArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(RegistryCommand::Ls)? {
        RegistryCommand::Ls(style) => list(style, context).await,
        RegistryCommand::Login(args) => login(args, context).await,
        RegistryCommand::Describe { host } => describe(&host, context).await,
        RegistryCommand::Logout { hosts, force } => logout(&hosts, force, context).await,
    }
}

pub(crate) async fn list(style: ListStyle, context: &mut Context<'_>) -> CommandResult {
    let none = "no logins; `kubeleet registry login REGISTRY -u USER` stores one";
    lists::show(style, none, async |client| client.list::<RegistryView>("registry").await, context).await
}

async fn login(args: LoginArgs, context: &mut Context<'_>) -> CommandResult {
    let host = normalized(&args.host)?;
    let password = match args.password {
        Some(password) => {
            stderr::warning("the password is in the shell's history; --password-stdin reads it");
            password
        }
        None if args.password_stdin => read_password()?,
        None => ask_for_password().await?,
    };
    let input = RegistryInput { user: args.username, password };
    let operation = format!("storing the login for {host}");
    let call = context.client.call(Method::PUT, &["registry", host.as_str()], operation);
    let registry: RegistryView = call.json(&input).view().await?;
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

pub(crate) async fn describe(host: &str, context: &mut Context<'_>) -> CommandResult {
    let host = normalized(host)?;
    let operation = format!("reading the login for {host}");
    let registry = context.client.call(Method::GET, &["registry", host.as_str()], operation).view().await?;
    context.output.print_object(&registry, |now| registries::describe(&registry, now))?;
    Ok(Exit::Ok)
}

pub(crate) async fn logout(hosts: &[String], force: bool, context: &mut Context<'_>) -> CommandResult {
    let mut batch = BatchResult::new();
    for host in hosts {
        let host = normalized(host)?;
        let operation = format!("deleting the login for {host}");
        let call = context.client.call(Method::DELETE, &["registry", host.as_str()], operation);
        let result = call.query("force", force.then_some(true)).done().await;
        if batch.accept(result.map_err(CommandError::from))?.is_some() {
            let text = format!("login for {host} removed");
            context.output.print_named_result(&format!("registry/{host}"), &text, "removed")?;
        }
    }
    Ok(batch.exit())
}

/// As `docker login` does, with `https://` and a path.
fn normalized(host: &str) -> CommandResult<RegistryHost> {
    RegistryHost::of_address(host).map_err(|error| CommandError::Usage(error.to_string()))
}

async fn ask_for_password() -> CommandResult<ValueBytes> {
    if !terminal::is_interactive() {
        return Err(CommandError::Usage(
            "the password is missing: --password-stdin reads it, as in `kubeleet registry login REGISTRY -u USER \
             --password-stdin < FILE`"
                .to_owned(),
        ));
    }
    stderr::note("Password (it is not shown):");
    let failed = |error: std::io::Error| CommandError::Other(format!("cannot read the terminal: {error}"));
    let _hidden = TerminalMode::hidden().map_err(failed)?;
    let mut line = String::new();
    let typed = tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut line).map(|_| line));
    tokio::select! {
        typed = typed => {
            let line = typed.map_err(std::io::Error::other).flatten().map_err(failed)?;
            Ok(ValueBytes::new(line.trim_end_matches(['\n', '\r']).as_bytes().to_vec()))
        }
        // Otherwise this process would end before the terminal shows keys again.
        _interrupted = tokio::signal::ctrl_c() => {
            Err(CommandError::Other("interrupted; nothing was stored".to_owned()))
        }
    }
}

fn read_password() -> CommandResult<ValueBytes> {
    // Slightly more than allowed: the API reports the excess, and an endless input ends.
    let limit = MAX_PASSWORD_BYTES as u64 + 3;
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| CommandError::Other(format!("cannot read standard input: {error}")))?;
    // `echo` adds it, and no password ends with one.
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Ok(ValueBytes::new(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
}
