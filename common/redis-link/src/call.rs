//! A call of a script, as the link sends it.

use std::ops::{Deref, DerefMut};

use redis::ScriptInvocation;

/// A script with its keys and arguments, and its name in errors and failpoints.
pub struct ScriptCall<'a> {
    name: &'static str,
    invocation: ScriptInvocation<'a>,
}

impl<'a> ScriptCall<'a> {
    /// Creates a call of the script `name`.
    pub fn new(name: &'static str, invocation: ScriptInvocation<'a>) -> Self {
        Self { name, invocation }
    }

    /// A call of a script that has no name.
    #[cfg(test)]
    pub(crate) fn unnamed(invocation: ScriptInvocation<'a>) -> Self {
        Self::new("EVALSHA", invocation)
    }

    /// Returns the name of the script.
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
