//! An engine of our own, which can be killed: `dockerd` with its own folders and socket, in namespaces that end it and all
//! its containers with this process, whatever becomes of us.
//!
//! The machine's engine belongs to everybody and is left alone.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bollard::models::ContainerSummary;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use bollard::{API_DEFAULT_VERSION, Docker as Client};
use kubeleet_tests::invariants::Running;
use kubeleet_tests::leash::Leashed;
use kubeleet_tests::{eventually, require};
use rustix::process::{Pid, Signal, kill_process};
use worker::runtime::docker::DockerRuntime;
use worker::runtime::hello::{Recipe, import_recipe};

/// An image with `/bin/sh` and `/bin/sleep`, made at the start.
pub const IMAGE: &str = "kubeleet-chaos/sleep:1";

/// Restarts the engine when it was killed, unless it shall stay away for a while.
const KEEPER: &str = r#"
while :; do
  dockerd --config-file "$0/none.json" --data-root "$0/data" --exec-root "$0/exec" --pidfile "$0/pid" \
    -H "unix://$0/docker.sock" --bridge none --iptables=false --ip-masq=false --storage-driver vfs \
    --cgroup-parent "/$1" --log-level error >>"$0/log" 2>&1
  while [ -e "$0/hold" ]; do sleep 0.05; done
  sleep 0.05
done"#;

/// The engine. Dropped, it is gone with all its containers.
pub struct Engine {
    keeper: Leashed,
    folder: PathBuf,
    group: String,
    client: Client,
}

impl Engine {
    /// Starts it and makes the image; none when this machine can not (that is said).
    pub async fn start(folder: &Path) -> Option<Self> {
        let folder = folder.join("engine");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("none.json"), "{}").unwrap();
        let group = format!("kubeleet-chaos-{}", std::process::id());
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new("unshare");
        // A network of its own as well: `dockerd --bridge none` deletes docker0 where it starts, and with it the network of
        // all containers of the machine's own engine.
        let spaces = ["--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child"];
        command.args(spaces).args(["sh", "-c", KEEPER]);
        command.arg(&folder).arg(&group).stdout(Stdio::null()).stderr(log);
        let keeper = match Leashed::spawn(&mut command) {
            Ok(keeper) => keeper,
            Err(error) => return skipped(&format!("unshare: {error}")),
        };
        let host = folder.join("docker.sock").display().to_string();
        let client = loop {
            if keeper.ended().is_some() {
                return skipped(&fs::read_to_string(folder.join("log")).unwrap_or_default());
            }
            match Client::connect_with_unix(&host, 10, API_DEFAULT_VERSION) {
                Ok(client) => break client,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let engine = Self { keeper, folder, group, client };
        if !engine.answers_within(Duration::from_secs(20)).await {
            return skipped(&fs::read_to_string(engine.folder.join("log")).unwrap_or_default());
        }
        engine.make_image().await;
        Some(engine)
    }

    /// `DOCKER_HOST` of it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.folder.join("docker.sock").display())
    }

    async fn make_image(&self) {
        let docker = DockerRuntime::connect(Some(&self.host())).unwrap();
        let programs = [(Path::new("/bin/sh"), "/bin/sh"), (Path::new("/bin/sleep"), "/bin/sleep")];
        let command = ["/bin/sleep", "86400"];
        let recipe = Recipe { programs: &programs, command: &command, ..Recipe::default() };
        import_recipe(&docker, recipe, IMAGE).await.unwrap();
    }

    async fn answers_within(&self, limit: Duration) -> bool {
        let asking = async {
            while self.client.ping().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(limit, asking).await.is_ok()
    }

    /// SIGKILL; its containers run on until it is back. Back after `away`.
    pub async fn kill(&self, away: Duration) {
        fs::write(self.folder.join("hold"), "").unwrap();
        for process in self.daemons() {
            let _gone = kill_process(process, Signal::KILL);
        }
        tokio::time::sleep(away).await;
        fs::remove_file(self.folder.join("hold")).unwrap();
        eventually(Duration::from_secs(120), "the engine is back", || async {
            self.client.ping().await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// SIGSTOP for a while: calls hang.
    pub async fn freeze(&self, away: Duration) {
        for process in self.daemons() {
            let _gone = kill_process(process, Signal::STOP);
        }
        tokio::time::sleep(away).await;
        for process in self.daemons() {
            let _gone = kill_process(process, Signal::CONT);
        }
    }

    /// `dockerd` itself: the child of the keeper's shell, whose parent is `unshare`.
    fn daemons(&self) -> Vec<Pid> {
        let shells = children_of(self.keeper.id());
        let children = shells.into_iter().flat_map(children_of).filter(|id| is_named(*id, "dockerd"));
        children.filter_map(|id| Pid::from_raw(id.cast_signed())).collect()
    }

    /// For looking at it while somebody else has it.
    pub fn view(&self) -> View {
        View(self.client.clone())
    }

    /// What runs there; none while it does not answer.
    pub async fn running(&self) -> Option<Vec<Running>> {
        Some(self.view().running().await?.into_iter().map(|(one, _)| one).collect())
    }
}

/// Looks at an engine.
#[derive(Clone)]
pub struct View(Client);

impl View {
    /// What runs there, and of each whether it must never run twice; none while the engine does not answer.
    pub async fn running(&self) -> Option<Vec<(Running, bool)>> {
        Some(self.list().await?.iter().map(identity).collect())
    }

    /// The ids of all that runs; none while it does not answer.
    pub async fn ids(&self) -> Option<Vec<String>> {
        Some(self.list().await?.into_iter().filter_map(|container| container.id).collect())
    }

    /// Removes one of the containers behind everybody's back.
    pub async fn remove_one(&self) {
        let Some(id) = self.list().await.and_then(|all| all.into_iter().next()?.id) else { return };
        let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
        let _gone = self.0.remove_container(&id, Some(options)).await;
    }

    async fn list(&self) -> Option<Vec<ContainerSummary>> {
        let filters = HashMap::from([("label".to_owned(), vec!["orchestrator=kubeleet".to_owned()])]);
        let options = ListContainersOptions { filters: Some(filters), ..Default::default() };
        let asked = self.0.list_containers(Some(options));
        tokio::time::timeout(Duration::from_secs(2), asked).await.ok()?.ok()
    }
}

/// Who it is, and whether it must never run twice.
fn identity(container: &ContainerSummary) -> (Running, bool) {
    let label = |name: &str| {
        let labels = container.labels.as_ref();
        labels.and_then(|labels| labels.get(name)).cloned().unwrap_or_default()
    };
    let running = Running {
        pod: label("kubeleet.pod"),
        assignment: label("kubeleet.assignment"),
        node: label("kubeleet.node"),
    };
    (running, label("kubeleet.on-disconnect") == "stop")
}

fn skipped<T>(why: &str) -> Option<T> {
    require::skipped("docker", &format!("an engine of our own can not be started: {why}"));
    None
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which may hold anything, in brackets.
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

fn is_named(process: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|comm| comm.trim() == name)
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.keeper.kill();
        // Empty by now, and nobody else's: leave no folder behind. Version 1 has one below each controller.
        let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let roots = controllers.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
        for root in roots {
            remove_empty(&root.join(&self.group));
        }
    }
}

fn remove_empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    let _busy = fs::remove_dir(folder);
}
