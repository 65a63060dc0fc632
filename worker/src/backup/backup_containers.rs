//! The containers of a worker's saved pods. Another process stops them in that worker's place while the
//! engine cannot list containers.

use std::path::Path;

use engine::{Container, ContainerState, Identity, Runtime};
use model::ids::{ClusterId, NodeName};
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::spec::{OnDisconnect, PodSpec};
use store::saved_state::{SavedFile, SavedPod, SavedState};

use crate::backup::pod_backup;
use crate::fencing::known_containers::KnownContainers;

/// Empty if the file is missing or broken, which that worker reports.
pub(crate) fn read(data_dir: &Path, node: &NodeName, runtime: &dyn Runtime) -> KnownContainers {
    let known = KnownContainers::default();
    let Some(file) = saved(data_dir, node) else { return known };
    for pod in &file.state.pods {
        let identities = identities(pod, &file.state, &file.header.cluster, node);
        for identity in identities {
            let state = ContainerState::Unknown;
            known.insert(&Container::new(runtime.handle_of(&identity), &identity, state));
        }
    }
    known
}

pub(crate) fn pod_names(data_dir: &Path, node: &NodeName) -> Vec<String> {
    let Some(file) = saved(data_dir, node) else { return Vec::new() };
    let running = file.state.pods.into_iter().filter(|pod| pod.phase == Phase::Running);
    running.filter_map(|pod| Some(pod.parsed().ok()?.display_name())).collect()
}

fn saved(data_dir: &Path, node: &NodeName) -> Option<SavedFile> {
    let text = std::fs::read_to_string(pod_backup::file_of(data_dir, node)).ok()?;
    SavedFile::read(text.lines()).ok()
}

fn identities(pod: &SavedPod, state: &SavedState, cluster: &ClusterId, node: &NodeName) -> Vec<Identity> {
    let Ok(payload) = pod.parsed() else { return Vec::new() };
    let Some((spec, assignment)) = spec_of(&payload, state).zip(pod.assignment.as_ref()) else {
        return Vec::new();
    };
    if spec.on_disconnect != OnDisconnect::Stop {
        return Vec::new();
    }
    let owner = (Some(cluster.clone()), node);
    let of_pod = Identity::of_pod(owner, (&payload, &spec), pod.service.as_ref(), assignment);
    let mut identities = Vec::new();
    if spec.containers.len() > 1 {
        let names = spec.containers.iter().filter_map(|container| container.name.clone());
        identities.extend(names.map(|name| Identity { container: Some(name), ..of_pod.clone() }));
    }
    identities.push(of_pod);
    identities
}

fn spec_of(payload: &Payload, state: &SavedState) -> Option<PodSpec> {
    match &payload.spec {
        Some(id) => state.specs.get(id)?.pod(),
        None => payload.inline_spec().ok().map(|inline| inline.pod),
    }
}
