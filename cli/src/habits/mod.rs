//! Understands command lines of Docker, Compose, Swarm, Nomad and kubectl. A line that cannot be parsed is
//! looked up in [`words`] for commands and [`options`] for options, which give equivalent words of this
//! program, or advice.

mod habit;
mod line;
mod options;
mod words;

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use output::stderr;

use self::habit::Habit;
pub(crate) use self::habit::NO_NAMESPACES;
use self::line::TypedLine;
use crate::exit::Exit;
use crate::help;

/// Each round replaces one word or option.
const MAX_ROUNDS: usize = 12;

#[derive(Debug)]
pub(crate) enum LineRefusal {
    Usage(Box<clap::Error>),
    Advice(String),
}

impl LineRefusal {
    pub(crate) fn exit(self) -> ! {
        match self {
            Self::Usage(error) => error.exit(),
            Self::Advice(text) => {
                stderr::error(&text);
                std::process::exit(i32::from(Exit::Usage.code()))
            }
        }
    }
}

pub(crate) fn parse(arguments: Vec<OsString>) -> Result<ArgMatches, LineRefusal> {
    let mut arguments = arguments;
    for _ in 0..MAX_ROUNDS {
        let error = match help::command_line().try_get_matches_from(&arguments) {
            Ok(matches) => return Ok(matches),
            Err(error) => error,
        };
        let texts: Option<Vec<String>> =
            arguments.iter().map(|word| word.clone().into_string().ok()).collect();
        let found = texts.filter(|_| error.use_stderr()).and_then(|texts| habit(&texts, &error));
        match found {
            Some(Habit::Line(line)) => {
                if std::io::stderr().is_terminal() {
                    stderr::note(&format!("this is `{}`", line.join(" ")));
                }
                arguments = line.into_iter().map(OsString::from).collect();
            }
            Some(Habit::Advice(text)) => return Err(LineRefusal::Advice(text)),
            None => return Err(LineRefusal::Usage(Box::new(plain(error, &arguments)))),
        }
    }
    help::command_line().try_get_matches_from(&arguments).map_err(|error| LineRefusal::Usage(Box::new(error)))
}

fn habit(arguments: &[String], error: &clap::Error) -> Option<Habit> {
    let root = help::command_line();
    let line = TypedLine::read(arguments, &root)?;
    let line_of = |(found, rest): (words::WordRow, Vec<String>)| found.apply(&line, &rest);
    if let Some(habit) = words::find(&line, &root).and_then(line_of) {
        return Some(habit);
    }
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) => {
            options::find(&line, Some(option))
        }
        // `--output <FORMAT>`
        (ErrorKind::InvalidValue, Some(ContextValue::String(option))) => {
            options::find(&line, option.split(' ').next())
        }
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing)))
            if *missing == ["--yes"] =>
        {
            options::unconfirmed(&line)
        }
        _ => options::find(&line, None),
    }
}

/// Removes suggestions of hidden or dissimilar commands, the advice to write an option as a value, and
/// options set in the environment.
fn plain(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let mut root = help::command_line();
    root.build();
    let words = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let command = TypedLine::read(&words, &root).map_or(&root, |line| line.command(&root));
    if let Some(ContextValue::Strings(suggested)) = error.get(ContextKind::SuggestedSubcommand).cloned() {
        let typed = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(typed)) => typed.clone(),
            _ => String::new(),
        };
        let is_hidden = |name: &str| command.find_subcommand(name).is_none_or(|sub| sub.is_hide_set());
        let kept: Vec<String> = suggested
            .into_iter()
            .filter(|name| !is_hidden(name) && line::distance(name, &typed) <= 2)
            .collect();
        match kept.is_empty() {
            true => error.remove(ContextKind::SuggestedSubcommand),
            false => error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(kept)),
        };
    }
    if error.kind() == ErrorKind::UnknownArgument || error.kind() == ErrorKind::InvalidSubcommand {
        error.insert(ContextKind::Suggested, ContextValue::None);
    }
    if error.get(ContextKind::Usage).is_some() {
        let usage = command.clone().render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

#[cfg(test)]
mod tests;
