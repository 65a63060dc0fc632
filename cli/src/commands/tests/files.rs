//! Commands that read files: `apply`, `diff` and `delete -f`.

use api_types::{GenerationOutcomeView, GenerationView, List, ServiceView};

use super::*;

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

/// As a user writes it.
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
    let web = "service/web configured (dry run): no pod is replaced: replicas 3 → 4\n";
    assert_eq!(shown, format!("{web}service/new created (dry run)\n"));
    let checks = [
        "GET /service/web",
        "PUT /service/web?dry_run=true",
        "GET /service/new",
        "PUT /service/new?dry_run=true",
    ];
    assert_eq!(requests, checks);
}

#[tokio::test]
async fn a_dry_run_is_refused_for_what_apply_is() {
    let files = directory(&[("web.yaml", &WEB.replace("64MiB", "640GiB"))]);
    let line = format!("apply --dry-run -f {}", files.path().display());
    let refusing = |status: u16, kind: &'static str| {
        move |request: &str| match request.starts_with("PUT") {
            true => refusal(status, kind),
            false => api_with_web(request),
        }
    };
    for (status, kind, expected) in [
        (409, "insufficient-memory", Exit::Unschedulable),
        (409, "insufficient-permission", Exit::Unschedulable),
        (409, "service-deleting", Exit::Conflict),
        (403, "read-only", Exit::Ok),
    ] {
        let (exit, shown, _) = run_line(&line, refusing(status, kind)).await;
        assert_eq!(exit.unwrap(), expected, "{kind}");
        assert!(shown.starts_with("service/web configured (dry run)"), "{shown}");
    }
}

/// As users write them, with the dependency last.
const MIGRATED: &str = "name: web\nimage: b\ndepends_on: {cache: service_started}\n---\n\
                        name: other\nimage: b\n---\nname: cache\nimage: b\n\
                        depends_on: {migrate: service_completed_successfully}\n---\nname: migrate\nimage: b\n";

fn refusing(refused: &'static str, with: String) -> impl Fn(&str) -> String + Send + Sync + 'static {
    move |request: &str| match request.split(" HTTP").next().unwrap() {
        line if line == refused => with.clone(),
        line => {
            let name = line.rsplit('/').next().unwrap().trim_end_matches("?dry_run=true");
            ok_json(&fixtures::service(name))
        }
    }
}

fn refusal(status: u16, kind: &str) -> String {
    let problem = serde_json::json!({"type": format!("/problems/{kind}"), "title": "t", "detail": "d", "status": status});
    response(&format!("{status} x"), "application/problem+json", &problem.to_string())
}

#[tokio::test]
async fn apply_writes_nothing_if_one_of_its_services_is_known_to_be_refused() {
    let files = directory(&[("all.yaml", MIGRATED)]);
    let line = format!("apply -f {}", files.path().display());
    let respond = refusing("PUT /service/migrate?dry_run=true", refusal(409, "job-immutable"));
    let (exit, shown, requests) = run_line(&line, respond).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Conflict, ""));
    let is_write = |line: &&String| line.starts_with("PUT") && !line.contains("dry_run");
    assert_eq!(requests.iter().find(is_write), None);
    // The room may be there when it is written.
    let respond = refusing("PUT /service/migrate?dry_run=true", refusal(409, "insufficient-memory"));
    let (exit, shown, _) = run_line(&line, respond).await;
    assert_eq!((exit.unwrap(), shown.lines().count()), (Exit::Ok, 4));
}

#[tokio::test]
async fn what_depends_on_a_refused_service_is_not_changed_and_the_others_are() {
    let files = directory(&[("all.yaml", MIGRATED)]);
    let line = format!("apply -f {}", files.path().display());
    for (refusal, expected) in [
        (refusal(409, "insufficient-memory"), Exit::Unschedulable),
        (refusal(409, "route-taken"), Exit::Conflict),
        (problem(507), Exit::Error),
    ] {
        let (exit, shown, requests) = run_line(&line, refusing("PUT /service/migrate", refusal)).await;
        assert_eq!((exit.unwrap(), shown.as_str()), (expected, "service/other unchanged\n"));
        let is_write = |line: &&String| line.starts_with("PUT") && !line.contains("dry_run");
        let writes: Vec<&String> = requests.iter().filter(is_write).collect();
        assert_eq!(writes, ["PUT /service/migrate", "PUT /service/other"]);
    }
}

#[tokio::test]
async fn what_others_change_while_apply_writes_is_read_again() {
    let files = directory(&[("web.yaml", WEB)]);
    let line = format!("apply -f {}/web.yaml", files.path().display());
    let read = AtomicBool::new(false);
    let changed_meanwhile = move |request: &str| {
        let revision = if read.load(Ordering::Relaxed) { 8 } else { 7 };
        let service = ServiceView { revision, ..fixtures::service("web") };
        match request.starts_with("PUT") {
            true if request.contains("if-match: \"8\"") => ok_json(&service),
            true => {
                read.store(true, Ordering::Relaxed);
                problem(412)
            }
            false => ok_json(&service),
        }
    };
    let (exit, shown, requests) = run_line(&line, changed_meanwhile).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "service/web unchanged\n"));
    let (get, put) = ("GET /service/web", "PUT /service/web");
    assert_eq!(requests, [get, put, get, put]);

    let always_changed = |request: &str| match request.starts_with("PUT") {
        true => problem(412),
        false => ok_json(&fixtures::service("web")),
    };
    let (exit, _, requests) = run_line(&line, always_changed).await;
    assert_eq!(exit.unwrap(), Exit::Conflict);
    assert_eq!(requests.iter().filter(|line| line.starts_with("PUT")).count(), 5);
}

#[tokio::test]
async fn diff_shows_the_lines_and_has_an_exit_code_for_a_difference() {
    let files = directory(&[("web.yaml", &WEB.replace("replicas: 3", "replicas: 4"))]);
    let line = format!("diff -f {}/web.yaml", files.path().display());
    let (exit, shown, _) = run_line(&line, api_with_web).await;
    assert_eq!(exit.unwrap().code(), 1);
    assert!(shown.starts_with("--- service/web (stored)\n+++ service/web (file)\n name: web\n"), "{shown}");
    assert!(shown.contains("\n-replicas: 3\n+replicas: 4\n"), "{shown}");
    assert!(shown.ends_with("# no pod is replaced: replicas 3 → 4\n"), "{shown}");
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
    assert_eq!(requests, ["DELETE /service/web", "DELETE /service/db", "GET /volume"]);
}

fn api_with_shop(request: &str) -> String {
    let service = |name: &str| {
        let mut service = fixtures::service(name);
        service.fields.app = Some("shop".parse().unwrap());
        service
    };
    let both = serde_json::json!({ "items": [service("shop-old"), service("shop-web")] });
    match request.split(" HTTP").next().unwrap() {
        "GET /service?app=shop" => ok_json(&both),
        "GET /service?app=blog" => ok_json(&serde_json::json!({ "items": [] })),
        "GET /service" => ok_json(&both),
        "GET /secret" | "GET /config" => ok_json(&serde_json::json!({ "items": [] })),
        line if line.starts_with("DELETE") => response("204 No Content", "text/plain", ""),
        line if line.contains("/service/shop-db") && line.starts_with("GET") => problem(404),
        _ => ok_json(&service("shop-web")),
    }
}

const SHOP: &str = "name: shop\nservices:\n  web: {image: a, depends_on: [db]}\n  db: {image: b}\n  tools: {image: c, \
                    profiles: [debug]}\n";

#[tokio::test]
async fn the_services_of_a_compose_file_are_applied_in_their_order_and_others_pruned() {
    let files = directory(&[("compose.yaml", SHOP)]);
    let apply = format!("apply -f {}/compose.yaml", files.path().display());
    let (exit, shown, mut requests) = run_line(&apply, api_with_shop).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert_eq!(
        shown, "service/shop-web created\nservice/shop-web unchanged\n",
        "the fake API has one answer"
    );
    let put = requests.iter().filter(|line| line.starts_with("PUT") && !line.contains("dry_run"));
    let put: Vec<_> = put.collect();
    assert_eq!(put, ["PUT /app/shop/lock", "PUT /service/shop-db", "PUT /service/shop-web"]);
    let place = |line: &str| requests.iter().position(|request| request == line).unwrap();
    for checked in ["shop-db", "shop-web"] {
        let check = place(&format!("PUT /service/{checked}?dry_run=true"));
        assert!(check < place("PUT /service/shop-db"), "all are checked first: {requests:?}");
    }
    assert!(requests.pop().unwrap().starts_with("DELETE /app/shop/lock?id="), "{requests:?}");
    assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:?}");

    let (_, shown, requests) = run_line(&format!("{apply} --prune"), api_with_shop).await;
    assert!(shown.ends_with("service/shop-old is being deleted: the files do not have it\n"), "{shown}");
    assert!(requests.contains(&"DELETE /service/shop-old".to_owned()), "{requests:?}");
    let (_, shown, requests) = run_line(&format!("{apply} --prune --dry-run"), api_with_shop).await;
    assert!(shown.ends_with("service/shop-old deleted (dry run)\n"), "{shown}");
    assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:?}");
}

#[tokio::test]
async fn a_compose_file_without_ingress_leaves_alone_what_was_added_by_hand() {
    let puts = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let bodies = puts.clone();
    let respond = move |request: &str| {
        let mut service = fixtures::service("shop-web");
        service.fields.app = Some("shop".parse().unwrap());
        let rule = serde_json::json!({"host": "web.example", "port": 80});
        service.fields.ingress = vec![serde_json::from_value(rule).unwrap()];
        if request.starts_with("PUT") {
            bodies.lock().push(request.split_once("\r\n\r\n").unwrap().1.to_owned());
        }
        match request.split(" HTTP").next().unwrap() {
            "GET /service?app=shop" => ok_json(&serde_json::json!({ "items": [service] })),
            line if line.contains("/service/") => ok_json(&service),
            line if line.contains("/app/shop/lock") => response("204 No Content", "text/plain", ""),
            _ => ok_json(&serde_json::json!({ "items": [] })),
        }
    };
    let compose = "name: shop\nservices:\n  web:\n    image: a\n";
    let removing = format!("{compose}    x-kubeleet: {{ingress: []}}\n");
    let files = directory(&[("keeping.yaml", compose), ("removing.yaml", &removing)]);
    for (file, expected) in [("keeping", true), ("removing", false)] {
        let line = format!("apply -f {}/{file}.yaml", files.path().display());
        let (exit, shown, _) = run_line(&format!("{line} --dry-run"), respond.clone()).await;
        assert_eq!(exit.unwrap(), Exit::Ok);
        assert_eq!(!shown.contains("ingress (removed)"), expected, "{shown}");
        assert_eq!(run_line(&line, respond.clone()).await.0.unwrap(), Exit::Ok);
        assert_eq!(puts.lock().pop().unwrap().contains("web.example"), expected, "{file}");
    }
}

#[tokio::test]
async fn a_file_that_does_not_name_a_field_says_that_it_removes_it() {
    let files = directory(&[("web.yaml", &WEB.replace("labels: {tier: front}\n", ""))]);
    let line = format!("apply --dry-run -f {}", files.path().display());
    let (_, shown, _) = run_line(&line, api_with_web).await;
    assert_eq!(shown, "service/web configured (dry run): no pod is replaced: labels (removed)\n");
}

#[tokio::test]
async fn jobs_and_crons_are_types_whose_objects_are_services_of_that_kind() {
    let of_kind = |kind| {
        move |request: &str| {
            let mut service = fixtures::service("sums");
            service.pod.kind = kind;
            match request.split(" HTTP").next().unwrap() {
                "GET /service" => ok_json(&serde_json::json!({ "items": [service] })),
                line if line.starts_with("DELETE") => response("204 No Content", "text/plain", ""),
                line if line.starts_with("GET /service/sums") => ok_json(&service),
                _ => ok_json(&serde_json::json!({ "items": [] })),
            }
        }
    };
    let (exit, shown, _) = run_line("get jobs -q", of_kind(model::spec::Kind::Job)).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "sums\n"));
    let (_, shown, _) = run_line("get crons -q", of_kind(model::spec::Kind::Job)).await;
    assert_eq!(shown, "");
    let (exit, _, requests) = run_line("delete job sums", of_kind(model::spec::Kind::Job)).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert!(requests.contains(&"DELETE /service/sums".to_owned()), "{requests:?}");
    for line in ["delete job/sums", "delete cron sums", "describe job/sums"] {
        let (exit, _, requests) = run_line(line, of_kind(model::spec::Kind::Service)).await;
        let problem = exit.map(|exit| exit != Exit::Ok).unwrap_or(true);
        assert!(problem, "{line}: it is a service");
        assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:?}");
    }
}

#[tokio::test]
async fn a_drain_leaves_the_pods_whose_data_is_on_the_node() {
    let respond = |request: &str| {
        let pod = serde_json::json!({
            "uuid": "p", "name": "web", "service": "web", "replica": 0, "phase": "running", "to": null,
            "stays": "no other node takes it: VolumeElsewhere (worker2)", "is_bound": true,
        });
        let order = serde_json::json!({ "since": "2026-01-31T00:01:00Z", "deadline": null });
        let mut node = fixtures::node("worker1");
        node.used.pods = 1;
        match request.split(" HTTP").next().unwrap() {
            line if line.ends_with("/drain") => {
                ok_json(&serde_json::json!({ "node": "worker1", "order": order, "pods": [pod] }))
            }
            "GET /node/worker1" => ok_json(&node),
            _ => problem(404),
        }
    };
    let (exit, shown, requests) = run_line("drain worker1", respond).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert_eq!(shown, "node/worker1 cordoned\nnode/worker1 drained\n");
    assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:?}");
}

#[tokio::test]
async fn nothing_is_pruned_after_a_failure_or_without_a_compose_file() {
    let files = directory(&[("compose.yaml", SHOP), ("web.yaml", "name: web\nimage: x\n")]);
    let path = files.path().display();
    let failing = |request: &str| match request.starts_with("PUT /service") {
        true => problem(507),
        false => api_with_shop(request),
    };
    let (exit, _, requests) = run_line(&format!("apply --prune -f {path}/compose.yaml"), failing).await;
    assert_ne!(exit.unwrap(), Exit::Ok);
    assert!(!requests.iter().any(|line| line.starts_with("DELETE /service")), "{requests:?}");
    for flag in ["--prune", "-p shop", "--profile debug"] {
        let (exit, ..) = run_line(&format!("apply {flag} -f {path}/web.yaml"), api_with_shop).await;
        assert_eq!(exit.unwrap_err().exit(), Exit::Usage, "{flag}");
    }
}

#[tokio::test]
async fn apps_are_listed_described_and_deleted() {
    let (exit, shown, _) = run_line("app ls --no-headers", api_with_shop).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    assert!(shown.starts_with("shop") && shown.contains("2/2") && shown.contains("old,web"), "{shown}");
    for line in ["app describe shop", "get app/shop", "describe app shop"] {
        let (_, shown, requests) = run_line(line, api_with_shop).await;
        assert!(shown.contains("2 of 2 services") && shown.contains("\n  web "), "{line}: {shown}");
        assert_eq!(requests, ["GET /service?app=shop"]);
    }
    assert_eq!(run_line("get apps -o name", api_with_shop).await.1, "app/shop\n");
    for line in ["app rm shop", "delete app/shop"] {
        let (_, shown, requests) = run_line(line, api_with_shop).await;
        assert_eq!(shown, "service/shop-old is being deleted\nservice/shop-web is being deleted\n", "{line}");
        let deletes = ["DELETE /service/shop-old", "DELETE /service/shop-web"];
        let requests: Vec<_> = requests.iter().filter(|line| !line.contains("/lock")).collect();
        assert_eq!(requests[1..], [&deletes[..], &["GET /volume", "GET /secret", "GET /config"]].concat());
    }
    // One was already being deleted, and its last pod ended between the list and the request.
    let one_is_gone = |request: &str| match request.starts_with("DELETE /service/shop-old") {
        true => problem(404),
        false => api_with_shop(request),
    };
    let (exit, shown, _) = run_line("app rm shop", one_is_gone).await;
    assert_eq!((exit.unwrap(), shown.as_str()), (Exit::Ok, "service/shop-web is being deleted\n"));
    let (exit, ..) = run_line("service rm shop-old", one_is_gone).await;
    assert_eq!(exit.unwrap(), Exit::NotFound, "it was named by its user");
    assert_eq!(run_line("app rm blog", api_with_shop).await.0.unwrap(), Exit::NotFound);
    assert_eq!(run_line("app describe blog", api_with_shop).await.0.unwrap_err().exit(), Exit::NotFound);
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
    assert_eq!(requests, ["POST /service/web/restart", "POST /service/no/restart"]);
}

fn api_with_history(request: &str) -> String {
    let service = fixtures::service("web");
    let generation = |generation: u64, until: Option<&str>, image: &str| {
        let mut containers = service.pod.containers.clone();
        containers[0].image = image.to_owned();
        GenerationView {
            generation,
            until: until.map(str::to_owned),
            outcome: until.is_some().then_some(GenerationOutcomeView::Good),
            message: String::new(),
            undo_target: generation == 4,
            on_disconnect: service.pod.on_disconnect,
            stop_grace_period: service.pod.stop_grace_period,
            drain: None,
            stateful: None,
            resources: Default::default(),
            containers,
            images: Vec::new(),
        }
    };
    let now = generation(1, None, "nginx:1.27");
    let mut first = generation(3, Some("2026-01-31T00:00:00Z"), "nginx:1.25");
    first.containers[0].memory = None;
    let items = vec![now, generation(4, Some("2026-01-31T00:01:00Z"), "nginx:1.26"), first];
    match request.split(" HTTP").next().unwrap() {
        "GET /service/web" => ok_json(&service),
        "GET /service/web/history" => ok_json(&List { items, next: None }),
        "POST /service/web/undo?dry_run=true&to=3" => response("204 No Content", "text/plain", ""),
        "POST /service/web/undo?to=4" | "POST /service/web/undo?to=3" => {
            ok_json(&ServiceView { generation: 5, ..service.clone() })
        }
        _ => problem(404),
    }
}

#[tokio::test]
async fn a_history_says_what_changed_and_undo_goes_back() {
    let (exit, shown, _) = run_line("rollout history web", api_with_history).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["GENERATION", "WANTED", "OUTCOME", "IMAGE", "CHANGED"]);
    assert_eq!(
        (rows[1][..5].to_vec(), rows[2][0], rows[3][0]),
        (vec!["1", "now", "-", "nginx:1.27", "image"], "4", "3")
    );
    assert!(shown.contains("image, memory"), "{shown}");

    let (_, shown, requests) = run_line("rollout undo web", api_with_history).await;
    assert_eq!(shown, "service/web undone: generation 5 is as 4 was\n");
    assert_eq!(requests.last().unwrap(), "POST /service/web/undo?to=4");
    let (_, shown, _) = run_line("rollout undo web --to 3", api_with_history).await;
    assert_eq!(shown, "service/web undone: generation 5 is as 3 was\n");

    let (exit, shown, requests) = run_line("rollout undo web --dry-run --to 3", api_with_history).await;
    assert_eq!(exit.unwrap(), Exit::Ok);
    for line in ["-image: nginx:1.27\n+image: nginx:1.25\n", "-memory: ", "# 3 pods would be replaced"] {
        assert!(shown.contains(line), "{shown}");
    }
    let asked = ["GET /service/web", "GET /service/web/history", "POST /service/web/undo?dry_run=true&to=3"];
    assert_eq!(requests, asked);
    for (line, said) in [
        ("rollout undo web --to 1", "is the current one"),
        ("rollout undo web --to 2 --dry-run", "no former generation 2; `kubeleet rollout history web`"),
    ] {
        let error = run_line(line, api_with_history).await.0.unwrap_err().to_string();
        assert!(error.contains(said), "{line}: {error}");
    }
}

#[tokio::test]
async fn an_app_is_changed_by_one_client_at_a_time() {
    let files = directory(&[("compose.yaml", "name: shop\nservices: {web: {image: a}}\n")]);
    let apply = format!("apply -f {} --timeout 1s", files.path().display());
    let held = "{\"type\":\"/problems/app-locked\",\"title\":\"App is being changed\",\"status\":409,\
                \"detail\":\"ann@laptop has been changing app shop since 2026-01-31T00:01:00Z\"}";
    let web = || {
        let mut web = fixtures::service("shop-web");
        web.fields.app = Some("shop".parse().unwrap());
        web
    };
    let respond = move |locks: &str, request: &str| match request.split(" HTTP").next().unwrap() {
        "PUT /app/shop/lock" if locks == "held" => response("409 Conflict", "application/problem+json", held),
        line if line.contains("/app/shop/lock") => response("204 No Content", "text/plain", ""),
        line if line.starts_with("GET /service?")
            || line.starts_with("GET /secret")
            || line.starts_with("GET /config") =>
        {
            ok_json(&serde_json::json!({ "items": [web()] }))
        }
        _ => ok_json(&web()),
    };
    for line in [apply.clone(), "app rm shop --timeout 1s".to_owned(), apply.replace("apply", "delete")] {
        let (exit, _, requests) = run_line(&line, move |request: &str| respond("held", request)).await;
        let error = exit.unwrap_err();
        assert_eq!(error.exit(), Exit::Conflict, "{line}");
        let said = error.to_string();
        assert!(
            said.contains("ann@laptop has been changing app shop since")
                && said.contains("nothing was changed"),
            "{said}"
        );
        assert!(requests.iter().all(|line| line.contains("/lock")), "{requests:?}");

        let (_, _, requests) = run_line(&line, move |request: &str| respond("free", request)).await;
        let locks = requests.iter().position(|line| line.starts_with("PUT /app/shop/lock")).unwrap();
        let writes = requests.iter().position(|line| line.contains(" /service/shop-web")).unwrap();
        assert!(
            locks < writes && requests.last().unwrap().starts_with("DELETE /app/shop/lock?id="),
            "{requests:?}"
        );
    }
}

#[tokio::test]
async fn apply_does_not_change_a_service_that_would_lose_sight_of_its_data() {
    let respond = |request: &str| {
        let mut web = serde_json::to_value(fixtures::service("web")).unwrap();
        web["containers"][0]["volumes"] =
            serde_json::json!([{"kind": "persistent", "source": "data", "target": "/d"}]);
        let volume = serde_json::json!({
            "name": "web_data_0", "kind": "persistent", "service": "web", "source": "data", "replica": 0,
            "node": "worker1", "state": "bound", "in_use": true, "created_at": "2026-01-31T00:01:00Z",
        });
        match request.split(" HTTP").next().unwrap() {
            line if line.starts_with("GET /volume") => ok_json(&serde_json::json!({ "items": [volume] })),
            line if line.starts_with("GET /event") => ok_json(&serde_json::json!({ "items": [] })),
            _ => ok_json(&web),
        }
    };
    let shared = format!("{WEB}volumes: [{{kind: shared, source: data, target: /d}}]\n");
    for text in [WEB, &shared, &format!("{WEB}volumes: ['other:/d']\n")] {
        let files = directory(&[("web.yaml", text)]);
        let line = format!("apply -f {}", files.path().display());
        let (_, _, requests) = run_line(&line, respond).await;
        assert!(!requests.iter().any(|line| line.starts_with("PUT")), "{requests:?}");
        let (_, _, requests) = run_line(&format!("{line} --leave-volumes"), respond).await;
        assert!(requests.iter().any(|line| line.starts_with("PUT")), "{requests:?}");
    }
    let files = directory(&[("web.yaml", &format!("{WEB}volumes: ['data:/elsewhere']\n"))]);
    let (_, _, requests) = run_line(&format!("apply -f {}", files.path().display()), respond).await;
    assert!(requests.iter().any(|line| line.starts_with("PUT")), "{requests:?}");
}
