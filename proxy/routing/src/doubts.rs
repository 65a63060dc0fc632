//! Checks services whose known endpoints led to no pod: in Redis, or at the hosts' proxies if it does not
//! answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gate::workers::Workers;
use model::ids::{NodeName, ServiceName};
use store::{EndpointReading, EndpointVersion, FollowedEndpoints};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tunnel::{MAX_SERVICES, ServedPod, TunnelDialer};

use crate::read_pages::read_pages;
use crate::shared::FollowerShared;

/// A message on its way may settle a doubt, as refusals by a just closed gate are ordinary.
const MESSAGE_WITHIN: Duration = Duration::from_millis(100);
const REDIS_WITHIN: Duration = Duration::from_millis(300);
const HOST_WITHIN: Duration = Duration::from_secs(2);
const BELIEVED_FOR: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub struct Doubts(pub(crate) Arc<FollowerShared>);

impl Doubts {
    pub fn note(&self, service: &ServiceName) {
        let version = || self.0.known.lock().sets.get(service).and_then(|set| set.version().cloned());
        let mut doubts = self.0.doubts.lock();
        if !doubts.contains_key(service) {
            doubts.insert(service.clone(), version());
            self.0.doubted.notify_one();
        }
    }
}

pub struct Hosts {
    pub others: Option<Arc<TunnelDialer>>,
    pub own: Arc<Workers>,
}

pub(crate) async fn settle(shared: Arc<FollowerShared>, hosts: Hosts) {
    let mut is_silent = false;
    let mut believed: HashMap<ServiceName, Instant> = HashMap::new();
    let mut readings = JoinSet::new();
    loop {
        shared.doubted.notified().await;
        sleep(MESSAGE_WITHIN).await;
        believed.retain(|_, heard_at| heard_at.elapsed() < BELIEVED_FOR);
        let mut services = doubted(&shared);
        services.retain(|service| !believed.contains_key(service));
        while readings.try_join_next().is_some() {}
        let answered = read(&shared, &services, &mut readings).await;
        believed.extend(answered.iter().map(|service| (service.clone(), Instant::now())));
        services.retain(|service| !answered.contains(service));
        if services.is_empty() {
            is_silent &= answered.is_empty();
            continue;
        }
        if !std::mem::replace(&mut is_silent, true) {
            tracing::warn!("Redis does not answer, and the known pods refuse: asking the hosts for pods");
        }
        ask(&shared, &hosts, &services).await;
        believed.extend(services.into_iter().map(|service| (service, Instant::now())));
    }
}

fn doubted(shared: &FollowerShared) -> BTreeSet<ServiceName> {
    let doubts = std::mem::take(&mut *shared.doubts.lock());
    let known = shared.known.lock();
    let version = |service: &ServiceName| known.sets.get(service).and_then(|set| set.version());
    let doubts = doubts.into_iter().filter(|(service, before)| version(service) == before.as_ref());
    doubts.map(|(service, _)| service).take(MAX_SERVICES).collect()
}

/// Asks until a question fails. Returns the answered services.
async fn read(
    shared: &Arc<FollowerShared>,
    services: &BTreeSet<ServiceName>,
    readings: &mut JoinSet<()>,
) -> BTreeSet<ServiceName> {
    let mut answered = BTreeSet::new();
    for service in services {
        let before = shared.known.lock().sets.get(service).and_then(|set| set.version().cloned());
        let followed = shared.store.follow_endpoints(service, before.as_ref());
        match timeout(REDIS_WITHIN, followed).await {
            Ok(Ok(followed)) => {
                answered.insert(service.clone());
                if let FollowedEndpoints::Changed(reading) = followed {
                    readings.spawn(finish(shared.clone(), service.clone(), before, reading));
                }
            }
            Ok(Err(_)) | Err(_) => break,
        }
    }
    answered
}

/// Ahead of services whose endpoints may be unchanged.
async fn finish(
    shared: Arc<FollowerShared>,
    service: ServiceName,
    before: Option<EndpointVersion>,
    reading: EndpointReading,
) {
    let read = read_pages(&shared, &service, before.as_ref(), reading, &shared.first_reads).await;
    if let Err(error) = read {
        tracing::debug!(%service, %error, "endpoints cannot be read; the known ones stay");
    }
}

async fn ask(shared: &FollowerShared, hosts: &Hosts, services: &BTreeSet<ServiceName>) {
    let heard = |nodes: BTreeSet<NodeName>, served: Vec<ServedPod>| hear(shared, services, &nodes, served);
    heard(hosts.own.nodes(), hosts.own.serving(services));
    if let Some(others) = &hosts.others {
        others.ask_hosts(services, HOST_WITHIN, heard).await;
    }
}

fn hear(
    shared: &FollowerShared,
    services: &BTreeSet<ServiceName>,
    nodes: &BTreeSet<NodeName>,
    served: Vec<ServedPod>,
) {
    let mut by_service: HashMap<ServiceName, Vec<_>> = HashMap::new();
    for (service, endpoint) in served {
        by_service.entry(service).or_default().push(endpoint);
    }
    for service in services.iter().filter(|service| shared.is_followed(service)) {
        let endpoints = by_service.remove(service).unwrap_or_default();
        shared.known.lock().sets.entry(service.clone()).or_default().hear(nodes, endpoints);
    }
    shared.changed.notify_one();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::{Ipv4Addr, SocketAddr};

    use gate::Gates;
    use gate::fixtures::local_pod;
    use model::network::endpoint::{Endpoint, EndpointState};
    use model::network::handover::LocalPod;
    use model::network::ingress::IngressRule;
    use store::{EndpointVersion, LinkOptions, Routing, Store};
    use testkit::eventually;
    use testkit::redis::Redis;
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use tokio_util::sync::{CancellationToken, DropGuard};
    use tunnel::{Peer, Peers, ProxyKey, TunnelListener};

    use super::*;
    use crate::endpoint_set::EndpointSet;
    use crate::follow::Follower;
    use crate::snapshot::RoutingSnapshot;

    fn web() -> ServiceName {
        ServiceName::new("web").unwrap()
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn workers(node: &NodeName, pods: &[(&str, bool)]) -> Arc<Workers> {
        let workers = Workers::new(Arc::new(Gates::default()));
        let row = |&(name, ready): &(&str, bool)| LocalPod { service: Some(web()), ready, ..local_pod(name) };
        workers.insert_saved(vec![(node.clone(), pods.iter().map(row).collect())]);
        Arc::new(workers)
    }

    fn endpoint(name: &str, node: &NodeName) -> Endpoint {
        let LocalPod { pod, assignment, replica, .. } = local_pod(name);
        Endpoint { pod, replica, node: node.clone(), assignment, state: EndpointState::Ready }
    }

    async fn another_host(node: &NodeName, pods: &[(&str, bool)]) -> (TunnelDialer, DropGuard) {
        let (here, there) = (ProxyKey::generate().unwrap(), ProxyKey::generate().unwrap());
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let only = |node: &NodeName, peer| {
            let peers = Arc::new(Peers::default());
            peers.set(HashMap::from([(node.clone(), peer)]));
            peers
        };
        let known = only(node, Peer { address: any, fingerprint: here.fingerprint() });
        let socket = Arc::new(TcpListener::bind(any).await.unwrap());
        let listener = TunnelListener::on(socket, &there, known, workers(node, pods)).unwrap();
        let peer = Peer { address: listener.address().unwrap(), fingerprint: there.fingerprint() };
        let stop = CancellationToken::new();
        tokio::spawn(listener.run(stop.clone()));
        (TunnelDialer::new(Arc::new(here), only(node, peer)), stop.drop_guard())
    }

    async fn silent_redis() -> (TcpListener, String) {
        let redis = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("redis://{}", redis.local_addr().unwrap());
        (redis, url)
    }

    /// With an outdated pod on each of two hosts.
    async fn follower(
        url: &str,
        asks: bool,
    ) -> (watch::Receiver<Arc<RoutingSnapshot>>, Doubts, (DropGuard, DropGuard)) {
        let (own, other) = (node("w1"), node("w2"));
        let store = Store::new(url.parse().unwrap(), LinkOptions::default());
        let (follower, snapshot) = Follower::new(store, None);
        let version = EndpointVersion { version: 7, master: "0".to_owned() };
        let known = vec![endpoint("old", &own), endpoint("old2", &other)];
        {
            let mut shared = follower.shared.known.lock();
            let routes = vec![IngressRule::parse("web.example/", "web 80").unwrap()];
            shared.routing = Arc::new(Routing { routes, ..Routing::default() });
            shared.sets.insert(web(), EndpointSet::saved(version, known, false));
        }
        let (dialer, host) = another_host(&other, &[("new2", true), ("starts", false)]).await;
        let (doubts, shutdown) = (follower.doubts(), CancellationToken::new());
        let hosts = Hosts { others: Some(Arc::new(dialer)), own: workers(&own, &[("new", true)]) };
        let follower = if asks { follower.asking(hosts) } else { follower };
        tokio::spawn(follower.run(shutdown.clone()));
        (snapshot, doubts, (host, shutdown.drop_guard()))
    }

    fn pods(snapshot: &RoutingSnapshot) -> Vec<(String, EndpointState)> {
        let endpoints = snapshot.endpoints.get(&web()).into_iter().flat_map(|all| all.iter());
        endpoints.map(|one| (one.pod.to_string(), one.state)).collect()
    }

    #[tokio::test]
    async fn without_redis_the_hosts_say_which_pods_serve() {
        let (_redis, url) = silent_redis().await;
        let (mut snapshot, doubts, _running) = follower(&url, true).await;
        doubts.note(&web());
        let wanted = [
            ("new".to_owned(), EndpointState::Ready),
            ("new2".to_owned(), EndpointState::Ready),
            ("starts".to_owned(), EndpointState::Running),
        ];
        let all = snapshot.wait_for(|snapshot| pods(snapshot) == wanted);
        timeout(Duration::from_secs(20), all).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn without_asking_what_was_known_stays() {
        let (_redis, url) = silent_redis().await;
        let (mut snapshot, doubts, _running) = follower(&url, false).await;
        doubts.note(&web());
        assert!(timeout(Duration::from_secs(2), until_told(&mut snapshot)).await.is_err());
    }

    async fn until_told(snapshot: &mut watch::Receiver<Arc<RoutingSnapshot>>) {
        let is_told = |snapshot: &Arc<RoutingSnapshot>| pods(snapshot).iter().any(|(pod, _)| pod == "new");
        snapshot.wait_for(is_told).await.unwrap();
    }

    async fn doubt_until_told(doubts: &Doubts, snapshot: &mut watch::Receiver<Arc<RoutingSnapshot>>) {
        tokio::select! {
            () = until_told(snapshot) => {}
            () = async {
                loop {
                    doubts.note(&web());
                    sleep(Duration::from_millis(20)).await;
                }
            } => {}
        }
    }

    #[tokio::test]
    async fn hosts_are_asked_once_in_a_while_while_redis_is_away() {
        let (_redis, url) = silent_redis().await;
        let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let peer = Peer {
            address: host.local_addr().unwrap(),
            fingerprint: ProxyKey::generate().unwrap().fingerprint(),
        };
        let peers = Arc::new(Peers::default());
        peers.set(HashMap::from([(node("w2"), peer)]));
        let dialer = Arc::new(TunnelDialer::new(Arc::new(ProxyKey::generate().unwrap()), peers));
        let store = Store::new(url.parse().unwrap(), LinkOptions::default());
        let (follower, _snapshot) = Follower::new(store, None);
        let doubts = follower.doubts();
        let own = workers(&node("w1"), &[]);
        tokio::spawn(follower.asking(Hosts { others: Some(dialer), own }).run(CancellationToken::new()));
        let mut asked = 0;
        let asking = async {
            loop {
                drop(host.accept().await.unwrap());
                asked += 1;
            }
        };
        let doubting = async {
            loop {
                doubts.note(&web());
                sleep(Duration::from_millis(20)).await;
            }
        };
        let both = async { tokio::join!(asking, doubting) };
        assert!(timeout(2 * BELIEVED_FOR, both).await.is_err());
        assert!((1..=3).contains(&asked), "{asked} times");
    }

    #[tokio::test]
    async fn no_host_is_asked_before_redis_stops_to_answer() {
        testkit::need_redis!();
        let redis = Redis::start().await;
        let (mut snapshot, doubts, _running) = follower(&redis.url(), true).await;
        eventually::eventually("the service is followed", async || {
            let count: u64 = redis.cli(&["EXISTS", "ep:web"]).await;
            eventually::check(count == 1, || "there is no ep:web".to_owned())
        })
        .await;
        let told = timeout(Duration::from_secs(3), doubt_until_told(&doubts, &mut snapshot)).await;
        assert!(told.is_err(), "a host was asked");
        redis.freeze();
        let told = timeout(Duration::from_secs(20), doubt_until_told(&doubts, &mut snapshot)).await;
        assert!(told.is_ok(), "no host was asked");
    }
}
