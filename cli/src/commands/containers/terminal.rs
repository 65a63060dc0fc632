//! The user's terminal: its size, and modes in which keys are not shown.

use std::io::{self, IsTerminal};

use model::stream::channel::TerminalSize;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

pub(crate) const NONE: &str = "standard input is no terminal: leave out -t, or run this in a terminal";

pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// `None` if there is no terminal or its size is unknown.
pub(crate) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()?;
    let known = size.ws_col > 0 && size.ws_row > 0;
    known.then_some(TerminalSize { columns: size.ws_col, rows: size.ws_row })
}

/// Dropping it restores the mode before, even after a panic.
pub(crate) struct TerminalMode(Termios);

impl TerminalMode {
    /// Every key goes to the program in the pod.
    pub(crate) fn raw() -> io::Result<Self> {
        Self::set(Termios::make_raw)
    }

    /// Typed lines are not shown.
    pub(crate) fn hidden() -> io::Result<Self> {
        Self::set(|mode| mode.local_modes.remove(LocalModes::ECHO))
    }

    fn set(change: impl FnOnce(&mut Termios)) -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut mode = before.clone();
        change(&mut mode);
        tcsetattr(stdin(), OptionalActions::Now, &mode)?;
        Ok(Self(before))
    }
}

impl Drop for TerminalMode {
    fn drop(&mut self) {
        // Keeps typed input that was not read yet.
        let _best_effort = tcsetattr(stdin(), OptionalActions::Drain, &self.0);
    }
}
