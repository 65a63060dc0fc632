//! The ingress of one host reaches the pods of another through the tunnel between their proxies.

use std::net::{Ipv4Addr, TcpListener};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, Timing};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::SOON;
use crate::handover::{free_ports, service};

/// Restarts of the pod while requests come.
const RESTARTS: u64 = 5;

fn free_address() -> String {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().to_string()
}

/// Sends a line through a port of the ingress, and returns whether it came back.
async fn comes_back(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"hello\n").await?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await?;
    Ok(answer == "hello\n")
}

async fn restart(http: &Http, number: u64) {
    http.send(Method::POST, "/service/web/restart", None).await;
    eventually_within(3 * SOON, &format!("restart {number} is done"), || async {
        let service = http.get("/service/web").await;
        let is_new = service["generation"].as_u64() > Some(number) && service["status"]["updated"] == 1;
        check(is_new && service["status"]["running"] == 1, || service["status"].to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ingress_of_one_host_reaches_a_pod_of_another_and_drops_nothing_when_it_is_replaced() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let (here, there) = (cluster.folder().join("here"), cluster.folder().join("there"));
    let addresses = [free_address(), free_address(), free_address()];
    let [ingress, tunnel_here, tunnel_there] = addresses.each_ref().map(String::as_str);
    let mut proxies = [
        cluster
            .proxy(&here, &[("KUBELEET_INGRESS_LISTEN", ingress), ("KUBELEET_TUNNEL_LISTEN", tunnel_here)]),
        cluster
            .proxy(&there, &[("KUBELEET_INGRESS_LISTEN", "off"), ("KUBELEET_TUNNEL_LISTEN", tunnel_there)]),
    ];
    let socket = |host: &std::path::Path| host.join("proxy.sock").display().to_string();
    let of_worker = [("KUBELEET_PROXY_SOCKET", socket(&there))];
    let of_worker = of_worker.each_ref().map(|(name, value)| (*name, value.as_str()));
    let _worker = cluster.worker_with("there", "process", &of_worker);
    // Without pods: the proxy beside the ingress has a node as well.
    let of_other = [("KUBELEET_PROXY_SOCKET", socket(&here))];
    let of_other = of_other.each_ref().map(|(name, value)| (*name, value.as_str()));
    let _other = cluster.worker_with("here", "process", &of_other);
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

    let sending = tokio::spawn(async move {
        let (mut answered, mut failed) = (0_u64, 0_u64);
        loop {
            match comes_back(port).await {
                Ok(true) => answered += 1,
                Ok(false) | Err(_) => failed += 1,
            }
            tokio::task::yield_now().await;
            if STOP.load(std::sync::atomic::Ordering::Relaxed) {
                return (answered, failed);
            }
        }
    });
    for number in 1..=RESTARTS {
        restart(&http, number).await;
    }
    STOP.store(true, std::sync::atomic::Ordering::Relaxed);
    let (answered, failed) = sending.await.unwrap();
    assert!(failed == 0 && answered > 10, "{answered} answered, {failed} failed");
    // Its host's proxy is gone: nothing else reaches the pod.
    proxies[1].kill();
    assert!(!matches!(comes_back(port).await, Ok(true)));
}

/// Ends the sender.
static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
