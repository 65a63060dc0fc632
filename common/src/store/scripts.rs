//! The Lua scripts, compiled in: one file per atomic operation under `lua/`, each with its contract on top.

use std::sync::LazyLock;

use redis::Script;

use super::keys;

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            let file = include_str!(concat!("lua/", stringify!($name), ".lua"));
            Script::new(&format!("{}\n{file}", include_str!("lua/_prelude.lua")))
        });
    )*

        /// Every script's text by name.
        #[cfg(test)]
        pub(crate) const FILES: &[(&str, &str)] =
            &[$((stringify!($name), include_str!(concat!("lua/", stringify!($name), ".lua")))),*];
    };
}

#[allow(non_upper_case_globals, reason = "each is named like its file")]
mod table {
    use super::{LazyLock, Script};
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
        unpark,
    );
}
pub(crate) use table::*;

/// Begins a call: every script takes `events` and `meta` first.
pub(crate) fn call(script: &'static Script) -> redis::ScriptInvocation<'static> {
    let mut invocation = script.prepare_invoke();
    invocation.key(keys::EVENTS).key(keys::META);
    invocation
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
