//! Keeps what this proxy knows of the cluster: the routes, and the endpoints of the services that they lead to.
//!
//! Changes come as messages, and each message is the difference to the version before. A proxy that misses one reads all
//! endpoints of that service again; every [`CHECK_INTERVAL`] the version is compared in any case. While Redis is away,
//! what was known last is served.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::backoff::Backoff;
use common::ids::ServiceName;
use common::store::{EndpointChange, FollowedEndpoints, Routes, Store, StoreError, channel};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::endpoint_set::{Applied, EndpointSet};
use crate::known_file;
use crate::route::RouteTable;
use crate::snapshot::Snapshot;

/// Between two looks at the routes, and at the version of a service's endpoints, when no message arrives.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Endpoints that were known before are read again after a random part of this: all proxies lose their connections to a
/// master at the same moment.
const REREAD_SPREAD: Duration = Duration::from_secs(2);
/// The most reads of endpoints in this time, of one proxy.
const READS: usize = 10;
const READS_PER: Duration = Duration::from_secs(1);
/// What changes within this time becomes one snapshot,
const COLLECT: Duration = Duration::from_millis(10);
/// and what changes within this time is saved at once.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// What is known of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) routes: Routes,
    pub(crate) sets: BTreeMap<ServiceName, EndpointSet>,
}

impl Known {
    /// The services that have a route.
    fn services(&self) -> BTreeSet<ServiceName> {
        self.routes.iter().map(|(service, _)| service.clone()).collect()
    }

    fn snapshot(&self) -> Snapshot {
        let endpoints = self.sets.iter().map(|(name, set)| (name.clone(), set.iter().cloned().collect()));
        Snapshot { routes: RouteTable::new(self.routes.clone()), endpoints: endpoints.collect() }
    }
}

/// What the tasks of a follower share.
struct Shared {
    store: Store,
    known: Mutex<Known>,
    changed: Notify,
    /// Each read of endpoints takes one, which comes back [`READS_PER`] later.
    reads: Arc<Semaphore>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows routes and endpoints.
pub struct Follower {
    shared: Arc<Shared>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    file: Option<PathBuf>,
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
            reads: Arc::new(Semaphore::new(READS)),
        };
        (Self { shared: Arc::new(shared), snapshot, file }, receiver)
    }

    /// Follows until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { shared, snapshot, file } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(publish(shared.clone(), snapshot));
        if let Some(file) = file {
            tasks.spawn(save(shared.clone(), file));
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
    let mut saved = String::new();
    let mut is_logged = false;
    loop {
        sleep(SAVE_INTERVAL).await;
        let text = known_file::text(&shared.lock());
        if text == saved {
            continue;
        }
        let (path, content) = (file.clone(), text.clone());
        let written = tokio::task::spawn_blocking(move || known_file::write(&path, &content)).await;
        match written {
            Ok(Ok(())) => (saved, is_logged) = (text, false),
            Ok(Err(error)) if !is_logged => {
                is_logged = true;
                tracing::warn!(
                    "{} cannot be written: {error}; a proxy that is restarted without Redis will not know the routes",
                    file.display()
                );
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// Follows the routes, and the endpoints of each service that has one.
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
    let mut routes = shared.store.routes().await?;
    routes.sort_by(|(a, left), (b, right)| (a, left.route()).cmp(&(b, right.route())));
    // A Redis that lost everything, and knows no cluster, unroutes nothing: what it knew will be recovered.
    if routes.is_empty() && !shared.lock().routes.is_empty() && shared.store.cluster_id().await?.is_none() {
        return Ok(());
    }
    let mut known = shared.lock();
    if known.routes != routes {
        known.routes = routes;
        let services = known.services();
        known.sets.retain(|service, _| services.contains(service));
        shared.changed.notify_one();
    }
    Ok(())
}

/// Begins to follow services that have a route, and ends it for those that have none any more.
fn follow_services(shared: &Arc<Shared>, followed: &mut BTreeMap<ServiceName, DropGuard>) {
    let routed = shared.lock().services();
    followed.retain(|service, _| routed.contains(service));
    for service in routed {
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
    if let Ok(permit) = shared.reads.clone().acquire_owned().await {
        tokio::spawn(async move {
            sleep(READS_PER).await;
            drop(permit);
        });
    }
    let known = shared.lock().sets.get(service).and_then(|set| set.version().cloned());
    let followed = shared.store.follow_endpoints(service, known.as_ref()).await?;
    if let FollowedEndpoints::All { version, endpoints } = followed {
        let mut known = shared.lock();
        // It may have lost its route meanwhile.
        if known.routes.iter().any(|(routed, _)| routed == service) {
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

    #[test]
    fn a_snapshot_has_the_endpoints_of_routed_services() {
        let routes = [("a.example/", "web 80"), ("tcp:1", "db 1"), ("b.example/", "web 80")];
        let routes = routes.map(|(route, target)| IngressRule::parse(route, target).unwrap());
        let known = Known { routes: routes.into(), sets: BTreeMap::new() };
        let services: Vec<String> = known.services().iter().map(ToString::to_string).collect();
        assert_eq!(services, ["db", "web"]);
        assert!(known.snapshot().endpoints.is_empty());
    }
}
