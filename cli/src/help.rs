//! The command line. clap offers global options to every command; one that defines an option with the same id
//! keeps its own, which allows the help to hide it.

use std::ffi::OsStr;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::args::Cli;
use crate::examples;

/// Only for commands with a table, a description or data.
const OUTPUT: &str = "output";
const TIMEOUT: &str = "timeout";

pub(crate) fn command_line() -> Command {
    let root = without_variables(Cli::command(), &is_empty_variable);
    let globals: Vec<Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let names: Vec<String> = root.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names
        .into_iter()
        .fold(root, |root, name| root.mut_subcommand(&name, |sub| hide_unused(sub, &name, &globals)))
}

/// An empty variable is as one that is not set.
fn is_empty_variable(name: &OsStr) -> bool {
    std::env::var_os(name).is_some_and(|value| value.is_empty())
}

fn without_variables(command: Command, is_left_out: &dyn Fn(&OsStr) -> bool) -> Command {
    let command = command.mut_args(|arg| match arg.get_env().is_some_and(is_left_out) {
        true => arg.env(Resettable::Reset),
        false => arg,
    });
    command.mut_subcommands(|sub| without_variables(sub, is_left_out))
}

fn hide_unused(command: Command, path: &str, globals: &[Arg]) -> Command {
    if command.has_subcommands() {
        let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        return names.into_iter().fold(command, |command, name| {
            command.mut_subcommand(&name, |sub| hide_unused(sub, &format!("{path} {name}"), globals))
        });
    }
    let always_waits = ["rollout status", "drain", "node leave", "job wait"].contains(&path);
    let uses_timeout = always_waits || path.ends_with("restart") || has_wait_flag(&command);
    let is_unused = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        unused(path).contains(&id) || (id == TIMEOUT && !uses_timeout)
    };
    let hidden: Vec<Arg> = globals.iter().filter(is_unused).map(|arg| arg.clone().hide(true)).collect();
    let top = path.split(' ').next().unwrap_or(path);
    let is_unused_setting = |arg: &Arg| not_using(arg.get_id().as_str()).contains(&top);
    let command = command.mut_args(|arg| if is_unused_setting(&arg) { arg.hide(true) } else { arg });
    with_examples(command.args(hidden), path)
}

fn with_examples(command: Command, path: &str) -> Command {
    let Some(examples) = examples::text(path) else { return command };
    let after = match command.get_after_help() {
        Some(text) => format!("{text}\n\n{examples}"),
        None => examples,
    };
    command.after_help(after)
}

/// Daemons of a machine may share a configuration.
fn not_using(setting: &str) -> &'static [&'static str] {
    match setting {
        "listen" => &["scheduler", "worker", "proxy", "net"],
        "metrics_listen" => &["api", "healthcheck", "net"],
        "node" => &["api", "net"],
        "labels" | "runtime" => &["api", "scheduler", "proxy", "healthcheck", "net"],
        "heartbeat" | "fence_after" | "dead_after" => &["proxy", "net"],
        _ => &[],
    }
}

fn unused(path: &str) -> &'static [&'static str] {
    match path {
        "dev" | "api" | "healthcheck" => &["api", OUTPUT],
        "scheduler" | "worker" | "proxy" | "net rules" | "net check" | "completions" | "man" => {
            &["api", "token", "token_file", OUTPUT]
        }
        "logs" | "pod logs" | "diff" | "backup" => &[OUTPUT],
        _ => &[],
    }
}

/// `cluster recover --wait 5s` is a setting, not a flag.
fn has_wait_flag(command: &Command) -> bool {
    command
        .get_arguments()
        .any(|arg| arg.get_id() == "wait" && matches!(arg.get_action(), ArgAction::SetTrue))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::FromArgMatches;

    use super::*;

    fn help(line: &str) -> String {
        let words = line.split_whitespace().chain(["--help"]);
        let error =
            command_line().try_get_matches_from(std::iter::once("kubeleet").chain(words)).unwrap_err();
        error.to_string()
    }

    #[test]
    fn help_shows_the_options_that_a_command_uses() {
        command_line().debug_assert();
        for (line, shown, hidden) in [
            ("ps", vec!["--output", "--api", "--token-file"], vec!["--timeout"]),
            ("svc rm", vec!["--timeout", "--output"], vec![]),
            ("restart", vec!["--timeout"], vec![]),
            ("drain", vec!["--timeout"], vec![]),
            ("job wait", vec!["--timeout"], vec![]),
            ("run", vec!["--timeout", "--output"], vec![]),
            ("logs", vec!["--api"], vec!["--output", "--timeout"]),
            ("cluster recover", vec!["--wait"], vec!["--timeout"]),
            ("healthcheck", vec!["--token-file"], vec!["--output", "--timeout", "--api", "--runtime"]),
            ("api", vec!["--listen"], vec!["--output", "--labels", "--runtime", "--node"]),
            ("worker", vec!["--node", "--labels"], vec!["--output", "--timeout", "--api", "--token"]),
            (
                "net rules",
                vec!["--watch", "--redis-url"],
                vec!["--listen", "--heartbeat", "--output", "--api"],
            ),
            ("completions", vec![], vec!["--output", "--timeout", "--api", "--token"]),
        ] {
            let text = help(line);
            let has = |option: &&str| text.split_whitespace().any(|word| word == *option);
            assert!(shown.iter().all(has) && !hidden.iter().any(has), "{line}: {text}");
        }
    }

    #[test]
    fn an_option_that_the_help_leaves_out_is_read_all_the_same() {
        for line in [
            "kubeleet worker --token-file /t",
            "kubeleet --token-file /t worker",
            "kubeleet man --token-file /t",
            "kubeleet svc ls --token-file /t",
            "kubeleet api --token-file /t --labels a=b",
            "kubeleet --token-file /t svc ls",
        ] {
            let matches = command_line().try_get_matches_from(line.split_whitespace()).unwrap();
            let cli = Cli::from_arg_matches(&matches).unwrap();
            let (_, file) = cli.globals.token_settings();
            assert_eq!(file.unwrap().to_str(), Some("/t"), "{line}");
        }
    }
}
