//! The specification of a pod: its containers and their common settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    ContainerSpec, HostPorts, Kind, Mode, NamedRequest, RestartPolicy, Seconds, StartCondition, Stateful,
    stateful,
};
use crate::ids::SpecId;
use crate::node::Resources;

const DEFAULT_DRAIN: Duration = Duration::from_secs(30);

/// The specification of every pod of one generation. It is stored under `spec:<id>` and never changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PodSpec {
    /// The kind of the service: `service`, `job` or `cron`.
    #[serde(default, skip_serializing_if = "Kind::is_service")]
    pub kind: Kind,
    /// `replicated`, or `global`: one pod on each node that is alive, not cordoned, and satisfies the
    /// constraints of `placement`. Pods come and go with nodes, and `replicas` is left out.
    #[serde(default, skip_serializing_if = "Mode::is_replicated")]
    pub mode: Mode,
    /// Containers of the pod. Several share one network, and are started in the order of their `depends_on`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required)]
    pub containers: Vec<ContainerSpec>,
    /// Whether a worker that cannot reach Redis keeps or stops the pod.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Seconds between SIGTERM and SIGKILL when the pod is stopped.
    #[serde(default)]
    pub stop_grace_period: Seconds,
    /// Seconds that requests and connections in flight have to end by themselves before the pod is stopped,
    /// by default 30; the rest is cut. Only requests through a proxy of kubeleet are waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Seconds>,
    /// Whether each pod is known by its number, its ordinal: it keeps its name, its volumes and its zone.
    /// Ordinals start in order, the lowest first, and stop in order, the highest first. `true`, or a map with
    /// `by`, which is the label `zone` by default, `zones`, a number of zones to wait for, and `start`, which
    /// is `ordered` or `parallel`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "stateful::unless_false")]
    pub stateful: Option<Stateful>,
    /// Named resources that nodes declare (`KUBELEET_RESOURCES`), with how many ids of each the pod gets. No
    /// other pod of the node has them, and its containers find them in variables: with `gpu: 2`,
    /// `KUBELEET_RESOURCE_GPU` is `0,1`, for example. They get no device.
    #[serde(default, skip_serializing_if = "NamedRequest::is_empty")]
    pub resources: NamedRequest,
}

impl PodSpec {
    /// Without default limits.
    pub fn request(&self) -> Resources {
        let requests = self.containers.iter().map(ContainerSpec::request);
        Resources {
            pods: 1,
            disk_bytes: self.volume_space(),
            ..requests.fold(Resources::default(), Resources::saturating_add)
        }
    }

    pub fn host_ports(&self) -> HostPorts {
        HostPorts::of(self.containers.iter().flat_map(|container| &container.ports))
    }

    /// Between SIGTERM and SIGKILL.
    pub fn grace(&self) -> Duration {
        self.stop_grace_period.duration()
    }

    /// Time for requests in flight.
    pub fn drain(&self) -> Duration {
        self.drain.map_or(DEFAULT_DRAIN, Seconds::duration)
    }

    /// Index and condition.
    pub fn dependencies(&self, container: &ContainerSpec) -> Vec<(usize, StartCondition)> {
        let index = |name: &str| {
            let has_name = |one: &ContainerSpec| one.name.as_ref().is_some_and(|own| own.as_str() == name);
            self.containers.iter().position(has_name)
        };
        let of_pod = container.depends_on.iter();
        of_pod.filter_map(|(name, condition)| Some((index(name)?, condition))).collect()
    }

    /// The first container that keeps the pod from completing; `Some(None)` for the only one. Sidecars end
    /// with the others.
    pub fn restarts_always(&self) -> Option<Option<&str>> {
        let serving = self.containers.iter().filter(|container| !container.sidecar);
        let mut endless = serving.filter(|container| container.restart == RestartPolicy::Always);
        endless.next().map(|container| container.name.as_ref().map(|name| name.as_str()))
    }

    /// A version before would run them wrongly, whatever the rules of the service are.
    pub fn needs_newest_form(&self) -> bool {
        self.stateful.is_some() || self.mode.is_global() || !self.resources.is_empty()
    }

    pub fn image(&self) -> &str {
        self.containers.first().map_or("", |c| c.image.as_str())
    }

    /// An external worker knows only the image.
    pub fn needs_only_image(&self) -> bool {
        self.kind.is_service()
            && !self.mode.is_global()
            && self.stateful.is_none()
            && self.resources.is_empty()
            && self.on_disconnect == OnDisconnect::Keep
            && self.containers.len() == 1
            && self.containers.iter().all(ContainerSpec::has_only_image)
    }
}

/// Whether a worker keeps or stops a pod once it has not reached Redis for the fence period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// Keeps the pod running until Redis replies that it has moved. Two copies can run for a while.
    #[default]
    Keep,
    /// Stops the pod before another node can start it. Two copies never run at the same time.
    Stop,
}

impl OnDisconnect {
    pub fn as_str(self) -> &'static str {
        match self {
            OnDisconnect::Keep => "keep",
            OnDisconnect::Stop => "stop",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredSpec {
    pub id: SpecId,
    pub pod: PodSpec,
}
