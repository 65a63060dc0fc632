//! Sandboxes: containers of kubeleet's own program that hold a pod's network. Their image needs no registry.

use std::path::PathBuf;

use model::spec::{ContainerSpec, Memory, Port, RestartPolicy};

use super::engine::DockerRuntime;
use super::sample_image::import_image;
use crate::{Container, ContainerRequest, Identity, RuntimeError};

const IMAGE: &str = concat!("kubeleet/sandbox:", env!("CARGO_PKG_VERSION"));
const ENTRYPOINT: [&str; 2] = ["/kubeleet", "sandbox"];
const MEMORY_BYTES: u64 = 64 << 20;
const PIDS: u32 = 32;

pub(super) async fn run(
    docker: &DockerRuntime,
    identity: &Identity,
    ports: &[Port],
) -> Result<Container, RuntimeError> {
    let request = ContainerRequest::new(identity.clone(), spec(ports));
    ensure_image(docker).await?;
    super::run::run(docker, &request).await
}

fn spec(ports: &[Port]) -> ContainerSpec {
    ContainerSpec {
        ports: ports.to_vec(),
        memory: Some(Memory::from_bytes(MEMORY_BYTES)),
        pids_limit: Some(PIDS),
        user: Some("65534:65534".to_owned()),
        read_only: true,
        cap_drop: vec!["ALL".to_owned()],
        restart: RestartPolicy::Never,
        ..ContainerSpec::from_image(IMAGE)
    }
}

async fn ensure_image(docker: &DockerRuntime) -> Result<(), RuntimeError> {
    let _importing = docker.sandbox_image.lock().await;
    let exe = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    import_image(docker, &exe, &ENTRYPOINT, IMAGE).await.map(drop)
}
