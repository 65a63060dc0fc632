//! Offered candidates, without an API.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use clap_complete::engine;

use super::answer::command_line;
use super::candidates::{CompletionKind, ListRequest, Name, Request, matching, request};
use super::names;
use crate::commands::objects::object_name::ObjectType::{
    self, App, Config, Cron, DeadLetter, Job, Node, Pod, Queue, Registry, Secret, Service, Volume,
};

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn asked(kind: CompletionKind, line: &str) -> Request {
    let words = words(line);
    request(kind, &words, words.last().unwrap())
}

fn listed(before: &str, list: ListRequest) -> Request {
    Request::Listed { before: before.to_owned(), list }
}

#[test]
fn a_type_stands_before_the_names_or_in_the_word() {
    for (kind, line, expected) in [
        (CompletionKind::Names(Pod), "kubeleet pod describe we", listed("", ListRequest::Names(Pod))),
        (CompletionKind::Names(Pod), "kubeleet logs svc/we", listed("svc/", ListRequest::Names(Service))),
        (
            CompletionKind::Names(Registry),
            "kubeleet registry logout registry/g",
            listed("registry/", ListRequest::Names(Registry)),
        ),
        (CompletionKind::TypeAndNames, "kubeleet describe app ", listed("", ListRequest::Names(App))),
        (
            CompletionKind::TypeAndNames,
            "kubeleet describe secret/d",
            listed("secret/", ListRequest::Names(Secret)),
        ),
        (
            CompletionKind::Names(Service),
            "kubeleet restart service/",
            listed("service/", ListRequest::Names(Service)),
        ),
        (CompletionKind::TypeAndNames, "kubeleet describe ", Request::Types),
        (CompletionKind::TypeAndNames, "kubeleet describe po", Request::Types),
        (CompletionKind::TypeAndNames, "kubeleet describe po ", listed("", ListRequest::Names(Pod))),
        (CompletionKind::TypeAndNames, "kubeleet delete svc web ", listed("", ListRequest::Names(Service))),
        (CompletionKind::TypeAndNames, "kubeleet delete svc/a no/", listed("no/", ListRequest::Names(Node))),
        (CompletionKind::Selector, "kubeleet ps -l ti", listed("", ListRequest::Labels { of_nodes: false })),
        (
            CompletionKind::Selector,
            "kubeleet ps -l a=b,ti",
            listed("a=b,", ListRequest::Labels { of_nodes: false }),
        ),
        (
            CompletionKind::Selector,
            "kubeleet node ls -l z",
            listed("", ListRequest::Labels { of_nodes: true }),
        ),
    ] {
        assert_eq!(asked(kind, line), expected, "{line}");
    }
}

#[test]
fn candidates_begin_with_the_word_and_occur_once() {
    let list = |_: ListRequest| {
        ["web-1", "web-0", "db-0", "web-0"]
            .map(|text| Name { text: text.to_owned(), help: String::new() })
            .to_vec()
    };
    for (line, expected) in
        [("pod describe web", "web-0 web-1"), ("pod describe po/d", "po/db-0"), ("pod describe x", "")]
    {
        let words = words(line);
        let current = words.last().unwrap();
        let found = matching(current, request(CompletionKind::Names(Pod), &words, current), list);
        let found: Vec<_> = found.iter().map(|candidate| candidate.get_value().to_str().unwrap()).collect();
        assert_eq!(found.join(" "), expected, "{line}");
    }
}

#[test]
fn every_kind_of_value_occurs_in_the_command_line() {
    fn kinds(command: &clap::Command, parent: Option<ObjectType>) -> Vec<CompletionKind> {
        let object_type = ObjectType::parse(command.get_name()).or(parent);
        let own = command
            .get_arguments()
            .filter_map(|arg| CompletionKind::of(arg.get_value_names()?.first()?, object_type));
        own.chain(command.get_subcommands().flat_map(|one| kinds(one, object_type))).collect()
    }
    let kinds = kinds(&command_line(Vec::new()), None);
    let named = [Service, Job, Cron, App, Pod, Node, Volume, Secret, Config, Registry, Queue, DeadLetter]
        .map(CompletionKind::Names);
    for kind in named.into_iter().chain([CompletionKind::TypeAndNames, CompletionKind::Selector]) {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn the_api_of_an_unfinished_line_is_asked() {
    for line in [
        "kubeleet pod describe --api http://10.1.2.3:1 ",
        "kubeleet --api=http://10.1.2.3:1 scale web=3 ",
        "kubeleet delete --api http://10.1.2.3:1 svc/",
    ] {
        let globals = names::globals(&words(line)).unwrap();
        assert!(format!("{globals:?}").contains("10.1.2.3"), "{line}: {globals:?}");
    }
}

#[test]
fn commands_and_options_are_completed_without_an_api() {
    for (line, expected) in [
        ("kubeleet unc", "uncordon"),
        ("kubeleet service sc", "scale"),
        ("kubeleet ps --no-h", "--no-headers"),
        ("kubeleet describe po", "pod"),
        ("kubeleet describe sec", "secret"),
        ("kubeleet get regis", "registry"),
        ("kubeleet registry logi", "login"),
        ("kubeleet ps --phase runn", "running"),
    ] {
        let mut words = words(line);
        words.insert(1, "--api=http://127.0.0.1:1".to_owned());
        let last = words.len() - 1;
        let typed = words.iter().map(Into::into).collect();
        let found = engine::complete(&mut command_line(words), typed, last, None).unwrap();
        let found: Vec<_> = found.iter().map(|candidate| candidate.get_value().to_str().unwrap()).collect();
        assert_eq!(found, [expected], "{line}");
    }
}
