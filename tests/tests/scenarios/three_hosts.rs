//! Three hosts with an engine each: their pods reach services and slots of all of them by name, and nothing
//! else.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use engine::docker::sample_image::Recipe;
use kubeleet_tests::docker::Docker;
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::hosts::{Host, Neighbour, TestHosts};
use kubeleet_tests::http::Http;
use kubeleet_tests::{ClusterTiming, DaemonProcess};
use reqwest::Method;
use rustix::process::{Pid, Signal};
use serde_json::json;
use testkit::eventually::{check, eventually_within};
use testkit::{ChildGuard, require};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use crate::SOON;

const PORT: u16 = 8000;
const PUBLISHED: u16 = 8001;
const PORTS_OF_THE_PROXY: [u16; 4] = [7053, 7054, 8080, 7079];
const PORT_OF_TUNNELS: u16 = 7079;
const PORTS_OF_THE_CLUSTER: [u16; 2] = [6379, 7070];
const RESOLVER: &str = "198.18.0.1";
/// The credentials server of clouds.
const METADATA: &str = "169.254.169.254";
/// Only the upstream resolver knows it.
const ELSEWHERE: (&str, [u8; 4]) = ("elsewhere.example", [192, 0, 2, 7]);
/// `CAP_NET_RAW`, as in `linux/capability.h`.
const NET_RAW: u64 = 1 << 13;
/// The programs of `scripts/install names`.
const PROGRAMS: [&str; 3] = ["musl-gcc", "dig", "curl"];

struct Fixture {
    http: Http,
    glibc: (String, Pid),
    musl: String,
    _upstream: JoinSet<()>,
    _servers: Vec<ChildGuard>,
    _daemons: Vec<DaemonProcess>,
    redis: ChildGuard,
    engines: Vec<Docker>,
    neighbour: Neighbour,
    hosts: TestHosts,
}

impl Fixture {
    async fn start() -> Option<Self> {
        if let Some(missing) = PROGRAMS.into_iter().find(|program| path_of(program).is_none()) {
            require::skipped("names", &format!("{missing} is not installed: scripts/install names"));
            return None;
        }
        let hosts = TestHosts::start(3).await?;
        let neighbour = hosts.neighbour().await;
        let upstream = start_upstream(hosts.machine()).await;
        let first = hosts.host(0);
        let redis = start_redis(first);
        let url = format!("redis://{}:6379", first.address());
        let start =
            |host: &Host, command: &str| host.start_daemon(command, &url, ClusterTiming::Default, &[]);
        let mut daemons = vec![start(first, "api"), start(first, "scheduler")];
        let (mut proxies, mut workers) = (Vec::new(), Vec::new());
        let (mut servers, mut engines) = (Vec::new(), Vec::new());
        for host in hosts.all() {
            if host.name() != first.name() {
                host.exec(&format!("ip route add default via {}", hosts.machine()));
            }
            resolves_with(host, hosts.machine());
            let server = Path::new(env!("CARGO_BIN_EXE_greeter"));
            let mut command = host.command(&server.display().to_string());
            servers.push(ChildGuard::spawn(&mut command).expect("the server can be started"));
            engines.push(Docker::at(&host.docker_host(), host.name()).await);
            engines.last().unwrap().make_greeter_image(server).await;
            proxies.push(start(host, "proxy"));
            workers.push(start(host, "worker"));
        }
        make_client_images(&engines[0], first.folder()).await;
        let http = Http::new(&format!("http://{}:7070", first.address())).with_token("test");
        http.nodes_ready(3).await;
        is_told_of_the_route_that_it_lacks(first, &proxies[0]).await;
        for worker in &workers {
            eventually_within(SOON, "containers are to reach services by name", || async {
                let log = worker.whole_log();
                check(log.contains("new containers reach services by name"), || log.clone())
            })
            .await;
        }
        daemons.extend(proxies.into_iter().chain(workers));
        let mut fixture = Self {
            http,
            glibc: (String::new(), Pid::INIT),
            musl: String::new(),
            _upstream: upstream,
            _servers: servers,
            _daemons: daemons,
            redis,
            engines,
            neighbour,
            hosts,
        };
        fixture.create_services().await;
        Some(fixture)
    }

    async fn create_services(&mut self) {
        let greeter = |name: &str| json!({"name": name, "image": "kubeleet-test/greeter:1", "pull_policy": "never", "stop_grace_period": 1});
        // One pod of a host has the port.
        let mut web = greeter("web");
        (web["replicas"], web["ports"]) = (json!(3), json!([format!("{PUBLISHED}:{PORT}")]));
        self.http.post("/service", &web).await;
        self.http.runs(SOON, "web", 3).await;
        self.only_on("h2").await;
        let mut db = greeter("shop-db");
        (db["app"], db["aliases"]) = (json!("shop"), json!(["database", "db.internal"]));
        self.http.post("/service", &db).await;
        self.http.runs(SOON, "shop-db", 1).await;
        self.only_on("h3").await;
        let mut far = greeter("far");
        far["replicas"] = json!(2);
        self.http.post("/service", &far).await;
        self.http.runs(SOON, "far", 2).await;
        self.only_on("h1").await;
        let waits = "trap 'exit 0' TERM; sleep 86400 & wait $!";
        for (name, command) in
            [("shop-glibc", json!(["/bin/bash", "-c", waits])), ("shop-musl", json!(["/client"]))]
        {
            let mut client = greeter(name);
            (client["app"], client["command"]) = (json!("shop"), command);
            client["image"] = json!(format!("kubeleet-test/{name}:1"));
            self.http.post("/service", &client).await;
            self.http.runs(SOON, name, 1).await;
        }
        let containers = self.engines[0].containers().await;
        let leaders = self.engines[0].with_leaders().await;
        let of_service = |service: &str| {
            containers.iter().find(|container| container.label("kubeleet.service") == service).unwrap()
        };
        let (glibc, musl) = (of_service("shop-glibc"), of_service("shop-musl"));
        let (_, leader) =
            leaders.iter().find(|(running, _)| running.pod == glibc.label("kubeleet.pod")).unwrap();
        self.glibc = (glibc.name.clone(), *leader);
        self.musl = musl.name.clone();
    }

    async fn only_on(&self, host: &str) {
        for other in self.hosts.all().iter().map(Host::name) {
            let action = if other == host { "uncordon" } else { "cordon" };
            self.http.send(Method::POST, &format!("/node/{other}/{action}"), None).await;
        }
    }

    async fn run(&self, line: &str) -> String {
        self.engines[0].exec(&self.glibc.0, &["/bin/bash", "-c", line]).await
    }

    /// From curl and a plain client with glibc, and a plain one with musl.
    async fn greetings(&self, name: &str) -> [String; 3] {
        let raw = format!("exec 3<>/dev/tcp/{name}/{PORT} && echo hello >&3 && timeout 20 cat <&3");
        let curl = format!("curl --silent --show-error --max-time 20 http://{name}:{PORT}/ 2>&1");
        let request = "GET / HTTP/1.0\r\n\r\n";
        let musl = ["/client", name, &PORT.to_string(), request];
        let said = tokio::join!(self.run(&curl), self.run(&raw), self.engines[0].exec(&self.musl, &musl),);
        [said.0, said.1, said.2].map(|said| said.lines().last().unwrap_or_default().to_owned())
    }

    async fn answers(&self, name: &str) -> BTreeSet<String> {
        eventually_within(SOON, &format!("{name} answers all clients"), || async {
            let said = self.greetings(name).await;
            check(said.iter().all(|one| one.starts_with("hello from ")), || format!("{said:?}"))?;
            Ok::<_, String>(said.into())
        })
        .await
    }

    async fn pods_on(&self, host: &str) -> Vec<String> {
        let pods = self.http.pods("").await;
        let of_host = pods.iter().filter(|pod| pod["node"] == host);
        of_host.map(|pod| pod["address"].as_str().unwrap().to_owned()).collect()
    }

    fn dig(&self, options: &str, questions: &[&str]) -> Vec<Answer> {
        let target = self.glibc.1.as_raw_nonzero().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &target, "--net", "dig"]).args(options.split(' '));
        command.args(["+noall", "+comments", "+answer", "+tries=2", "+time=5"]);
        command.args(questions.iter().flat_map(|question| question.split(' ')));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<_> = text.split("->>HEADER<<-").skip(1).map(Answer::read).collect();
        assert_eq!(answers.len(), questions.len(), "{options}: {text}");
        answers
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: String,
    records: BTreeSet<String>,
    has_edns: bool,
    /// A record says how long "no" may be kept.
    has_authority: bool,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (_, status) = text.split_once("status: ").unwrap();
        let records = text.lines().skip(1).filter(|line| !line.starts_with(';'));
        let records = records.filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            (words.len() > 4).then(|| words[3..].join(" "))
        });
        Self {
            status: status.split(',').next().unwrap().to_owned(),
            records: records.collect(),
            has_edns: text.contains("EDNS: version: 0"),
            has_authority: text.contains("AUTHORITY: 1"),
        }
    }

    fn of<const COUNT: usize>(records: [String; COUNT]) -> (String, BTreeSet<String>) {
        ("NOERROR".to_owned(), records.into())
    }

    fn address(&self) -> &str {
        let address = self.records.first().and_then(|record| record.strip_prefix("A "));
        address.filter(|_| self.records.len() == 1).unwrap_or_else(|| panic!("{self:?}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_three_hosts_reach_each_other_by_name_only_and_a_neighbour_reaches_none() {
    let _lock = beside_others().await;
    let Some(fixture) = Fixture::start().await else { return };
    services_and_slots_of_all_hosts_answer(&fixture).await;
    every_kind_of_question_is_answered(&fixture);
    nothing_else_is_reached_from_a_pod(&fixture).await;
    redis_and_the_api_of_another_host_are_closed(&fixture).await;
    a_neighbour_reaches_no_pod(&fixture).await;
    packets_cannot_be_forged_in_a_container(&fixture).await;
    without_redis_a_name_that_was_never_asked_for_fails(&fixture).await;
    without_its_rules_a_host_is_open(&fixture).await;
}

async fn services_and_slots_of_all_hosts_answer(fixture: &Fixture) {
    let pods = fixture.http.pods("service=web").await;
    let nodes: BTreeSet<_> = pods.iter().filter_map(|pod| pod["node"].as_str()).collect();
    assert_eq!(nodes, BTreeSet::from(["h1", "h2", "h3"]));
    let mut slots = BTreeSet::new();
    for slot in ["0.web", "1.web.kubeleet", "2.web"] {
        let container = fixture.answers(slot).await;
        assert_eq!(container.len(), 1, "{slot}: {container:?}");
        slots.extend(container);
    }
    assert_eq!(slots.len(), 3, "{slots:?}");
    assert!(fixture.answers("web").await.is_subset(&slots));
    let far = fixture.answers("far").await;
    let mut members = fixture.answers("0.far.kubeleet").await;
    members.extend(fixture.answers("1.far").await);
    assert!(members.len() == 2 && far.is_subset(&members), "{members:?}: {far:?}");
    for name in ["database", "db.internal", "shop-db"] {
        assert_eq!(fixture.answers(name).await, fixture.answers("db").await, "{name}");
    }
}

fn every_kind_of_question_is_answered(fixture: &Fixture) {
    let direct = format!("@{RESOLVER}");
    let names =
        ["web", "0.web", "1.web", "2.web", "0.far", "shop-db"].map(|name| format!("{name}.kubeleet A"));
    let found = fixture.dig(&direct, &names.each_ref().map(String::as_str));
    let [web, zero, one, two, far, db] = [0, 1, 2, 3, 4, 5].map(|index: usize| found[index].address());
    assert_eq!(BTreeSet::from([web, zero, one, two, far, db]).len(), 6, "{found:?}");
    let a = |address: &str| format!("A {address}");
    let elsewhere = Ipv4Addr::from(ELSEWHERE.1).to_string();
    let nothing = || ("NXDOMAIN".to_owned(), BTreeSet::new());
    let slots = ["0", "1", "2"].map(|slot| format!("SRV 0 1 {PORT} {slot}.web.kubeleet."));
    let soa = "SOA resolver.kubeleet. resolver.kubeleet. 1 2 2 2 2".to_owned();
    let (port, name_elsewhere) = (format!("_{PORT}._tcp.web.kubeleet SRV"), format!("{} A", ELSEWHERE.0));
    let (of_service, of_slot) = (format!("-x {web}"), format!("-x {far}"));
    let expected = [
        ("web A", Answer::of([a(web)])),
        ("web.kubeleet A", Answer::of([a(web)])),
        ("0.far.kubeleet A", Answer::of([a(far)])),
        ("all.web.kubeleet A", Answer::of([a(zero), a(one), a(two)])),
        (&port, Answer::of(slots)),
        (&of_service, Answer::of(["PTR web.kubeleet.".to_owned()])),
        (&of_slot, Answer::of(["PTR 0.far.kubeleet.".to_owned()])),
        ("kubeleet SOA", Answer::of([soa])),
        ("web.kubeleet AAAA", Answer::of([])),
        ("0.far.kubeleet AAAA", Answer::of([])),
        ("nothing.kubeleet A", nothing()),
        ("nothing.kubeleet AAAA", nothing()),
        ("2.far.kubeleet A", nothing()),
        ("db.kubeleet A", Answer::of([a(db)])),
        ("database.kubeleet A", Answer::of([a(db)])),
        ("db.internal A", Answer::of([a(db)])),
        (&name_elsewhere, Answer::of([a(&elsewhere)])),
    ];
    let questions = expected.each_ref().map(|(question, _)| *question);
    let ways = ["+notcp +noedns", "+notcp +edns=0", "+tcp +noedns", "+tcp +edns=0"];
    let ways = ways.map(|way| (format!("{direct} {way}"), way.ends_with("+edns=0")));
    for (way, has_edns) in ways {
        for (answer, (question, expected)) in fixture.dig(&way, &questions).into_iter().zip(&expected) {
            assert_eq!((answer.status.clone(), answer.records.clone()), *expected, "{way} {question}");
            let is_ours = *question != name_elsewhere;
            assert_eq!(answer.has_edns, has_edns && is_ours, "{way} {question}");
            assert_eq!(answer.has_authority, answer.records.is_empty(), "{way} {question}");
        }
    }
    // The engine's resolver passes on no name of one label.
    for way in ["@127.0.0.11 +notcp", "@127.0.0.11 +tcp"] {
        let of_two_labels = expected.iter().filter(|(question, _)| *question != "web A");
        let (questions, expected): (Vec<_>, Vec<_>) = of_two_labels.cloned().unzip();
        for (answer, expected) in fixture.dig(way, &questions).into_iter().zip(expected) {
            assert_eq!((answer.status, answer.records), expected, "{way}: {questions:?}");
        }
    }
}

async fn nothing_else_is_reached_from_a_pod(fixture: &Fixture) {
    let [first, second, third] = [0, 1, 2].map(|index| fixture.hosts.host(index));
    for (host, other) in [(first, second), (first, third), (second, first), (third, first)] {
        let (to, via) = (other.networks(), other.address());
        host.exec(&format!("ip route add {to} via {via}"));
    }
    second.exec(&format!("ip addr add {METADATA}/32 dev eth0"));
    first.exec(&format!("ip route add {METADATA} via {}", second.address()));
    let mut closed = vec![format!("{METADATA}/{PORT}")];
    assert_eq!(reached(&first.exec(&knock(&closed))), closed, "from the host itself");

    let find = "while read -r _ to via _; do [ $to = 00000000 ] && echo $via; done </proc/net/route";
    let gateway = fixture.run(find).await;
    let gateway = u32::from_str_radix(gateway.trim(), 16).unwrap().to_le_bytes();
    let gateway = Ipv4Addr::from(gateway).to_string();
    for address in [gateway.as_str(), first.address()] {
        let ports = [&[PORT, PUBLISHED][..], &PORTS_OF_THE_PROXY, &PORTS_OF_THE_CLUSTER].concat();
        closed.extend(ports.iter().map(|port| format!("{address}/{port}")));
    }
    for host in ["h1", "h2", "h3"] {
        closed.extend(fixture.pods_on(host).await.iter().map(|pod| format!("{pod}/{PORT}")));
    }
    // This proxy learns of the other hosts' proxies after a while.
    closed.extend([second, third].map(|host| format!("{}/{PORT_OF_TUNNELS}", host.address())));
    let open = [format!("{}/{PORT}", second.address())];
    eventually_within(SOON, "a pod reaches the port of another machine, and no more", || async {
        let said = fixture.run(&knock(&[&closed[..], &open].concat())).await;
        let found: Vec<_> = said.lines().map(str::to_owned).collect();
        check(found == open, || format!("{found:?}"))
    })
    .await;
    for (chain, what) in [
        ("KUBELEET-FROM-PODS", "a host's rule for metadata"),
        ("KUBELEET-HOST", "a host's rule for its own ports"),
    ] {
        assert!(refused_by(first, chain) > 0, "{what} was not used");
    }
    for host in [second, third] {
        assert!(refused_by(host, "KUBELEET-TO-PODS") > 0, "no packet came to {}", host.name());
    }
}

async fn redis_and_the_api_of_another_host_are_closed(fixture: &Fixture) {
    let first = fixture.hosts.host(0).address().to_owned();
    let (_, leader) = fixture.engines[1].with_leaders().await.remove(0);
    let leader = leader.as_raw_nonzero().to_string();
    let at_first = |port: &u16| format!("{first}/{port}");
    let closed: Vec<_> = PORTS_OF_THE_CLUSTER.iter().chain([&PORT_OF_TUNNELS]).map(at_first).collect();
    let open = at_first(&PORT);
    let line = knock(&[&closed[..], std::slice::from_ref(&open)].concat());
    eventually_within(SOON, "a pod reaches what is open for all, and no more", || async {
        let mut command = Command::new("nsenter");
        let output = command.args(["--target", &leader, "--net", "bash", "-c", &line]).output().unwrap();
        let found = reached(&output);
        check(found == [open.as_str()], || format!("{found:?}"))
    })
    .await;
}

async fn a_neighbour_reaches_no_pod(fixture: &Fixture) {
    let first = fixture.hosts.host(0);
    let exec = |line: &str| fixture.neighbour.exec(line);
    for to in [first.networks(), "198.18.0.0/15"] {
        exec(&format!("ip route add {to} via {}", first.address()));
    }
    let pods = fixture.pods_on("h1").await;
    let gateway = format!("{}.1", pods[0].rsplit_once('.').unwrap().0);
    let service = fixture.dig(&format!("@{RESOLVER}"), &["web.kubeleet A"])[0].address().to_owned();
    let mut closed: Vec<_> = pods.iter().map(|pod| format!("{pod}/{PORT}")).collect();
    closed.extend([7053, 7054].map(|port| format!("{gateway}/{port}")));
    closed.extend([7053, 7054, 8080, PUBLISHED].map(|port| format!("{}/{port}", first.address())));
    closed.extend([format!("{service}/{PORT}"), format!("{RESOLVER}/53")]);
    // kubeleet does not close these: Redis has a password, and the API a token.
    let open: Vec<_> = [PORT, 6379, 7070].iter().map(|port| format!("{}/{port}", first.address())).collect();
    let before = refused_by(first, "KUBELEET-TO-PODS");
    let found = eventually_within(SOON, "the host's open ports are reached", || async {
        let found = reached(&exec(&knock(&[&closed[..], &open].concat())));
        check(open.iter().all(|one| found.contains(one)), || format!("{found:?}"))?;
        Ok::<_, String>(found)
    })
    .await;
    assert_eq!(BTreeSet::from_iter(found), BTreeSet::from_iter(open), "reached from a neighbour");
    assert!(
        refused_by(first, "KUBELEET-TO-PODS") >= before + pods.len() as u64,
        "packets to pods did not come"
    );
    assert!(refused_by(first, "KUBELEET-PORTS") > 0, "packets to the proxy did not come");
    let closed: Vec<_> = pods.iter().map(|pod| format!("{pod}/{PORT}")).collect();
    let found = reached(&fixture.hosts.host(1).exec(&knock(&closed)));
    assert_eq!(found, [] as [String; 0], "reached from another host of the cluster");
    let servers = [format!("@{gateway} -p 7053"), format!("@{RESOLVER}"), format!("@{}", first.address())];
    let ask = |server: String| format!("dig {server} +short +tries=1 +time=2 web.kubeleet A & ");
    let said = exec(&format!("{} wait", servers.map(ask).concat())).stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(!said.is_empty() && said.lines().all(|line| line.starts_with(";;")), "{said}");
    for address in ["127.0.0.1:8080", &format!("127.0.0.1:{PUBLISHED}"), &format!("web.kubeleet:{PORT}")] {
        let resolve = format!("--resolve web.kubeleet:{PORT}:{service}");
        first.exec(&format!("curl --silent --max-time 20 {resolve} http://{address}/"));
    }
}

async fn packets_cannot_be_forged_in_a_container(fixture: &Fixture) {
    let status = fixture.run("cat /proc/1/status").await;
    let sets = status.lines().filter_map(|line| line.strip_prefix("Cap")?.split_once(':'));
    let sets: Vec<_> = sets.map(|(set, bits)| (set, u64::from_str_radix(bits.trim(), 16).unwrap())).collect();
    assert!(sets.iter().any(|(set, bits)| *set == "Eff" && *bits != 0), "{status}");
    assert!(sets.iter().all(|(_, bits)| bits & NET_RAW == 0), "{status}");
}

async fn without_redis_a_name_that_was_never_asked_for_fails(fixture: &Fixture) {
    fixture.redis.signal_group(Signal::STOP);
    for way in ["+notcp", "+tcp"] {
        let way = format!("@{RESOLVER} {way}");
        let answers = fixture.dig(&way, &["shop-musl.kubeleet A", "web.kubeleet A", "0.far.kubeleet A"]);
        assert_eq!(answers[0].status, "SERVFAIL", "{way}");
        for known in &answers[1..] {
            assert!(known.status == "NOERROR" && known.records.len() == 1, "{way}: {known:?}");
        }
    }
    for name in ["web", "1.far", "database"] {
        let said = fixture.greetings(name).await;
        assert!(said.iter().all(|one| one.starts_with("hello from ")), "{name}: {said:?}");
    }
    fixture.redis.signal_group(Signal::CONT);
    eventually_within(SOON, "the name is found", || async {
        let answer = fixture.dig(&format!("@{RESOLVER}"), &["shop-musl.kubeleet A"]).remove(0);
        check(answer.status == "NOERROR" && answer.records.len() == 1, || format!("{answer:?}"))
    })
    .await;
}

/// The ablation: one refused target of each kind is reached.
async fn without_its_rules_a_host_is_open(fixture: &Fixture) {
    let pods = fixture.http.pods("service=web").await;
    let pod_on = |node| {
        let pod = pods.iter().find(|pod| pod["node"] == node).unwrap();
        format!("{}/{PORT}", pod["address"].as_str().unwrap())
    };
    let redis = format!("{}/6379", fixture.hosts.host(0).address());
    let tunnel = format!("{}/{PORT_OF_TUNNELS}", fixture.hosts.host(1).address());
    let from_pod = [format!("{METADATA}/{PORT}"), redis, tunnel, pod_on("h2")];
    let gateway = pod_on("h1").rsplit_once('.').unwrap().0.to_owned() + ".1";
    let from_neighbour = [pod_on("h1"), format!("{gateway}/7053"), format!("{gateway}/7054")];
    eventually_within(SOON, "a host without rules is open", || async {
        for host in fixture.hosts.all() {
            host.exec(
                "for chain in HOST PORTS TO-PODS FROM-PODS; do
                   iptables -F KUBELEET-$chain; iptables -t security -F KUBELEET-$chain
                 done",
            );
        }
        let from = [fixture.run(&knock(&from_pod)).await, {
            let output = fixture.neighbour.exec(&knock(&from_neighbour));
            String::from_utf8(output.stdout).unwrap()
        }];
        let all = from.iter().map(|said| said.lines().count()).eq([from_pod.len(), from_neighbour.len()]);
        check(all, || format!("{from:?}"))
    })
    .await;
    eventually_within(SOON, "the proxies write the rules again", || async {
        let reached = fixture.run(&knock(&from_pod)).await;
        check(reached.is_empty(), || reached.clone())
    })
    .await;
}

/// A shell line that prints the targets (`address/port`) reached within 2 s.
fn knock(targets: &[String]) -> String {
    let each = r#"(timeout 2 bash -c "</dev/tcp/$target" 2>/dev/null && echo "$target")"#;
    format!("for target in {}; do {each} & done; wait", targets.join(" "))
}

fn reached(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn refused_by(host: &Host, chain: &str) -> u64 {
    let output = host.exec(&format!("iptables -t filter -nvxL {chain}")).stdout;
    let rules = String::from_utf8(output).unwrap();
    let rules = rules.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let refusing = rules.filter(|rule| matches!(rule.get(2), Some(&("DROP" | "REJECT"))));
    refusing.map(|rule| rule[0].parse::<u64>().unwrap()).sum()
}

async fn is_told_of_the_route_that_it_lacks(host: &Host, proxy: &DaemonProcess) {
    let advice = "`ip route add 198.18.0.0/15 dev lo`";
    eventually_within(SOON, "the proxy says which route it lacks", || async {
        let log = proxy.whole_log();
        check(log.contains(advice), || log.clone())
    })
    .await;
    host.exec(advice.trim_matches('`'));
}

fn start_redis(host: &Host) -> ChildGuard {
    let mut command = host.command("redis-server");
    command.args(["--port", "6379", "--bind", host.address(), "127.0.0.1", "--protected-mode", "no"]);
    command.args(["--save", "", "--appendonly", "no"]).arg("--dir").arg(host.folder());
    let log = File::create(host.folder().join("redis.log")).unwrap();
    ChildGuard::spawn(command.stdout(log).stderr(Stdio::null())).expect("redis-server can be started")
}

async fn make_client_images(engine: &Docker, folder: &Path) {
    let curl = path_of("curl").unwrap();
    engine.make_resolving_image("kubeleet-test/shop-glibc:1", &[(&curl, "/bin/curl")]).await;
    let client = folder.join("tcp_client");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tcp_client.c");
    let built = Command::new("musl-gcc").args(["-static", "-Os", "-o"]).arg(&client).arg(source).status();
    assert!(built.unwrap().success(), "musl-gcc");
    let recipe = Recipe { programs: &[(&client, "/client")], ..Recipe::default() };
    engine.make_image(recipe, "kubeleet-test/shop-musl:1").await;
}

fn path_of(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn resolves_with(host: &Host, address: &str) {
    let file = host.folder().join("resolv.conf");
    fs::write(&file, format!("nameserver {address}\n")).unwrap();
    host.exec(&format!("mount --bind {} /etc/resolv.conf", file.display()));
}

async fn start_upstream(address: &str) -> JoinSet<()> {
    let datagrams = UdpSocket::bind((address, 53)).await.unwrap();
    let connections = TcpListener::bind((address, 53)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, client)) = datagrams.recv_from(&mut question).await {
            let _lost = datagrams.send_to(&answer_elsewhere(&question[..length]), client).await;
        }
    });
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = connections.accept().await {
            let Ok(length) = stream.read_u16().await else { continue };
            let mut question = vec![0; usize::from(length)];
            if stream.read_exact(&mut question).await.is_ok() {
                let answer = answer_elsewhere(&question);
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                let _gone = stream.write_all(&[&length, &answer[..]].concat()).await;
            }
        }
    });
    tasks
}

fn answer_elsewhere(question: &[u8]) -> Vec<u8> {
    const HEADER: usize = 12;
    let name = question[HEADER..].iter().position(|byte| *byte == 0).unwrap();
    let mut answer = question[..HEADER + name + 5].to_vec();
    // A response, with recursion; one question and one answer.
    answer[2..HEADER].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    // The name of the question, A, IN, for 60 s, four bytes.
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    answer.extend(ELSEWHERE.1);
    answer
}
