//! The command line: what can be typed.

use clap::{Args, Parser, Subcommand};

use crate::commands::{Globals, UserCommand};
use crate::settings::SettingFlags;

const AFTER_HELP: &str = "\
Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 unschedulable, 6 timed out, 7 not authorized, \
8 unreachable.

First minute:  kubeleet dev          a whole cluster in this terminal
               kubeleet status       what it is doing
               kubeleet run nginx    a service of one pod";

/// A container orchestrator coordinated by nothing but Redis.
#[derive(Parser)]
#[command(name = "kubeleet", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) globals: Globals,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// A whole cluster in one process: Redis, api, scheduler and workers, until Ctrl-C.
    Dev(DevOptions),
    /// The HTTP API.
    Api(SettingFlags),
    /// One scheduler. Run as many as you like.
    Scheduler(SettingFlags),
    /// The worker of this node, and its guard.
    Worker(WorkerOptions),
    /// Ends with 0 when the daemon of this container or machine is healthy.
    Healthcheck(HealthOptions),
    /// What the `hello` service runs.
    #[command(hide = true)]
    Hello,
    /// Makes an image that only sleeps, without a registry: for trying things out.
    #[command(hide = true)]
    SampleImage {
        /// What to call it, e.g. spaster/alpine-sleep
        tag: String,
        #[command(flatten)]
        settings: SettingFlags,
    },
    #[command(flatten)]
    User(UserCommand),
}

#[derive(Args)]
pub(crate) struct WorkerOptions {
    /// Without the parent process that stops `stop` pods when the worker can not [KUBELEET_GUARD=off]
    #[arg(long)]
    pub(crate) no_guard: bool,
    /// The worker itself: standard input is its guard.
    #[arg(long, hide = true, conflicts_with = "no_guard")]
    pub(crate) guarded: bool,
    /// No worker: waits until the lease has run out, then stops the `stop` pods of this node.
    #[arg(long, hide = true, conflicts_with_all = ["no_guard", "guarded"])]
    pub(crate) fence_only: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// A daemon that has a health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Daemon {
    /// It is ready.
    Api,
    /// It gives signs of life.
    Scheduler,
    /// Its heartbeat is fresh.
    Worker,
}

#[derive(Args)]
pub(crate) struct HealthOptions {
    /// Which daemon; any of them when left out
    pub(crate) daemon: Option<Daemon>,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

#[derive(Args)]
pub(crate) struct DevOptions {
    /// How many workers: worker1, worker2 …
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) workers: u32,
    /// Two replicas and three sentinels beside the Redis.
    #[arg(long)]
    pub(crate) ha: bool,
    /// Do not deploy the `hello` service.
    #[arg(long)]
    pub(crate) no_hello: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

impl DevOptions {
    /// These options, with the token that was given to the whole command.
    pub(crate) fn with_token(mut self, globals: &Globals) -> Self {
        self.settings = self.settings.with_token(globals);
        self
    }
}
