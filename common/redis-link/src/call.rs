//! Calls of scripts and commands, with their names for errors and failpoints.

use std::ops::{Deref, DerefMut};

use redis::{Cmd, ScriptInvocation};

pub(crate) const BOUNDARY: &str = "redis";

pub struct ScriptCall<'a> {
    name: &'static str,
    invocation: ScriptInvocation<'a>,
}

impl<'a> ScriptCall<'a> {
    pub fn new(name: &'static str, invocation: ScriptInvocation<'a>) -> Self {
        Self { name, invocation }
    }

    #[cfg(test)]
    pub(crate) fn unnamed(invocation: ScriptInvocation<'a>) -> Self {
        Self::new("EVALSHA", invocation)
    }

    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl<'a> Deref for ScriptCall<'a> {
    type Target = ScriptInvocation<'a>;

    fn deref(&self) -> &Self::Target {
        &self.invocation
    }
}

impl DerefMut for ScriptCall<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.invocation
    }
}

/// Only the first word: arguments can be secrets.
pub(crate) fn command_name(cmd: &Cmd) -> String {
    match cmd.args_iter().next() {
        Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    }
}
