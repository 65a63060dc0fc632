//! The `kubeleet` binary.
//!
//! Tests: commands::tests, user_commands

mod args;
mod commands;
mod daemon_exit;
mod daemon_options;
mod daemons;
mod dev;
mod dev_token;
#[cfg(test)]
mod documented_commands;
mod examples;
mod exit;
mod habits;
mod healthcheck;
mod help;
mod net;
mod sample_app;
mod sample_image;
mod sandbox;
mod settings;
mod signal;
mod take_over;

use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;
use output::stderr;

use args::{Cli, CliCommand};
use exit::Exit;

/// A worker allocates thousands of small objects for each batch of pods. mimalloc takes a third less time
/// than the system's allocator, and far less than musl's. Huge pages are off: they would make an idle daemon
/// ten MiB larger.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if commands::answer_shell() {
        return Exit::Ok.into();
    }
    let matches = habits::parse(std::env::args_os().collect()).unwrap_or_else(|refusal| refusal.exit());
    let Cli { command, mut globals } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    globals.prefer_flags(&matches, help::command_line).unwrap_or_else(|error| error.exit());
    let token = globals.token_settings();
    let result = match command {
        CliCommand::Dev(options) => block_on(dev::run(options.with_token(token))).flatten(),
        CliCommand::Api(settings) => block_on(daemons::api(&settings.with_token(token))).flatten(),
        CliCommand::Scheduler(settings) => block_on(daemons::scheduler(&settings)).flatten(),
        CliCommand::Proxy(options) => block_on(daemons::proxy(&options)).flatten(),
        // `worker` creates its own runtime: the supervisor must stay small.
        CliCommand::Worker(options) => {
            return daemons::worker(&options).map_or_else(report, ExitCode::from);
        }
        CliCommand::Healthcheck(options) => {
            block_on(healthcheck::run(options.daemon, &options.settings.with_token(token))).flatten()
        }
        CliCommand::Net(options) => block_on(net::run(&options)).flatten(),
        CliCommand::Hello => block_on(sample_app::run()).flatten(),
        CliCommand::Sandbox => block_on(sandbox::run()).flatten(),
        CliCommand::SampleImage(options) => block_on(sample_image::run(&options)).flatten(),
        CliCommand::User(command) => {
            return block_on(commands::run(command, &globals, help::command_line())).unwrap_or_else(report);
        }
    };
    result.map_or_else(report, |()| Exit::Ok.into())
}

/// `dev` polls all daemons on one thread, and debug builds keep each future's steps on its stack.
const STACK_BYTES: usize = 8 << 20;

fn block_on<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(work);
    // A blocking read of standard input cannot be cancelled; do not wait for it.
    runtime.shutdown_background();
    Ok(result)
}

fn report(error: anyhow::Error) -> ExitCode {
    stderr::error(&format!("{error:#}"));
    daemon_exit::exit_for(&error).into()
}
