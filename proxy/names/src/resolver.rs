//! Answers the DNS questions of this host's pods.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::log_limit::LogLimit;
use futures_util::future::try_join_all;
use gate::Gates;
use gate::shares::Shares;
use model::ids::{AppName, ServiceName};
use model::network::address::{AddressName, PoolAddress};
use model::network::endpoint::EndpointState;
use parking_lot::Mutex;
use routing::follow::Interest;
use routing::snapshot::RoutingSnapshot;
use store::{GivenAddress, Store, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::answer::{
    NameLookup, Names, Needed, QuestionDecision, QuestionTransport, Questioner, decide, failure,
};
use super::cache::{Cache, Unanswered};
use super::forward::Forwarder;

const FOUND_KEPT: Duration = Duration::from_secs(60);
/// A service may be created at any moment.
const MISSING_KEPT: Duration = Duration::from_secs(1);
/// Most answers need one or two questions to Redis, and a program waits 5 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const ENDPOINTS_WITHIN: Duration = Duration::from_secs(2);
/// Questions to Redis in [`ASKS_PER`]; one pod gets half. Further ones wait for [`SHARE_WITHIN`].
const ASKS: usize = 1000;
const ASKS_PER: Duration = Duration::from_secs(1);
const SHARE_RETRY: Duration = Duration::from_millis(20);
const SHARE_WITHIN: Duration = Duration::from_secs(3);
const WAITING_QUESTIONS: usize = 1024;
const DNS_CONNECTIONS: usize = 256;
const CONNECTIONS: usize = 16_384;
/// Decisions about one question: one each for an alias, a short name, a name, a slot and the endpoints, and
/// one for the addresses of all slots.
const MAX_ROUNDS: usize = 6;

pub struct Resolver {
    store: Store,
    interest: Interest,
    snapshot: watch::Receiver<Arc<RoutingSnapshot>>,
    gates: Arc<Gates>,
    forwarder: Forwarder,
    answers: Mutex<Answers>,
    pub(super) shares: NameShares,
}

pub(super) struct NameShares {
    /// Each question counts for [`ASKS_PER`].
    asks: Arc<Shares>,
    pub(super) waiting_questions: Arc<Shares>,
    pub(super) dns_connections: Arc<Shares>,
    pub(super) connections: Arc<Shares>,
    warned: LogLimit,
}

impl NameShares {
    fn new() -> Self {
        Self {
            asks: Shares::new(ASKS),
            waiting_questions: Shares::new(WAITING_QUESTIONS),
            dns_connections: Shares::new(DNS_CONNECTIONS),
            connections: Shares::new(CONNECTIONS),
            warned: LogLimit::default(),
        }
    }

    pub(super) fn note_refused(&self, client: IpAddr, what: &str) {
        if self.warned.admit(()) {
            tracing::warn!(
                "The pod at {client} has its share of the {what} of this host: further ones are refused, and those of \
                 other pods are not. `kubeleet pod ls` shows whose address it is."
            );
        }
    }
}

#[derive(Debug)]
struct AskedTooMuch;

struct Answers {
    addresses: Cache<AddressName, PoolAddress>,
    holders: Cache<PoolAddress, AddressName>,
    apps: Cache<ServiceName, AppName>,
}

struct KnownNames<'a> {
    answers: &'a Answers,
    snapshot: &'a RoutingSnapshot,
    unanswered: &'a HashSet<ServiceName>,
    now: Instant,
    /// Names whose kept answers were used; expired ones are asked for again.
    used: RefCell<Vec<AddressName>>,
}

impl Names for KnownNames<'_> {
    fn alias(&self, app: &AppName, name: &str) -> Option<ServiceName> {
        self.snapshot.routes.alias(app, name).cloned()
    }

    fn address(&self, name: &AddressName) -> NameLookup<PoolAddress> {
        let known = self.answers.addresses.get(name, self.now);
        if matches!(known, NameLookup::Found(_)) {
            self.used.borrow_mut().push(name.clone());
        }
        known
    }

    fn name_of(&self, address: PoolAddress) -> NameLookup<AddressName> {
        self.answers.holders.get(&address, self.now)
    }

    fn ready_slots(&self, service: &ServiceName) -> NameLookup<Vec<u32>> {
        let Some(endpoints) = self.snapshot.endpoints.get(service) else {
            let is_unanswered = self.unanswered.contains(service);
            return if is_unanswered { NameLookup::Unavailable } else { NameLookup::NotAsked };
        };
        let ready = endpoints.iter().filter(|endpoint| endpoint.state == EndpointState::Ready);
        // Two pods of a slot may be ready while one is being replaced.
        let slots: BTreeSet<u32> = ready.map(|endpoint| endpoint.replica).collect();
        NameLookup::Found(slots.into_iter().collect())
    }
}

impl Resolver {
    pub fn new(
        store: Store,
        interest: Interest,
        snapshot: watch::Receiver<Arc<RoutingSnapshot>>,
        gates: Arc<Gates>,
        forwarder: Forwarder,
    ) -> Self {
        let answers = Answers {
            addresses: Cache::new(FOUND_KEPT, MISSING_KEPT),
            holders: Cache::new(FOUND_KEPT, MISSING_KEPT),
            apps: Cache::new(FOUND_KEPT, FOUND_KEPT),
        };
        let shares = NameShares::new();
        Self { store, interest, snapshot, gates, forwarder, answers: Mutex::new(answers), shares }
    }

    pub(super) fn insert_saved(&self, known: Vec<(AddressName, PoolAddress)>) {
        let (mut answers, now) = (self.answers.lock(), Instant::now());
        for (name, address) in known {
            self.interest.want(&name.service);
            answers.holders.insert_saved(address, name.clone(), now);
            answers.addresses.insert_saved(name, address, now);
        }
    }

    pub(super) fn known_addresses(&self) -> Vec<(AddressName, PoolAddress)> {
        let answers = self.answers.lock();
        answers.addresses.found().map(|(name, address)| (name.clone(), *address)).collect()
    }

    pub(super) async fn answer(
        self: &Arc<Self>,
        request: &[u8],
        client: IpAddr,
        transport: QuestionTransport,
    ) -> Option<Vec<u8>> {
        // As a pod of no app, a container that has just started would be led to another app's service.
        let service = self.gates.service_of_caller(client).await;
        let app = match &service {
            Some(service) => self.app_of(service, client).await,
            None => Ok(NameLookup::Missing),
        };
        let Ok(app) = app else { return failure(request, transport) };
        let (app, may_be_of_app) = match &app {
            NameLookup::Found(app) => (Some(app), None),
            NameLookup::Missing => (None, None),
            NameLookup::NotAsked | NameLookup::Unavailable => (None, service.as_ref()),
        };
        let questioner = Questioner { app, may_be_of_app, transport, random: rand::random() };
        let mut unanswered = HashSet::new();
        for _ in 0..MAX_ROUNDS {
            match self.decide(request, client, &questioner, &unanswered) {
                QuestionDecision::Answer(answer) => return Some(answer),
                QuestionDecision::Ignore => return None,
                QuestionDecision::Forward => {
                    let answer = self.forwarder.forward(request, transport).await;
                    return answer.or_else(|| failure(request, transport));
                }
                QuestionDecision::Ask(needed) => {
                    let Ok(()) = self.ask(needed, client, &mut unanswered).await else { break };
                }
            }
        }
        failure(request, transport)
    }

    /// `None` if the answer needs Redis or the upstream resolver.
    pub(super) fn answer_at_once(
        self: &Arc<Self>,
        request: &[u8],
        client: IpAddr,
        transport: QuestionTransport,
    ) -> Option<Vec<u8>> {
        let app = match self.gates.service_at(client) {
            None if self.gates.may_become_known(client) => return None,
            None => None,
            Some(service) => match self.answers.lock().apps.get(&service, Instant::now()) {
                NameLookup::Found(app) => Some(app),
                NameLookup::Missing => None,
                NameLookup::NotAsked | NameLookup::Unavailable => return None,
            },
        };
        let questioner =
            Questioner { app: app.as_ref(), may_be_of_app: None, transport, random: rand::random() };
        match self.decide(request, client, &questioner, &HashSet::new()) {
            QuestionDecision::Answer(answer) => Some(answer),
            QuestionDecision::Ask(_) | QuestionDecision::Forward | QuestionDecision::Ignore => None,
        }
    }

    fn decide(
        self: &Arc<Self>,
        request: &[u8],
        client: IpAddr,
        questioner: &Questioner<'_>,
        unanswered: &HashSet<ServiceName>,
    ) -> QuestionDecision {
        let (snapshot, now) = (self.snapshot.borrow().clone(), Instant::now());
        let mut answers = self.answers.lock();
        let known =
            KnownNames { answers: &answers, snapshot: &snapshot, unanswered, now, used: RefCell::default() };
        let decision = decide(request, questioner, &known);
        let used = known.used.into_inner();
        for name in used.into_iter().filter(|name| answers.addresses.take_due(name, now)) {
            let resolver = self.clone();
            tokio::spawn(async move { resolver.ask_address(name, client).await });
        }
        decision
    }

    pub(super) async fn holder(
        self: &Arc<Self>,
        address: PoolAddress,
        client: IpAddr,
    ) -> Option<AddressName> {
        if self.answers.lock().holders.take_due(&address, Instant::now()) {
            let resolver = self.clone();
            tokio::spawn(async move { resolver.ask_holder(address, client).await });
        }
        let known = || self.answers.lock().holders.get(&address, Instant::now());
        if known() == NameLookup::NotAsked {
            self.ask_holder(address, client).await.ok()?;
        }
        match known() {
            NameLookup::Found(name) => Some(name),
            NameLookup::Missing | NameLookup::NotAsked | NameLookup::Unavailable => None,
        }
    }

    pub(super) fn want(&self, service: &ServiceName) {
        self.interest.want(service);
    }

    async fn app_of(
        &self,
        service: &ServiceName,
        client: IpAddr,
    ) -> Result<NameLookup<AppName>, AskedTooMuch> {
        if self.answers.lock().apps.get(service, Instant::now()) == NameLookup::NotAsked {
            self.wait_for_share(client).await?;
            let answer = self.within(self.store.app_of_service(service)).await;
            self.answers.lock().apps.set(service.clone(), answer, Instant::now());
        }
        Ok(self.answers.lock().apps.get(service, Instant::now()))
    }

    async fn wait_for_share(&self, client: IpAddr) -> Result<(), AskedTooMuch> {
        let end = Instant::now() + SHARE_WITHIN;
        loop {
            if let Ok(place) = self.shares.asks.take_fairly(client, usize::MAX) {
                tokio::spawn(async move {
                    sleep(ASKS_PER).await;
                    drop(place);
                });
                return Ok(());
            }
            if Instant::now() >= end {
                self.shares.note_refused(client, "questions about names of services");
                return Err(AskedTooMuch);
            }
            sleep(SHARE_RETRY).await;
        }
    }

    async fn ask(
        &self,
        needed: Vec<Needed>,
        client: IpAddr,
        unanswered: &mut HashSet<ServiceName>,
    ) -> Result<(), AskedTooMuch> {
        let (mut addresses, mut services) = (Vec::new(), Vec::new());
        for needed in needed {
            match needed {
                Needed::Address(name) => addresses.push(name),
                Needed::Holder(address) => self.ask_holder(address, client).await?,
                Needed::Endpoints(service) => services.push(service),
            }
        }
        let asked = addresses.into_iter().map(|name| self.ask_address(name, client));
        try_join_all(asked).await?;
        for service in services {
            if !self.wait_for_endpoints(&service).await {
                unanswered.insert(service);
            }
        }
        Ok(())
    }

    /// If the pod exceeds its share, caches nothing: another pod may ask.
    async fn ask_address(&self, name: AddressName, client: IpAddr) -> Result<(), AskedTooMuch> {
        self.wait_for_share(client).await?;
        let answer = match self.within(self.store.address(&name)).await {
            Ok(GivenAddress::Confirmed(address)) => Ok(Some(address)),
            Ok(GivenAddress::Missing) => Ok(None),
            Ok(GivenAddress::Unconfirmed) => Err(Unanswered),
            Ok(GivenAddress::Full) => {
                tracing::warn!(%name, "no address is free in the pool for services; its name is not resolved");
                Err(Unanswered)
            }
            Err(Unanswered) => Err(Unanswered),
        };
        if let Ok(Some(address)) = answer {
            // A connection to the address will follow, which needs the endpoints.
            self.want(&name.service);
            self.answers.lock().holders.set(address, Ok(Some(name.clone())), Instant::now());
        }
        self.answers.lock().addresses.set(name, answer, Instant::now());
        Ok(())
    }

    async fn ask_holder(&self, address: PoolAddress, client: IpAddr) -> Result<(), AskedTooMuch> {
        self.wait_for_share(client).await?;
        let answer = self.within(self.store.address_holder(address)).await;
        self.answers.lock().holders.set(address, answer, Instant::now());
        Ok(())
    }

    async fn wait_for_endpoints(&self, service: &ServiceName) -> bool {
        self.want(service);
        let mut snapshot = self.snapshot.clone();
        let known = snapshot.wait_for(|snapshot| snapshot.endpoints.contains_key(service));
        timeout(ENDPOINTS_WITHIN, known).await.is_ok_and(|known| known.is_ok())
    }

    async fn within<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, Unanswered> {
        match timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the records of a name cannot be read; the known ones stay");
                Err(Unanswered)
            }
            Err(_) => Err(Unanswered),
        }
    }
}

#[cfg(test)]
mod tests;
