//! Candidates for a word. Pure.

use clap_complete::engine::CompletionCandidate;

use crate::commands::objects::object_name::{ObjectType, TYPES};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionKind {
    Names(ObjectType),
    /// A type, then names; or `TYPE/NAME`.
    TypeAndNames,
    Selector,
}

impl CompletionKind {
    /// `command` is the type of the command: secrets and configs share their subcommands.
    pub(super) fn of(value_name: &str, command: Option<ObjectType>) -> Option<Self> {
        match value_name {
            "NAME" => {
                command.filter(|of| matches!(of, ObjectType::Secret | ObjectType::Config)).map(Self::Names)
            }
            "SERVICE REPLICAS" | "SERVICE|POD" => Some(Self::Names(ObjectType::Service)),
            "DEAD_LETTER" => Some(Self::Names(ObjectType::DeadLetter)),
            "TYPE NAME" | "TYPE [NAME]" => Some(Self::TypeAndNames),
            "SELECTOR" => Some(Self::Selector),
            _ => {
                let of = TYPES.into_iter().find(|(of, _)| of.as_str().eq_ignore_ascii_case(value_name));
                of.map(|(of, _)| Self::Names(of))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListRequest {
    Names(ObjectType),
    Labels { of_nodes: bool },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Types,
    Listed { before: String, list: ListRequest },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) help: String,
}

pub(super) fn request(kind: CompletionKind, words: &[String], current: &str) -> Request {
    let before = words.split_last().map_or(words, |(_, before)| before);
    let typed = current.split_once('/').and_then(|(word, _)| Some((word, ObjectType::parse(word)?)));
    let (before, list) = match (kind, typed) {
        (CompletionKind::Selector, _) => {
            let end = current.rfind(',').map_or(0, |comma| comma + 1);
            (
                current[..end].to_owned(),
                ListRequest::Labels { of_nodes: type_in(before) == Some(ObjectType::Node) },
            )
        }
        (_, Some((word, object_type))) => (format!("{word}/"), ListRequest::Names(object_type)),
        (CompletionKind::Names(object_type), None) => (String::new(), ListRequest::Names(object_type)),
        (CompletionKind::TypeAndNames, None) => match type_in(before) {
            Some(object_type) => (String::new(), ListRequest::Names(object_type)),
            None => return Request::Types,
        },
    };
    Request::Listed { before, list }
}

fn type_in(words: &[String]) -> Option<ObjectType> {
    words.iter().find_map(|word| ObjectType::parse(word))
}

pub(super) fn matching(
    current: &str,
    request: Request,
    ask: impl FnOnce(ListRequest) -> Vec<Name>,
) -> Vec<CompletionCandidate> {
    let (before, mut names) = match request {
        Request::Types => {
            let name =
                |(of, _): (ObjectType, &str)| Name { text: of.as_str().to_owned(), help: String::new() };
            (String::new(), TYPES.map(name).to_vec())
        }
        Request::Listed { before, list } => (before, ask(list)),
    };
    names.sort_unstable();
    names.dedup_by(|a, b| a.text == b.text);
    let fitting = names.into_iter().map(|name| (format!("{before}{}", name.text), name.help));
    let fitting = fitting.filter(|(text, _)| text.starts_with(current));
    let candidate = |(text, help): (String, String)| {
        CompletionCandidate::new(text).help((!help.is_empty()).then(|| help.into()))
    };
    fitting.map(candidate).collect()
}
