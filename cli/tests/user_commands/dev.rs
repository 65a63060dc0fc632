//! `kubeleet dev --data DIR`: a later `dev` continues, however the earlier one ended.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::ChildGuard;
use testkit::eventually::blocking_eventually;
use testkit::ports::free_port;

use super::{BINARY, kubeleet, kubeleet_with, parts};

struct Dev {
    process: ChildGuard,
    api: String,
}

impl Dev {
    /// Only one `dev` runs on a machine: waits for those of other tests.
    fn start(home: &Path, runtime: &str) -> Self {
        Self::start_with(home, Some(&home.join("data")), runtime)
    }

    fn start_with(home: &Path, data: Option<&Path>, runtime: &str) -> Self {
        let (out, err) = (home.join("out"), home.join("err"));
        let api = format!("http://127.0.0.1:{}", free_port());
        let mut process = spawn(data, runtime, &api, &out, &err);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        blocking_eventually("dev runs", || {
            if process.ended().is_some() {
                let why = read(&err);
                assert!(why.contains("another `kubeleet dev` runs containers on this machine"), "{why}");
                std::thread::sleep(Duration::from_millis(500));
                process = spawn(data, runtime, &api, &out, &err);
            }
            if read(&out).contains("Ctrl-C stops") { Ok(()) } else { Err(read(&out) + &read(&err)) }
        });
        Self { process, api }
    }

    fn end(mut self) {
        let status = self.process.terminate(Duration::from_secs(30));
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }

    fn run(&self, line: &str) -> String {
        let (exit, out, err) = parts(&kubeleet(&self.api, line));
        assert_eq!(exit, 0, "{line}: {out}{err}");
        out
    }

    /// Assignments change with each new start.
    fn assignments(&self, service: &str, before: &[String]) -> Vec<String> {
        blocking_eventually("both pods run", || {
            let (exit, out, err) =
                parts(&kubeleet(&self.api, &format!("-o json pod ls --service {service}")));
            let pods: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
            let pods = pods["items"].as_array().cloned().unwrap_or_default();
            let running = pods.iter().filter(|pod| pod["phase"] == "running");
            let mut found: Vec<String> = running.map(|pod| pod["assignment"].to_string()).collect();
            found.retain(|assignment| !before.contains(assignment));
            found.sort();
            if found.len() == 2 { Ok(found) } else { Err(format!("{exit} {out} {err}")) }
        })
    }
}

fn spawn(data: Option<&Path>, runtime: &str, api: &str, out: &Path, err: &Path) -> ChildGuard {
    let create = |path| std::fs::File::create(path).unwrap();
    let mut command = command(data, runtime);
    command.env("KUBELEET_LISTEN", api.trim_start_matches("http://"));
    ChildGuard::spawn(command.stdout(create(out)).stderr(create(err))).unwrap()
}

fn command(data: Option<&Path>, runtime: &str) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["dev", "--no-hello", "--runtime", runtime]);
    if let Some(data) = data {
        command.arg("--data").arg(data);
    }
    // Short, because a restarted Redis makes everything wait for the fence.
    let timing = [("HEARTBEAT", "500ms"), ("FENCE_AFTER", "2s"), ("DEAD_AFTER", "4s")];
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(timing.map(|(name, value)| (format!("KUBELEET_{name}"), value)));
    command
}

#[test]
fn a_kept_cluster_of_processes_continues_after_ctrl_c_and_after_a_crash() {
    testkit::need_redis!();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let dev = Dev::start(home.path(), "process");
    let service =
        r#"{"name":"web","image":"none","command":["sleep","3600"],"replicas":2,"stop_grace_period":0}"#;
    let (exit, out, err) = parts(&kubeleet_with(&dev.api, "apply -f - --wait --timeout 60s", service));
    assert_eq!(exit, 0, "{out}{err}");
    let first = dev.assignments("web", &[]);
    let log = std::fs::read_to_string(data.join("dev.log")).unwrap();
    assert!(log.contains("INFO"), "{log}");
    blocking_eventually("the terminal shows the service", || {
        let shown = std::fs::read_to_string(home.path().join("err")).unwrap();
        assert!(!shown.contains("INFO"), "{shown}");
        if shown.contains("web") { Ok(()) } else { Err(shown) }
    });

    let second = command(Some(&data), "process").output().unwrap();
    let refusal = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && refusal.contains("another `kubeleet dev` uses"), "{refusal}");
    assert!(refusal.contains(&data.display().to_string()), "{refusal}");

    dev.end();
    let mut dev = Dev::start(home.path(), "process");
    let second = dev.assignments("web", &first);

    dev.process.kill();
    let dev = Dev::start(home.path(), "process");
    // Until a new pod is started, after the pause, the others were left alone.
    dev.run("service scale web 3 --wait --timeout 60s");
    dev.run("service scale web 2 --wait --timeout 60s");
    assert_eq!(dev.assignments("web", &[]), second, "the same processes");
    dev.run("service rm web --wait --timeout 60s");
    dev.end();

    let other = command(Some(&data), "sim").output().unwrap();
    let refusal = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && refusal.contains("a cluster on the runtime process, not sim"),
        "{refusal}"
    );
}

/// Even if the test panics.
struct Cleanup(String);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let filter = format!("label=kubeleet.service={}", self.0);
        let shell = format!("docker ps -aq --filter {filter} | xargs -r docker rm -fv >/dev/null");
        let _best_effort = Command::new("sh").args(["-c", &shell]).status();
    }
}

#[test]
fn containers_of_a_kept_cluster_run_on_between_two_devs() {
    testkit::need_redis!();
    let engine = Command::new("docker").arg("version").output();
    if !engine.is_ok_and(|answer| answer.status.success()) {
        return testkit::require::skipped("docker", "no Docker engine answers");
    }
    let home = tempfile::tempdir().unwrap();
    let name = format!("kept-{}", std::process::id());
    let cleanup = Cleanup(name.clone());
    let image = format!("kubeleet-test/{name}:1");
    let containers = || {
        let filter = format!("label=kubeleet.service={}", cleanup.0);
        let ids =
            Command::new("docker").args(["ps", "-q", "--no-trunc", "--filter", &filter]).output().unwrap();
        let ids = String::from_utf8(ids.stdout).unwrap();
        let mut started: Vec<String> = Vec::new();
        for id in ids.lines() {
            let format = "{{.Id}} {{.State.StartedAt}}";
            let shown = Command::new("docker").args(["inspect", "--format", format, id]).output().unwrap();
            started.push(String::from_utf8(shown.stdout).unwrap());
        }
        started.sort();
        started
    };
    let dev = Dev::start(home.path(), "docker");
    dev.run(&format!("sample-image {image}"));
    dev.run(&format!("run --name {name} -n 2 --wait --timeout 60s {image}"));
    let assignments = dev.assignments(&name, &[]);
    let before = containers();
    assert_eq!(before.len(), 2, "{before:?}");
    dev.end();
    assert_eq!(containers(), before, "they run on");

    let dev = Dev::start(home.path(), "docker");
    assert_eq!(dev.assignments(&name, &[]), assignments);
    // Until a new pod is started, after the pause, the others were left alone.
    dev.run(&format!("service scale {name} 3 --wait --timeout 60s"));
    let after = containers();
    assert!(
        after.len() == 3 && before.iter().all(|container| after.contains(container)),
        "{before:?} {after:?}"
    );
    dev.run(&format!("service rm {name} --wait --timeout 60s"));
    dev.end();
    let _best_effort = Command::new("docker").args(["rmi", &image]).output();
}

#[test]
fn a_cluster_that_is_not_kept_leaves_no_volume() {
    testkit::need_redis!();
    let engine = Command::new("docker").arg("version").output();
    if !engine.is_ok_and(|answer| answer.status.success()) {
        return testkit::require::skipped("docker", "no Docker engine answers");
    }
    let home = tempfile::tempdir().unwrap();
    let name = format!("private-{}", std::process::id());
    let _cleanup = Cleanup(name.clone());
    let image = format!("kubeleet-test/{name}:1");
    let volumes = || {
        let filter = format!("label=kubeleet.service={name}");
        let names =
            Command::new("docker").args(["volume", "ls", "-q", "--filter", &filter]).output().unwrap();
        String::from_utf8(names.stdout).unwrap().lines().count()
    };
    let dev = Dev::start_with(home.path(), None, "docker");
    dev.run(&format!("sample-image {image}"));
    dev.run(&format!("run --name {name} -v data:/data --wait --timeout 60s {image}"));
    assert_eq!(volumes(), 1);
    dev.end();
    assert_eq!(volumes(), 0);
    let _best_effort = Command::new("docker").args(["rmi", &image]).output();
}
