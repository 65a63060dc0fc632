//! The loop that chooses the network of new containers: the pod network if this host's proxy resolves names,
//! else the engine's default.

use std::sync::Arc;
use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use engine::RuntimeError;
use tokio::time::Instant;

use crate::handover::NamesStatus;
use crate::session::context::SessionContext;

/// An operator may have removed the network.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// While no proxy answers, nothing changes for so long: it or the machine may be restarting.
const SILENCE: Duration = Duration::from_secs(5 * 60);

pub(crate) struct PodNetworkLoop {
    context: Arc<SessionContext>,
    silent_since: Instant,
    logged: Option<Where>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Where {
    PodNetwork,
    EngineNetwork(String),
}

impl Loop<RuntimeError> for PodNetworkLoop {
    const NAME: &'static str = "pod network";

    async fn step(&mut self) -> Result<Next, RuntimeError> {
        let worker = &self.context.worker;
        if !worker.runtime.has_pod_networks() {
            return Ok(Next::End);
        }
        let names = self.context.handover.names();
        if names.is_some() {
            self.silent_since = Instant::now();
        }
        let decided = decide(worker.config.names, names, self.silent_since.elapsed());
        let (Some(cluster), Some(decided)) = (worker.identity.cluster(), decided) else {
            return Ok(Next::Rest);
        };
        match &decided {
            Where::EngineNetwork(_) => worker.runtime.leave_pod_network(),
            Where::PodNetwork => {
                let gateway = worker.runtime.join_pod_network(&cluster).await?;
                self.context.handover.set_gateway(gateway);
            }
        }
        self.log(decided);
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), RuntimeError> {
        tokio::select! {
            () = self.context.handover.names_changed() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        Ok(())
    }
}

impl PodNetworkLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, silent_since: Instant::now(), logged: None }
    }

    fn log(&mut self, decided: Where) {
        let node = &self.context.worker.node;
        if self.logged.as_ref() == Some(&decided) {
            return;
        }
        match &decided {
            Where::PodNetwork => tracing::info!(%node, "new containers reach services by name"),
            Where::EngineNetwork(why) => {
                tracing::info!(%node, "new containers reach no service by name: {why}");
            }
        }
        self.logged = Some(decided);
    }
}

fn decide(is_wanted: bool, names: Option<NamesStatus>, silent_for: Duration) -> Option<Where> {
    if !is_wanted {
        return Some(Where::EngineNetwork("KUBELEET_NAMES is off for this worker".to_owned()));
    }
    match names {
        Some(NamesStatus { problem }) => Some(problem.map_or(Where::PodNetwork, Where::EngineNetwork)),
        None if silent_for < SILENCE => None,
        None => Some(Where::EngineNetwork("no proxy of this host has spoken for five minutes".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_containers_follow_what_the_proxy_said_last_and_the_operator_before_all() {
        let said = |problem: Option<&str>| Some(NamesStatus { problem: problem.map(str::to_owned) });
        let engine = |why: &str| Some(Where::EngineNetwork(why.to_owned()));
        let moment = Duration::from_secs(1);
        assert_eq!(decide(true, None, moment), None, "it is only restarting");
        assert_eq!(decide(true, None, SILENCE), engine("no proxy of this host has spoken for five minutes"));
        for silent_for in [moment, SILENCE] {
            assert_eq!(decide(true, said(None), silent_for), Some(Where::PodNetwork));
            assert_eq!(decide(true, said(Some("no rules")), silent_for), engine("no rules"));
            for names in [None, said(None), said(Some("no rules"))] {
                let off = engine("KUBELEET_NAMES is off for this worker");
                assert_eq!(decide(false, names, silent_for), off);
            }
        }
    }
}
