//! What every command needs: the client, the output and the global options.

use super::globals::Globals;
use super::wait::Waiter;
use crate::client::Client;
use crate::output::Output;

/// The environment of one command.
pub(super) struct Context<'a> {
    pub(super) client: Client,
    pub(super) output: Output,
    pub(super) globals: &'a Globals,
}

impl Context<'_> {
    /// Returns a waiter whose deadline is `--timeout` from now.
    pub(super) fn waiter(&self) -> Waiter {
        Waiter::new(self.client.clone(), self.globals.timeout)
    }
}
