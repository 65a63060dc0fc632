//! Lists: selectors, names for scripts, and `ps -w`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;

use super::*;

fn list<T: serde::Serialize>(items: &[T]) -> String {
    ok_json(&serde_json::json!({ "items": items }))
}

const DELETED: [&str; 4] =
    ["GET /service?label=a%3Db", "DELETE /service/web", "DELETE /service/db", "GET /volume"];

#[tokio::test]
async fn a_selector_is_sent_to_the_api_and_its_objects_are_changed() {
    let respond = |request: &str| match request.split([' ', '?']).nth(1).unwrap() {
        "/service" => list(&[fixtures::service("web"), fixtures::service("db")]),
        "/pod" => {
            list(&[fixtures::pod("aaaa1111", Phase::Running), fixtures::pod("bbbb2222", Phase::Failed)])
        }
        path if path.starts_with("/pod/") => ok_json(&fixtures::pod("aaaa1111", Phase::Stopping)),
        _ => response("204 No Content", "text/plain", ""),
    };
    for (line, expected) in [
        ("svc ls -l a=b -l c", vec!["GET /service?label=a%3Db%2Cc"]),
        ("ps -l a!=b", vec!["GET /pod?label=a%21%3Db"]),
        ("svc rm -l a=b", DELETED.to_vec()),
        ("delete svc -l a=b", DELETED.to_vec()),
        ("delete pods -l a", vec!["GET /pod?label=a", "GET /pod/aaaa1111", "DELETE /pod/aaaa1111"]),
    ] {
        let (exit, shown, requests) = run_line(line, respond).await;
        assert_eq!(
            (exit.unwrap(), requests),
            (Exit::Ok, expected.iter().map(ToString::to_string).collect()),
            "{line}"
        );
        assert!(!shown.is_empty(), "{line}");
    }
    let (exit, _, requests) = run_line("svc rm -l a=b", |_| list::<u8>(&[])).await;
    assert_eq!((exit.unwrap(), requests.len()), (Exit::Ok, 1), "nothing is deleted");
    for line in
        ["delete web -l a", "delete node -l a", "get queue -l a", "get svc web -w", "get svc web -l a"]
    {
        let (exit, _, requests) = run_line(line, |_| problem(500)).await;
        assert_eq!((exit.unwrap_err().exit(), requests.len()), (Exit::Usage, 0), "{line}");
    }
}

#[tokio::test]
async fn nodes_are_selected_by_their_labels() {
    let respond = |_: &str| list(&[fixtures::node("worker1"), fixtures::node("worker2")]);
    let (_, shown, _) = run_line("get nodes -l zone=a -q", respond).await;
    assert_eq!(shown, "worker1\nworker2\n");
    let (_, shown, _) = run_line("nodes -l zone!=a -q", respond).await;
    assert_eq!(shown, "");
}

#[tokio::test]
async fn a_change_of_labels_is_sent_as_one_patch_and_prints_what_changed() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = bodies.clone();
    let respond = move |request: &str| {
        let mut node = fixtures::node("worker1");
        if let Some((_, body)) = request.split_once("\r\n\r\n").filter(|_| request.starts_with("PATCH")) {
            seen.lock().push(body.to_owned());
            node.labels = [("disk", "ssd"), ("rack", "7")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        }
        ok_json(&node)
    };
    let (exit, shown, requests) = run_line("node label worker1 disk=ssd rack=7 zone-", respond).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert_eq!(shown, "node/worker1 labelled: disk=ssd, rack=7, zone removed\n");
    assert_eq!(requests, ["GET /node/worker1", "PATCH /node/worker1/labels"]);
    assert_eq!(*bodies.lock(), [r#"{"disk":"ssd","rack":"7","zone":null}"#]);
    let unchanged = |_: &str| ok_json(&fixtures::node("worker1"));
    assert_eq!(run_line("node label worker1 zone=a", unchanged).await.1, "node/worker1 unchanged\n");
}

#[tokio::test]
async fn lists_for_scripts_have_no_titles() {
    let respond = |_: &str| list(&[fixtures::pod("aaaa1111", Phase::Running)]);
    let (_, shown, _) = run_line("ps -q", respond).await;
    assert_eq!(shown, "aaaa1111\n");
    let (_, shown, _) = run_line("ps --no-headers", respond).await;
    assert!(shown.starts_with("web-0 ") && shown.lines().count() == 1, "{shown}");
}

#[tokio::test]
async fn a_watch_prints_a_row_for_each_change() {
    let reads = AtomicUsize::new(0);
    let respond = move |_: &str| match reads.fetch_add(1, Ordering::SeqCst) {
        0 => list(&[fixtures::pod("aaaa1111", Phase::Pending)]),
        1 => problem(503),
        2 => list(&[fixtures::pod("aaaa1111", Phase::Pending), fixtures::pod("bbbb2222", Phase::Running)]),
        3 => list(&[fixtures::pod("aaaa1111", Phase::Running), fixtures::pod("bbbb2222", Phase::Running)]),
        _ => problem(401),
    };
    let (exit, shown, _) = run_line("ps -w", respond).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::Unauthorized);
    let columns: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(columns[0][..2], ["NAME", "PHASE"]);
    let rows: Vec<[&str; 2]> = columns[1..].iter().map(|row| [row[1], row[6]]).collect();
    assert_eq!(rows, [["pending", "aaaa1111"], ["running", "bbbb2222"], ["running", "aaaa1111"]], "{shown}");
    let starts: Vec<_> = shown.lines().skip(1).map(|line| line.find("worker1")).collect();
    assert!(starts.windows(2).all(|pair| pair[0] == pair[1]), "{shown}");
}

#[tokio::test]
async fn every_list_can_be_watched() {
    let node = |state: &str, heartbeat: &str| {
        let mut node = serde_json::to_value(fixtures::node("worker1")).unwrap();
        (node["state"], node["last_heartbeat"]) = (state.into(), heartbeat.into());
        list(&[node])
    };
    let service = |ready: u64| {
        let mut service = fixtures::service("web");
        service.status.ready = ready;
        list(&[service])
    };
    let queue = |dead: u64| ok_json(&api_types::QueuesView { dead, ..Default::default() });
    let heartbeat = |second: usize| format!("2026-01-01T00:00:0{second}Z");
    for (line, answers, rows) in [
        ("get svc -w", [service(1), service(1), service(2)], 2),
        ("svc ls -w", [service(1), service(1), service(2)], 2),
        (
            "get nodes -w",
            [node("alive", &heartbeat(1)), node("alive", &heartbeat(2)), node("dead", &heartbeat(3))],
            2,
        ),
        ("get queues -w", [queue(0), queue(0), queue(1)], 5),
        ("queue ls --watch", [queue(0), queue(0), queue(0)], 4),
        (concat!("get ", "letter -w"), [list::<u8>(&[]), list::<u8>(&[]), list::<u8>(&[])], 0),
    ] {
        let reads = AtomicUsize::new(0);
        let respond = move |_: &str| {
            let answer = answers.get(reads.fetch_add(1, Ordering::SeqCst));
            answer.cloned().unwrap_or_else(|| problem(401))
        };
        let (exit, shown, _) = run_line(&format!("{line} --no-headers"), respond).await;
        assert_eq!(exit.unwrap_err().exit(), Exit::Unauthorized, "{line}");
        assert_eq!(shown.lines().count(), rows, "{line}: {shown}");
    }
}

#[tokio::test]
async fn the_version_is_shown_with_and_without_an_api() {
    let respond =
        |_: &str| ok_json(&serde_json::json!({ "openapi": "3.1.0", "info": { "version": "9.9.9" } }));
    let (exit, shown, requests) = run_line("version", respond).await;
    let expected = format!("Client:  {}\nAPI:     9.9.9\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((exit.unwrap(), shown), (Exit::Ok, expected));
    assert_eq!(requests, ["GET /openapi.json"]);
    let (exit, shown, _) = run_line("version -o json", |_| problem(503)).await;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((exit.unwrap(), &shown["api"]), (Exit::Ok, &serde_json::Value::Null));
}

fn job(exit_code: i64) -> impl Fn(&str) -> String + Send + Sync + Copy + 'static {
    move |request| match request.split([' ', '?']).take(2).collect::<Vec<_>>().as_slice() {
        ["GET", "/pod"] => {
            let phase = if exit_code == 0 { Phase::Succeeded } else { Phase::Failed };
            let mut pod = fixtures::pod("aaaa1111", phase);
            pod.exit_code = Some(exit_code);
            list(&[pod])
        }
        ["GET", path] if path.starts_with("/event") => problem(503),
        ["DELETE", _] => response("204 No Content", "text/plain", ""),
        _ => {
            let mut service = fixtures::service("job");
            service.replicas = 1;
            let status = &mut service.status;
            (status.desired, status.running, status.updated) = (1, 0, 0);
            (status.succeeded, status.failed) = if exit_code == 0 { (1, 0) } else { (0, 1) };
            ok_json(&service)
        }
    }
}

#[tokio::test]
async fn a_job_is_waited_for_and_its_exit_code_passed_on() {
    for (code, expected) in [(0, Exit::Ok), (3, Exit::Container(3))] {
        let line = "run x --name job --restart never --wait --timeout 10s";
        let (exit, shown, requests) = run_line(line, job(code)).await;
        assert_eq!((exit.unwrap(), shown.as_str()), (expected, "service/job created\n"));
        assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:?}");
        let (exit, _, requests) = run_line(&format!("{line} --rm"), job(code)).await;
        assert_eq!((exit.unwrap(), requests.last().unwrap().as_str()), (expected, "DELETE /service/job"));
    }
    let (exit, _, requests) = run_line("run x --rm --wait --restart always", job(0)).await;
    assert_eq!((exit.unwrap_err().exit(), requests.len()), (Exit::Usage, 0));
}

#[tokio::test]
async fn environment_files_and_labels_are_read_as_docker_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("env");
    std::fs::write(&file, "# comment\nA=file\nB=file\n").unwrap();
    let respond = |request: &str| {
        let body: serde_json::Value =
            serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        let expected = serde_json::json!({ "A": "flag", "B": "file" });
        let has_all = body["environment"] == expected
            && body["labels"] == serde_json::json!({ "a": "b", "c": "d", "e": "f" })
            && body["memory"].as_u64() == Some(64 << 20);
        if has_all { ok_json(&fixtures::service("web")) } else { problem(422) }
    };
    let line = format!("run nginx -d -m 64m --env-file {} -e A=flag -l a=b,c=d -l e=f", file.display());
    let (exit, ..) = run_line(&line, respond).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    let (exit, ..) = run_line("run nginx --env-file /nowhere", respond).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::NotFound);
}
