//! Names and labels of volumes on an engine, and their parsing.

use std::collections::BTreeMap;

use model::ids::{AssignmentId, ClusterId, PodId, ServiceName, VolumeName};
use model::service::volume::{VolumeClaim, VolumeScope};
use model::spec::{FolderOwner, VolumeKind, VolumeMount};

use crate::digest::short_hash;
use crate::{ContainerRequest, Identity, label};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedVolume<'a> {
    pub mount: &'a VolumeMount,
    pub handle: String,
    pub labels: BTreeMap<&'static str, String>,
}

/// Containers of a pod with the same source share one.
pub(crate) fn requested(request: &ContainerRequest) -> impl Iterator<Item = RequestedVolume<'_>> {
    let identity = &request.identity;
    request.container.volumes.iter().filter_map(move |mount| {
        let source = mount.source.clone().unwrap_or_default();
        let (handle, own) = match mount.kind {
            VolumeKind::Tmpfs | VolumeKind::Bind | VolumeKind::Shared => return None,
            VolumeKind::Local => (
                local_handle(identity, mount),
                vec![
                    (label::POD, identity.pod.to_string()),
                    (label::ASSIGNMENT, identity.assignment.to_string()),
                ],
            ),
            VolumeKind::Persistent => {
                let replica = identity.replica.to_string();
                let epoch = request.volume_epochs.get(&source);
                let epoch = epoch.map(|epoch| (label::EPOCH, epoch.to_string()));
                let own = epoch.into_iter().chain([(label::REPLICA, replica)]).collect();
                (persistent_handle(identity, &source), own)
            }
        };
        let space = mount.space.map(|space| (label::SPACE, space.bytes().to_string()));
        let all = [
            (label::ORCHESTRATOR, "kubeleet".to_owned()),
            (label::NODE, identity.node.to_string()),
            (label::SERVICE, service_text(identity).to_owned()),
            (label::VOLUME_KIND, mount.kind.as_str().to_owned()),
            (label::VOLUME, source),
        ];
        let cluster = identity.cluster.as_ref().map(|cluster| (label::CLUSTER, cluster.to_string()));
        let labels = all.into_iter().chain(own).chain(cluster).chain(space).collect();
        Some(RequestedVolume { mount, handle, labels })
    })
}

fn service_text(identity: &Identity) -> &str {
    identity.service.as_ref().map_or(identity.name.as_str(), ServiceName::as_str)
}

/// A volume without a source belongs to its container.
fn local_handle(identity: &Identity, mount: &VolumeMount) -> String {
    match &mount.source {
        Some(source) => {
            let pod = Identity { container: None, ..identity.clone() };
            format!("{}-{source}", pod.container_name())
        }
        None => format!("{}.{}", identity.container_name(), short_hash(&[&mount.target], 5)),
    }
}

/// The hash covers node and cluster, which may share an engine.
fn persistent_handle(identity: &Identity, source: &str) -> String {
    let cluster = identity.cluster.as_ref().map_or("", ClusterId::as_str);
    let hash = short_hash(&[cluster, identity.node.as_str()], 5);
    format!("kubeleet-{hash}-{}_{source}_{}", service_text(identity), identity.replica)
}

/// Mount paths and owners of volumes that the container creates.
pub(crate) fn new_folders(request: &ContainerRequest) -> Vec<(&str, FolderOwner)> {
    let is_new = |mount: &&VolumeMount| match mount.kind {
        VolumeKind::Local => true,
        VolumeKind::Persistent => {
            mount.source.as_ref().is_some_and(|source| request.volume_epochs.contains_key(source))
        }
        VolumeKind::Shared | VolumeKind::Tmpfs | VolumeKind::Bind => false,
    };
    let volumes = request.container.volumes.iter().filter(|mount| !mount.read_only).filter(is_new);
    volumes.filter_map(|mount| Some((mount.target.as_str(), mount.folder_owner()?))).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeOwner {
    /// Lives as long as the assignment.
    Pod(PodId, AssignmentId),
    Replica(VolumeClaim),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineVolume {
    pub handle: String,
    pub cluster: Option<ClusterId>,
    pub owner: VolumeOwner,
    pub space: Option<u64>,
    /// The epoch for which a persistent volume was created.
    pub epoch: Option<u64>,
}

impl EngineVolume {
    pub(crate) fn from_labels<'a>(handle: &str, get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let number = |label: &str| get(label).and_then(|number| number.parse::<u64>().ok());
        let (space, epoch) = (number(label::SPACE), number(label::EPOCH));
        let owner = match get(label::VOLUME_KIND)? {
            "local" => {
                let pod = PodId::new(get(label::POD)?).ok()?;
                VolumeOwner::Pod(pod, AssignmentId::new(get(label::ASSIGNMENT)?).ok()?)
            }
            "persistent" => {
                let service = ServiceName::new(get(label::SERVICE)?).ok()?;
                let (source, replica) = (get(label::VOLUME)?.to_owned(), get(label::REPLICA)?.parse().ok()?);
                let name = VolumeName::of_replica(&service, &source, replica).ok()?;
                let scope = VolumeScope::Replica(replica);
                VolumeOwner::Replica(VolumeClaim { name, service, source, scope, space })
            }
            _ => return None,
        };
        let cluster = get(label::CLUSTER).and_then(|text| ClusterId::new(text).ok());
        Some(Self { handle: handle.to_owned(), cluster, owner, space, epoch })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::ContainerName;

    use super::*;
    use crate::testing::identity;

    fn request(identity: Identity) -> ContainerRequest {
        let container = serde_json::from_str(
            r#"{"image":"x","volumes":["data:/var:ro","/cache",{"source":"s","target":"/s","kind":"local"},
                {"type":"tmpfs","target":"/run"}]}"#,
        )
        .unwrap();
        ContainerRequest::new(identity, container)
    }

    fn handles(request: &ContainerRequest) -> Vec<String> {
        requested(request).map(|volume| volume.handle).collect()
    }

    #[test]
    fn labels_are_read_back_as_they_were_written() {
        let mut request = request(identity("node", "pod", "a"));
        request.volume_epochs.insert("data".to_owned(), 7);
        let owners: Vec<VolumeOwner> = requested(&request)
            .map(|volume| {
                let get = |key: &str| volume.labels.get(key).map(String::as_str);
                let read = EngineVolume::from_labels(&volume.handle, get).unwrap();
                assert_eq!((&read.handle, &read.cluster), (&volume.handle, &request.identity.cluster));
                let is_persistent = matches!(read.owner, VolumeOwner::Replica(_));
                assert_eq!(read.epoch, is_persistent.then_some(7));
                read.owner
            })
            .collect();
        let VolumeOwner::Replica(claim) = &owners[0] else { panic!("{owners:?}") };
        assert_eq!((claim.name.as_str(), claim.scope), ("web_data_3", VolumeScope::Replica(3)));
        let local = VolumeOwner::Pod(request.identity.pod.clone(), request.identity.assignment.clone());
        assert_eq!(owners[1..], [local.clone(), local]);
        assert_eq!(EngineVolume::from_labels("h", |_| None), None);
    }

    #[test]
    fn a_persistent_volume_outlives_the_assignment_and_a_local_one_does_not() {
        let (one, next) = (request(identity("node", "pod", "a")), request(identity("node", "pod2", "b")));
        let (one, next) = (handles(&one), handles(&next));
        assert_eq!(one[0], next[0]);
        assert_ne!(one[1], next[1]);
        assert_ne!(one[2], next[2]);
        assert_ne!(handles(&request(identity("other", "pod", "a")))[0], one[0], "two nodes of one engine");
    }

    #[test]
    fn containers_of_a_pod_share_what_has_a_source() {
        let named = |name: &str| {
            let container = Some(ContainerName::new(name).unwrap());
            handles(&request(Identity { container, ..identity("node", "pod", "a") }))
        };
        let (one, two) = (named("one"), named("two"));
        assert_eq!((&one[0], &one[2]), (&two[0], &two[2]));
        assert_ne!(one[1], two[1]);
    }
}
