//! Keeps what this proxy knows of the cluster: the routes, and the endpoints of the services that they lead to.
//!
//! Changes come as messages, and each message is the difference to the version before. A proxy that misses one reads all
//! endpoints of that service again; every [`CHECK_INTERVAL`] the version is compared in any case. While Redis is away,
//! what was known last is served; if that leads to no pod, the hosts are asked: see `doubts`.

mod doubts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::backoff::Backoff;
use common::ids::ServiceName;
use common::store::{
    EndpointChange, EndpointVersion, FollowedEndpoints, Routing, Store, StoreError, channel,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::endpoint_set::{Applied, EndpointSet};
use crate::known_file;
use crate::route::RouteTable;
use crate::snapshot::Snapshot;
use crate::turns::Turns;

pub use doubts::Doubts;
pub(crate) use doubts::Hosts;

/// Between two looks at the routes, and at the version of a service's endpoints, when no message arrives.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Endpoints that were known before are read again after a random part of this: all proxies lose their connections to a
/// master at the same moment.
const REREAD_SPREAD: Duration = Duration::from_secs(2);
/// The most reads of endpoints in this time, of one proxy.
const READS: usize = 10;
const READS_PER: Duration = Duration::from_secs(1);
/// How long a service is followed that no route leads to, after a pod has asked for it.
const WANTED_FOR: Duration = Duration::from_secs(60 * 60);
/// What changes within this time becomes one snapshot,
const COLLECT: Duration = Duration::from_millis(10);
/// and what changes within this time is saved at once.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// What is known of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) routing: Routing,
    pub(crate) sets: BTreeMap<ServiceName, EndpointSet>,
}

impl Known {
    fn snapshot(&self) -> Snapshot {
        let endpoints = self.sets.iter().map(|(name, set)| (name.clone(), set.iter().cloned().collect()));
        Snapshot { routes: RouteTable::of(self.routing.clone()), endpoints: endpoints.collect() }
    }
}

/// What the tasks of a follower share.
struct Shared {
    store: Store,
    known: Mutex<Known>,
    changed: Notify,
    /// Services that pods have asked for, and when they did last.
    wanted: Mutex<HashMap<ServiceName, Instant>>,
    is_wanted: Notify,
    /// Services of which what is known has led to no pod, and the version at which it did first.
    doubts: Mutex<HashMap<ServiceName, Option<EndpointVersion>>>,
    is_doubted: Notify,
    reads: Turns,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wanted(&self) -> MutexGuard<'_, HashMap<ServiceName, Instant>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doubts(&self) -> MutexGuard<'_, HashMap<ServiceName, Option<EndpointVersion>>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_followed(&self, service: &ServiceName) -> bool {
        self.wanted().contains_key(service)
            || self.lock().routing.routes.iter().any(|(routed, _)| routed == service)
    }

    /// Returns the services to be followed: those that have a route, and those that pods ask for.
    fn services(&self) -> BTreeSet<ServiceName> {
        let mut wanted = self.wanted();
        let now = Instant::now();
        wanted.retain(|_, asked| now.duration_since(*asked) < WANTED_FOR);
        let mut services: BTreeSet<ServiceName> = wanted.keys().cloned().collect();
        drop(wanted);
        services.extend(self.lock().routing.routes.iter().map(|(service, _)| service.clone()));
        services
    }
}

/// Makes a follower follow services that no route leads to.
#[derive(Clone)]
pub(crate) struct Interest(Arc<Shared>);

impl Interest {
    /// Follows a service for an hour from now on.
    pub(crate) fn want(&self, service: &ServiceName) {
        let mut wanted = self.0.wanted();
        let now = Instant::now();
        match wanted.get_mut(service) {
            Some(asked) => *asked = now,
            None => {
                wanted.insert(service.clone(), now);
                self.0.is_wanted.notify_one();
            }
        }
    }
}

/// Follows routes and endpoints.
pub struct Follower {
    shared: Arc<Shared>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    file: Option<PathBuf>,
    hosts: Option<Hosts>,
}

impl Follower {
    /// Returns a follower, and what it knows: at first what `file` has from the process before.
    pub fn new(store: Store, file: Option<PathBuf>) -> (Self, watch::Receiver<Arc<Snapshot>>) {
        let known = file.as_deref().map(known_file::read).unwrap_or_default();
        let (snapshot, receiver) = watch::channel(Arc::new(known.snapshot()));
        let shared = Shared {
            store,
            known: Mutex::new(known),
            changed: Notify::new(),
            wanted: Mutex::default(),
            is_wanted: Notify::new(),
            doubts: Mutex::default(),
            is_doubted: Notify::new(),
            reads: Turns::new(READS, READS_PER),
        };
        (Self { shared: Arc::new(shared), snapshot, file, hosts: None }, receiver)
    }

    /// Makes it ask the hosts when Redis does not answer. Else what is known then is all.
    pub(crate) fn asking(self, hosts: Hosts) -> Self {
        Self { hosts: Some(hosts), ..self }
    }

    /// Returns what is told when what is known has led to no pod.
    pub(crate) fn doubts(&self) -> Doubts {
        Doubts(self.shared.clone())
    }

    /// Returns what makes it follow more services.
    pub(crate) fn interest(&self) -> Interest {
        Interest(self.shared.clone())
    }

    /// Follows until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { shared, snapshot, file, hosts } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(publish(shared.clone(), snapshot));
        if let Some(file) = file {
            tasks.spawn(save(shared.clone(), file));
        }
        if let Some(hosts) = hosts {
            tasks.spawn(doubts::settle(shared.clone(), hosts));
        }
        tasks.spawn(follow_routes(shared));
        shutdown.cancelled().await;
        tasks.shutdown().await;
    }
}

/// Makes a snapshot after changes.
async fn publish(shared: Arc<Shared>, snapshot: watch::Sender<Arc<Snapshot>>) {
    loop {
        shared.changed.notified().await;
        sleep(COLLECT).await;
        let next = shared.lock().snapshot();
        snapshot.send_replace(Arc::new(next));
    }
}

/// Saves what is known, for the process after this one.
async fn save(shared: Arc<Shared>, file: PathBuf) {
    let text = || known_file::text(&shared.lock());
    known_file::keep(file, SAVE_INTERVAL, String::new(), text, "will not know the routes").await;
}

/// Follows the routes, and the endpoints of each service that has one or that pods ask for.
async fn follow_routes(shared: Arc<Shared>) {
    let mut messages = shared.store.subscribe(channel::ROUTES);
    let mut services: BTreeMap<ServiceName, DropGuard> = BTreeMap::new();
    let mut backoff = Backoff::starting_at(Duration::from_millis(100));
    loop {
        // Those that are known from before are followed as soon as Redis answers.
        follow_services(&shared, &mut services);
        match read_routes(&shared).await {
            Ok(()) => {
                backoff.reset();
                follow_services(&shared, &mut services);
                tokio::select! {
                    _hint = messages.next() => {}
                    () = shared.is_wanted.notified() => {}
                    () = sleep(CHECK_INTERVAL) => {}
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the routes cannot be read: those that are known stay");
                sleep(backoff.next()).await;
            }
        }
    }
}

async fn read_routes(shared: &Shared) -> Result<(), StoreError> {
    let mut routing = shared.store.routing().await?;
    routing.routes.sort_by(|(a, left), (b, right)| (a, left.route()).cmp(&(b, right.route())));
    // A Redis that lost everything, and knows no cluster, unroutes nothing, and opens nothing: what it knew will be recovered.
    let is_empty = routing == Routing::default() && shared.lock().routing != routing;
    if is_empty && shared.store.cluster_id().await?.is_none() {
        return Ok(());
    }
    let is_changed = std::mem::replace(&mut shared.lock().routing, routing.clone()) != routing;
    let services = shared.services();
    let mut known = shared.lock();
    let followed = known.sets.len();
    known.sets.retain(|service, _| services.contains(service));
    if is_changed || known.sets.len() != followed {
        shared.changed.notify_one();
    }
    Ok(())
}

/// Begins to follow services, and ends it for those that are not to be followed any more.
fn follow_services(shared: &Arc<Shared>, followed: &mut BTreeMap<ServiceName, DropGuard>) {
    let services = shared.services();
    followed.retain(|service, _| services.contains(service));
    for service in services {
        followed.entry(service.clone()).or_insert_with(|| {
            let end = CancellationToken::new();
            let follow = follow_service(shared.clone(), service);
            tokio::spawn(end.clone().run_until_cancelled_owned(follow));
            end.drop_guard()
        });
    }
}

/// Follows the endpoints of one service.
async fn follow_service(shared: Arc<Shared>, service: ServiceName) {
    let mut messages = shared.store.subscribe(&channel::endpoints(&service));
    let mut read_at = Instant::now();
    let mut backoff = Backoff::starting_at(Duration::from_millis(100));
    loop {
        tokio::select! {
            message = messages.next() => {
                if !apply(&shared, &service, &message) {
                    read_at = read_at.min(Instant::now() + wait_before_reread(&shared, &service));
                }
            }
            () = sleep_until(read_at) => {
                shared.reads.wait().await;
                match read_endpoints(&shared, &service).await {
                    Ok(()) => {
                        backoff.reset();
                        read_at = Instant::now() + CHECK_INTERVAL;
                    }
                    Err(error) => {
                        tracing::debug!(%service, %error, "endpoints cannot be read: those that are known stay");
                        read_at = Instant::now() + backoff.next();
                    }
                }
            }
        }
    }
}

/// Applies a message. Returns false if the endpoints have to be read.
fn apply(shared: &Shared, service: &ServiceName, message: &[u8]) -> bool {
    let Some(change) = EndpointChange::parse(message) else { return false };
    let mut known = shared.lock();
    let applied = known.sets.get_mut(service).map_or(Applied::Gap, |set| set.apply(change));
    if applied == Applied::Changed {
        shared.changed.notify_one();
    }
    applied != Applied::Gap
}

/// A service of which nothing is known is read at once.
fn wait_before_reread(shared: &Shared, service: &ServiceName) -> Duration {
    let is_known = shared.lock().sets.get(service).is_some_and(|set| set.version().is_some());
    if is_known { REREAD_SPREAD.mul_f64(rand::random()) } else { Duration::ZERO }
}

async fn read_endpoints(shared: &Shared, service: &ServiceName) -> Result<(), StoreError> {
    let known = shared.lock().sets.get(service).and_then(|set| set.version().cloned());
    let followed = shared.store.follow_endpoints(service, known.as_ref()).await?;
    if let FollowedEndpoints::All { version, endpoints } = followed {
        // It may have lost its route meanwhile.
        if shared.is_followed(service) {
            let mut known = shared.lock();
            known.sets.entry(service.clone()).or_default().replace(version, endpoints);
            shared.changed.notify_one();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use common::ingress::IngressRule;
    use common::store::LinkOptions;

    #[tokio::test(start_paused = true)]
    async fn services_are_followed_that_have_a_route_or_were_asked_for_within_the_hour() {
        let store = Store::new("redis://127.0.0.1:1".parse().unwrap(), LinkOptions::default());
        let (follower, _) = Follower::new(store, None);
        let routes = [("a.example/", "web 80"), ("tcp:1", "db 1"), ("b.example/", "web 80")];
        let routes = routes.map(|(route, target)| IngressRule::parse(route, target).unwrap());
        follower.shared.lock().routing.routes = routes.into();
        let services = || follower.shared.services().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(services(), ["db", "web"]);
        assert!(follower.shared.lock().snapshot().endpoints.is_empty());
        let cache = ServiceName::new("cache").unwrap();
        follower.interest().want(&cache);
        assert_eq!(services(), ["cache", "db", "web"]);
        assert!(follower.shared.is_followed(&cache));
        tokio::time::advance(WANTED_FOR).await;
        assert_eq!(services(), ["db", "web"]);
    }
}
