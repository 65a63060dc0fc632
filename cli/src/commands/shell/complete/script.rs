//! Script by which a shell asks this program.

use std::io;

use clap_complete::env::{Elvish, Fish, Powershell, Shells, Zsh};

use super::bash::Bash;

pub(super) const VARIABLE: &str = "KUBELEET_COMPLETE";
pub(super) const SHELLS: Shells<'static> = Shells(&[&Bash, &Elvish, &Fish, &Powershell, &Zsh]);

pub(crate) fn script(shell: &str) -> io::Result<Vec<u8>> {
    let completer = SHELLS.completer(shell).ok_or(io::ErrorKind::Unsupported)?;
    let mut text = Vec::new();
    completer.write_registration(VARIABLE, "kubeleet", "kubeleet", "kubeleet", &mut text)?;
    Ok(text)
}
