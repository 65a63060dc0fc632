//! The worker's environment on its machine. Tests replace each part.

use std::sync::Arc;

use daemon::clock::{BootClock, Clock};
use daemon::config::{Config, RuntimeKind};
use engine::Runtime;
use engine::docker::DockerRuntime;
use engine::docker::EngineRecord;
use engine::process::ProcessRuntime;
use engine::sim::{SimOptions, SimRuntime};
use model::node::Psi;

use crate::backup::backup_containers;
use crate::backup::pod_backup::PodStore;
use crate::error::WorkerError;
use crate::fencing::lease_file::{self, LeaseFile, LeaseStore};
use crate::handover::socket::{self, ProxySocket};
use crate::node::psi;
use crate::session::identity::{IdentityFiles, IdentityStore};

#[derive(Clone)]
pub struct WorkerEnv {
    pub runtime: Arc<dyn Runtime>,
    /// Measures the lease. Must count the time that the machine is suspended.
    pub clock: Arc<dyn Clock>,
    /// `None` if no container outlives this process. Same below.
    pub lease_store: Option<Arc<dyn LeaseStore>>,
    pub identity_store: Option<Arc<dyn IdentityStore>>,
    pub pod_store: PodStore,
    /// False for a simulation.
    pub uses_machine: bool,
    pub proxy: Option<Arc<dyn ProxySocket>>,
    pub pressure: fn() -> Option<Psi>,
}

impl WorkerEnv {
    pub(crate) fn real(config: &Config, runtime: Arc<dyn Runtime>) -> Result<Self, WorkerError> {
        Ok(Self {
            runtime,
            clock: Arc::new(BootClock),
            lease_store: lease_store(config)?,
            identity_store: identity_store(config),
            pod_store: match config.runtime {
                RuntimeKind::Sim => PodStore::Memory,
                RuntimeKind::Docker | RuntimeKind::Process => PodStore::file(config),
            },
            uses_machine: config.runtime != RuntimeKind::Sim,
            proxy: socket::configured(config),
            pressure: psi::read,
        })
    }
}

pub(crate) fn runtime(config: &Config) -> Result<Arc<dyn Runtime>, WorkerError> {
    Ok(match config.runtime {
        RuntimeKind::Docker => {
            let docker = DockerRuntime::connect(config.docker_host.as_deref())?;
            let docker = docker.with_registry_config(config.registry_config.clone());
            let docker = docker.recorded(engine_record(config));
            let docker = docker.dropping_capabilities(config.policy.dropped_capabilities.clone());
            Arc::new(docker.allowing_binds(config.policy.host.bind_prefixes.clone()))
        }
        RuntimeKind::Process if config.policy.processes => {
            Arc::new(ProcessRuntime::new(config.data_dir.clone()))
        }
        RuntimeKind::Process => return Err(WorkerError::ProcessesNotAllowed),
        RuntimeKind::Sim => Arc::new(SimRuntime::new(SimOptions::default())),
    })
}

fn engine_record(config: &Config) -> EngineRecord {
    let path = config.data_dir.join(format!("{}.engine-host", config.node));
    EngineRecord::read(path, backup_containers::pod_names(&config.data_dir, &config.node))
}

fn lease_store(config: &Config) -> Result<Option<Arc<dyn LeaseStore>>, WorkerError> {
    if config.runtime == RuntimeKind::Sim {
        // Simulated containers end with this process.
        return Ok(None);
    }
    let (node, path) = (&config.node, lease_file::path(config));
    let failed =
        |source| WorkerError::StateDir { node: node.clone(), path: config.state_dir.clone(), source };
    let file = LeaseFile::new(path.clone(), lease_file::boot_id().map_err(failed)?);
    match file.check() {
        Ok(()) => {}
        // A worker that ended for this would take the node and its pods down. The next worker fences as
        // needed.
        Err(error) if config.guard => tracing::error!(
            %node, path = %path.display(), %error,
            "the lease cannot be written: going on without; make room, or make the directory writable"
        ),
        Err(source) => return Err(failed(source)),
    }
    Ok(Some(Arc::new(file)))
}

fn identity_store(config: &Config) -> Option<Arc<dyn IdentityStore>> {
    (config.runtime != RuntimeKind::Sim)
        .then(|| Arc::new(IdentityFiles::of(config)) as Arc<dyn IdentityStore>)
}
