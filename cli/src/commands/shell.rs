//! `completions` and `man`: generated from the command line's definition, so that they cannot be out of date.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::error::CommandError;
use crate::exit::Exit;
use crate::output::{Output, humanize};
use crate::stderr;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Example: kubeleet completions bash > /etc/bash_completion.d/kubeleet")]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example: kubeleet man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory for one page per command [default: print the main page]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Prints shell completions.
pub(super) fn completions(
    args: &CompletionArgs,
    mut command_line: clap::Command,
    mut output: Output,
) -> Result<Exit, CommandError> {
    let name = command_line.get_name().to_owned();
    // Not directly into the output: clap_complete panics when a reader leaves early.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command_line, name, &mut text);
    output.print_bytes(&text)?;
    Ok(Exit::Ok)
}

/// Prints the main page, or writes a page for each command into a directory.
pub(super) fn manual(
    args: &ManArgs,
    command_line: clap::Command,
    mut output: Output,
) -> Result<Exit, CommandError> {
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
