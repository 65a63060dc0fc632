//! `tls: auto`: one of several proxies orders certificates from Pebble.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use kubeleet_tests::cluster::{Cluster, ClusterTiming, DaemonProcess};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::pebble::{Pebble, has_pebble};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};
use testkit::ports::free_port;

use crate::sleeper;

/// Long enough for an order after the expiry of a lease.
const LONG: Duration = Duration::from_secs(90);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

struct Site {
    cluster: Cluster,
    api: DaemonProcess,
    pebble: Pebble,
    root: PathBuf,
    tls_port: u16,
    proxies: Vec<DaemonProcess>,
}

fn address(proxy: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + proxy as u8)
}

impl Site {
    async fn start(proxies: usize, validity: Duration, environment: &[(&str, &str)]) -> Self {
        let cluster = Cluster::new(ClusterTiming::Short).await;
        let folder = cluster.folder().to_owned();
        let pebble = Pebble::start(&folder, validity, environment).await;
        let key = folder.join("secret-key");
        std::fs::write(&key, model::value::secret_key::SecretKey::generate().unwrap()).unwrap();
        let api = cluster.api_with(&[("KUBELEET_SECRET_KEY_FILE", key.to_str().unwrap())]).await;
        let root = pebble.root(&folder);
        let tls_port = free_port();
        let start = |proxy: usize| {
            let node = format!("proxy{proxy}");
            let (http, https) = (
                format!("{}:{}", address(proxy), pebble.http_port),
                format!("{}:{tls_port}", address(proxy)),
            );
            let host = folder.join(&node);
            std::fs::create_dir_all(&host).unwrap();
            cluster.proxy(
                &host,
                &[
                    ("KUBELEET_NODE", &node),
                    ("KUBELEET_INGRESS_LISTEN", &http),
                    ("KUBELEET_INGRESS_TLS_LISTEN", &https),
                    ("KUBELEET_SECRET_KEY_FILE", key.to_str().unwrap()),
                    ("KUBELEET_ACME_DIRECTORY", &pebble.directory),
                    ("KUBELEET_ACME_CA_FILE", pebble.ca_file.to_str().unwrap()),
                    ("KUBELEET_ACME_EMAIL", "ops@web.example"),
                    ("KUBELEET_TUNNEL_LISTEN", "off"),
                    ("KUBELEET_POD_WAIT", "100ms"),
                ],
            )
        };
        let proxies = (0..proxies).map(start).collect();
        Self { cluster, api, pebble, root, tls_port, proxies }
    }

    /// The service has no pods.
    async fn serve(&self, name: &str, host: &str) {
        let mut service = sleeper(name, 0, "keep");
        service["ingress"] = json!([{"host": host, "port": 80, "tls": "auto"}]);
        self.api.http().post("/service", &service).await;
    }

    /// Returns true for a trusted certificate, and all output.
    fn https(&self, proxy: usize, host: &str) -> (bool, String) {
        let port = self.tls_port;
        let resolve = format!("{host}:{port}:{}", address(proxy));
        let url = format!("https://{host}:{port}/");
        self.curl(&["--cacert", self.root.to_str().unwrap(), "--resolve", &resolve, &url])
    }

    fn http(&self, proxy: usize, host: &str, path: &str) -> String {
        let url = format!("http://{}:{}{path}", address(proxy), self.pebble.http_port);
        self.curl(&["-i", "-H", &format!("Host: {host}"), &url]).1
    }

    fn curl(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("curl").args(["-sS", "-m", "5"]).args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    async fn is_served(&self, proxy: usize, host: &str) {
        eventually_within(LONG, "HTTPS is served", || async {
            let (is_trusted, text) = self.https(proxy, host);
            check(is_trusted && text.contains("has no ready pod"), || {
                format!("{text}\n{}\n{}", self.proxies[proxy].log(), self.pebble.log())
            })
        })
        .await;
    }

    async fn orderer(&self) -> usize {
        let holder = async || self.cluster.redis.cli::<Option<String>>(&["GET", "lease:acme"]).await;
        eventually_within(LONG, "a proxy orders", || async {
            check(holder().await.is_some(), || "no proxy holds the lease".to_owned())
        })
        .await;
        holder().await.and_then(|id| id.strip_prefix("proxy")?[..1].parse().ok()).expect("an id")
    }

    async fn certificate(&self, host: &str) -> Value {
        let routes = self.api.http().get("/route").await;
        let routes = routes["items"].as_array().unwrap().iter();
        let of_host = |route: &&Value| route["rule"]["host"] == host;
        routes.filter(of_host).map(|route| route["certificate"].clone()).next().unwrap_or_default()
    }

    async fn id(&self, host: &str) -> Option<String> {
        self.cluster.redis.cli(&["HGET", &format!("certificate:{host}"), "id"]).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_proxies_orders_another_one_answers_and_a_failing_domain_disturbs_no_other() {
    if !has_pebble() {
        return;
    }
    let _lock = beside_others().await;
    let site = Site::start(3, YEAR, &[("PEBBLE_WFE_NONCEREJECT", "50")]).await;
    site.serve("lost", "lost.example").await;
    let orderer = site.orderer().await;
    let other = (orderer + 1) % 3;
    eventually_within(LONG, "the order fails", || async {
        let certificate = site.certificate("lost.example").await;
        check(certificate["error"].is_string(), || format!("{certificate}\n{}", site.pebble.log()))
    })
    .await;
    let failed = site.certificate("lost.example").await;
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("the authority refuses it") && error.contains("lost.example"), "{failed}");
    assert!(failed["next_order_at"].is_string() && failed["expires_at"].is_null(), "{failed}");

    // The authority reaches only a proxy that does not order.
    site.pebble.set_address("web.example", address(other));
    site.serve("web", "web.example").await;
    for proxy in 0..3 {
        site.is_served(proxy, "web.example").await;
    }
    assert_eq!(site.pebble.issued(), 1, "three proxies, one order");
    assert!(site.certificate("web.example").await["expires_at"].is_string());
    let redirected = site.http(orderer, "web.example", "/a?b=c").to_lowercase();
    assert!(redirected.contains("http/1.1 308") && redirected.contains("location: https://web.example"));
    eventually_within(LONG, "all proxies know why", || async {
        let text = site.http(other, "lost.example", "/.well-known/acme-challenge/unknown");
        check(text.contains("503") && text.contains("It is tried again in"), || text)
    })
    .await;
    let begun = site.proxies[orderer].whole_log().matches("certificate of lost.example is ordered").count();
    assert_eq!(begun, 1, "it backs off");
    let secrets: Vec<String> = site.cluster.redis.cli(&["HVALS", "acme_accounts"]).await;
    let key: String = site.cluster.redis.cli(&["HGET", "certificate:web.example", "key"]).await;
    for sealed in secrets.iter().chain([&key]) {
        assert!(sealed.starts_with("chacha20poly1305:"), "{sealed}");
    }
    assert_eq!(secrets.len(), 1, "one account");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_before_it_expires_and_all_proxies_serve_the_new_one() {
    if !has_pebble() {
        return;
    }
    let _lock = beside_others().await;
    let site = Site::start(2, Duration::from_secs(30), &[]).await;
    site.pebble.set_address("web.example", address(1));
    site.serve("web", "web.example").await;
    site.is_served(0, "web.example").await;
    let first = site.id("web.example").await;
    eventually_within(LONG, "it is renewed", || async {
        let (is_trusted, text) = site.https(0, "web.example");
        assert!(is_trusted, "it is valid all the time: {text}");
        check(site.id("web.example").await != first, || site.pebble.log())
    })
    .await;
    let loaded = "the certificate of web.example is loaded";
    eventually_within(LONG, "both have loaded both", || async {
        let counts = [0, 1].map(|proxy| site.proxies[proxy].whole_log().matches(loaded).count());
        check(counts.iter().all(|count| *count >= 2), || format!("{counts:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_proxy_dies_is_made_by_another_one() {
    if !has_pebble() {
        return;
    }
    let _lock = beside_others().await;
    let mut site = Site::start(2, YEAR, &[]).await;
    let silent = Ipv4Addr::new(127, 0, 0, 29);
    let listener = tokio::net::TcpListener::bind((silent, site.pebble.http_port)).await.unwrap();
    site.pebble.set_address("web.example", silent);
    site.serve("web", "web.example").await;
    let _connection =
        tokio::time::timeout(LONG, listener.accept()).await.expect("the authority looks").unwrap();
    let orderer = site.orderer().await;
    assert!(site.certificate("web.example").await["is_being_ordered"] == true);
    site.proxies[orderer].kill();
    let other = 1 - orderer;
    site.pebble.set_address("web.example", address(other));
    site.is_served(other, "web.example").await;
    assert_eq!(site.pebble.issued(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_serves_what_it_has_while_redis_is_away_and_gives_it_back_to_one_that_lost_it() {
    if !has_pebble() {
        return;
    }
    let _lock = beside_others().await;
    let mut site = Site::start(1, YEAR, &[]).await;
    site.pebble.set_address("web.example", address(0));
    site.serve("web", "web.example").await;
    site.is_served(0, "web.example").await;
    let id = site.id("web.example").await.unwrap();
    let () = site.cluster.redis.cli(&["DEL", "certificate:web.example"]).await;
    eventually_within(LONG, "it is put back", || async {
        check(site.id("web.example").await.as_ref() == Some(&id), || site.proxies[0].log())
    })
    .await;
    let file = site.cluster.folder().join("proxy0/proxy.certificates.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("PRIVATE KEY"));
    site.cluster.redis.freeze();
    site.proxies[0].kill();
    site.proxies[0].start_again();
    site.is_served(0, "web.example").await;
    site.cluster.redis.thaw();
    let () = site.cluster.redis.cli(&["FLUSHALL"]).await;
    eventually_within(LONG, "an emptied Redis is given it back", || async {
        assert!(site.https(0, "web.example").0, "and takes nothing away");
        check(site.id("web.example").await.as_ref() == Some(&id), || site.proxies[0].log())
    })
    .await;
    assert_eq!(site.pebble.issued(), 1);
}
