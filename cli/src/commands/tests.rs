//! The command line as people type it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory, Parser};
use common::lifecycle::Phase;

use super::*;
use crate::client::fake::{FakeApi, answer, no, yes};
use crate::client::samples;
use crate::output::paper::on_paper;

#[derive(Debug, Parser)]
#[command(name = "kubeleet")]
struct Line {
    #[command(subcommand)]
    command: UserCommand,
    #[command(flatten)]
    globals: Globals,
}

fn parse(line: &str) -> Result<Line, clap::Error> {
    Line::try_parse_from(std::iter::once("kubeleet").chain(line.split_whitespace()))
}

#[test]
fn the_command_line_is_sound() {
    Line::command().debug_assert();
}

#[test]
fn what_people_type() {
    for line in [
        "run nginx",
        "run nginx --name web --replicas 3 -e A=b -e C= -p 8080:80 --memory 64m --cpus 500m --restart no --wait -- sh -c",
        "run nginx --on-disconnect stop --label a=b -l c=d -n 2 -o json",
        "apply -f a.yaml -f - --wait --timeout 90",
        "service ls -l a=b",
        "svc scale web 3 --wait",
        "services rm web db --wait",
        "pod ls --service web --node worker1 --phase running -o wide",
        "pods stop web-0 djkf --wait",
        "ps",
        "logs web-0 -f --tail 10",
        "pod logs web-0 -f",
        "nodes ls",
        "node cordon worker1 worker2",
        "queue peek pq:worker1 --limit 5",
        "queue requeue 0123456789ab",
        "queue drop --all --yes",
        "events -w --tail 5",
        "status --api node1:7070 --token-file /token",
        "completions zsh",
        "man",
        "--output yaml status",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    for (line, why) in [
        ("run", "IMAGE"),
        ("run nginx --name Web", "lower-case"),
        ("run nginx -p 99999", "is not a port"),
        ("run nginx -e A", "KEY=value"),
        ("run nginx --restart sometimes", "on-failure"),
        ("run nginx sh", "unexpected argument"),
        ("pod ls --phase ready", "pending"),
        ("queue drop --all", "--yes"),
        ("queue drop", "required"),
        ("queue drop a --all --yes", "cannot be used"),
        ("service scale web", "REPLICAS"),
        ("service scale web -1", "unexpected argument"),
        ("apply", "--file"),
        ("status --timeout soon", "duration"),
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), Exit::Usage as i32, "{line}");
        assert!(error.to_string().contains(why), "{line}: {error}");
    }
}

#[test]
fn a_token_is_not_shown_by_help_or_debug() {
    let line = parse("status --token s3cret").unwrap();
    assert!(!format!("{line:?}").contains("s3cret"));
}

#[test]
fn completions_and_manual_know_every_command() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Line::command(), "kubeleet", &mut text);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("uncordon") && text.contains("requeue"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    clap_mangen::generate_to(Line::command(), directory.path()).unwrap();
    assert!(directory.path().join("kubeleet-service-scale.1").exists());
}

#[test]
fn the_first_failure_gives_the_code_and_a_closed_output_ends_all() {
    let mut tally = Tally::new();
    assert_eq!(tally.take(Ok(1)).unwrap(), Some(1));
    assert_eq!(tally.0, Exit::Ok);
    assert_eq!(tally.take::<()>(Err(Failure::NotFound("x".to_owned()))).unwrap(), None);
    tally.add(Exit::TimedOut);
    assert_eq!(tally.0, Exit::NotFound);
    assert!(tally.take::<()>(Err(Failure::Output(std::io::ErrorKind::BrokenPipe.into()))).is_err());
}

/// Types a line against a played API: how it ends, what stands on standard output, what was asked.
async fn typed(
    line: &str,
    play: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (Result<Exit, Failure>, String, Vec<String>) {
    let mut api = FakeApi::start(play).await;
    let line = parse(&format!("{line} --api {}", api.address)).unwrap();
    let (output, paper) = on_paper(line.globals.output);
    let result = carry_out(line.command, &line.globals, Line::command(), output).await;
    (result, paper.text(), api.seen())
}

/// The name in a posted service.
fn posted_name(request: &str) -> String {
    let body = request.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str::<serde_json::Value>(body).unwrap()["name"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn run_finds_a_free_name_but_keeps_one_that_was_given() {
    let taken = |request: &str| match posted_name(request).as_str() {
        "nginx" => no(409),
        name => yes(&samples::service(name)),
    };
    let (exit, shown, asked) = typed("run a/nginx:1 -o name", taken).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert!(shown.starts_with("service/nginx-") && shown.len() == "service/nginx-ab12\n".len(), "{shown}");
    assert_eq!(asked, ["POST /service", "POST /service"]);
    let (exit, shown, _) = typed("run a/nginx:1 --name nginx", taken).await;
    assert_eq!((exit.unwrap_err().exit(), shown.as_str()), (Exit::Conflict, ""));
    let (exit, ..) = typed("run ___", taken).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::Usage);
}

#[tokio::test]
async fn apply_says_what_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.yaml");
    let services = ["new", "same", "other", "bad"].map(|name| format!("name: {name}\nimage: nginx\n"));
    std::fs::write(&file, services.join("---\n")).unwrap();
    let play = |request: &str| {
        let mut words = request.split([' ', '/']).filter(|word| !word.is_empty());
        let (method, name) = (words.next().unwrap(), words.nth(1).unwrap());
        let mut service = samples::service(name);
        match (method, name) {
            ("GET", "new") | ("PUT", "bad") => return no(if method == "GET" { 404 } else { 422 }),
            ("PUT", "other") => service.updated_at = "2026-02-01T00:00:00Z".to_owned(),
            _ => {}
        }
        yes(&service)
    };
    let (exit, shown, _) = typed(&format!("apply -f {}", file.display()), play).await;
    assert_eq!(exit.unwrap(), Exit::Error);
    assert_eq!(shown, "service/new created\nservice/same unchanged\nservice/other configured\n");
}

#[tokio::test]
async fn apply_touches_nothing_when_a_file_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let (good, bad) = (directory.path().join("good.yaml"), directory.path().join("bad.yaml"));
    std::fs::write(&good, "name: web\nimage: nginx\n").unwrap();
    std::fs::write(&bad, "name: web\nimgae: nginx\n").unwrap();
    let line = format!("apply -f {} -f {}", good.display(), bad.display());
    let (exit, _, asked) = typed(&line, |_| no(500)).await;
    assert!(exit.unwrap_err().to_string().contains("bad.yaml:2:"));
    assert!(asked.is_empty());
    let (exit, ..) = typed("apply -f /nowhere.yaml", |_| no(500)).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::NotFound);
}

#[tokio::test]
async fn one_wrong_name_does_not_keep_the_others_from_being_done() {
    let play =
        |request: &str| if request.contains("/wrong ") { no(404) } else { yes(&samples::service("web")) };
    let (exit, shown, asked) = typed("service rm wrong web", play).await;
    assert_eq!(exit.unwrap(), Exit::NotFound);
    assert_eq!(shown, "service/web is being deleted\n");
    assert_eq!(asked, ["DELETE /service/wrong", "DELETE /service/web"]);
}

/// Plays two pods of `web`, and an API that knows neither of them by a short name.
fn two_pods(request: &str) -> String {
    let (a, b) = (samples::pod("aaaa1111", Phase::Running), samples::pod("aabb2222", Phase::Running));
    let list = |items: &[&api::dto::PodView]| yes(&serde_json::json!({ "items": items }));
    match request.split(" HTTP").next().unwrap() {
        "GET /pod/aaaa1111" => yes(&a),
        "GET /pod/aabb2222" => yes(&b),
        "GET /pod?prefix=aaaa&limit=20" | "GET /pod?prefix=web-0&limit=20" => list(&[&a]),
        "GET /pod?prefix=aa&limit=20" | "GET /pod?service=web&limit=20" => list(&[&a, &b]),
        line if line.starts_with("GET /pod?") => list(&[]),
        line if line.contains("/log?") => answer("200 OK", "text/plain", "\x1b[31mred\x1b[0m \u{fffd}\r\n"),
        _ => no(404),
    }
}

#[tokio::test]
async fn pods_are_found_by_any_name_that_is_clear() {
    for name in ["aaaa1111", "aaaa", "web-0"] {
        let (exit, shown, _) = typed(&format!("pod describe {name} -o name"), two_pods_and_events).await;
        assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "pod/aaaa1111\n"), "{name}");
    }
    for (name, code) in
        [("aa", Exit::Usage), ("web", Exit::Usage), ("zz", Exit::NotFound), ("Z-9", Exit::NotFound)]
    {
        let (exit, ..) = typed(&format!("pod describe {name}"), two_pods).await;
        assert_eq!(exit.unwrap_err().exit(), code, "{name}");
    }
}

fn two_pods_and_events(request: &str) -> String {
    match request {
        _ if request.starts_with("GET /event") => yes(&serde_json::json!({ "items": [] })),
        _ if request.starts_with("GET /service/web ") => yes(&samples::service("web")),
        _ => two_pods(request),
    }
}

#[tokio::test]
async fn logs_are_shown_byte_for_byte() {
    let (exit, shown, asked) = typed("logs aaaa --tail 7 -f", two_pods).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "\x1b[31mred\x1b[0m \u{fffd}\r\n"));
    assert_eq!(asked.last().unwrap(), "GET /pod/aaaa1111/log?tail=7&follow=true");
}

#[tokio::test]
async fn all_dead_letters_are_those_there_are_now() {
    let more = AtomicBool::new(true);
    let letter = |id: &str| serde_json::json!({"id": id, "queue": "sq", "payload": "x", "reason": "no JSON", "at": "2026-01-31T00:00:00Z"});
    let play = move |request: &str| {
        if !request.starts_with("GET /queue/dq") {
            return if request.contains("/b") { no(404) } else { answer("204 No Content", "text/plain", "") };
        }
        match more.swap(false, Ordering::SeqCst) {
            true => yes(&serde_json::json!({ "items": [letter("a")], "next": "a" })),
            false => yes(&serde_json::json!({ "items": [letter("b"), letter("c")] })),
        }
    };
    let (exit, shown, _) = typed("queue drop --all --yes", play).await;
    assert_eq!(exit.unwrap(), Exit::NotFound);
    assert_eq!(shown, "letter/a dropped\nletter/c dropped\n");
}

#[tokio::test]
async fn a_watch_begins_again_after_the_last_event_it_saw() {
    let event = |id: &str| {
        format!(r#"data: {{"id":"{id}","at":1,"kind":"node","object":"w","reason":"X","message":"m"}}"#)
    };
    let stream = move |events: String| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}")
    };
    let play = move |request: &str| match request {
        _ if request.contains("last-event-id: 3-0") => no(401),
        _ if request.contains("last-event-id: 2-0") => stream(format!("{}\n\n", event("3-0"))),
        _ => stream(format!("{}\n\n{}\n\n", event("1-0"), event("2-0"))),
    };
    let (exit, shown, _) = typed("events -w -o json", play).await;
    assert_eq!((exit.unwrap_err().exit(), shown.lines().count()), (Exit::Unauthorized, 3), "{shown}");
}
