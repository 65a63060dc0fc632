//! The user commands, from the command line to the output, with a fake API.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;
mod lists;

use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory, Parser, ValueEnum};
use model::pod::lifecycle::Phase;
use output::test_output::captured_output;
use testkit::api_fixtures as fixtures;
use testkit::fake_api::{FakeApi, ok_json, problem, response};

use super::*;
use crate::commands::batch::BatchResult;
use crate::commands::shell::complete;

#[derive(Debug, Parser)]
#[command(name = "kubeleet")]
struct CommandLine {
    #[command(subcommand)]
    command: UserCommand,
    #[command(flatten)]
    globals: Globals,
}

fn parse(line: &str) -> Result<CommandLine, clap::Error> {
    CommandLine::try_parse_from(std::iter::once("kubeleet").chain(line.split_whitespace()))
}

#[test]
fn the_command_line_definition_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn accepts_valid_command_lines() {
    for line in [
        "run nginx",
        "run nginx --name web --replicas 3 -e A=b -e C= -p 8080:80 --memory 64m --cpus 500m --restart no \
         --wait -- sh -c",
        "run nginx --on-disconnect stop --label a=b -l c=d -n 2 -o json",
        "apply -f a.yaml -f - --wait --timeout 90",
        "run nginx -d -m 64m -e PATH --env-file a --env-file b -l a=b,c=d",
        "run nginx -d --wait",
        "run job --restart on-failure --wait --rm",
        "ps -w --no-headers",
        "ps -q -l app=shop,tier!=back",
        "get pods -w -l app",
        "delete svc -l app=shop --wait",
        "svc rm -l !app",
        "pod stop -l app",
        "logs -l app -f",
        "version -o json",
        "top",
        "gc --dry-run",
        "gc w1 w2 -o json",
        "top nodes --sort memory -n",
        "top pods --service web --node w1 -o wide",
        "apply -f . --dry-run",
        "apply",
        "apply --prune --profile debug --profile test --env-file a --strict -p shop",
        "diff --profile debug",
        "delete -f compose.yaml -p shop",
        "app",
        "app ls -q",
        "app describe shop",
        "app rm shop app/blog --wait",
        "get apps",
        "describe app/shop",
        "delete app shop",
        "volume",
        "vol ls -q",
        "registry",
        "registry login reg.example:5000 -u bob --password-stdin",
        "registry login reg.example -u bob -p secret",
        "registry login reg.example -u bob",
        "registry logout registry/reg.example:5000 docker.io",
        "get registries",
        "route",
        "routes ls -q",
        "route explain http://web.example/api",
        "get routes",
        "run nginx sh -c true",
        "run --rm busybox echo hello",
        "run -it --rm busybox sh",
        "run nginx --replicas 3 -- -c conf",
        "exec web env",
        "exec -it web bash",
        "exec web -c app ls -la /",
        "exec web -- sh -c true",
        "logs web -n 2 -t",
        "ps web app/shop",
        "get all",
        "get pods,svc",
        "describe web",
        "restart app/shop",
        "scale deployment/web --replicas=3",
        "app rm --here",
        "run nginx --ingress web.example/api:80,tls --ingress tcp:5432:5432",
        "volume describe volume/web_data_0",
        "volume rm web_data_0 web_data_1",
        "volume rm web_data_0 --node w1",
        "volume bind web_data_0 w1",
        "get volumes",
        "delete vol web_data_0",
        "run nginx -v data:/data:ro --volume /cache",
        "service rm web --volumes --yes",
        "diff -f a.yaml -f b",
        "delete -f a.yaml",
        "edit svc web",
        "svc edit web",
        "restart web db",
        "rollout history web",
        "rollout undo svc/web --to 3 --wait",
        "rollout undo web --dry-run",
        "rollout status web --timeout 5s",
        "rollout pause web",
        "rollout resume svc/web",
        "rollout restart web --wait",
        "set image web nginx:2 --wait",
        "set image svc/web web=nginx:2",
        "cordon worker1",
        "uncordon worker1 worker2",
        "drain node/worker1",
        "plan -f changes.yaml",
        "plan drain node/worker1",
        "plan lose zone=a",
        "plan add-node --cpus 8 --memory 32G --label zone=a --count 2",
        "plan scale web=50",
        "run nginx -w /srv -u 1000 --entrypoint sh --init --read-only --tmpfs /run:size=1m --cap-drop ALL",
        "run nginx --health-cmd 'true' --health-interval 5s --health-retries 2 --health-timeout 1s --health-start-period 1m",
        "run nginx --no-healthcheck",
        "explain service.ports",
        "explain pod web-0",
        "schema",
        "service ls -l a=b",
        "svc scale web 3 --wait",
        "services rm web db --wait",
        "pod ls --service web --node worker1 --phase running -o wide",
        "pods stop web-0 djkf --wait",
        "svc",
        "svc -l a=b",
        "nodes",
        "pod -s web",
        "po -o name",
        "queue -a",
        "get svc",
        "get service web -o yaml",
        "get svc/web",
        "describe pod/web-0",
        "delete pod/web-0 svc/web --wait",
        "scale web 3 --wait",
        "scale svc/web --replicas=3",
        "pod describe pod/web-0",
        "logs svc/web -f",
        "logs web app/shop pod/web-0 --since 10m --until 2026-01-31T12:00:00Z --grep error --timestamps",
        "logs -l app=shop --json --tail 5",
        "logs pod web-0 web-1",
        "ps",
        "logs web-0 -f --tail 10",
        "pod logs web-0 -f",
        "nodes ls",
        "node label node/worker1 zone=b disk-",
        "node cordon worker1 worker2",
        "queue peek pq:worker1 --limit 5",
        "queue requeue 0123456789ab",
        "queue requeue 0123456789ab --file better.json",
        "queue edit 0123456789ab",
        "queue peek uq",
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
fn refuses_invalid_command_lines_with_the_reason() {
    for (line, reason) in [
        ("run", "IMAGE"),
        ("run nginx --name Web", "lower-case"),
        ("run nginx -p 99999", "is not a port"),
        ("run nginx -e KUBELEET_UNSET", "KEY=value"),
        ("run nginx -l a=b,c", "KEY=value"),
        ("run nginx --rm -d", "cannot be used"),
        ("run -it nginx --restart always sh", "cannot be used"),
        ("svc ls -l a=b=(", "not a label selector"),
        ("svc rm web -l a=b", "cannot be used"),
        ("run nginx --restart sometimes", "on-failure"),
        ("pod ls --phase ready", "pending"),
        ("queue drop --all", "--yes"),
        ("service rm web --volumes", "--yes"),
        ("queue drop", "required"),
        ("queue drop a --all --yes", "cannot be used"),
        ("queue requeue --all --yes -f x", "cannot be used"),
        ("queue peek dq --limit many", "is not a whole number from 1 to 10000"),
        ("service scale web -1", "unexpected argument"),
        ("pod describe svc/web", "needs a pod"),
        ("svc web", "unrecognized subcommand"),
        ("app rm", "required"),
        ("restart", "required"),
        ("exec web", "required"),
        ("run nginx --replica 3", "unexpected argument"),
        ("node label worker1", "required"),
        ("node label worker1 zone", "neither KEY=value, which sets a label"),
        ("app describe svc/web", "needs a app"),
        ("apply -f a --dry-run --wait", "cannot be used"),
        ("delete", "required"),
        ("delete -f a web", "cannot be used"),
        ("registry login r.example -u bob -p x --password-stdin", "cannot be used"),
        ("status --timeout soon", "duration"),
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()), "{line}");
        assert!(error.to_string().contains(reason), "{line}: {error}");
    }
}

#[test]
fn debug_output_contains_no_token_and_no_password() {
    for line in ["status --token s3cret", "registry login r.example -u bob -p s3cret"] {
        assert!(!format!("{:?}", parse(line).unwrap()).contains("s3cret"), "{line}");
    }
}

#[tokio::test]
async fn a_login_has_the_password_of_the_command_line() {
    let respond = |request: &str| match request.starts_with("PUT /registry/r.example ") {
        true if request.ends_with(r#"{"user":"bob","password":"s3cret"}"#) => ok_json(&serde_json::json!({
            "host": "r.example", "user": "bob", "updated_at": "2026-01-31T00:00:00Z",
        })),
        _ => problem(500),
    };
    let (exit, shown, _) = run_line("registry login r.example -u bob -p s3cret", respond).await;
    let stored = "registry/r.example stored; workers pull as bob from now on\n";
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, stored));
}

#[test]
fn each_shell_has_a_script_that_asks_this_program() {
    for shell in clap_complete::Shell::value_variants() {
        let text = String::from_utf8(complete::script(&shell.to_string()).unwrap()).unwrap();
        assert!(text.contains("KUBELEET_COMPLETE") && text.contains("kubeleet"), "{shell}: {text}");
    }
}

#[test]
fn man_pages_cover_every_command() {
    let directory = tempfile::tempdir().unwrap();
    clap_mangen::generate_to(CommandLine::command(), directory.path()).unwrap();
    assert!(directory.path().join("kubeleet-service-scale.1").exists());
}

#[test]
fn a_batch_keeps_the_first_failure_and_ends_when_the_output_is_closed() {
    let mut batch = BatchResult::new();
    assert_eq!(batch.accept(Ok(1)).unwrap(), Some(1));
    assert_eq!(batch.exit(), Exit::Ok);
    assert_eq!(batch.accept::<()>(Err(CommandError::NotFound("x".to_owned()))).unwrap(), None);
    batch.record(Exit::TimedOut);
    assert_eq!(batch.exit(), Exit::NotFound);
    assert!(batch.accept::<()>(Err(CommandError::Output(std::io::ErrorKind::BrokenPipe.into()))).is_err());
}

/// Returns the result, the output and the requests.
async fn run_line(
    line: &str,
    respond: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (Result<Exit, CommandError>, String, Vec<String>) {
    let mut api = FakeApi::start(respond).await;
    let line = parse(&format!("--api {} {line}", api.address)).unwrap();
    let (output, captured) = captured_output(line.globals.output);
    let folder = FolderApp::default();
    let result = dispatch(line.command, &line.globals, folder, CommandLine::command(), output).await;
    (result, captured.text(), api.request_lines())
}

fn posted_name(request: &str) -> String {
    let body = request.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str::<serde_json::Value>(body).unwrap()["name"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn run_finds_a_free_name_but_does_not_change_a_given_one() {
    let taken = |request: &str| match posted_name(request).as_str() {
        "nginx" => problem(409),
        name => ok_json(&fixtures::service(name)),
    };
    let (exit, shown, requests) = run_line("run a/nginx:1 -o name", taken).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert!(shown.starts_with("service/nginx-") && shown.len() == "service/nginx-ab12\n".len(), "{shown}");
    assert_eq!(requests, ["POST /service", "POST /service"]);
    let (exit, shown, _) = run_line("run a/nginx:1 --name nginx", taken).await;
    assert_eq!((exit.unwrap_err().exit(), shown.as_str()), (Exit::Conflict, ""));
    let (exit, ..) = run_line("run ___", taken).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::Usage);
}

#[tokio::test]
async fn apply_prints_created_unchanged_or_configured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.yaml");
    let services = ["new", "same", "other", "bad"].map(|name| format!("name: {name}\nimage: nginx\n"));
    std::fs::write(&file, services.join("---\n")).unwrap();
    let respond = |request: &str| {
        let mut words = request.split([' ', '/', '?']).filter(|word| !word.is_empty());
        let (method, name) = (words.next().unwrap(), words.nth(1).unwrap());
        let mut service = fixtures::service(name);
        if request.contains("?dry_run=true") {
            return ok_json(&service);
        }
        match (method, name) {
            ("GET", "new") | ("PUT", "bad") => return problem(if method == "GET" { 404 } else { 422 }),
            ("PUT", "other") => service.updated_at = "2026-02-01T00:00:00Z".to_owned(),
            _ => {}
        }
        ok_json(&service)
    };
    let (exit, shown, _) = run_line(&format!("apply -f {}", file.display()), respond).await;
    assert_eq!(exit.unwrap(), Exit::Usage);
    assert_eq!(shown, "service/new created\nservice/same unchanged\nservice/other configured\n");
}

#[tokio::test]
async fn status_is_a_failure_only_while_redis_takes_no_writes_unless_problems_are_asked_for() {
    for (line, connected, writable, exit) in [
        ("status", true, true, Exit::Ok),
        ("status", true, false, Exit::Unreachable),
        ("status", false, false, Exit::Unreachable),
        ("status --check", true, true, Exit::Error),
        ("status --check", false, false, Exit::Unreachable),
    ] {
        let status = serde_json::json!({
            "redis": {"connected": connected, "writable": writable, "master": "", "detail": ""}, "durability": null,
            "nodes": {"total": 0, "ready": 0, "cordoned": 0, "dead": 0}, "services": 0, "pods": {},
            "queues": {"waiting": 0, "in_flight": 0, "unschedulable": 0, "dead": 0}, "schedulers": 0,
            "problems": ["there are no nodes"]
        });
        let (ended, shown, _) = run_line(line, move |_| ok_json(&status)).await;
        assert_eq!(ended.unwrap(), exit, "{line}");
        assert!(shown.contains("there are no nodes"), "{shown}");
    }
}

#[tokio::test]
async fn apply_writes_nothing_if_one_file_is_invalid() {
    let directory = tempfile::tempdir().unwrap();
    let (good, bad) = (directory.path().join("good.yaml"), directory.path().join("bad.yaml"));
    std::fs::write(&good, "name: web\nimage: nginx\n").unwrap();
    std::fs::write(&bad, "name: web\nimgae: nginx\n").unwrap();
    let line = format!("apply -f {} -f {}", good.display(), bad.display());
    let (exit, _, requests) = run_line(&line, |_| problem(500)).await;
    assert!(exit.unwrap_err().to_string().contains("bad.yaml:2:"));
    assert!(requests.is_empty());
    let (exit, ..) = run_line("apply -f /nowhere.yaml", |_| problem(500)).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::NotFound);
}

#[tokio::test]
async fn a_wrong_name_does_not_keep_the_other_objects_from_being_deleted() {
    let respond = |request: &str| {
        if request.contains("/wrong ") { problem(404) } else { ok_json(&fixtures::service("web")) }
    };
    let (exit, shown, requests) = run_line("service rm wrong web", respond).await;
    assert_eq!(exit.unwrap(), Exit::NotFound);
    assert_eq!(shown, "service/web is being deleted\n");
    assert_eq!(requests, ["DELETE /service/wrong", "DELETE /service/web", "GET /volume"]);
}

/// Finds a pod only by its complete uuid.
fn two_pods(request: &str) -> String {
    let (a, b) = (fixtures::pod("aaaa1111", Phase::Running), fixtures::pod("aabb2222", Phase::Running));
    let list = |items: &[&api_types::PodView]| ok_json(&serde_json::json!({ "items": items }));
    match request.split(" HTTP").next().unwrap() {
        "GET /pod/aaaa1111" => ok_json(&a),
        "GET /pod/aabb2222" => ok_json(&b),
        "GET /pod?prefix=aaaa&limit=20" | "GET /pod?prefix=web-0&limit=20" => list(&[&a]),
        "GET /pod?prefix=aa&limit=20" | "GET /pod?service=web&limit=20" => list(&[&a, &b]),
        line if line.starts_with("GET /pod?") => list(&[]),
        line if line.contains("/log?") => response("200 OK", "text/plain", "\x1b[31mred\x1b[0m \u{fffd}\r\n"),
        _ => problem(404),
    }
}

#[tokio::test]
async fn pods_are_found_by_any_unambiguous_name() {
    for name in ["aaaa1111", "aaaa", "web-0"] {
        let (exit, shown, _) = run_line(&format!("pod describe {name} -o name"), two_pods_and_events).await;
        assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "pod/web-0\n"), "{name}");
    }
    for (name, code) in
        [("aa", Exit::Usage), ("web", Exit::Usage), ("zz", Exit::NotFound), ("Z-9", Exit::NotFound)]
    {
        let (exit, ..) = run_line(&format!("pod describe {name}"), two_pods).await;
        assert_eq!(exit.unwrap_err().exit(), code, "{name}");
    }
}

#[tokio::test]
async fn a_service_with_one_pod_is_stopped_by_its_name_and_not_a_pod_whose_uuid_begins_with_it() {
    let respond = |request: &str| {
        let (own, other) =
            (fixtures::pod("aaaa1111", Phase::Running), fixtures::pod("db001122", Phase::Running));
        let list = |items: &[&api_types::PodView]| ok_json(&serde_json::json!({ "items": items }));
        match request.split(" HTTP").next().unwrap() {
            "GET /service/db" => ok_json(&fixtures::service("db")),
            "GET /pod/aaaa1111" | "DELETE /pod/aaaa1111" => ok_json(&own),
            "GET /pod?prefix=db&limit=20" => list(&[&other, &other]),
            "GET /service/cafe" => ok_json(&fixtures::service("cafe")),
            "GET /pod?prefix=cafe&limit=20" => list(&[&other]),
            "GET /pod?service=db&limit=20" => list(&[&own]),
            line if line.starts_with("GET /pod?") => list(&[]),
            _ => problem(404),
        }
    };
    for line in ["pod stop db", "pod stop svc/db", "delete pod db"] {
        let (exit, _, requests) = run_line(line, respond).await;
        assert_eq!(exit.unwrap(), Exit::Ok, "{line}");
        assert_eq!(requests.last().unwrap(), "DELETE /pod/aaaa1111", "{line}");
    }
    for line in ["pod stop svc/other", "pod stop cafe"] {
        let (exit, _, requests) = run_line(line, respond).await;
        assert_eq!(exit.unwrap(), Exit::NotFound, "{line}");
        assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:?}");
    }
    let (exit, ..) = run_line("pod stop web", two_pods).await;
    assert_eq!(exit.unwrap(), Exit::Usage, "of several pods one is chosen");
}

fn two_pods_and_events(request: &str) -> String {
    match request {
        _ if request.starts_with("GET /event") => ok_json(&serde_json::json!({ "items": [] })),
        _ if request.starts_with("GET /service/web ") => ok_json(&fixtures::service("web")),
        _ => two_pods(request),
    }
}

#[tokio::test]
async fn operations_are_the_commands_of_the_types() {
    let respond = |request: &str| match request.split(" HTTP").next().unwrap() {
        "GET /service" => ok_json(&serde_json::json!({ "items": [fixtures::service("web")] })),
        "GET /pod" => ok_json(&serde_json::json!({ "items": [fixtures::pod("aaaa", Phase::Running)] })),
        "GET /node" => ok_json(&serde_json::json!({ "items": [fixtures::node("worker1")] })),
        "GET /queue" => ok_json(&api_types::QueuesView::default()),
        "POST /service/web/scale" => ok_json(&fixtures::service("web")),
        "DELETE /pod/aaaa1111" => ok_json(&fixtures::pod("aaaa1111", Phase::Stopping)),
        line if line.starts_with("DELETE") => response("204 No Content", "text/plain", ""),
        _ => two_pods_and_events(request),
    };
    for [short, long] in [
        ["svc", "service ls"],
        ["get services", "service ls"],
        ["get po", "pod ls"],
        ["pods", "pod ls"],
        ["nodes", "node ls"],
        ["get no -o json", "node ls -o json"],
        ["queue", "queue ls"],
        ["get queue", "queue ls"],
        ["get svc web -o yaml", "service describe web -o yaml"],
        ["describe svc/web", "service describe web"],
        ["describe pod web-0", "pod describe pod/web-0"],
        ["scale web 2", "service scale service/web 2"],
        ["delete svc web db", "service rm web db"],
        ["delete pod/aaaa1111", "pod stop aaaa1111"],
        ["delete node worker1", "node rm worker1"],
        ["delete letter/0123", "queue drop letter/0123"],
    ] {
        let (exit, shown, requests) = run_line(short, respond).await;
        let (other_exit, other_shown, other_requests) = run_line(long, respond).await;
        assert_eq!(exit.unwrap(), other_exit.unwrap(), "{short}");
        assert_eq!((shown.as_str(), &requests), (other_shown.as_str(), &other_requests), "{short}");
        assert!(!shown.is_empty() && !requests.is_empty(), "{short}");
    }
    for line in
        ["get svc/a pod/b", "delete queue/sq", "svc -l a=b ls", "scale web", "logs", "get pods,svc -o json"]
    {
        let (exit, _, requests) = run_line(line, |_| problem(500)).await;
        let exit = exit.unwrap_or_else(|error| error.exit());
        assert_eq!((exit, requests.len()), (Exit::Usage, 0), "{line}");
    }
}

#[tokio::test]
async fn logs_of_a_service_are_printed_line_by_line_with_the_names_of_pods() {
    let respond = |request: &str| match request.split(" HTTP").next().unwrap() {
        "GET /service/web" => ok_json(&fixtures::service("web")),
        "GET /log?service=web&since=10m" => {
            let lines = "{\"pod\":\"web-0\",\"text\":\"a\"}\n{\"mark\":\"node w2 is gone\"}\n\
                         {\"pod\":\"web-1\",\"text\":\"b\"}\n";
            response("200 OK", "application/x-ndjson", lines)
        }
        line if line.contains("/log") => problem(404),
        _ => two_pods_and_events(request),
    };
    let (exit, shown, _) = run_line("logs svc/web --since 10m", respond).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Error, "web-0 | a\nweb-1 | b\n"), "a node is missing");
    let (exit, ..) = run_line("logs node/worker1", respond).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::Usage);
}

#[tokio::test]
async fn logs_are_printed_byte_for_byte() {
    let (exit, shown, requests) = run_line("logs aaaa --tail 7 -f", two_pods).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "\x1b[31mred\x1b[0m \u{fffd}\r\n"));
    assert_eq!(requests.last().unwrap(), "GET /pod/aaaa1111/log?tail=7&follow=true");
}

#[tokio::test]
async fn drop_all_deletes_the_current_dead_letters_of_all_pages() {
    let is_first_page = AtomicBool::new(true);
    let dead_letter = |id: &str| {
        serde_json::json!({
            "id": id, "queue": "sq", "payload": "x", "reason": "no JSON", "at": "2026-01-31T00:00:00Z"
        })
    };
    let respond = move |request: &str| {
        if !request.starts_with("GET /queue/dq") {
            return match request.contains("/b") {
                true => problem(404),
                false => response("204 No Content", "text/plain", ""),
            };
        }
        match is_first_page.swap(false, Ordering::SeqCst) {
            true => ok_json(&serde_json::json!({ "items": [dead_letter("a")], "next": "a" })),
            false => ok_json(&serde_json::json!({ "items": [dead_letter("b"), dead_letter("c")] })),
        }
    };
    let (exit, shown, _) = run_line("queue drop --all --yes", respond).await;
    assert_eq!(exit.unwrap(), Exit::NotFound);
    assert_eq!(shown, "dead letter a dropped\ndead letter c dropped\n");
}

#[tokio::test]
async fn a_watch_reconnects_after_the_last_event_it_received() {
    let event = |id: &str| {
        format!(r#"data: {{"id":"{id}","at":1,"kind":"node","object":"w","reason":"X","message":"m"}}"#)
    };
    let stream = move |events: String| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}")
    };
    let respond = move |request: &str| match request {
        _ if request.contains("last-event-id: 3-0") => problem(401),
        _ if request.contains("last-event-id: 2-0") => stream(format!("{}\n\n", event("3-0"))),
        _ => stream(format!("{}\n\n{}\n\n", event("1-0"), event("2-0"))),
    };
    let (exit, shown, _) = run_line("events -w -o json", respond).await;
    assert_eq!((exit.unwrap_err().exit(), shown.lines().count()), (Exit::Unauthorized, 3), "{shown}");
}

fn shop(request: &str) -> String {
    let service = |name: &str| {
        let mut service = fixtures::service(name);
        service.fields.app = name.starts_with("shop-").then(|| model::ids::AppName::new("shop").unwrap());
        service
    };
    let pods = [fixtures::pod("aaaa1111", Phase::Running), fixtures::pod("aabb2222", Phase::Running)];
    let none = || ok_json(&serde_json::json!({ "items": [] }));
    match request.split(" HTTP").next().unwrap() {
        "GET /service?app=shop" => ok_json(&serde_json::json!({ "items": [service("shop-web")] })),
        "GET /service" => ok_json(&serde_json::json!({ "items": [service("shop-web"), service("lone")] })),
        "GET /service/shop-web" => ok_json(&service("shop-web")),
        "GET /service/lone" => ok_json(&service("lone")),
        "GET /pod?service=shop-web&limit=20" => ok_json(&serde_json::json!({ "items": pods })),
        "GET /pod/aaaa1111" => ok_json(&pods[0]),
        line if line.starts_with("POST /service/shop-web/") => ok_json(&service("shop-web")),
        line if line.starts_with("GET /pod?") || line.starts_with("GET /service?") => none(),
        line if line.starts_with("GET /event") => none(),
        _ => problem(404),
    }
}

async fn run_in(folder: FolderApp, line: &str) -> (Result<Exit, CommandError>, String, Vec<String>) {
    let mut api = FakeApi::start(shop).await;
    let line = parse(&format!("--api {} {line}", api.address)).unwrap();
    let (output, captured) = captured_output(line.globals.output);
    let result = dispatch(line.command, &line.globals, folder, CommandLine::command(), output).await;
    (result, captured.text(), api.request_lines())
}

#[tokio::test]
async fn in_the_folder_of_a_compose_file_short_names_are_those_of_its_app() {
    for (line, expected) in [
        ("scale web 2", "service/shop-web scaled to 2\n"),
        ("restart web", "service/shop-web restarted\n"),
        ("describe web -o name", "service/shop-web\n"),
        ("service describe web -o name", "service/shop-web\n"),
        ("describe lone -o name", "service/lone\n"),
        ("restart app/shop", "service/shop-web restarted\n"),
    ] {
        let (exit, shown, _) = run_in(FolderApp::named("shop"), line).await;
        assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, expected), "{line}");
    }
    let (exit, ..) = run_in(FolderApp::default(), "scale web 2").await;
    assert_eq!(exit.unwrap(), Exit::NotFound);
    let (exit, ..) = run_in(FolderApp::default(), "logs web").await;
    assert!(exit.unwrap_err().to_string().contains("did you mean shop-web?"));
}

#[tokio::test]
async fn exec_takes_a_pod_of_a_service() {
    for line in ["exec web env", "exec svc/shop-web env", "exec deployment/shop-web -- env"] {
        let (exit, _, requests) = run_in(FolderApp::named("shop"), line).await;
        assert_eq!(exit.unwrap_err().exit(), Exit::NotFound, "the API of this test has no channels");
        assert!(requests.iter().any(|line| line.starts_with("GET /pod/aaaa1111/channel")), "{requests:?}");
    }
    let (exit, ..) = run_in(FolderApp::default(), "exec lone env").await;
    assert!(exit.unwrap_err().to_string().contains("no pod"));
}

#[tokio::test]
async fn a_name_without_a_type_is_found_and_deletes_nothing_but_a_service() {
    let (exit, ..) = run_in(FolderApp::default(), "describe nowhere").await;
    let error = exit.unwrap_err();
    assert!(
        error.exit() == Exit::NotFound && error.to_string().contains("nothing is called nowhere"),
        "{error}"
    );
    let (exit, _, requests) = run_in(FolderApp::default(), "delete shop").await;
    let error = exit.unwrap_err();
    assert!(error.to_string().contains("kubeleet delete app/shop"), "{error}");
    assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:?}");
    let (_, _, requests) = run_in(FolderApp::default(), "delete lone").await;
    assert!(requests.iter().any(|line| line == "DELETE /service/lone"), "{requests:?}");
}

fn one_off(request: &str) -> String {
    let pod = api_types::PodView {
        exit_code: Some(4),
        node: Some(model::ids::NodeName::new("worker1").unwrap()),
        ..fixtures::pod("aaaa1111", Phase::Failed)
    };
    match request.split(" HTTP").next().unwrap() {
        "POST /service" => ok_json(&api_types::ServiceView { replicas: 1, ..fixtures::service("once") }),
        line if line.starts_with("GET /pod?service=once") => ok_json(&serde_json::json!({ "items": [pod] })),
        line if line.contains("/log?") => response("200 OK", "text/plain", "hello\n"),
        "DELETE /service/once" => response("204 No Content", "text/plain", ""),
        _ => problem(404),
    }
}

#[tokio::test]
async fn a_one_off_shows_its_output_and_exit_code_and_is_deleted() {
    for line in ["run --rm --name once busybox false", "run --name once --restart never --wait --rm busybox"]
    {
        let (exit, shown, requests) = run_line(line, one_off).await;
        assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Container(4), "hello\n"), "{line}");
        assert_eq!(requests.last().unwrap(), "DELETE /service/once");
        assert!(requests.iter().any(|request| request.contains("follow=true")), "{requests:?}");
    }
}
