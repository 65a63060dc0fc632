//! `completions` and `man`: made from the command line itself, so that they can not be out of date.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::failure::Failure;
use crate::exit::{self, Exit};
use crate::output::Output;

/// For which shell.
#[derive(Debug, Args)]
#[command(after_help = "Example: kubeleet completions bash > /etc/bash_completion.d/kubeleet")]
pub(crate) struct CompletionArgs {
    /// Which shell.
    shell: Shell,
}

/// Where to.
#[derive(Debug, Args)]
#[command(after_help = "Example: kubeleet man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory to write a page for each command into [default: the first page on standard output]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Writes completions.
pub(super) fn completions(
    args: &CompletionArgs,
    mut whole: clap::Command,
    mut output: Output,
) -> Result<Exit, Failure> {
    let name = whole.get_name().to_owned();
    // Not into the output: clap_complete panics when a reader leaves early.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut whole, name, &mut text);
    output.raw(&text)?;
    Ok(Exit::Ok)
}

/// Writes the manual.
pub(super) fn manual(args: &ManArgs, whole: clap::Command, mut output: Output) -> Result<Exit, Failure> {
    let Some(directory) = &args.directory else {
        let mut text = Vec::new();
        clap_mangen::Man::new(whole).render(&mut text)?;
        output.raw(&text)?;
        return Ok(Exit::Ok);
    };
    let failed =
        |e: std::io::Error| Failure::Other(format!("writing the manual to {}: {e}", directory.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(whole, directory).map_err(failed)?;
    exit::note(&format!("the manual is in {}", directory.display()));
    Ok(Exit::Ok)
}
