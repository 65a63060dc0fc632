//! Commands that read files: `apply`, `diff` and `delete -f`.

use common::api::ServiceView;

use super::*;

/// An API that has the service `web` of the fixtures, and takes every write.
fn api_with_web(request: &str) -> String {
    match request.split(" HTTP").next().unwrap() {
        "GET /service/web" => ok_json(&fixtures::service("web")),
        "GET /service" => ok_json(&serde_json::json!({ "items": [fixtures::service("web")] })),
        line if line.starts_with("GET /event") => ok_json(&serde_json::json!({ "items": [] })),
        line if line.starts_with("GET /service/") => problem(404),
        line if line.starts_with("DELETE") => response("204 No Content", "text/plain", ""),
        _ => ok_json(&fixtures::service("web")),
    }
}

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

/// The service `web` of the fixtures, as a user writes it.
const WEB: &str = "name: web\nreplicas: 3\nlabels: {tier: front}\nimage: nginx:1.27\nmemory: 64MiB\n\
                   environment: {PASSWORD: hunter2}\nports: ['8080:80']\n";

#[tokio::test]
async fn what_get_prints_is_applied_without_a_change() {
    for (line, name) in [("get svc -o yaml", "list.yaml"), ("get svc web -o json", "one.json")] {
        let (_, printed, _) = run_line(line, api_with_web).await;
        let files = directory(&[(name, &printed)]);
        let line = format!("diff -f {}", files.path().display());
        let (exit, shown, requests) = run_line(&line, api_with_web).await;
        assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, ""), "{printed}");
        assert_eq!(requests, ["GET /service/web"]);
    }
}

#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_writes_nothing() {
    let files = directory(&[
        ("a.yaml", &WEB.replace("replicas: 3", "replicas: 4")),
        ("b.yml", "name: new\nimage: x\n"),
        ("ignored.txt", "not a service"),
    ]);
    let line = format!("apply --dry-run -f {}", files.path().display());
    let (exit, shown, requests) = run_line(&line, api_with_web).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert_eq!(shown, "service/web configured (dry run)\nservice/new created (dry run)\n");
    assert_eq!(requests, ["GET /service/web", "GET /service/new"]);
}

#[tokio::test]
async fn diff_shows_the_lines_and_has_an_exit_code_for_a_difference() {
    let files = directory(&[("web.yaml", &WEB.replace("replicas: 3", "replicas: 4"))]);
    let line = format!("diff -f {}/web.yaml", files.path().display());
    let (exit, shown, _) = run_line(&line, api_with_web).await;
    assert_eq!(exit.unwrap().code(), 1);
    assert!(shown.starts_with("--- service/web (stored)\n+++ service/web (file)\n name: web\n"), "{shown}");
    assert!(shown.contains("\n-replicas: 3\n+replicas: 4\n"), "{shown}");
    assert!(!shown.contains("hunter2"), "unchanged lines far from a change are left out: {shown}");

    let files = directory(&[("bad.yaml", "name: web\nimgae: nginx\n")]);
    let (exit, ..) = run_line(&format!("diff -f {}", files.path().display()), api_with_web).await;
    assert!(exit.unwrap_err().exit().code() > 1);
}

#[tokio::test]
async fn delete_takes_the_names_from_files() {
    let files = directory(&[("a.json", r#"{"name":"web","image":"x"}"#), ("b.yaml", "name: db\nimage: y\n")]);
    let (exit, shown, requests) =
        run_line(&format!("delete -f {}", files.path().display()), api_with_web).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert_eq!(shown, "service/web is being deleted\nservice/db is being deleted\n");
    assert_eq!(requests, ["DELETE /service/web", "DELETE /service/db"]);
}

#[tokio::test]
async fn restart_asks_for_new_pods_and_waits_for_them_if_told_to() {
    let restarted = |generation: u64| {
        move |request: &str| {
            let mut service = fixtures::service("web");
            service.generation = generation;
            match request.split(" HTTP").next().unwrap() {
                "POST /service/web/restart" => ok_json(&ServiceView { generation: 2, ..service }),
                "GET /service/web" => ok_json(&service),
                _ => problem(404),
            }
        }
    };
    let (exit, shown, requests) = run_line("restart svc/web", restarted(1)).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "service/web restarted\n"));
    assert_eq!(requests, ["POST /service/web/restart"]);

    let (exit, ..) = run_line("restart web --wait --timeout 5s", restarted(2)).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    let (exit, shown, _) = run_line("restart web --wait --timeout 0", restarted(1)).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::TimedOut, "service/web restarted\n"));

    let (exit, _, requests) = run_line("restart web no", restarted(1)).await;
    assert_eq!(exit.unwrap(), Exit::NotFound);
    assert_eq!(requests, ["POST /service/web/restart", "POST /service/no/restart", "GET /service/no"]);
}

#[tokio::test]
async fn an_api_without_restarts_is_said_to_be_too_old() {
    let respond = |request: &str| match request.split(" HTTP").next().unwrap() {
        "GET /service/web" => ok_json(&fixtures::service("web")),
        _ => problem(404),
    };
    let (exit, shown, _) = run_line("restart web", respond).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Error, ""));
}
