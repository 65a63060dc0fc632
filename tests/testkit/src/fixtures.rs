//! Default objects for tests. A test sets its own fields: `Service { replicas: 3, ..fixtures::service() }`.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use daemon::config::{Config, Serves, Sources};
use model::ids::{HolderId, Incarnation, NodeName, PodId, PodName, ServiceName, SpecId};
use model::node::timing::Timing;
use model::node::{Node, NodeInfo, ResourceIds, Resources};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::service::{Service, ServiceState};
use model::spec::{ContainerSpec, DesiredService, Mode, NamedRequest, OnDisconnect, PodSpec, Seconds};
use store::{Claimant, SilenceProof};

pub const IMAGE: &str = "nginx";

/// Only these settings, on the machine `host`.
pub fn config(settings: &[(&str, &str)]) -> Config {
    let flags = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let sources = Sources {
        flags: flags.collect(),
        environment: &|_| None,
        file: BTreeMap::new(),
        read_file: &|path| Err(format!("{path} is not for tests")),
        host_name: "host".to_owned(),
    };
    sources.config(Serves::Nothing).unwrap()
}

pub fn service() -> Service {
    Service {
        name: ServiceName::new("web").unwrap(),
        state: ServiceState::Active,
        generation: 1,
        revision: 1,
        spec_id: SpecId::new("spec").unwrap(),
        replicas: 1,
        fields: Default::default(),
        progress: Default::default(),
        schedule: Default::default(),
        rollout: Default::default(),
        moves: Default::default(),
        members: Default::default(),
        created_at: 0,
        updated_at: 0,
        scaled_at: None,
        pod: PodSpec {
            kind: Default::default(),
            containers: vec![ContainerSpec::from_image(IMAGE)],
            on_disconnect: OnDisconnect::default(),
            stop_grace_period: Seconds::default(),
            drain: None,
            mode: Mode::default(),
            stateful: None,
            resources: NamedRequest::default(),
        },
        images: Vec::new(),
    }
}

pub fn service_of(desired: DesiredService) -> Service {
    let Service { spec_id, created_at, .. } = service();
    Service::created(desired, spec_id, created_at)
}

/// On `n1` in phases with a node.
pub fn pod_record(service: &str, replica: u32, phase: Phase) -> PodRecord {
    let has_node = matches!(phase, Phase::Assigned | Phase::Running | Phase::Stopping);
    PodRecord {
        id: PodId::random(),
        name: PodName::new(service).unwrap(),
        phase,
        replica,
        image: IMAGE.into(),
        service: Some(ServiceName::new(service).unwrap()),
        spec: Some(SpecId::new("spec").unwrap()),
        generation: 1,
        node: has_node.then(|| NodeName::new("n1").unwrap()),
        assignment: None,
        attempts: 0,
        restarts: 0,
        request: Resources { pods: 1, ..Resources::default() },
        host_ports: String::new(),
        created_at: 0,
        since: 0,
        reason: String::new(),
        message: String::new(),
        exit_code: None,
        address: String::new(),
        published_ports: Vec::new(),
        resource_ids: ResourceIds::default(),
        images: Vec::new(),
        ready_since: None,
        kept_at: None,
        containers: Vec::new(),
        runs: Vec::new(),
    }
}

pub fn node_info(capacity: Resources) -> NodeInfo {
    NodeInfo {
        labels: BTreeMap::new(),
        capacity,
        reserved: Resources::default(),
        runtime: "sim".into(),
        engine_version: "1".into(),
        engine_id: String::new(),
        version: "0.1.0".into(),
        settings: None,
    }
}

pub fn node(name: &str, capacity: Resources) -> Node {
    let node = Node::new(NodeName::new(name).unwrap(), node_info(capacity), 0);
    Node { incarnation: Some(Incarnation::random()), ..node }
}

pub fn claimant() -> Claimant<'static> {
    static HOLDER: LazyLock<HolderId> = LazyLock::new(HolderId::random);
    Claimant { holder: &HOLDER, takes_over_after: Duration::from_secs(19), timing: Timing::default() }
}

/// Every silence counts.
pub fn long_proof() -> SilenceProof {
    let day = Duration::from_secs(86_400);
    SilenceProof { until: u64::MAX >> 11, writable: day, calm: day }
}
