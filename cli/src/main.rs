//! `kubeleet`: the one binary. This file is a table of contents: read the arguments, judge the configuration, start
//! what was asked for, end with a documented exit code.

mod args;
mod client;
mod commands;
mod daemons;
mod dev;
mod exit;
mod healthcheck;
mod hello;
mod output;
mod sample_image;
mod settings;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use exit::Exit;

/// A worker makes and forgets thousands of small things for each batch of pods: with this allocator that takes a third
/// less of its time than with the system's, and far less than with musl's. Without huge pages: they would make an idle
/// daemon ten MiB larger.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Cli { command, globals } = Cli::parse();
    let ended = match command {
        Command::Dev(options) => drive(dev::run(options.with_token(&globals))).flatten(),
        Command::Api(settings) => drive(daemons::api(&settings.with_token(&globals))).flatten(),
        Command::Scheduler(settings) => drive(daemons::scheduler(&settings)).flatten(),
        // A guard is small: it makes a runtime of its own.
        Command::Worker(options) => return daemons::worker(&options).map_or_else(complain, ExitCode::from),
        Command::Healthcheck(options) => {
            drive(healthcheck::run(options.daemon, &options.settings.with_token(&globals))).flatten()
        }
        Command::Hello => drive(hello::run()).flatten(),
        Command::SampleImage { tag, settings } => drive(sample_image::run(&tag, &settings)).flatten(),
        Command::User(command) => {
            return drive(commands::run(command, &globals, Cli::command())).unwrap_or_else(complain);
        }
    };
    ended.map_or_else(complain, |()| Exit::Ok.into())
}

/// Runs it to its end.
fn drive<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("no async runtime")?;
    let ended = runtime.block_on(work);
    // A read of standard input can not be cancelled; do not wait for it.
    runtime.shutdown_background();
    Ok(ended)
}

fn complain(error: anyhow::Error) -> ExitCode {
    exit::complain(&format!("{error:#}"));
    Exit::of(&error).into()
}
