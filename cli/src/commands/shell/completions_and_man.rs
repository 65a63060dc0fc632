//! `completions` and `man`, generated from the command line's definition.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use output::stderr;
use output::{Output, humanize};

use super::complete;
use crate::commands::error::{CommandError, CommandResult};
use crate::exit::Exit;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Names of services, pods, nodes and queues come from the API; while it is away, or needs \
                        a token that is not set, only commands and options are completed."
)]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for one page per command [default: print the main page]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionArgs, mut output: Output) -> CommandResult {
    output.print_bytes(&complete::script(&args.shell.to_string())?)?;
    Ok(Exit::Ok)
}

pub(crate) fn manual(args: &ManArgs, command_line: clap::Command, mut output: Output) -> CommandResult {
    let Some(directory) = &args.directory else {
        let mut text = Vec::new();
        clap_mangen::Man::new(command_line).render(&mut text)?;
        output.print_bytes(&text)?;
        return Ok(Exit::Ok);
    };
    let cannot_write = |e: std::io::Error| {
        let reason = humanize::system_error(&e);
        CommandError::Other(format!("cannot write man pages to {}: {reason}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(cannot_write)?;
    clap_mangen::generate_to(command_line, directory).map_err(cannot_write)?;
    stderr::note(&format!("wrote the man pages to {}", directory.display()));
    Ok(Exit::Ok)
}
