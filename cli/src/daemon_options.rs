//! Arguments of daemons with more than settings.

use clap::Args;

use crate::settings::SettingFlags;

/// Arguments of `proxy`.
#[derive(Args)]
pub(crate) struct ProxyOptions {
    /// Take the place of the proxy that runs, whose connections go on until they end; SIGHUP makes a proxy
    /// start its program again with this option
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// Arguments of `worker`.
#[derive(Args)]
pub(crate) struct WorkerOptions {
    /// Run without the supervisor, which stops pods with `on_disconnect: stop` when the worker cannot
    /// [KUBELEET_GUARD=off]
    #[arg(long)]
    pub(crate) no_guard: bool,
    /// Run as the child of a supervisor, which is at the other end of standard input.
    #[arg(long, hide = true, conflicts_with = "no_guard")]
    pub(crate) guarded: bool,
    /// Run no worker: wait until this node's lease has expired, then stop its pods with
    /// `on_disconnect: stop`
    #[arg(long, conflicts_with_all = ["no_guard", "guarded"])]
    pub(crate) fence_only: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}
