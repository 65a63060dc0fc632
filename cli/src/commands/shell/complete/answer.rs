//! Answers a shell's completion request.

use std::ffi::OsStr;

use clap::{Arg, Command, ValueHint};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, ValueCompleter};

use super::candidates::{self, CompletionKind};
use super::names;
use super::script::{SHELLS, VARIABLE};
use crate::commands::objects::object_name::ObjectType;
use crate::help;

/// True if a shell's script called. Must run before other threads exist and before anything is printed.
pub(crate) fn answer() -> bool {
    let words = || std::env::args_os().skip_while(|word| word != "--").skip(1);
    let line = || command_line(words().map(|word| word.to_string_lossy().into_owned()).collect());
    let directory = std::env::current_dir().ok();
    let answered = CompleteEnv::with_factory(line).var(VARIABLE).shells(SHELLS);
    // An error would be printed into the line that the user is typing.
    answered.try_complete(std::env::args_os(), directory.as_deref()).unwrap_or(true)
}

pub(super) fn command_line(words: Vec<String>) -> Command {
    with_completers(help::command_line(), &words, None)
}

fn with_completers(command: Command, words: &[String], parent: Option<ObjectType>) -> Command {
    let object_type = ObjectType::parse(command.get_name()).or(parent);
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| with_completer(arg, words, object_type));
    let complete = |command: Command, name: String| {
        command.mut_subcommand(name, |subcommand| with_completers(subcommand, words, object_type))
    };
    names.into_iter().fold(command, complete)
}

fn with_completer(arg: Arg, words: &[String], object_type: Option<ObjectType>) -> Arg {
    let value = arg.get_value_names().and_then(<[_]>::first).map(|name| name.to_string());
    match value.as_deref() {
        Some("FILE" | "DIR") => arg.value_hint(ValueHint::AnyPath),
        Some(value) => match CompletionKind::of(value, object_type) {
            Some(kind) => arg.add(ArgValueCompleter::new(NameCompleter { kind, words: words.to_vec() })),
            None => arg,
        },
        None => arg,
    }
}

struct NameCompleter {
    kind: CompletionKind,
    words: Vec<String>,
}

impl ValueCompleter for NameCompleter {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let Some(current) = current.to_str() else { return Vec::new() };
        let request = candidates::request(self.kind, &self.words, current);
        candidates::matching(current, request, |list| names::ask(&self.words, list))
    }
}
