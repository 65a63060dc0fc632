//! The user commands end to end, with the real binary and simulated pods.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod completion;
mod compose;
mod dev;
mod jobs;
mod pages;
mod shipped;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use cluster::Cluster;

const BINARY: &str = env!("CARGO_BIN_EXE_kubeleet");

fn kubeleet(api: &str, line: &str) -> Output {
    kubeleet_with(api, line, "")
}

fn kubeleet_with(api: &str, line: &str, input: &str) -> Output {
    let mut command = Command::new(BINARY);
    command.args(line.split_whitespace()).env_clear().env("KUBELEET_API", api);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn parts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn errors_are_on_standard_error_with_their_code_and_without_colours() {
    for (line, code, message) in [
        ("status", 8, "no API at http://127.0.0.1:1"),
        ("service ls --api https://127.0.0.1:1", 2, "TLS is not built in"),
        ("service scale web", 2, "the number of pods is missing"),
        ("nonsense", 2, "nonsense"),
        ("apply -f /nowhere.yaml", 3, "no such file"),
        ("status --token-file /nowhere", 2, "/nowhere"),
        ("registry login r.example -u bob", 2, "--password-stdin reads it"),
        (
            "login r.example -u bob -p x",
            8,
            "warning: the password is in the shell's history; --password-stdin reads it",
        ),
    ] {
        let (exit, out, err) = parts(&kubeleet("http://127.0.0.1:1", line));
        assert_eq!((exit, out.as_str()), (code, ""), "{line}: {err}");
        assert!(err.contains(message) && !err.contains('\x1b'), "{line}: {err}");
    }
}

#[test]
fn an_empty_variable_is_as_none() {
    for name in ["API", "TOKEN", "TOKEN_FILE", "CONFIG"] {
        let mut command = Command::new(BINARY);
        command.args(["status", "--api", "http://127.0.0.1:1"]).env_clear();
        let (exit, _, err) = parts(&command.env(format!("KUBELEET_{name}"), "").output().unwrap());
        assert!(exit == 8 && err.contains("no API at"), "{name}: {err}");
    }
    let mut command = Command::new(BINARY);
    command.args(["api", "--redis-url", "nonsense"]).env_clear().env("KUBELEET_CONFIG", "");
    let (exit, _, err) = parts(&command.output().unwrap());
    assert!(exit == 2 && err.contains("KUBELEET_REDIS_URL"), "{exit} {err}");
}

#[test]
fn a_reader_that_leaves_early_is_not_an_error() {
    let mut child = Command::new(BINARY)
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (exit, _, err) = parts(&child.wait_with_output().unwrap());
    assert_eq!((exit, err.as_str()), (0, ""));
}

#[test]
fn help_lists_the_exit_codes() {
    let (exit, out, _) = parts(&kubeleet("", "--help"));
    assert_eq!(exit, 0);
    for part in ["5 unschedulable", "6 timed out", "8 unreachable", "completions"] {
        assert!(out.contains(part), "{part}");
    }
}

#[test]
fn a_service_is_created_scaled_and_deleted() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));

    let (exit, out, err) = run("run hello --name web --replicas 3 --wait --timeout 30s");
    assert_eq!((exit, out.as_str()), (0, "service/web created\n"), "{err}");
    assert!(err.ends_with("web: 3/3 running: ready\n"), "{err}");
    let (_, out, _) = run("service ls -o json");
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["items"][0]["status"]["running"], 3, "{out}");
    let (_, out, _) = run("ps --service web -o name");
    assert_eq!(out, "pod/web-0\npod/web-1\npod/web-2\n");
    for name in out.lines() {
        let (exit, described, _) = run(&format!("describe {name} -o name"));
        assert_eq!((exit, described.trim_end()), (0, name));
    }
    assert_eq!(run("svc -q").1, "web\n");
    let (exit, out, _) = run("version -o json");
    assert!(exit == 0 && out.matches(env!("CARGO_PKG_VERSION")).count() == 2, "{out}");
    let (exit, out, _) = run("pod describe web-1");
    assert!(exit == 0 && out.contains("Name:           web-1") && out.contains("PodStarted"), "{out}");

    assert_eq!(run("run hello --name web").0, 4);
    let (exit, out, _) = run("run hello -o name");
    assert_eq!((exit, out.as_str()), (0, "service/hello\n"));
    let (_, out, _) = run("run hello -o name");
    assert!(out.starts_with("service/hello-"), "{out}");
    assert_eq!(run("service describe nothing").0, 3);

    let (exit, out, err) = run("scale web=1 nothing=2 hello=0 --wait --timeout 30s");
    assert!(exit == 3 && err.contains("there is no service nothing"), "{exit} {err}");
    assert_eq!(out, "service/web scaled to 1\nservice/hello scaled to 0\n");
    let (exit, _, err) = run("pod stop web-0 --wait --timeout 30s");
    assert!(exit == 0 && err.ends_with("gone\n"), "{err}");
    testkit::eventually::blocking_eventually("its successor is stopped by the service's name", || {
        let (exit, out, err) = run("kill web");
        (exit == 0 && out == "pod/web-0 is being stopped\n").then_some(()).ok_or(out + &err)
    });
    let (exit, _, err) = run("service rm web nothing --wait --timeout 30s");
    assert!(exit == 3 && err.contains("there is no service nothing") && err.ends_with("gone\n"), "{err}");
}

#[test]
fn a_one_off_shows_its_output_and_is_gone_afterwards() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let (exit, out, err) = run("run --rm --name once --timeout 60s done:1");
    assert_eq!((exit, out.as_str()), (0, "simulated start 1\n"), "{err}");
    let (exit, out, err) = run("run --rm --name bad --timeout 60s crash:1 some command");
    assert_eq!((exit, out.as_str()), (1, "simulated start 1\n"), "{err}");
    testkit::eventually::blocking_eventually("both services are gone", || {
        let (_, out, err) = run("svc -q");
        if out.is_empty() { Ok(()) } else { Err(out + &err) }
    });
    let (exit, out, err) = run("create deployment web --image=hello --replicas=2");
    assert_eq!((exit, out.as_str()), (0, "service/web created\n"), "{err}");
    assert_eq!(run("service update --replicas 1 web").1, "service/web scaled to 1\n");
    let (exit, out, err) = run("get all");
    assert!(exit == 0 && out.contains("web") && out.contains("\n\n"), "{out}{err}");
    let (exit, out, err) = run("inspect web -o name");
    assert_eq!((exit, out.as_str()), (0, "service/web\n"), "{err}");
    let (exit, out, err) = run("rm web");
    assert_eq!((exit, out.as_str()), (0, "service/web is being deleted\n"), "{err}");
}

#[test]
fn a_drained_node_has_no_pods_of_services_which_are_complete_elsewhere() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.add_worker("worker2");
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    assert_eq!(run("run hello --name web --replicas 4 --wait --timeout 30s").0, 0);
    assert_eq!(run("run hello --name db --wait --timeout 30s").0, 0);
    let lone = r#"{"name":"lone","uuid":"lone","image":"hello","replica":0}"#;
    cluster.redis.blocking_cli::<()>(&["LPUSH", "pq:worker1", lone]);
    testkit::eventually::blocking_eventually("the pushed pod runs", || {
        let (_, out, _) = run("ps --node worker1 --phase running -o name");
        if out.contains("pod/lone") { Ok(()) } else { Err(out) }
    });
    let (exit, out, err) = run("drain worker1 --timeout 60s");
    assert_eq!(exit, 0, "{out} {err}");
    assert!(out.starts_with("node/worker1 cordoned\n") && out.ends_with("node/worker1 drained\n"), "{out}");
    assert!(err.contains("1 pod of no service left on worker1"), "{err}");
    let (_, left, _) = run("ps --node worker1 --phase running -o name");
    assert_eq!(left, "pod/lone\n");
    let (_, services, _) = run("svc ls");
    assert!(services.contains("4/4") && services.contains("1/1"), "{services}");
    let (exit, out, _) = run("drain worker1");
    assert_eq!((exit, out.as_str()), (0, "node/worker1 cordoned\nnode/worker1 drained\n"));
}

#[test]
fn an_unschedulable_service_has_its_own_exit_code_and_reasons() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let (exit, _, err) = run("run hello --name big --memory 100TiB --wait --timeout 2s");
    assert_eq!(exit, 5, "{err}");
    assert!(err.contains("requires 100T of memory but only") && err.contains("--allow-partial"), "{err}");
    assert!(err.contains("\n  worker1: offers"), "{err}");
    assert_eq!(run("service describe big").0, 3, "nothing was stored");
    let (exit, _, err) = run("run hello --name big --memory 100TiB --allow-partial --wait --timeout 2s");
    assert_eq!(exit, 5, "{err}");
    assert!(err.contains("1 unschedulable") && err.contains("timed out"), "{err}");
    let (_, out, _) = run("pod describe big");
    assert!(out.contains("InsufficientMemory") && out.contains("worker1: needs 100 TiB"), "{out}");
}

#[test]
fn applies_files_drops_dead_letters_and_cordons_nodes() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let file = "name: a\nimage: x\n---\nname: b\nimage: y\nreplicas: 2\n";
    let apply = || parts(&kubeleet_with(&cluster.api, "apply -f - --wait --timeout 30s", file));
    let (exit, out, err) = apply();
    assert_eq!((exit, out.as_str()), (0, "service/a created\nservice/b created\n"), "{err}");
    let (exit, out, err) = apply();
    assert_eq!((exit, out.as_str()), (0, "service/a unchanged\nservice/b unchanged\n"), "{err}");
    assert_eq!(err, "a: 1/1 running: ready\nb: 2/2 running: ready\n", "a line for each");

    cluster.redis.blocking_cli::<()>(&["LPUSH", "sq", "nonsense"]);
    let id = testkit::eventually::blocking_eventually("a dead letter", || {
        let (_, out, _) = run("queue peek dq -o name");
        out.trim().strip_prefix("letter/").map(str::to_owned)
    });
    assert_eq!(run("queue drop --all").0, 2);
    let (exit, out, _) = run(&format!("queue drop {id}"));
    assert_eq!((exit, out), (0, format!("dead letter {id} dropped\n")));
    assert_eq!(run(&format!("queue requeue {id}")).0, 3);

    let labelled = "name: c\nimage: x\nlabels: {tier: front}\n---\nname: d\nimage: x\nlabels: {tier: back}\n";
    assert_eq!(parts(&kubeleet_with(&cluster.api, "apply -f -", labelled)).0, 0);
    assert_eq!(run("svc ls -q -l tier").1, "c\nd\n");
    assert_eq!(run("ps -o name -l tier!=front,tier").1, "pod/d-0\n");
    let (exit, out, _) = run("delete svc -l tier=front");
    assert_eq!((exit, out.as_str()), (0, "service/c is being deleted\n"));

    assert_eq!(run("node cordon worker1").1, "node/worker1 cordoned\n");
    assert!(run("node ls").1.contains("ready,cordoned"));
    assert_eq!(run("node uncordon worker1 nowhere").0, 3);
    assert_eq!(run("node label worker1 zone=b").1, "node/worker1 labelled: zone=b\n");
    assert_eq!(run("node ls -q -l zone=b").1, "worker1\n");
    let (exit, _, err) = run("node label worker1 node.zone=b");
    assert!(exit == 2 && err.contains("/node.zone: keys that begin with `node.`"), "{err}");
    let (exit, out, _) = run("events --tail 500");
    assert!(exit == 0 && out.contains("NodeUncordoned") && out.contains("DeadLettered"), "{out}");
    assert!(
        out.contains("NodeRelabelled") && out.contains("an operator changed its labels: zone=b"),
        "{out}"
    );
    let (exit, out, _) = run("status");
    assert!(exit == 0 && out.contains("1 of 1 ready"), "{out}");
}

#[test]
fn a_dead_letter_is_corrected_in_an_editor_and_its_pod_runs() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let payload = r#"{"name":"fixed","uuid":"to-be-fixed","imgae":"x","replica":0}"#;
    cluster.redis.blocking_cli::<()>(&["LPUSH", "sq", payload]);
    let id = testkit::eventually::blocking_eventually("a dead letter", || {
        let (_, out, _) = run("queue peek dq -o name");
        out.trim().strip_prefix("letter/").map(str::to_owned)
    });
    let edit = |editor: &str| {
        let mut command = Command::new(BINARY);
        command.args(["queue", "edit", &id]).env("KUBELEET_API", &cluster.api).env_remove("VISUAL");
        parts(&command.env("EDITOR", editor).output().unwrap())
    };
    let (exit, out, err) = edit("true");
    assert!((exit, out.as_str()) == (0, "") && err.contains("unchanged, not requeued"), "{err}");
    assert_eq!(edit("false").0, 1);
    let (exit, out, err) = edit("sed -i s/imgae/omage/");
    assert!(exit != 0 && out.is_empty() && err.contains("image"), "{exit} {err}");
    let kept = err.split("your text is in ").nth(1).and_then(|rest| rest.split(": ").next()).unwrap();
    assert_eq!(std::fs::read_to_string(kept).unwrap().trim_end(), payload.replace("imgae", "omage"));
    std::fs::remove_file(kept).unwrap();
    assert_eq!(run("queue peek dq -o name").1, format!("letter/{id}\n"), "it is as it was");

    let (exit, out, err) = edit("sed -i s/imgae/image/");
    assert_eq!((exit, out), (0, format!("dead letter {id} edited and requeued\n")), "{err}");
    testkit::eventually::blocking_eventually("the corrected pod runs", || {
        let (_, out, _) = run("ps --no-headers");
        out.lines().any(|row| row.starts_with("fixed-0") && row.contains("running")).then_some(()).ok_or(out)
    });
    assert_eq!(run("queue peek dq -o name").1, "");
    assert_eq!(edit("true").0, 3, "it is gone");
}

#[test]
fn services_are_edited_printed_and_applied_again() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let (exit, _, err) = run("run hello --name web -e MODE=a --wait --timeout 30s");
    assert_eq!(exit, 0, "{err}");
    let edit = |editor: &str| {
        let mut command = Command::new(BINARY);
        command.args(["edit", "svc/web"]).env("KUBELEET_API", &cluster.api).env_remove("VISUAL");
        parts(&command.env("EDITOR", editor).output().unwrap())
    };
    assert_eq!(edit("true").1, "service/web unchanged\n");
    assert_eq!(edit("sed -i s/replicas:.1/replicas:\\ 2/").1, "service/web edited\n");
    let (exit, _, err) = edit("false");
    assert!(exit == 1 && err.contains("nothing was changed"), "{err}");
    let (exit, _, err) = edit("sed -i s/image/imgae/");
    assert!(exit == 2 && err.contains("imgae") && err.contains("the edited service is in"), "{err}");
    let kept = err.lines().find_map(|line| line.strip_prefix("the edited service is in ")).unwrap();
    std::fs::remove_file(kept).unwrap();
    let (exit, _, err) = edit(&format!("{BINARY} scale web 3 >/dev/null; sed -i s/MODE/OTHER/"));
    assert_eq!(exit, 4, "{err}");
    let kept = err.lines().find_map(|line| line.strip_prefix("the edited service is in ")).unwrap();
    std::fs::remove_file(kept).unwrap();

    let (_, printed, _) = run("get services -o yaml");
    assert!(printed.contains("replicas: 3") && printed.contains("MODE"), "{printed}");
    let (exit, out, err) = parts(&kubeleet_with(&cluster.api, "apply -f -", &printed));
    assert_eq!((exit, out.as_str()), (0, "service/web unchanged\n"), "{err}");
    let (exit, out, _) = parts(&kubeleet_with(&cluster.api, "diff -f -", &printed));
    assert_eq!((exit, out.as_str()), (0, ""));
    let changed = printed.replace("replicas: 3", "replicas: 1");
    let (exit, out, _) = parts(&kubeleet_with(&cluster.api, "diff -f -", &changed));
    assert!(exit == 1 && out.contains("-replicas: 3\n+replicas: 1\n"), "{out}");

    let (_, before, _) = run("ps -q");
    let (exit, out, err) = run("restart web --wait --timeout 60s");
    assert_eq!((exit, out.as_str()), (0, "service/web restarted\n"), "{err}");
    let (_, after, _) = run("ps -q");
    assert_eq!(after.lines().count(), 3, "{after}");
    assert!(after.lines().all(|pod| !before.contains(pod)), "{before}{after}");
    assert_eq!(run("rollout undo web").0, 3, "its pods never were anything else");
    assert_eq!(edit("sed -i s/MODE/OTHER/").1, "service/web edited\n");
    let (exit, out, _) = run("rollout undo web --dry-run");
    assert!(exit == 0 && out.contains("# 3 pods would be replaced\n"), "{out}");
    let (exit, out, err) = run("rollout undo web --wait --timeout 60s");
    assert!(exit == 0 && out.starts_with("service/web undone: generation "), "{out}{err}");
    let (exit, out, err) = run("rollout history web");
    assert!(exit == 0 && out.lines().count() > 2, "{out}{err}");
    assert_eq!(run("rollout status web --timeout 30s").0, 0);
    let (exit, _, err) = run("rollout undo web --wait --timeout 60s");
    assert_eq!(exit, 0, "{err}");
    let (exit, _, err) = parts(&kubeleet_with(&cluster.api, "delete -f - --wait --timeout 30s", &printed));
    assert!(exit == 0 && err.ends_with("gone\n"), "{err}");
}

#[test]
fn an_update_that_fails_rolls_back_by_itself_and_says_why() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let apply = |image: &str| {
        let file = format!(
            "name: web\nimage: {image}\nreplicas: 4\n\
             update: {{parallelism: 1, monitor: 1s, on_failure: rollback}}\n"
        );
        parts(&kubeleet_with(&cluster.api, "apply -f - --wait --timeout 60s", &file))
    };
    assert_eq!(apply("hello:1").0, 0);
    let (_, before, _) = run("ps -q");
    let (exit, _, err) = apply("crash:2");
    assert_ne!(exit, 0);
    assert!(err.contains("generation 2 was rolled back: web-3"), "{err}");
    assert_eq!(run("rollout status web --timeout 60s").0, 0, "it is as before");
    let (_, after, _) = run("ps -q");
    let kept = after.lines().filter(|pod| before.contains(pod)).count();
    assert_eq!(kept, 4, "none was touched\n{}", run("events").1);
    let (_, out, _) = run("describe svc/web");
    assert!(out.contains("generation 2 was rolled back: web-3"), "{out}");
    let (_, out, _) = run("events");
    assert!(out.contains("ServiceRolledBack") && out.contains("RolloutCompleted"), "{out}");

    let (exit, out, err) = run("rollout pause web");
    let paused = "service/web paused: its next change waits for `rollout resume`\n";
    assert_eq!((exit, out.as_str()), (0, paused), "{err}");
    let (exit, _, err) = run("rollout status web");
    assert!(exit != 0 && err.contains("paused by hand"), "{err}");
    assert_eq!(run("rollout resume web").1, "service/web resumed\n");
    let (exit, _, err) = apply("hello:2");
    assert_eq!(exit, 0, "{err}");
}

#[test]
fn a_lost_cluster_is_shown_first_and_recovered_with_yes() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let (exit, _, err) = run("run hello --name web --replicas 3 --wait --timeout 30s");
    assert_eq!(exit, 0, "{err}");
    let (_, before, _) = run("ps -q");
    assert_eq!(run("cluster recover --wait 21s").0, 2);
    // The services of the pods are saved a second later.
    testkit::eventually::blocking_eventually("the plan is complete", || {
        let (_, out, _) = run("cluster recover -o json");
        out.contains("\"present_pods\": 3").then_some(()).ok_or(out)
    });
    cluster.redis.blocking_cli::<()>(&["FLUSHALL"]);
    let (exit, out, err) = run("cluster recover");
    assert!(exit == 0 && out.contains("1 service and 3 pods to be recovered"), "{out} {err}");
    assert!(err.contains("`kubeleet cluster recover --yes` does this"), "{err}");
    assert_eq!(run("ps -q").1, "", "nothing was changed");
    let (exit, out, err) = run("cluster recover --yes");
    assert!(exit == 0 && out.contains("1 service and 3 pods recovered"), "{out} {err}");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&run("ps -q").1), sorted(&before));
    let (exit, _, err) = run("service scale web 1 --wait --timeout 30s");
    assert_eq!(exit, 0, "{err}");
}

#[test]
fn a_backup_is_restored_into_an_emptied_redis_and_a_cut_one_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    let (exit, _, err) = run("run hello --name web --replicas 3 -e PASSWORD=hunter2 --wait --timeout 30s");
    assert_eq!(exit, 0, "{err}");
    let pods = || {
        let (_, out, _) = run("ps -o json");
        let list: serde_json::Value = serde_json::from_str(&out).unwrap();
        let pod = |pod: &serde_json::Value| format!("{} {} {}", pod["id"], pod["node"], pod["restarts"]);
        list["items"].as_array().unwrap().iter().map(pod).collect::<std::collections::BTreeSet<_>>()
    };
    let before = pods();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cluster.backup");
    let path = file.to_str().unwrap();
    let (exit, _, err) = run(&format!("backup {path}"));
    assert!(exit == 0 && err.contains("written"), "{err}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (exit, out, err) = run(&format!("restore {path} --yes"));
    assert!(exit == 0 && out.contains("Redis has everything that was saved"), "{out} {err}");

    cluster.redis.blocking_cli::<()>(&["FLUSHALL"]);
    testkit::eventually::blocking_eventually("the worker holds", || {
        let (_, out, _) = run("status");
        out.contains("holds 3 containers").then_some(()).ok_or(out)
    });
    let text = std::fs::read_to_string(&file).unwrap();
    let cut = directory.path().join("cut");
    std::fs::write(&cut, &text[..text.len() - 20]).unwrap();
    let (exit, _, err) = run(&format!("restore {} --yes", cut.display()));
    assert!(exit == 1 && err.contains("nothing was changed"), "{err}");
    let (exit, out, err) = run(&format!("restore {path}"));
    assert!(exit == 0 && out.contains("1 service and 3 pods to be recovered"), "{out} {err}");
    assert!(err.contains("--yes` does this") && pods().is_empty(), "{err}");
    let (exit, out, err) = run(&format!("restore {path} --yes"));
    assert!(exit == 0 && out.contains("1 service and 3 pods recovered"), "{out} {err}");
    testkit::eventually::blocking_eventually("the worker serves on", || {
        let (_, out, _) = run("status");
        out.contains("1 of 1 ready").then_some(()).ok_or(out)
    });
    assert_eq!(pods(), before);
    let (exit, _, err) = run("service scale web 1 --wait --timeout 30s");
    assert_eq!(exit, 0, "{err}");
}
