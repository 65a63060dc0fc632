//! The Docker engine of a host.

use std::path::Path;
use std::process::Stdio;

use engine::docker::DockerRuntime;
use engine::docker::sample_image::import_recipe;
use testkit::ChildGuard;
use testkit::eventually::eventually_within;

use super::namespaces::Namespaces;
use crate::docker::{IMAGE, recipe};
use crate::{LIMIT, docker};

pub(super) fn networks(number: u8) -> String {
    format!("172.{}.0.0/16", 20 + number)
}

pub(super) fn start(namespaces: &Namespaces, networks: &str) -> ChildGuard {
    let folder = namespaces.folder();
    // Otherwise it would read the configuration of the machine's own engine.
    let configuration = serde_json::json!({"default-address-pools": [{"base": networks, "size": 24}]});
    std::fs::write(folder.join("daemon.json"), configuration.to_string()).unwrap();
    let log = std::fs::File::create(folder.join("engine.log")).unwrap();
    let mut command = namespaces.command("dockerd");
    command.arg("--config-file").arg(folder.join("daemon.json"));
    command.arg("--data-root").arg(folder.join("data")).arg("--exec-root").arg(folder.join("exec"));
    command.arg("--pidfile").arg(folder.join("engine.pid"));
    command.arg("--host").arg(format!("unix://{}", folder.join("docker.sock").display()));
    command.args(["--cgroup-parent", &cgroup(folder), "--log-level", "warn"]);
    command.stdout(Stdio::null()).stderr(log);
    ChildGuard::spawn(&mut command).expect("dockerd can be started")
}

fn cgroup(folder: &Path) -> String {
    format!(
        "/kubeleet-test-{}",
        folder.file_name().unwrap_or_default().to_string_lossy().trim_start_matches('.')
    )
}

pub(super) async fn wait_until_up(host: &str, engine: &ChildGuard, folder: &Path) {
    eventually_within(LIMIT * 3, "the engine answers", || async {
        let log = || std::fs::read_to_string(folder.join("engine.log")).unwrap_or_default();
        assert!(engine.ended().is_none(), "dockerd has ended:\n{}", log());
        docker::connect(Some(host)).await.map(drop).map_err(|error| format!("{error}\n{}", log()))
    })
    .await;
    let docker = DockerRuntime::connect(Some(host)).unwrap();
    import_recipe(&docker, recipe(), IMAGE).await.unwrap();
}

pub(super) fn remove_cgroups(folder: &Path) {
    let name = cgroup(folder);
    for controller in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        // Fails where there is none or it is not empty yet.
        let _left = std::fs::remove_dir(controller.path().join(name.trim_start_matches('/')));
    }
    let _left = std::fs::remove_dir(format!("/sys/fs/cgroup{name}"));
}
