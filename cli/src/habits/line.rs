//! A typed command line: global options, the command, and the rest.

use clap::{Arg, Command};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypedLine {
    pub(super) before: Vec<String>,
    pub(super) word: String,
    pub(super) rest: Vec<String>,
}

impl TypedLine {
    /// `None` without a command.
    pub(super) fn read(arguments: &[String], root: &Command) -> Option<Self> {
        let globals: Vec<&Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).collect();
        let takes_value = |word: &str| {
            globals.iter().any(|arg| {
                let is_long = arg.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
                let is_short = arg.get_short().is_some_and(|short| word == format!("-{short}"));
                (is_long || is_short) && arg.get_action().takes_values()
            })
        };
        let mut index = 1;
        while arguments.get(index)?.starts_with('-') {
            index += if takes_value(&arguments[index]) { 2 } else { 1 };
        }
        Some(Self {
            before: arguments[..index].to_vec(),
            word: arguments.get(index)?.clone(),
            rest: arguments[index + 1..].to_vec(),
        })
    }

    pub(super) fn with(&self, words: Vec<String>) -> Vec<String> {
        self.before.iter().cloned().chain(words).collect()
    }

    pub(super) fn second(&self) -> Option<&str> {
        self.rest.first().map(String::as_str).filter(|word| !word.starts_with('-'))
    }

    pub(super) fn command<'a>(&self, root: &'a Command) -> &'a Command {
        let Some(command) = root.find_subcommand(&self.word) else { return root };
        self.second().and_then(|second| command.find_subcommand(second)).unwrap_or(command)
    }

    /// `service` and, for `svc scale`, `scale`.
    pub(super) fn path(&self, root: &Command) -> String {
        let Some(command) = root.find_subcommand(&self.word) else { return self.word.clone() };
        match self.second().and_then(|second| command.find_subcommand(second)) {
            Some(second) => format!("{} {}", command.get_name(), second.get_name()),
            None => command.get_name().to_owned(),
        }
    }
}

/// The edit distance.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, own) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(own != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
