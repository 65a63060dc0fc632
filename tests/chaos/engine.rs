//! A private container engine that can be killed, in namespaces that end with this process. The machine's own
//! engine is left alone.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bollard::models::ContainerSummary;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use bollard::{API_DEFAULT_VERSION, Docker as Client};
use engine::docker::DockerRuntime;
use engine::docker::sample_image::{Recipe, import_recipe};
use kubeleet_tests::child_guard::ChildGuard;
use kubeleet_tests::invariants::Running;
use kubeleet_tests::processes::stat_fields;
use kubeleet_tests::require;
use rustix::process::{Pid, Signal, kill_process};
use testkit::eventually::eventually_within;

pub const IMAGE: &str = "kubeleet-chaos/sleep:1";

/// Restarts a killed engine, unless the file `hold` exists.
const RESTART_LOOP: &str = r#"
while :; do
  dockerd --config-file "$0/none.json" --data-root "$0/data" --exec-root "$0/exec" --pidfile "$0/pid" \
    -H "unix://$0/docker.sock" --bridge none --iptables=false --ip-masq=false --storage-driver vfs \
    --cgroup-parent "/$1" --log-level error >>"$0/log" 2>&1
  while [ -e "$0/hold" ]; do sleep 0.05; done
  sleep 0.05
done"#;

pub struct Engine {
    restart_loop: ChildGuard,
    folder: PathBuf,
    cgroup: String,
    client: Client,
}

impl Engine {
    pub async fn start(folder: &Path) -> Option<Self> {
        let folder = folder.join("engine");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("none.json"), "{}").unwrap();
        let cgroup = format!("kubeleet-chaos-{}", std::process::id());
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new("unshare");
        // With `--net`, because `dockerd --bridge none` deletes docker0 where it starts, and with it the
        // network of the machine's own containers.
        let namespaces = ["--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child"];
        command.args(namespaces).args(["sh", "-c", RESTART_LOOP]);
        command.arg(&folder).arg(&cgroup).stdout(Stdio::null()).stderr(log);
        let restart_loop = match ChildGuard::spawn(&mut command) {
            Ok(child) => child,
            Err(error) => return skipped(&format!("unshare: {error}")),
        };
        let host = folder.join("docker.sock").display().to_string();
        let client = loop {
            if restart_loop.ended().is_some() {
                return skipped(&fs::read_to_string(folder.join("log")).unwrap_or_default());
            }
            match Client::connect_with_unix(&host, 10, API_DEFAULT_VERSION) {
                Ok(client) => break client,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let engine = Self { restart_loop, folder, cgroup, client };
        if !engine.answers_within(Duration::from_secs(20)).await {
            return skipped(&fs::read_to_string(engine.folder.join("log")).unwrap_or_default());
        }
        engine.create_image().await;
        Some(engine)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("docker.sock")
    }

    fn docker_host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    async fn create_image(&self) {
        let docker = DockerRuntime::connect(Some(&self.docker_host())).unwrap();
        let programs = [(Path::new("/bin/sh"), "/bin/sh"), (Path::new("/bin/sleep"), "/bin/sleep")];
        let command = ["/bin/sleep", "86400"];
        let recipe = Recipe { programs: &programs, command: &command, ..Recipe::default() };
        import_recipe(&docker, recipe, IMAGE).await.unwrap();
    }

    async fn answers_within(&self, limit: Duration) -> bool {
        let ping = async {
            while self.client.ping().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(limit, ping).await.is_ok()
    }

    /// Its containers run on.
    pub async fn kill(&self, downtime: Duration) {
        fs::write(self.folder.join("hold"), "").unwrap();
        for process in self.daemons() {
            let _gone = kill_process(process, Signal::KILL);
        }
        tokio::time::sleep(downtime).await;
        fs::remove_file(self.folder.join("hold")).unwrap();
        eventually_within(Duration::from_secs(120), "the engine is back", || async {
            self.client.ping().await.map_err(|error| error.to_string())
        })
        .await;
    }

    pub async fn freeze(&self, duration: Duration) {
        for process in self.daemons() {
            let _gone = kill_process(process, Signal::STOP);
        }
        tokio::time::sleep(duration).await;
        for process in self.daemons() {
            let _gone = kill_process(process, Signal::CONT);
        }
    }

    /// `dockerd` is the child of the restart loop's shell, whose parent is `unshare`.
    fn daemons(&self) -> Vec<Pid> {
        let shells = children_of(self.restart_loop.id());
        let children = shells.into_iter().flat_map(children_of).filter(|id| is_named(*id, "dockerd"));
        children.filter_map(|id| Pid::from_raw(id.cast_signed())).collect()
    }

    pub fn view(&self) -> EngineView {
        EngineView(self.client.clone())
    }

    pub async fn running(&self) -> Option<Vec<Running>> {
        Some(self.view().running().await?.into_iter().map(|(one, _)| one).collect())
    }
}

#[derive(Clone)]
pub struct EngineView(Client);

impl EngineView {
    /// True for each that must not run twice.
    pub async fn running(&self) -> Option<Vec<(Running, bool)>> {
        Some(self.list().await?.iter().map(identity).collect())
    }

    pub async fn ids(&self) -> Option<Vec<String>> {
        Some(self.list().await?.into_iter().filter_map(|container| container.id).collect())
    }

    pub async fn remove_one(&self) {
        let Some(id) = self.list().await.and_then(|all| all.into_iter().next()?.id) else { return };
        let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
        let _gone = self.0.remove_container(&id, Some(options)).await;
    }

    async fn list(&self) -> Option<Vec<ContainerSummary>> {
        let filters = HashMap::from([("label".to_owned(), vec!["orchestrator=kubeleet".to_owned()])]);
        let options = ListContainersOptions { filters: Some(filters), ..Default::default() };
        let list = self.0.list_containers(Some(options));
        tokio::time::timeout(Duration::from_secs(2), list).await.ok()?.ok()
    }
}

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
    require::skipped("docker", &format!("a private engine cannot be started: {why}"));
    None
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

fn parent_of(process: u32) -> Option<u32> {
    stat_fields(process)?.get(1)?.parse().ok()
}

fn is_named(process: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|comm| comm.trim() == name)
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.restart_loop.kill();
        // In version 1 there is a folder below each controller.
        let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let roots = controllers.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
        for root in roots {
            remove_empty(&root.join(&self.cgroup));
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
