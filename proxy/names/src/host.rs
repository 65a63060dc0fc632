//! Keeps names working on this host: the iptables rules, and a listener in each pod network.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::listen::Presence;
use daemon::redis_url::RedisUrl;
use gate::listening::Listening;
use gate::name_reach::{KnownNameReach, NameReach};
use ingress::IngressShared;
use model::network::handover::Gateway;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use tunnel::Peers;

use super::closed::to_close;
use super::dns::DnsListener;
use super::resolver::Resolver;
use super::rules::{Rules, RulesError};
use super::{connections, dns, names_file, probe};
use model::network::address_range::AddressRange;

const CHECK_INTERVAL: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

pub struct HostNames {
    pub resolver: Arc<Resolver>,
    pub shared: Arc<IngressShared>,
    /// The gateways of this host in pod networks.
    pub gateways: watch::Receiver<BTreeSet<Gateway>>,
    pub status: watch::Sender<KnownNameReach>,
    /// Closed to pods.
    pub redis: RedisUrl,
    /// Closed to pods as well.
    pub peers: Option<Arc<Peers>>,
    pub closed_ranges: Vec<AddressRange>,
    pub file: PathBuf,
    pub listening: Listening,
    pub connections: TaskTracker,
}

type Listeners = BTreeMap<Ipv4Addr, JoinSet<()>>;

impl HostNames {
    /// Connections may finish after a take-over, but not after a shutdown.
    pub async fn run(mut self) {
        let (listening, connections) = (self.listening.clone(), self.connections.clone());
        self.resolver.insert_saved(names_file::read(&self.file));
        let saving = names_file::keep(self.resolver.clone(), self.file.clone());
        let serve = async { tokio::join!(self.serve(), saving) };
        listening.stopped().run_until_cancelled(serve).await;
        if listening.is_handed_over() {
            listening.wait_for_connections(&connections).await;
        }
    }

    async fn serve(&mut self) {
        let mut listeners = Listeners::default();
        let mut refused = None;
        // False while the address of a server to close is unknown.
        let (mut rules, mut is_whole) = (Rules::default(), true);
        loop {
            // For people on the host, and for the probe. One of several proxies of the host gets it: for the
            // others, an error is no problem.
            let _another_has_it = self.listen(&mut listeners, Ipv4Addr::LOCALHOST, Presence::Required);
            // Without permission to set rules, the probe finds out whether root has set them.
            if !matches!(refused, Some(RulesError::NotAllowed | RulesError::NotInstalled)) {
                let proxies = self.peers.iter().flat_map(|peers| peers.hosts());
                let to_close =
                    to_close(&self.redis, &self.closed_ranges, proxies.map(|(peer, _)| peer.address)).await;
                refused = rules.set(&to_close).await.err();
                if std::mem::replace(&mut is_whole, to_close.unknown.is_empty()) && !is_whole {
                    let unknown = to_close.unknown.join(", ");
                    tracing::warn!(
                        "No address is found for {unknown}: pods of this host may reach Redis there if it was not closed to \
                         them before; trying again every 5 s"
                    );
                }
            }
            let mut problem = match probe::resolver_answers().await {
                true => None,
                false => Some(no_answer_problem(refused.as_ref(), probe::has_route().await)),
            };
            let wanted = self.gateways.borrow_and_update().clone();
            let mut gateways = BTreeSet::new();
            for gateway in wanted {
                // An on-demand gateway's address appears only with the first container. Otherwise a missing
                // one means that the engine is on another host.
                let presence = if gateway.on_demand { Presence::Expected } else { Presence::Required };
                match self.listen(&mut listeners, gateway.address, presence) {
                    Ok(()) => drop(gateways.insert(gateway.address)),
                    // New containers must not use a gateway without a listener.
                    Err(error) => problem = Some(listen_problem(gateway.address, &error)),
                }
            }
            let wait = if problem.is_none() && is_whole { CHECK_INTERVAL } else { RETRY_INTERVAL };
            self.report(NameReach { problem, gateways });
            tokio::select! {
                Ok(()) = self.gateways.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn listen(&self, listeners: &mut Listeners, address: Ipv4Addr, presence: Presence) -> io::Result<()> {
        if listeners.contains_key(&address) {
            return Ok(());
        }
        let questions = DnsListener::bind((address, dns::PORT).into(), presence, &self.listening)?;
        let listener = connections::bind(address, presence, &self.listening)?;
        let (resolver, shared) = (self.resolver.clone(), self.shared.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(questions.run(resolver.clone()));
        tasks.spawn(connections::accept_all(listener, resolver, shared, self.connections.clone()));
        listeners.insert(address, tasks);
        Ok(())
    }

    fn report(&self, status: NameReach) {
        let before = self.status.borrow().as_ref().map(|status| status.problem.clone());
        if before.as_ref() != Some(&status.problem) {
            match &status.problem {
                None => tracing::info!("pods of this host reach services by name"),
                Some(problem) => tracing::warn!("pods of this host reach no service by name: {problem}"),
            }
        }
        self.status.send_if_modified(|reported| {
            let is_new = reported.as_ref() != Some(&status);
            *reported = Some(status);
            is_new
        });
    }
}

fn listen_problem(gateway: Ipv4Addr, error: &io::Error) -> String {
    format!("it cannot listen at {gateway}: {error}; the engine has to be on this host, with one proxy")
}

fn no_answer_problem(refused: Option<&RulesError>, has_route: bool) -> String {
    let set_them = "start the proxy as root, or run `kubeleet net rules` as root";
    match refused {
        Some(error) => format!("the rules of this host that lead to the resolver are missing: {error}; {set_them}"),
        None if !has_route => probe::NO_ROUTE.to_owned(),
        None => "the rules of this host that lead to the resolver are set, and no answer comes: look for other rules \
                 about 198.18.0.0/15 in `iptables-save`"
            .to_owned(),
    }
}
