//! Pods reach services by name, asking the proxy of their host.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::{DaemonProcess, binary};
use kubeleet_tests::docker::Docker;
use kubeleet_tests::exclusive::{beside_others, exclusive};
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};
use testkit::require;

use crate::handover::{free_ports, service};
use crate::{SOON, free_address};

const PORT: u16 = 8000;
/// On a busy disk, a container takes longer to listen than the default wait of 10 s.
const POD_WAIT: &str = "60s";
const RESTARTS: u64 = 3;

struct Hosts {
    http: Http,
    tool: String,
    here: DaemonProcess,
    _daemons: Vec<DaemonProcess>,
    cluster: Cluster,
    /// Dropped last: live workers would start their containers again.
    docker: Docker,
}

impl Hosts {
    async fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            require::skipped("netns", "the rules of a host take the right of root");
            return None;
        }
        let cluster = Cluster::new(ClusterTiming::Short).await;
        let docker = Docker::find(&cluster.prefix).await?;
        docker.make_greeter_image(Path::new(env!("CARGO_BIN_EXE_greeter"))).await;
        docker.make_resolving_image("kubeleet-test/names:1", &[]).await;
        let (api, scheduler) = (cluster.api().await, cluster.scheduler());
        let (here, there) = (cluster.folder().join("here"), cluster.folder().join("there"));
        let (tunnel_here, tunnel_there) = (free_address(), free_address());
        let proxy_here = cluster.proxy(
            &here,
            &[
                ("KUBELEET_INGRESS_LISTEN", "off"),
                ("KUBELEET_TUNNEL_LISTEN", &tunnel_here),
                ("KUBELEET_NAMES", "true"),
                ("KUBELEET_POD_WAIT", POD_WAIT),
            ],
        );
        let proxy_there = cluster
            .proxy(&there, &[("KUBELEET_INGRESS_LISTEN", "off"), ("KUBELEET_TUNNEL_LISTEN", &tunnel_there)]);
        let socket = |host: &Path| host.join("proxy.sock").display().to_string();
        let (socket_here, socket_there) = (socket(&here), socket(&there));
        let worker_here =
            cluster.worker_with("here", "docker", &[("KUBELEET_PROXY_SOCKET", socket_here.as_str())]);
        let worker_there =
            cluster.worker_with("there", "process", &[("KUBELEET_PROXY_SOCKET", socket_there.as_str())]);
        let http = api.http();
        http.nodes_ready(2).await;
        eventually_within(SOON, "containers are to reach services by name", || async {
            check(worker_here.log().contains("new containers reach services by name"), || {
                format!("{}\n{}", worker_here.log(), proxy_here.log())
            })
        })
        .await;
        let daemons = vec![api, scheduler, proxy_there, worker_here, worker_there];
        let tool = String::new();
        let mut hosts = Self { cluster, docker, http, tool, here: proxy_here, _daemons: daemons };
        hosts.only_on("here").await;
        let waits = "trap 'exit 0' TERM; sleep 86400 & wait $!";
        hosts
            .post(json!({
                "name": "shop-tool", "app": "shop", "image": "kubeleet-test/names:1",
                "command": ["/bin/bash", "-c", waits], "pull_policy": "never",
            }))
            .await;
        hosts.tool = hosts.container_of("shop-tool").await;
        Some(hosts)
    }

    async fn post(&self, service: Value) {
        self.http.post("/service", &service).await;
        let replicas = service["replicas"].as_u64().unwrap_or(1);
        self.http.runs(SOON, service["name"].as_str().unwrap(), replicas).await;
    }

    async fn only_on(&self, host: &str) {
        for other in ["here", "there"] {
            let action = if other == host { "uncordon" } else { "cordon" };
            let path = format!("/node/{}/{action}", self.cluster.node(other));
            self.http.send(Method::POST, &path, None).await;
        }
    }

    async fn container_of(&self, service: &str) -> String {
        let containers = self.docker.containers().await;
        let is_of_service = |labels: &std::collections::HashMap<String, String>| {
            labels.get("kubeleet.service").is_some_and(|name| name == service)
        };
        containers.into_iter().find(|one| one.running && is_of_service(&one.labels)).unwrap().name
    }

    async fn run(&self, line: &str) -> String {
        self.docker.exec(&self.tool, &["/bin/bash", "-c", line]).await
    }

    async fn greeting(&self, name: &str) -> String {
        let request = format!(
            "exec 3<>/dev/tcp/{name}/{PORT} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 90 cat <&3"
        );
        self.run(&request).await.lines().last().unwrap_or_default().to_owned()
    }

    async fn answers(&self, name: &str) {
        eventually_within(SOON, &format!("{name} answers"), || async {
            let greeting = self.greeting(name).await;
            check(greeting.starts_with("hello from "), || format!("{greeting:?}"))
        })
        .await;
    }

    async fn net_check(&self, target: &str) -> (bool, String) {
        let mut command = tokio::process::Command::new(binary());
        command.args(["net", "check", target]);
        command.env("KUBELEET_PROXY_SOCKET", self.cluster.folder().join("here").join("proxy.sock"));
        let output = command.output().await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    async fn address(&self, name: &str) -> Option<Ipv4Addr> {
        let said = self.run(&format!("getent ahostsv4 {name}")).await;
        said.split_whitespace().next().and_then(|address| address.parse().ok())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_services_and_slots_of_any_host_by_name_and_nothing_else_of_a_host() {
    let _lock = beside_others().await;
    let _host = exclusive("names").await;
    let Some(hosts) = Hosts::new().await else { return };
    let hello = json!({
        "name": "web", "replicas": 2, "image": "kubeleet-test/greeter:1", "pull_policy": "never",
    });
    hosts.post(hello.clone()).await;
    let mut db = hello;
    (db["name"], db["app"], db["replicas"]) = (json!("shop-db"), json!("shop"), json!(1));
    hosts.post(db).await;
    hosts.only_on("there").await;
    let first_port = free_ports();
    let mut far: Value = service(first_port);
    (far["name"], far["replicas"]) = (json!("far"), json!(1));
    hosts.post(far).await;
    hosts.only_on("here").await;

    hosts.answers("web").await;
    let address = hosts.address("web").await.unwrap();
    assert_eq!(address.octets()[0], 198, "{address}");
    // A pod that was slow to accept once is asked less for some seconds.
    let mut greetings = BTreeSet::new();
    let until = Instant::now() + 2 * SOON;
    while greetings.len() < 2 {
        greetings.insert(hosts.greeting("web").await);
        assert!(Instant::now() < until, "only one of two pods is reached: {greetings:?}");
    }
    let (is_well, said) = hosts.net_check(&format!("web:{PORT}")).await;
    assert!(is_well && said.contains("a pod answered"), "{said}");
    let (is_well, said) = hosts.net_check("nothing").await;
    assert!(!is_well && said.contains("FAIL  nothing: no address"), "{said}");
    only_those_that_are_allowed(&hosts).await;
    let slots = [hosts.greeting("0.web").await, hosts.greeting("1.web.kubeleet").await];
    assert_eq!(BTreeSet::from(slots), greetings);
    assert_eq!(hosts.greeting("0.web").await, hosts.greeting("0.web").await);
    hosts.answers("db").await;
    assert_eq!(hosts.address("db").await, hosts.address("shop-db").await);
    aliases_lead_to_their_service(&hosts).await;
    let echo = format!("exec 3<>/dev/tcp/far/{first_port} && echo hi >&3 && timeout 20 head -n 1 <&3");
    eventually_within(SOON, "the pod of the other host answers", || async {
        let said = hosts.run(&echo).await;
        check(said == "hi\n", || format!("{said:?}"))
    })
    .await;
    assert_eq!(hosts.address("nothing").await, None);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let host_port = listener.local_addr().unwrap().port();
    let route = hosts.run("cat /proc/net/route").await;
    let gateway = gateway_of(&route);
    for target in
        [format!("{gateway}/{host_port}"), format!("{gateway}/7054"), "169.254.169.254/80".to_owned()]
    {
        let said = hosts.run(&format!("timeout 2 bash -c '</dev/tcp/{target}' 2>&1 && echo reached")).await;
        assert!(!said.contains("reached"), "{target}: {said}");
    }
    let pod = hosts.http.pods("service=web").await[0]["address"].as_str().unwrap().to_owned();
    let said = hosts.run(&format!("timeout 2 bash -c '</dev/tcp/{pod}/{PORT}' 2>&1 && echo reached")).await;
    assert!(!said.contains("reached"), "{pod}: {said}");

    let asking = async {
        let mut answered = 0;
        loop {
            let greeting = hosts.greeting("db").await;
            assert!(greeting.starts_with("hello from "), "after {answered}: {greeting:?}");
            answered += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = asking => {}
        () = restarts(&hosts.http) => {}
    }

    hosts.cluster.redis.freeze();
    for name in ["web", "db", "0.web"] {
        let greeting = hosts.greeting(name).await;
        assert!(greeting.starts_with("hello from "), "{name}: {greeting:?}");
    }
    hosts.cluster.redis.thaw();
    assert!(!hosts.here.log().contains("panicked"));
}

async fn only_those_that_are_allowed(hosts: &Hosts) {
    let pods = hosts.http.pods("service=web").await;
    for (allowed, is_let_in) in [(json!(["other"]), false), (json!(["shop-tool"]), true), (json!([]), false)]
    {
        hosts.http.send(Method::PATCH, "/service/web", Some(&json!({"allow_from": allowed}))).await;
        for name in ["web", "1.web"] {
            eventually_within(SOON, &format!("{name} with allow_from {allowed}"), || async {
                let greeting = hosts.greeting(name).await;
                check(greeting.starts_with("hello from ") == is_let_in, || format!("{greeting:?}"))
            })
            .await;
        }
    }
    hosts.http.send(Method::PATCH, "/service/web", Some(&json!({"allow_from": null}))).await;
    hosts.answers("web").await;
    let ids = |pods: &[Value]| pods.iter().map(|pod| pod["uuid"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&hosts.http.pods("service=web").await), ids(&pods));
}

async fn aliases_lead_to_their_service(hosts: &Hosts) {
    assert_eq!(hosts.address("database").await, None);
    let aliases = json!({"aliases": ["database", "db.internal"]});
    hosts.http.send(Method::PATCH, "/service/shop-db", Some(&aliases)).await;
    for name in ["database", "database.kubeleet", "db.internal"] {
        hosts.answers(name).await;
    }
}

async fn restarts(http: &Http) {
    for number in 1..=RESTARTS {
        http.send(Method::POST, "/service/shop-db/restart", None).await;
        eventually_within(3 * SOON, &format!("restart {number} is done"), || async {
            let service = http.get("/service/shop-db").await;
            let is_new = service["generation"].as_u64() > Some(number) && service["status"]["updated"] == 1;
            check(is_new && service["status"]["running"] == 1, || service["status"].to_string())
        })
        .await;
    }
}

fn gateway_of(route: &str) -> Ipv4Addr {
    let default = route.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let gateway = default.into_iter().find(|fields| fields.get(1) == Some(&"00000000")).unwrap()[2];
    Ipv4Addr::from(u32::from_str_radix(gateway, 16).unwrap().to_le_bytes())
}
