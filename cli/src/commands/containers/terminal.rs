//! The user's terminal: its size, and raw mode.

use std::io::{self, IsTerminal};

use model::stream::channel::TerminalSize;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

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

/// Every key goes to the program in the pod. Dropping it restores the mode, even after a panic.
pub(crate) struct RawTerminal(Termios);

impl RawTerminal {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Keeps typed input that was not read yet.
        let _best_effort = tcsetattr(stdin(), OptionalActions::Drain, &self.0);
    }
}
