//! A Docker engine of a host.

use std::path::Path;
use std::process::Stdio;

use worker::runtime::docker::DockerRuntime;
use worker::runtime::hello::import_recipe;

use super::host::Space;
use crate::docker::{IMAGE, recipe};
use crate::leash::Leashed;
use crate::wait::LIMIT;
use crate::{docker, eventually};

/// Starts it there, with all that it keeps in the host's folder.
pub(super) fn start(space: &Space) -> Leashed {
    let folder = space.folder();
    // The machine's own engine may have a configuration, which is not this one's.
    std::fs::write(folder.join("daemon.json"), "{}").unwrap();
    let log = std::fs::File::create(folder.join("engine.log")).unwrap();
    let mut command = space.command("dockerd");
    command.arg("--config-file").arg(folder.join("daemon.json"));
    command.arg("--data-root").arg(folder.join("data")).arg("--exec-root").arg(folder.join("exec"));
    command.arg("--pidfile").arg(folder.join("engine.pid"));
    command.arg("--host").arg(format!("unix://{}", folder.join("docker.sock").display()));
    command.args(["--cgroup-parent", &cgroup(folder), "--log-level", "warn"]);
    command.stdout(Stdio::null()).stderr(log);
    Leashed::spawn(&mut command).expect("dockerd can be started")
}

/// Of its containers: it is what tells them from those of other engines, as the kernel sees them.
fn cgroup(folder: &Path) -> String {
    format!(
        "/kubeleet-test-{}",
        folder.file_name().unwrap_or_default().to_string_lossy().trim_start_matches('.')
    )
}

/// Waits until it answers, and gives it the test image.
pub(super) async fn is_up(host: &str, engine: &Leashed, folder: &Path) {
    eventually(LIMIT * 3, "the engine answers", || async {
        let log = || std::fs::read_to_string(folder.join("engine.log")).unwrap_or_default();
        assert!(engine.ended().is_none(), "dockerd has ended:\n{}", log());
        docker::connect(Some(host)).await.map(drop).map_err(|error| format!("{error}\n{}", log()))
    })
    .await;
    let docker = DockerRuntime::connect(Some(host)).unwrap();
    import_recipe(&docker, recipe(), IMAGE).await.unwrap();
}

/// Takes away the control groups that its containers were in.
pub(super) fn tidy(folder: &Path) {
    let name = cgroup(folder);
    for controller in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        // Not there, or not empty yet: a directory without processes, which costs nothing.
        let _left = std::fs::remove_dir(controller.path().join(name.trim_start_matches('/')));
    }
    let _left = std::fs::remove_dir(format!("/sys/fs/cgroup{name}"));
}
