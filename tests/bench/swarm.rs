//! Docker Swarm on the same engines.

use std::time::Duration;

use bollard::Docker as Client;
use bollard::models::{
    NodeState, ServiceSpec, ServiceSpecMode, ServiceSpecModeReplicated, SwarmInitRequest, SwarmJoinRequest,
    TaskSpec, TaskSpecContainerSpec,
};
use bollard::query_parameters::{LeaveSwarmOptions, ListNodesOptions};
use kubeleet_tests::docker::IMAGE;
use testkit::eventually::{check, eventually_within};

use crate::fleet::Fleet;

const PORT: u16 = 2377;

/// The first host is the manager and runs containers as well.
pub struct Swarm<'a> {
    fleet: &'a Fleet,
}

impl<'a> Swarm<'a> {
    pub async fn form(fleet: &'a Fleet) -> Result<Self, String> {
        let swarm = Self { fleet };
        match swarm.join_all().await {
            Ok(()) => Ok(swarm),
            Err(error) => {
                swarm.leave().await;
                Err(error.to_string())
            }
        }
    }

    async fn join_all(&self) -> Result<(), bollard::errors::Error> {
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
        self.wait_until_ready().await;
        Ok(())
    }

    fn manager(&self) -> &Client {
        &self.fleet.engines[0].client
    }

    pub async fn wait_until_ready(&self) {
        let wanted = self.fleet.engines.len();
        eventually_within(Duration::from_secs(120), "the Swarm is ready", || async {
            let nodes = self.manager().list_nodes(None::<ListNodesOptions>).await.unwrap();
            let states = nodes.iter().filter_map(|node| node.status.as_ref()?.state);
            let ready = states.filter(|state| *state == NodeState::READY).count();
            check(ready == wanted, || format!("{ready} of {wanted} nodes are"))
        })
        .await;
    }

    pub async fn create(&self, name: &str, replicas: usize) {
        let spec = ServiceSpec {
            name: Some(name.to_owned()),
            task_template: Some(TaskSpec {
                // By its tag each engine looks for a newer image, which fails at once without a route to the
                // Internet.
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
        Fleet::wait_for_containers(&self.fleet.engines, &label(name), true, replicas).await;
    }

    pub async fn delete(&self, name: &str) {
        self.manager().delete_service(name).await.unwrap();
        Fleet::wait_for_containers(&self.fleet.engines, &label(name), false, 0).await;
    }

    pub async fn leave(self) {
        for engine in self.fleet.engines.iter().rev() {
            let _left = engine.client.leave_swarm(Some(LeaveSwarmOptions { force: true })).await;
        }
    }
}

pub fn label(service: &str) -> String {
    format!("com.docker.swarm.service.name={service}")
}
