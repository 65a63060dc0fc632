//! The Lua scripts, compiled in: one file per atomic operation under `lua/`, each with its contract on top.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use redis::{Script, ScriptInvocation};

use super::keys;

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {$(
        pub(crate) static $name: Named = Named {
            name: stringify!($name),
            script: LazyLock::new(|| {
                let file = include_str!(concat!("lua/", stringify!($name), ".lua"));
                Script::new(&format!("{}\n{file}", include_str!("lua/_prelude.lua")))
            }),
        };
    )*

        /// Every script's text by name.
        #[cfg(test)]
        pub(crate) const FILES: &[(&str, &str)] =
            &[$((stringify!($name), include_str!(concat!("lua/", stringify!($name), ".lua")))),*];
    };
}

#[allow(non_upper_case_globals, reason = "each is named like its file")]
mod table {
    use super::{LazyLock, Named, Script};
    scripts!(
        ack,
        assign,
        claim,
        cordon,
        declare_dead,
        drain,
        finish,
        guest_ack,
        guest_beat,
        heartbeat,
        lease,
        letter_requeue,
        lost,
        park,
        pod_requeue,
        pods_create,
        pods_stop,
        register,
        reject,
        report,
        return_orphans,
        service_delete,
        service_forget,
        service_put,
        service_scale,
        slot_free,
        take,
        take_work,
        unpark,
        writes_confirmed,
        writes_unconfirmed,
    );
}
pub(crate) use table::*;

/// A script and its file's name.
pub(crate) struct Named {
    name: &'static str,
    script: LazyLock<Script>,
}

/// A call of a script, to be filled with keys and arguments.
pub(crate) struct Call<'a> {
    name: &'static str,
    invocation: ScriptInvocation<'a>,
}

impl<'a> Call<'a> {
    /// A call of a script that has no file.
    #[cfg(test)]
    pub(crate) fn unnamed(invocation: ScriptInvocation<'a>) -> Self {
        Self { name: "EVALSHA", invocation }
    }

    /// Which script it is.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

impl<'a> Deref for Call<'a> {
    type Target = ScriptInvocation<'a>;

    fn deref(&self) -> &Self::Target {
        &self.invocation
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.invocation
    }
}

/// Begins a call: every script takes `events` and `meta` first.
pub(crate) fn call(script: &'static Named) -> Call<'static> {
    let mut invocation = script.script.prepare_invoke();
    invocation.key(keys::EVENTS).key(keys::META);
    Call { name: script.name, invocation }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_script_says_its_contract() {
        for (name, file) in super::FILES {
            for part in ["-- KEYS: events, meta", "-- Reply: "] {
                assert!(file.contains(part), "lua/{name}.lua lacks {part:?} in its header");
            }
        }
    }
}
