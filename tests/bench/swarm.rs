//! The same engines as a Swarm, with services as `docker service create --replicas N --detach` makes them.

use std::time::Duration;

use bollard::Docker as Client;
use bollard::models::{
    NodeState, ServiceSpec, ServiceSpecMode, ServiceSpecModeReplicated, SwarmInitRequest, SwarmJoinRequest,
    TaskSpec, TaskSpecContainerSpec,
};
use bollard::query_parameters::{LeaveSwarmOptions, ListNodesOptions};
use kubeleet_tests::docker::IMAGE;
use kubeleet_tests::eventually;
use kubeleet_tests::wait::that;

use crate::fleet::Fleet;

const PORT: u16 = 2377;

/// A Swarm of a fleet. The first host is its manager and works as well.
pub struct Swarm<'a> {
    fleet: &'a Fleet,
}

impl<'a> Swarm<'a> {
    /// Makes the engines one; says why when they can not be.
    pub async fn of(fleet: &'a Fleet) -> Result<Self, String> {
        let swarm = Self { fleet };
        match swarm.form().await {
            Ok(()) => Ok(swarm),
            Err(error) => {
                swarm.leave().await;
                Err(error.to_string())
            }
        }
    }

    async fn form(&self) -> Result<(), bollard::errors::Error> {
        let address = |index: usize| format!("{}:{PORT}", self.fleet.hosts.host(index).address());
        let request = SwarmInitRequest {
            listen_addr: Some(address(0)),
            advertise_addr: Some(address(0)),
            ..Default::default()
        };
        self.manager().init_swarm(request).await?;
        let token = self.manager().inspect_swarm().await?.join_tokens.and_then(|tokens| tokens.worker);
        for (index, engine) in self.fleet.engines.iter().enumerate().skip(1) {
            let request = SwarmJoinRequest {
                listen_addr: Some(address(index)),
                advertise_addr: Some(address(index)),
                remote_addrs: Some(vec![address(0)]),
                join_token: token.clone(),
                ..Default::default()
            };
            engine.client.join_swarm(request).await?;
        }
        self.all_ready().await;
        Ok(())
    }

    fn manager(&self) -> &Client {
        &self.fleet.engines[0].client
    }

    /// Waits until the manager has heard of all.
    pub async fn all_ready(&self) {
        let wanted = self.fleet.engines.len();
        eventually(Duration::from_secs(120), "the Swarm is ready", || async {
            let nodes = self.manager().list_nodes(None::<ListNodesOptions>).await.unwrap();
            let states = nodes.iter().filter_map(|node| node.status.as_ref()?.state);
            let ready = states.filter(|state| *state == NodeState::READY).count();
            that(ready == wanted, || format!("{ready} of {wanted} are"))
        })
        .await;
    }

    /// Creates a service and waits until so many run.
    pub async fn create(&self, name: &str, replicas: usize) {
        let spec = ServiceSpec {
            name: Some(name.to_owned()),
            task_template: Some(TaskSpec {
                // By its tag. Each engine looks for a newer one in a registry first, which fails at once on a host
                // without any way out.
                container_spec: Some(TaskSpecContainerSpec {
                    image: Some(IMAGE.to_owned()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            mode: Some(ServiceSpecMode {
                replicated: Some(ServiceSpecModeReplicated { replicas: Some(replicas as i64) }),
                ..Default::default()
            }),
            ..Default::default()
        };
        self.manager().create_service(spec, None).await.unwrap();
        Fleet::until(&self.fleet.engines, &label(name), true, replicas).await;
    }

    /// Deletes it and waits until no container of it is left.
    pub async fn delete(&self, name: &str) {
        self.manager().delete_service(name).await.unwrap();
        Fleet::until(&self.fleet.engines, &label(name), false, 0).await;
    }

    /// The engines are none any more.
    pub async fn leave(self) {
        for engine in self.fleet.engines.iter().rev() {
            // One that never joined says so.
            let _left = engine.client.leave_swarm(Some(LeaveSwarmOptions { force: true })).await;
        }
    }
}

/// What all containers of a service have.
pub fn label(service: &str) -> String {
    format!("com.docker.swarm.service.name={service}")
}
