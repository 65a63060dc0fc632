//! The container engine, images without a registry, and the containers of one test.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bollard::Docker as Client;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::{ContainerSummaryStateEnum, ExecConfig};
use bollard::query_parameters::{
    CreateImageOptionsBuilder, DownloadFromContainerOptionsBuilder, EventsOptions, KillContainerOptions,
    ListContainersOptions, ListVolumesOptions, PruneNetworksOptions, RemoveContainerOptions,
    RemoveImageOptionsBuilder, RemoveVolumeOptions, TagImageOptionsBuilder,
};
use engine::docker::DockerRuntime;
use engine::docker::sample_image::{Recipe, import_recipe};
use futures_util::TryStreamExt;
use rustix::process::Pid;
use testkit::eventually::eventually_within;
use testkit::require;
use tokio::sync::OnceCell;

use crate::LIMIT;
use crate::exclusive::exclusive;
use crate::invariants::Running;

/// Has `/bin/sh` and `/bin/sleep`; prints hello, sleeps, and ends at SIGTERM.
pub const IMAGE: &str = "kubeleet-test/sleep:1";

/// The documented LPUSH line's image, built here unless the real one was pulled.
pub const SAMPLE_IMAGE: &str = "spaster/alpine-sleep";

const SLEEP: &str = "trap 'echo bye; exit 0' TERM INT; echo hello; sleep 86400 & wait $!";

/// Sees only containers of nodes with the test's prefix.
pub struct Docker {
    client: Client,
    host: Option<String>,
    prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedContainer {
    pub name: String,
    pub id: String,
    pub labels: HashMap<String, String>,
    pub running: bool,
}

impl Docker {
    /// `None` without an engine: the test counts as skipped.
    pub async fn find(prefix: &str) -> Option<Self> {
        match connect(None).await {
            Ok(client) => {
                let docker = Self { client, host: None, prefix: prefix.to_owned() };
                docker.sweep().await;
                docker.make_images().await;
                Some(docker)
            }
            Err(error) => {
                require::skipped("docker", &error.to_string());
                None
            }
        }
    }

    pub async fn at(host: &str, prefix: &str) -> Self {
        Self {
            client: connect(Some(host)).await.unwrap(),
            host: Some(host.to_owned()),
            prefix: prefix.to_owned(),
        }
    }

    pub async fn containers(&self) -> Vec<ListedContainer> {
        let all = self.labelled().await;
        all.into_iter().filter(|container| container.node().starts_with(&self.prefix)).collect()
    }

    pub async fn running(&self) -> Vec<Running> {
        let containers = self.containers().await;
        containers.iter().filter(|container| container.running).map(ListedContainer::identity).collect()
    }

    pub async fn with_leaders(&self) -> Vec<(Running, Pid)> {
        let mut found = Vec::new();
        for container in self.containers().await.iter().filter(|container| container.running) {
            found.extend(first_process(&container.id).map(|pid| (container.identity(), pid)));
        }
        found
    }

    /// In Unix milliseconds.
    pub async fn starts_and_ends(&self, pod: &str) -> [Vec<i64>; 2] {
        let label = vec![format!("kubeleet.pod={pod}")];
        let actions = vec!["start".to_owned(), "die".to_owned()];
        let filters = HashMap::from([("label".to_owned(), label), ("event".to_owned(), actions)]);
        let until = jiff::Timestamp::now().as_second() + 1;
        let options = EventsOptions {
            since: Some("0".to_owned()),
            until: Some(until.to_string()),
            filters: Some(filters),
        };
        let events: Vec<_> = self.client.events(Some(options)).try_collect().await.unwrap();
        let times_of = |action: &str| {
            let found = events.iter().filter(|event| event.action.as_deref() == Some(action));
            found.filter_map(|event| Some(event.time_nano? / 1_000_000)).collect()
        };
        [times_of("start"), times_of("die")]
    }

    pub async fn inspection(&self, id: &str) -> String {
        format!("{:?}", self.client.inspect_container(id, None).await.unwrap())
    }

    pub async fn image_ids(&self) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for container in self.containers().await.into_iter().filter(|container| container.running) {
            let found = self.client.inspect_container(&container.id, None).await.unwrap();
            ids.extend(found.image);
        }
        ids
    }

    pub async fn started_at(&self, id: &str) -> String {
        let found = self.client.inspect_container(id, None).await.unwrap();
        found.state.and_then(|state| state.started_at).unwrap_or_default()
    }

    /// As a tar.
    pub async fn archive(&self, id: &str, path: &str) -> Vec<u8> {
        let options = DownloadFromContainerOptionsBuilder::default().path(path).build();
        let chunks: Vec<_> =
            self.client.download_from_container(id, Some(options)).try_collect().await.unwrap();
        chunks.concat()
    }

    pub async fn tag(&self, image: &str, name: &str) {
        let (repo, tag) = name.rsplit_once(':').unwrap();
        let options = TagImageOptionsBuilder::default().repo(repo).tag(tag).build();
        self.client.tag_image(image, Some(options)).await.unwrap();
    }

    pub async fn pull(&self, name: &str) {
        let options = CreateImageOptionsBuilder::default().from_image(name).build();
        let pulled = self.client.create_image(Some(options), None, None);
        let _progress: Vec<_> = pulled.try_collect().await.unwrap();
    }

    pub async fn has_image(&self, name: &str) -> bool {
        self.client.inspect_image(name).await.is_ok()
    }

    pub async fn remove_image(&self, name: &str) {
        let options = RemoveImageOptionsBuilder::default().force(true).build();
        let _missing = self.client.remove_image(name, Some(options), None).await;
    }

    pub async fn kill(&self, id: &str) {
        self.client.kill_container(id, None::<KillContainerOptions>).await.unwrap();
    }

    pub async fn remove(&self, id: &str) {
        remove(&self.client, id).await;
    }

    pub async fn volumes(&self) -> Vec<String> {
        volumes_of(&self.client, &self.prefix).await
    }

    /// For `examples/memo`: the web application notes its start in both volumes.
    pub async fn make_memo_images(&self) {
        let _lock = exclusive("images").await;
        let docker = DockerRuntime::connect(None).unwrap();
        let shell = (Path::new("/bin/sh"), "/bin/sh");
        let webapp = "echo $HOSTNAME >> /srv/uploads/hosts && echo started > /srv/cache/mark && \
            KUBELEET_METRICS_LISTEN=0.0.0.0:8080 KUBELEET_TOKEN=memo KUBELEET_REDIS_URL=redis://127.0.0.1:1 \
            exec /kubeleet scheduler";
        let programs = [shell, (crate::cluster::binary(), "/kubeleet")];
        let recipe = Recipe { programs: &programs, command: &["/bin/sh", "-c", webapp], ..Recipe::default() };
        import_recipe(&docker, recipe, "memo/webapp:1").await.unwrap();
        let database = "echo started > /var/lib/database/mark; trap 'exit 0' TERM; sleep 86400 & wait $!";
        let programs =
            [shell, (Path::new("/bin/sleep"), "/bin/sleep"), (Path::new("/bin/true"), "/bin/pg_isready")];
        let recipe =
            Recipe { programs: &programs, command: &["/bin/sh", "-c", database], ..Recipe::default() };
        import_recipe(&docker, recipe, "memo/database:1").await.unwrap();
    }

    pub async fn make_greeter_image(&self, greeter: &Path) {
        let (programs, entrypoint) = ([(greeter, "/greeter")], &["/greeter"]);
        let recipe = Recipe { programs: &programs, entrypoint, ..Recipe::default() };
        self.make_image(recipe, "kubeleet-test/greeter:1").await;
    }

    pub async fn make_resolving_image(&self, tag: &str, further: &[(&Path, &str)]) {
        let mut programs = vec![
            (Path::new("/bin/bash"), "/bin/bash"),
            (Path::new("/bin/cat"), "/bin/cat"),
            (Path::new("/bin/sleep"), "/bin/sleep"),
            (Path::new("/usr/bin/getent"), "/bin/getent"),
            (Path::new("/usr/bin/head"), "/bin/head"),
            (Path::new("/usr/bin/timeout"), "/bin/timeout"),
        ];
        programs.extend(further);
        self.make_image(Recipe { programs: &programs, ..Recipe::default() }, tag).await;
    }

    pub async fn make_image(&self, recipe: Recipe<'_>, tag: &str) {
        let _lock = exclusive("images").await;
        let docker = DockerRuntime::connect(self.host.as_deref()).unwrap();
        import_recipe(&docker, recipe, tag).await.unwrap();
    }

    pub async fn make_shell_image(&self) -> &'static str {
        let tag = "kubeleet-test/shell:1";
        let _lock = exclusive("images").await;
        let docker = DockerRuntime::connect(None).unwrap();
        let programs = ["sh", "bash", "cat", "chmod", "ls", "mkdir", "sleep", "stty", "touch"];
        let programs = programs.map(|name| (PathBuf::from("/bin").join(name), format!("/bin/{name}")));
        let programs: Vec<_> = programs.iter().map(|(path, name)| (path.as_path(), name.as_str())).collect();
        let command = ["/bin/sh", "-c", SLEEP];
        let recipe = Recipe { programs: &programs, command: &command, ..Recipe::default() };
        import_recipe(&docker, recipe, tag).await.unwrap();
        tag
    }

    pub async fn exec(&self, container: &str, command: &[&str]) -> String {
        let config = ExecConfig {
            cmd: Some(command.iter().map(|word| (*word).to_owned()).collect()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..Default::default()
        };
        let exec = self.client.create_exec(container, config).await.unwrap();
        let started = self.client.start_exec(&exec.id, None::<StartExecOptions>).await.unwrap();
        let StartExecResults::Attached { output, .. } = started else { panic!("it is detached") };
        let output: Vec<_> = output.try_collect().await.unwrap();
        output.iter().map(ToString::to_string).collect()
    }

    async fn labelled(&self) -> Vec<ListedContainer> {
        labelled(&self.client).await
    }

    /// Once per test process, in one process at a time.
    async fn make_images(&self) {
        static MADE: OnceCell<()> = OnceCell::const_new();
        MADE.get_or_init(|| async {
            let _lock = exclusive("images").await;
            let docker = DockerRuntime::connect(None).unwrap();
            import_recipe(&docker, recipe(), IMAGE).await.unwrap();
            if !docker.has_image(SAMPLE_IMAGE).await.unwrap() {
                import_recipe(&docker, recipe(), SAMPLE_IMAGE).await.unwrap();
            }
        })
        .await;
    }

    async fn sweep(&self) {
        for container in self.labelled().await {
            let of_a_test = container.node().strip_prefix("kt-").and_then(|rest| rest.split('-').next());
            let is_alive = |process: &str| Path::new("/proc").join(process).exists();
            if of_a_test.is_some_and(|process| !is_alive(process)) {
                remove(&self.client, &container.id).await;
            }
        }
    }
}

pub(crate) async fn connect(host: Option<&str>) -> Result<Client, bollard::errors::Error> {
    let client = match host.and_then(|host| host.strip_prefix("unix://")) {
        Some(path) => Client::connect_with_unix(path, 60, bollard::API_DEFAULT_VERSION)?,
        None => Client::connect_with_defaults()?,
    };
    let client = client.negotiate_version().await?;
    client.ping().await?;
    Ok(client)
}

pub(crate) fn recipe() -> Recipe<'static> {
    static PROGRAMS: LazyLock<[(&Path, &str); 2]> =
        LazyLock::new(|| [(Path::new("/bin/sh"), "/bin/sh"), (Path::new("/bin/sleep"), "/bin/sleep")]);
    Recipe { programs: &*PROGRAMS, command: &["/bin/sh", "-c", SLEEP], ..Recipe::default() }
}

impl ListedContainer {
    pub fn node(&self) -> &str {
        self.label("kubeleet.node")
    }

    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    fn identity(&self) -> Running {
        let label = |name| self.label(name).to_owned();
        let assignment = label("kubeleet.assignment");
        Running { pod: label("kubeleet.pod"), assignment, node: self.node().to_owned() }
    }
}

/// An engine in another pid namespace reports another id.
fn first_process(container: &str) -> Option<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_container = |process: &fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(process.path().join(file)).unwrap_or_default();
        let first = || read("status").lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"));
        read("cgroup").contains(container) && first()
    };
    let found = processes
        .filter(|process| process.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .find(of_container)?;
    Pid::from_raw(found.file_name().to_str()?.parse().ok()?)
}

async fn labelled(client: &Client) -> Vec<ListedContainer> {
    let filters = HashMap::from([("label".to_owned(), vec!["orchestrator=kubeleet".to_owned()])]);
    let options = ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
    // Podman lists a container as `stopped`, which the client library does not know, until it has cleaned up.
    let found = eventually_within(LIMIT, "the list of containers is read", || async {
        match client.list_containers(Some(options.clone())).await {
            Err(error @ bollard::errors::Error::JsonDataError { .. }) => Err(error.to_string()),
            found => Ok(found.unwrap()),
        }
    })
    .await;
    let read = |summary: bollard::models::ContainerSummary| ListedContainer {
        name: summary
            .names
            .unwrap_or_default()
            .first()
            .map_or("", String::as_str)
            .trim_start_matches('/')
            .to_owned(),
        id: summary.id.unwrap_or_default(),
        labels: summary.labels.unwrap_or_default(),
        running: summary.state == Some(ContainerSummaryStateEnum::RUNNING),
    };
    found.into_iter().map(read).collect()
}

async fn volumes_of(client: &Client, prefix: &str) -> Vec<String> {
    let filters = HashMap::from([("label".to_owned(), vec!["orchestrator=kubeleet".to_owned()])]);
    let options = ListVolumesOptions { filters: Some(filters) };
    let found = client.list_volumes(Some(options)).await.unwrap().volumes.unwrap_or_default();
    let of_test = |volume: &bollard::models::Volume| {
        volume.labels.get("kubeleet.node").is_some_and(|node| node.starts_with(prefix))
    };
    found.into_iter().filter(of_test).map(|volume| volume.name).collect()
}

async fn remove(client: &Client, id: &str) {
    let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
    // Fails only if the container is gone or being removed.
    let _gone = client.remove_container(id, Some(options)).await;
}

impl Drop for Docker {
    fn drop(&mut self) {
        let (prefix, host) = (self.prefix.clone(), self.host.clone());
        // This may be dropped on the thread of the test runtime.
        let clean_up = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let Ok(client) = connect(host.as_deref()).await else { return };
                let mut removals = tokio::task::JoinSet::new();
                for container in labelled(&client).await {
                    if container.node().starts_with(&prefix) {
                        let client = client.clone();
                        removals.spawn(async move { remove(&client, &container.id).await });
                    }
                }
                removals.join_all().await;
                for volume in volumes_of(&client, &prefix).await {
                    let _gone = client.remove_volume(&volume, None::<RemoveVolumeOptions>).await;
                }
                // Workers create the networks of pods again.
                let filters = HashMap::from([("label".to_owned(), vec!["orchestrator=kubeleet".to_owned()])]);
                let _gone =
                    client.prune_networks(Some(PruneNetworksOptions { filters: Some(filters) })).await;
            });
        };
        let _joined = std::thread::spawn(clean_up).join();
    }
}
