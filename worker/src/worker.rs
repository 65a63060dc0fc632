//! State of one worker process, across its sessions.

use std::sync::Arc;

use daemon::clock::{BootInstant, Clock};
use daemon::config::Config;
use engine::file_store::FileStore;
use engine::kept_logs::KeptLogs;
use engine::{Container, EngineVolume, RegistryLogins, Runtime, RuntimeError};
use model::ids::NodeName;
use model::node::Psi;
use model::spec::Memory;
use store::{RedisProcess, Store};

use crate::backup::pod_backup::PodBackup;
use crate::env::WorkerEnv;
use crate::fencing::known_containers::KnownContainers;
use crate::fencing::lease::Lease;
use crate::fencing::liveness::LivenessPipe;
use crate::handover::socket::ProxySocket;
use crate::node::engine_health::EngineHealth;
use crate::node::garbage::image_uses::ImageUses;
use crate::node::machine;
use crate::node::node_problems::NodeProblems;
use crate::node::shared_directory::SharedDirectory;
use crate::running::step::RestartBackoff;
use crate::session::identity::ClusterIdentity;
use crate::start::cluster_logins::ClusterLogins;
use crate::support::change_log::RedisLog;
use crate::support::timings::WorkerTimings;
use policy::NodePolicy;

/// A pod that crashes its worker is given up, but not one that met a few restarts.
pub(crate) const MAX_START_ATTEMPTS: u32 = 20;

pub(crate) struct Worker {
    pub(crate) config: Arc<Config>,
    pub(crate) node: NodeName,
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) pressure: fn() -> Option<Psi>,
    pub(crate) timings: WorkerTimings,
    pub(crate) lease: Lease,
    pub(crate) identity: ClusterIdentity,
    pub(crate) engine: EngineHealth,
    pub(crate) policy: NodePolicy,
    pub(crate) default_memory: Option<Memory>,
    pub(crate) liveness: LivenessPipe,
    pub(crate) problems: NodeProblems,
    pub(crate) known: KnownContainers,
    pub(crate) backup: PodBackup,
    pub(crate) logins: Arc<dyn RegistryLogins>,
    pub(crate) files: FileStore,
    pub(crate) shared: SharedDirectory,
    pub(crate) image_uses: ImageUses,
    pub(crate) uses_machine: bool,
    pub(crate) proxy: Option<Arc<dyn ProxySocket>>,
    pub(crate) kept_logs: KeptLogs,
    pub(crate) redis_log: Arc<RedisLog>,
}

impl Worker {
    pub(crate) fn new(
        config: Arc<Config>,
        store: Store,
        env: WorkerEnv,
        timings: WorkerTimings,
        redis_log: Arc<RedisLog>,
    ) -> Self {
        let node = config.node.clone();
        let capacity = config.capacity(machine::resources(&config.data_dir));
        Self {
            default_memory: config.policy.default_memory.on_node(capacity.memory_bytes),
            policy: NodePolicy::new(config.policy.clone()),
            lease: Lease::new(env.lease_store),
            identity: ClusterIdentity::load(env.identity_store),
            engine: EngineHealth::new(&node),
            liveness: LivenessPipe::none(),
            problems: NodeProblems::default(),
            known: KnownContainers::default(),
            backup: PodBackup::load(env.pod_store),
            files: FileStore::new(&config),
            image_uses: ImageUses::load(&config, env.uses_machine),
            kept_logs: KeptLogs::new(&config, env.uses_machine),
            uses_machine: env.uses_machine,
            proxy: env.proxy,
            shared: SharedDirectory::new(&config),
            logins: Arc::new(ClusterLogins {
                store: store.clone(),
                key: config.secret_key.clone(),
                node: node.clone(),
            }),
            runtime: env.runtime,
            clock: env.clock,
            pressure: env.pressure,
            config,
            node,
            store,
            timings,
            redis_log,
        }
    }

    pub(crate) fn now(&self) -> BootInstant {
        self.clock.now()
    }

    /// `sent` is not after the time of the heartbeat.
    pub(crate) fn renew_lease(&self, sent: BootInstant, redis: &RedisProcess) {
        self.lease.renew(self.now(), sent.plus(self.config.timing.fence_after), redis);
    }

    pub(crate) async fn list(&self) -> Result<Vec<Container>, RuntimeError> {
        engine::list_own(&*self.runtime, &self.node, self.identity.cluster().as_ref()).await
    }

    pub(crate) async fn list_live(&self) -> Result<Vec<Container>, RuntimeError> {
        let cluster = self.identity.cluster();
        let mut containers = self.runtime.list_live(&self.node).await?;
        containers.retain(|container| container.is_of(cluster.as_ref()));
        Ok(containers)
    }

    pub(crate) async fn own_volumes(&self) -> Result<Vec<EngineVolume>, RuntimeError> {
        let cluster = self.identity.cluster();
        let mut volumes = self.runtime.volumes(&self.node).await?;
        volumes.retain(|volume| volume.cluster.is_some() && volume.cluster == cluster);
        Ok(volumes)
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.lease.is_valid(self.now())
    }

    pub(crate) fn restart_backoff(&self) -> RestartBackoff {
        RestartBackoff {
            first: self.config.restart_backoff,
            max: self.timings.max_backoff,
            healthy_after: self.timings.healthy_after,
        }
    }
}
