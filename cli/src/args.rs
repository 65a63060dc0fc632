//! The command line as a whole.

use clap::{Parser, Subcommand};

use crate::commands::{Globals, UserCommand};
use crate::daemon_options::{ProxyOptions, WorkerOptions};
use crate::dev::options::DevOptions;
use crate::healthcheck::HealthcheckOptions;
use crate::net::NetOptions;
use crate::sample_image::SampleImageOptions;
use crate::settings::SettingFlags;

const AFTER_HELP: &str = "\
Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 unschedulable, 6 timed out, 7 not authorized, \
8 unreachable.

First steps:  kubeleet dev          run a whole cluster in this terminal
              kubeleet status       show its state
              kubeleet run nginx    start a service with one pod";

/// A container orchestrator coordinated by nothing but Redis.
#[derive(Parser)]
#[command(name = "kubeleet", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    #[command(flatten)]
    pub(crate) globals: Globals,
}

#[derive(Subcommand)]
pub(crate) enum CliCommand {
    /// Run a whole cluster in one process: Redis, API, scheduler and workers, until Ctrl-C.
    Dev(DevOptions),
    /// Run the HTTP API.
    Api(SettingFlags),
    /// Run a scheduler; one or more per cluster.
    Scheduler(SettingFlags),
    /// Run the worker of this node, and its supervisor.
    Worker(WorkerOptions),
    /// Run the proxy of this host, through which traffic reaches pods; one for all workers of the host.
    Proxy(ProxyOptions),
    /// Prepare this host so that pods reach services by name.
    Net(NetOptions),
    /// Exit 0 if the daemon of this container or machine is healthy.
    Healthcheck(HealthcheckOptions),
    /// Run the program of the `hello` service.
    #[command(hide = true)]
    Hello,
    /// Run the program of the sandbox of a pod with several containers.
    #[command(hide = true)]
    Sandbox,
    /// Create a small image that only sleeps, without a registry.
    #[command(hide = true)]
    SampleImage(SampleImageOptions),
    #[command(flatten)]
    User(UserCommand),
}
