//! Which engine `dev` uses, and cleaning it up afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::config::{Config, RuntimeKind};
use common::ids::NodeName;
use futures_util::future::join_all;
use worker::runtime::Runtime;
use worker::runtime::docker::DockerRuntime;
use worker::runtime::hello::ensure_hello_image;
use worker::runtime::process::ProcessRuntime;
use worker::runtime::sim::{SimOptions, SimRuntime};

/// The image of the `hello` service: made here, pulled from nowhere.
pub(crate) const HELLO_IMAGE: &str = "kubeleet/hello:dev";

/// Pods of `dev` have this long to end before they are killed.
const GRACE: Duration = Duration::from_secs(2);

/// The engine of this cluster.
pub(crate) struct Engine {
    pub(crate) kind: RuntimeKind,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// For people: which, and why this one.
    pub(crate) description: String,
    docker: Option<Arc<DockerRuntime>>,
    image_is_ours: std::sync::atomic::AtomicBool,
}

impl Engine {
    /// What the user said; else Docker if its socket answers, else Podman, else plain processes.
    pub(crate) async fn choose(config: &Config, said: bool, home: &Path) -> anyhow::Result<Self> {
        match config.runtime {
            RuntimeKind::Sim if said => {
                let runtime = Arc::new(SimRuntime::new(SimOptions::default()));
                return Ok(Self::new(RuntimeKind::Sim, runtime, "sim: pods are imagined", None));
            }
            RuntimeKind::Process if said => return Ok(Self::processes(home, "as asked")),
            RuntimeKind::Docker | RuntimeKind::Process | RuntimeKind::Sim => {}
        }
        let mut tried = Vec::new();
        for host in candidates(config) {
            match answering(host.as_deref()).await {
                Ok((docker, version)) => {
                    let docker = Arc::new(docker);
                    return Ok(Self::new(RuntimeKind::Docker, docker.clone(), &version, Some(docker)));
                }
                Err(error) => tried.push(format!("{}: {error}", host.unwrap_or("the Docker socket".into()))),
            }
        }
        if said {
            anyhow::bail!("no engine answers: {}", tried.join("; "));
        }
        tracing::debug!("no engine answers: {}", tried.join("; "));
        Ok(Self::processes(home, "no Docker or Podman engine answers"))
    }

    fn processes(home: &Path, why: &str) -> Self {
        let runtime = Arc::new(ProcessRuntime::new(home.join("pods")));
        Self::new(RuntimeKind::Process, runtime, &format!("plain processes ({why})"), None)
    }

    fn new(
        kind: RuntimeKind,
        runtime: Arc<dyn Runtime>,
        description: &str,
        docker: Option<Arc<DockerRuntime>>,
    ) -> Self {
        let description = description.to_owned();
        Self { kind, runtime, description, docker, image_is_ours: false.into() }
    }

    /// Makes the `hello` image where there is an engine to hold it.
    pub(crate) async fn make_hello_image(&self) -> anyhow::Result<()> {
        if let Some(docker) = &self.docker {
            let made = ensure_hello_image(docker, &[HELLO_IMAGE]).await?;
            self.image_is_ours.store(made, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    /// Stops and removes every container of these nodes, and the image that was made for them.
    pub(crate) async fn clean_up(&self, nodes: &[NodeName]) {
        for result in join_all(nodes.iter().map(|node| self.stop_all(node))).await {
            if let Err(error) = result {
                tracing::warn!(
                    "some containers may be left: {error}; see `docker ps --filter label=orchestrator=kubeleet`"
                );
            }
        }
        if let Some(docker) = &self.docker
            && self.image_is_ours.load(std::sync::atomic::Ordering::Relaxed)
            && let Err(error) = docker.remove_image(HELLO_IMAGE).await
        {
            tracing::warn!("the image {HELLO_IMAGE} is left: {error}");
        }
    }

    async fn stop_all(&self, node: &NodeName) -> Result<(), worker::runtime::RuntimeError> {
        let containers = self.runtime.list(node).await?;
        let stops = containers.iter().map(|container| self.runtime.stop(&container.handle, GRACE));
        join_all(stops).await.into_iter().collect()
    }
}

fn candidates(config: &Config) -> Vec<Option<String>> {
    if let Some(host) = &config.docker_host {
        return vec![Some(host.clone())];
    }
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let podman =
        [Some(PathBuf::from("/run")), user].into_iter().flatten().map(|run| run.join("podman/podman.sock"));
    let existing = podman.filter(|socket| socket.exists());
    std::iter::once(None).chain(existing.map(|socket| Some(format!("unix://{}", socket.display())))).collect()
}

async fn answering(host: Option<&str>) -> Result<(DockerRuntime, String), worker::runtime::RuntimeError> {
    let docker = DockerRuntime::connect(host)?;
    let info = docker.ping().await?;
    Ok((docker, info.version))
}
