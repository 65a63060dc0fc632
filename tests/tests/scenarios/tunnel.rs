//! The ingress of one host reaches the pods of another through the tunnel between their proxies.

use std::net::Ipv4Addr;
use std::path::Path;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::handover::{free_ports, service};
use crate::{SOON, free_address};

const RESTARTS: u64 = 5;

pub(crate) async fn comes_back(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"hello\n").await?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await?;
    Ok(answer == "hello\n")
}

pub(crate) async fn restart(http: &Http, number: u64) {
    http.send(Method::POST, "/service/web/restart", None).await;
    eventually_within(3 * SOON, &format!("restart {number} is done"), || async {
        let service = http.get("/service/web").await;
        let is_new = service["generation"].as_u64() > Some(number) && service["status"]["updated"] == 1;
        check(is_new && service["status"]["running"] == 1, || service["status"].to_string())
    })
    .await;
}

pub(crate) struct TwoHosts {
    pub(crate) cluster: Cluster,
    pub(crate) api: DaemonProcess,
    pub(crate) proxies: [DaemonProcess; 2],
    pub(crate) port: u16,
    _others: [DaemonProcess; 3],
}

impl TwoHosts {
    /// Each proxy reports to the socket in `notified` that it serves.
    pub(crate) async fn start(notified: [&Path; 2]) -> Self {
        let cluster = Cluster::new(ClusterTiming::Short).await;
        let (api, scheduler) = (cluster.api().await, cluster.scheduler());
        let (here, there) = (cluster.folder().join("here"), cluster.folder().join("there"));
        let (ingress, tunnels) = (free_address(), [free_address(), free_address()]);
        let [here_notified, there_notified] = notified.map(|path| path.to_str().unwrap());
        let of_here = [
            ("KUBELEET_INGRESS_LISTEN", ingress.as_str()),
            ("KUBELEET_TUNNEL_LISTEN", tunnels[0].as_str()),
            ("NOTIFY_SOCKET", here_notified),
        ];
        let of_there = [
            ("KUBELEET_INGRESS_LISTEN", "off"),
            ("KUBELEET_TUNNEL_LISTEN", tunnels[1].as_str()),
            ("NOTIFY_SOCKET", there_notified),
        ];
        let proxies = [cluster.proxy(&here, &of_here), cluster.proxy(&there, &of_there)];
        let others = [scheduler, worker(&cluster, "there", &there), worker(&cluster, "here", &here)];
        let http = api.http();
        http.nodes_ready(2).await;
        let cordon = format!("/node/{}/cordon", cluster.node("here"));
        http.send(Method::POST, &cordon, None).await;

        let (pod_port, port) = (free_ports(), free_ports());
        let mut web: Value = service(pod_port);
        web["replicas"] = json!(1);
        web["ingress"] = json!([{"tcp": port, "port": pod_port}]);
        http.post("/service", &web).await;
        http.runs(SOON, "web", 1).await;
        let pods = http.pods("service=web").await;
        assert_eq!(pods[0]["node"].as_str(), Some(cluster.node("there").as_str()), "{pods:?}");
        eventually_within(SOON, "the pod of the other host answers", || async {
            check(matches!(comes_back(port).await, Ok(true)), || "it does not".to_owned())
        })
        .await;
        Self { cluster, api, proxies, port, _others: others }
    }

    pub(crate) fn send_without_pause(&self) -> Sending {
        let (stop, port) = (CancellationToken::new(), self.port);
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut counts = (0, 0);
            while !stopped.is_cancelled() {
                match comes_back(port).await {
                    Ok(true) => counts.0 += 1,
                    Ok(false) | Err(_) => counts.1 += 1,
                }
                tokio::task::yield_now().await;
            }
            counts
        });
        Sending { stop, task }
    }
}

pub(crate) struct Sending {
    stop: CancellationToken,
    task: JoinHandle<(u64, u64)>,
}

impl Sending {
    pub(crate) async fn stop(self) -> (u64, u64) {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

fn worker(cluster: &Cluster, short: &str, host: &Path) -> DaemonProcess {
    let socket = host.join("proxy.sock").display().to_string();
    cluster.worker_with(short, "process", &[("KUBELEET_PROXY_SOCKET", &socket)])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ingress_of_one_host_reaches_a_pod_of_another_and_drops_nothing_when_it_is_replaced() {
    let _lock = beside_others().await;
    let mut hosts = TwoHosts::start([Path::new("/dev/null"); 2]).await;
    let sending = hosts.send_without_pause();
    for number in 1..=RESTARTS {
        restart(&hosts.api.http(), number).await;
    }
    let (answered, failed) = sending.stop().await;
    assert!(failed == 0 && answered > 10, "{answered} answered, {failed} failed");
    hosts.proxies[1].kill();
    assert!(!matches!(comes_back(hosts.port).await, Ok(true)));
}
