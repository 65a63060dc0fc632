//! Follows the routes in Redis, and the endpoints of their services.
//!
//! A message is the difference to the previous version; after a gap all endpoints are read. While Redis is
//! away, the known ones are served; if they fail, the hosts are asked: see `doubts`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::backoff::Backoff;
use daemon::state_file::StateFile;
use model::ids::ServiceName;
use parking_lot::Mutex;
use store::{EndpointChange, Routing, Store, StoreError, Subscription, channel};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster_file;
use crate::doubts;
pub use crate::doubts::{Doubts, Hosts};
use crate::endpoint_set::{Applied, EndpointSet};
use crate::read_limit::ReadLimit;
use crate::read_pages::{ReadOutcome, read_endpoints};
use crate::route::RouteTable;
use crate::shared::FollowerShared;
use crate::snapshot::RoutingSnapshot;

const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// All proxies lose a master at the same moment.
const REREAD_SPREAD: Duration = Duration::from_secs(2);
/// Pages read in [`READS_PER`]: all proxies read again after a failover.
const READS: usize = 10;
/// For services without known endpoints, whose requests wait. Few proxies are new at the same time.
const FIRST_READS: usize = 200;
const READS_PER: Duration = Duration::from_secs(1);
const MAKING_LOOK: Duration = Duration::from_millis(500);
const MAX_KEPT_MESSAGES: usize = 10_000;
const COLLECT: Duration = Duration::from_millis(10);
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Interest(Arc<FollowerShared>);

impl Interest {
    /// Follows the service for an hour.
    pub fn want(&self, service: &ServiceName) {
        let mut wanted = self.0.wanted.lock();
        let now = Instant::now();
        match wanted.get_mut(service) {
            Some(asked) => *asked = now,
            None => {
                wanted.insert(service.clone(), now);
                self.0.wanted_more.notify_one();
            }
        }
    }
}

pub struct Follower {
    pub(crate) shared: Arc<FollowerShared>,
    snapshot: watch::Sender<Arc<RoutingSnapshot>>,
    file: Option<StateFile>,
    hosts: Option<Hosts>,
}

impl Follower {
    pub fn new(store: Store, file: Option<PathBuf>) -> (Self, watch::Receiver<Arc<RoutingSnapshot>>) {
        let file = file.map(|path| StateFile::new(path).private());
        let known = file.as_ref().map(cluster_file::read).unwrap_or_default();
        let routes = Arc::new(RouteTable::of(&known.routing));
        let (snapshot, receiver) = watch::channel(Arc::new(known.snapshot(routes)));
        let shared = FollowerShared {
            store,
            known: Mutex::new(known),
            changed: Notify::new(),
            wanted: Mutex::default(),
            wanted_more: Notify::new(),
            doubts: Mutex::default(),
            doubted: Notify::new(),
            check_due: Notify::new(),
            reads: ReadLimit::new(READS, READS_PER),
            first_reads: ReadLimit::new(FIRST_READS, READS_PER),
        };
        (Self { shared: Arc::new(shared), snapshot, file, hosts: None }, receiver)
    }

    pub fn asking(self, hosts: Hosts) -> Self {
        Self { hosts: Some(hosts), ..self }
    }

    pub fn doubts(&self) -> Doubts {
        Doubts(self.shared.clone())
    }

    pub fn interest(&self) -> Interest {
        Interest(self.shared.clone())
    }

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

async fn publish(shared: Arc<FollowerShared>, snapshot: watch::Sender<Arc<RoutingSnapshot>>) {
    let mut routing = shared.known.lock().routing.clone();
    let mut routes = snapshot.borrow().routes.clone();
    loop {
        shared.changed.notified().await;
        sleep(COLLECT).await;
        let known = shared.known.lock();
        if !Arc::ptr_eq(&known.routing, &routing) {
            routing = known.routing.clone();
            routes = Arc::new(RouteTable::of(&routing));
        }
        let next = known.snapshot(routes.clone());
        drop(known);
        snapshot.send_replace(Arc::new(next));
    }
}

async fn save(shared: Arc<FollowerShared>, file: StateFile) {
    let text = || cluster_file::text(&shared.known.lock());
    let loss = "a proxy that is restarted without Redis will not know the routes";
    file.keep(SAVE_INTERVAL, String::new(), text, loss).await;
}

struct Followed {
    look: Arc<Notify>,
    _end: DropGuard,
}

async fn follow_routes(shared: Arc<FollowerShared>) {
    let mut messages = shared.store.subscribe(channel::ROUTES);
    let mut services: BTreeMap<ServiceName, Followed> = BTreeMap::new();
    let mut backoff = Backoff::starting_at(Duration::from_millis(100));
    let mut check_at = Instant::now();
    loop {
        // Services from the file are followed as soon as Redis answers.
        follow_services(&shared, &mut services);
        let read = async {
            read_routes(&shared).await?;
            follow_services(&shared, &mut services);
            if Instant::now() >= check_at {
                check_versions(&shared, &services).await?;
                check_at = Instant::now() + CHECK_INTERVAL;
            }
            Ok::<(), StoreError>(())
        };
        match read.await {
            Ok(()) => {
                backoff.reset();
                tokio::select! {
                    _hint = messages.next() => {}
                    () = shared.wanted_more.notified() => {}
                    () = shared.check_due.notified() => {
                        check_at = check_at.min(Instant::now() + REREAD_SPREAD.mul_f64(rand::random()));
                    }
                    () = sleep_until(check_at) => {}
                }
            }
            Err(error) => {
                tracing::debug!(%error, "routes and versions cannot be read; the known ones stay");
                sleep(backoff.next()).await;
            }
        }
    }
}

async fn check_versions(
    shared: &FollowerShared,
    followed: &BTreeMap<ServiceName, Followed>,
) -> Result<(), StoreError> {
    let services: Vec<ServiceName> = followed.keys().cloned().collect();
    let versions = shared.store.endpoint_versions(&services).await?;
    let known = shared.known.lock();
    for (service, version) in services.iter().zip(&versions) {
        let known = known.sets.get(service).and_then(EndpointSet::version);
        if known.is_none() || known != version.as_ref() {
            followed[service].look.notify_one();
        }
    }
    Ok(())
}

async fn read_routes(shared: &FollowerShared) -> Result<(), StoreError> {
    let mut routing = shared.store.routing().await?;
    routing.routes.sort_by(|(a, left), (b, right)| (a, left.route()).cmp(&(b, right.route())));
    // An emptied Redis removes no routes and lifts no restrictions: its data will be recovered.
    let is_empty = routing == Routing::default() && *shared.known.lock().routing != routing;
    if is_empty && shared.store.cluster_id().await?.is_none() {
        return Ok(());
    }
    let is_changed = *shared.known.lock().routing != routing;
    if is_changed {
        shared.known.lock().routing = Arc::new(routing);
    }
    let services = shared.services();
    let mut known = shared.known.lock();
    let followed = known.sets.len();
    known.sets.retain(|service, _| services.contains(service));
    if is_changed || known.sets.len() != followed {
        shared.changed.notify_one();
    }
    Ok(())
}

fn follow_services(shared: &Arc<FollowerShared>, followed: &mut BTreeMap<ServiceName, Followed>) {
    let services = shared.services();
    followed.retain(|service, _| services.contains(service));
    for service in services {
        followed.entry(service.clone()).or_insert_with(|| {
            let (end, look) = (CancellationToken::new(), Arc::new(Notify::new()));
            let follow = follow_service(shared.clone(), service, look.clone());
            tokio::spawn(end.clone().run_until_cancelled_owned(follow));
            Followed { look, _end: end.drop_guard() }
        });
    }
}

async fn follow_service(shared: Arc<FollowerShared>, service: ServiceName, look: Arc<Notify>) {
    let mut messages = shared.store.subscribe(&channel::endpoints(&service));
    // Endpoints from the file wait for the next comparison of versions.
    let mut read_at = if is_known(&shared, &service) { None } else { Some(Instant::now()) };
    let mut backoff = Backoff::starting_at(Duration::from_millis(100));
    loop {
        tokio::select! {
            message = messages.next() => {
                match apply(&shared, &service, &message) {
                    MessageOutcome::Wait => {}
                    MessageOutcome::Compare => shared.check_due.notify_one(),
                    MessageOutcome::Read(wait) => read_at = sooner(read_at, Instant::now() + wait),
                }
            }
            () = look.notified() => read_at = sooner(read_at, Instant::now()),
            () = sleep_until(read_at.unwrap_or_else(Instant::now)), if read_at.is_some() => {
                read_at = match read_and_listen(&shared, &service, &mut messages).await {
                    Ok(next) => {
                        backoff.reset();
                        next.map(|wait| Instant::now() + wait)
                    }
                    Err(error) => {
                        tracing::debug!(%service, %error, "endpoints cannot be read; the known ones stay");
                        Some(Instant::now() + backoff.next())
                    }
                }
            }
        }
    }
}

/// Returns the delay until another read.
async fn read_and_listen(
    shared: &FollowerShared,
    service: &ServiceName,
    messages: &mut Subscription,
) -> Result<Option<Duration>, StoreError> {
    let limit = if is_known(shared, service) { &shared.reads } else { &shared.first_reads };
    let mut reading = pin!(read_endpoints(shared, service, limit));
    let mut kept = Vec::new();
    let outcome = loop {
        tokio::select! {
            outcome = &mut reading => break outcome?,
            message = messages.next() => {
                // The read may be of an earlier version, so messages are kept too.
                apply(shared, service, &message);
                if kept.len() >= MAX_KEPT_MESSAGES {
                    kept = vec![Bytes::new()];
                }
                kept.push(message);
            }
        }
    };
    if let ReadOutcome::Again = outcome {
        return Ok(Some(MAKING_LOOK.mul_f64(rand::random::<f64>() + 0.5)));
    }
    let mut read_again = None;
    for message in kept {
        match apply(shared, service, &message) {
            MessageOutcome::Wait => {}
            MessageOutcome::Compare => shared.check_due.notify_one(),
            MessageOutcome::Read(wait) => read_again = Some(wait),
        }
    }
    Ok(read_again)
}

enum MessageOutcome {
    Wait,
    Compare,
    Read(Duration),
}

fn apply(shared: &FollowerShared, service: &ServiceName, message: &[u8]) -> MessageOutcome {
    let mut known = shared.known.lock();
    let Some(set) = known.sets.get_mut(service).filter(|set| set.version().is_some()) else {
        return MessageOutcome::Read(Duration::ZERO);
    };
    let Some(change) = EndpointChange::parse(message) else { return MessageOutcome::Compare };
    match set.apply(change) {
        Applied::Changed => shared.changed.notify_one(),
        Applied::Old => {}
        Applied::Gap => return MessageOutcome::Read(REREAD_SPREAD.mul_f64(rand::random())),
    }
    MessageOutcome::Wait
}

fn is_known(shared: &FollowerShared, service: &ServiceName) -> bool {
    shared.known.lock().sets.get(service).is_some_and(|set| set.version().is_some())
}

fn sooner(known: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(known.map_or(other, |known| known.min(other)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use model::network::ingress::IngressRule;
    use store::LinkOptions;

    use crate::shared::WANTED_FOR;

    #[tokio::test(start_paused = true)]
    async fn services_are_followed_that_have_a_route_or_were_asked_for_within_the_hour() {
        let store = Store::new("redis://127.0.0.1:1".parse().unwrap(), LinkOptions::default());
        let (follower, _) = Follower::new(store, None);
        let routes = [("a.example/", "web 80"), ("tcp:1", "db 1"), ("b.example/", "web 80")];
        let routes = routes.map(|(route, target)| IngressRule::parse(route, target).unwrap());
        follower.shared.known.lock().routing =
            Arc::new(Routing { routes: routes.into(), ..Routing::default() });
        let services = || follower.shared.services().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(services(), ["db", "web"]);
        assert!(follower.shared.known.lock().snapshot(Arc::default()).endpoints.is_empty());
        let cache = ServiceName::new("cache").unwrap();
        follower.interest().want(&cache);
        assert_eq!(services(), ["cache", "db", "web"]);
        assert!(follower.shared.is_followed(&cache));
        tokio::time::advance(WANTED_FOR).await;
        assert_eq!(services(), ["db", "web"]);
    }
}
