//! The container engine of a `dev` cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::config::{Config, RuntimeKind};
use engine::Runtime;
use engine::docker::DockerRuntime;
use engine::docker::sample_image::ensure_hello_image;
use engine::process::ProcessRuntime;
use engine::sim::{SimOptions, SimRuntime};
use futures_util::future::join_all;
use model::ids::{ClusterId, NodeName};
use proxy::names::rules;

pub(super) const HELLO_IMAGE: &str = "kubeleet/hello:dev";

/// Between SIGTERM and SIGKILL when `dev` ends.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

pub(super) struct Engine {
    pub(super) kind: RuntimeKind,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) description: String,
    docker: Option<Arc<DockerRuntime>>,
    created_image: std::sync::atomic::AtomicBool,
}

impl Engine {
    /// The configured engine; else Docker if its socket answers, then Podman, then plain processes.
    pub(super) async fn choose(config: &Config, is_set: bool, home: &Path) -> anyhow::Result<Self> {
        match config.runtime {
            RuntimeKind::Sim if is_set => {
                let runtime = Arc::new(SimRuntime::new(SimOptions::default()));
                return Ok(Self::new(RuntimeKind::Sim, runtime, "a simulated engine", None));
            }
            RuntimeKind::Process if is_set => return Ok(Self::processes(home, "as configured")),
            RuntimeKind::Docker | RuntimeKind::Process | RuntimeKind::Sim => {}
        }
        let mut errors = Vec::new();
        for host in candidates(config) {
            match connect(host.as_deref(), config).await {
                Ok((docker, version)) => {
                    let docker = Arc::new(docker);
                    return Ok(Self::new(RuntimeKind::Docker, docker.clone(), &version, Some(docker)));
                }
                Err(error) => {
                    errors.push(format!("{}: {error}", host.unwrap_or("the Docker socket".to_owned())));
                }
            }
        }
        if is_set {
            anyhow::bail!("no container engine answers: {}", errors.join("; "));
        }
        tracing::debug!("no container engine answers: {}", errors.join("; "));
        Ok(Self::processes(home, "no Docker or Podman engine answers"))
    }

    fn processes(home: &Path, reason: &str) -> Self {
        let runtime = Arc::new(ProcessRuntime::new(home.join("pods")));
        Self::new(RuntimeKind::Process, runtime, &format!("plain processes ({reason})"), None)
    }

    fn new(
        kind: RuntimeKind,
        runtime: Arc<dyn Runtime>,
        description: &str,
        docker: Option<Arc<DockerRuntime>>,
    ) -> Self {
        let description = description.to_owned();
        Self { kind, runtime, description, docker, created_image: false.into() }
    }

    pub(super) async fn create_hello_image(&self) -> anyhow::Result<()> {
        if let Some(docker) = &self.docker {
            let created = ensure_hello_image(docker, &[HELLO_IMAGE]).await?;
            self.created_image.store(created, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    /// Leaves out names with containers of another cluster or a killed `dev`.
    pub(super) async fn worker_names(
        &self,
        known: &[NodeName],
        count: usize,
    ) -> anyhow::Result<Vec<NodeName>> {
        let mut names = known.to_vec();
        let mut number = 0;
        while names.len() < count {
            number += 1;
            let name = NodeName::new(format!("worker{number}"))?;
            if names.contains(&name) {
                continue;
            }
            match self.runtime.list(&name).await.map(|containers| containers.len()) {
                Ok(0) => names.push(name),
                Ok(taken) => tracing::warn!(
                    "the engine has {taken} containers of a node {name} that this cluster did not create: \
                     not using that name. `docker ps -a --filter label=kubeleet.node={name}` lists them"
                ),
                Err(error) => anyhow::bail!("cannot list the containers of {name}: {error}"),
            }
        }
        Ok(names)
    }

    pub(super) async fn clean_up(&self, nodes: &[NodeName], cluster: Option<&ClusterId>) {
        self.remove_containers(nodes, cluster).await;
        for result in join_all(nodes.iter().map(|node| self.remove_volumes(node, cluster))).await {
            if let Err(error) = result {
                tracing::warn!(
                    "cannot remove all volumes: {error}; \
                     `docker volume ls --filter label=orchestrator=kubeleet` lists those that are left"
                );
            }
        }
        if let (Some(docker), Some(cluster)) = (&self.docker, cluster)
            && let Err(error) = docker.remove_pod_network(cluster).await
        {
            tracing::warn!("cannot remove the network of the pods: {error}");
        }
        // Without the permission to remove them, this process has not set them.
        if self.docker.is_some() && !rules::are_in_use() {
            let _ = rules::remove().await;
        }
        if let Some(docker) = &self.docker
            && self.created_image.load(std::sync::atomic::Ordering::Relaxed)
            && let Err(error) = docker.remove_image(HELLO_IMAGE).await
        {
            tracing::warn!("cannot remove the image {HELLO_IMAGE}: {error}");
        }
    }

    pub(super) async fn remove_containers(&self, nodes: &[NodeName], cluster: Option<&ClusterId>) {
        for result in join_all(nodes.iter().map(|node| self.stop_all(node, cluster))).await {
            if let Err(error) = result {
                tracing::warn!(
                    "cannot remove all containers: {error}; \
                     `docker ps -a --filter label=orchestrator=kubeleet` lists those that are left"
                );
            }
        }
    }

    /// Leaves volumes of other clusters or without a cluster label.
    async fn remove_volumes(
        &self,
        node: &NodeName,
        cluster: Option<&ClusterId>,
    ) -> Result<(), engine::RuntimeError> {
        let mut volumes = self.runtime.volumes(node).await?;
        volumes.retain(|volume| cluster.is_some() && volume.cluster.as_ref() == cluster);
        let removals = volumes.iter().map(|volume| self.runtime.remove_volume(&volume.handle));
        join_all(removals).await.into_iter().try_for_each(|removed| removed.map(drop))
    }

    async fn stop_all(
        &self,
        node: &NodeName,
        cluster: Option<&ClusterId>,
    ) -> Result<(), engine::RuntimeError> {
        let mut containers = self.runtime.list(node).await?;
        containers.retain(|container| container.cluster.as_ref() == cluster);
        let stops = containers.iter().map(|container| self.runtime.stop(&container.handle, GRACE_PERIOD));
        join_all(stops).await.into_iter().collect()
    }
}

/// In order; `None` is the default Docker socket.
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

async fn connect(
    host: Option<&str>,
    config: &Config,
) -> Result<(DockerRuntime, String), engine::RuntimeError> {
    let docker = DockerRuntime::connect(host)?
        .with_registry_config(config.registry_config.clone())
        .dropping_capabilities(config.policy.dropped_capabilities.clone());
    let info = docker.ping().await?;
    let product = if info.runtime == "podman" { "Podman" } else { "Docker Engine" };
    Ok((docker, format!("{product} {}", info.version)))
}
