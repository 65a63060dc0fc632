//! HTTPS at the ingress, with the exact commands of `docs/how-to/ingress.md`.

use std::path::Path;
use std::process::Command;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::ports::free_port;
use kubeleet_tests::{Cluster, ClusterTiming};
use serde_json::json;
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

const PAGE: &str = include_str!("../../../docs/how-to/ingress.md");

fn command(start: &str) -> String {
    let mut lines = PAGE.lines().filter_map(|line| line.strip_prefix("    "));
    let mut command = lines.find(|line| line.starts_with(start)).unwrap().to_owned();
    while let Some(begun) = command.strip_suffix('\\') {
        command = begun.to_owned() + lines.next().unwrap();
    }
    command
}

fn shell(folder: &Path, command: &str) -> (bool, String) {
    let output = Command::new("sh").current_dir(folder).args(["-c", command]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_wants_https_is_reached_by_it_with_the_commands_of_the_page() {
    let _lock = beside_others().await;
    if !has("openssl") || !has("curl") {
        println!("SKIPPED: openssl and curl are needed");
        return;
    }
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let folder = cluster.folder();
    let directory = folder.join("certificates");
    std::fs::create_dir(&directory).unwrap();
    let (http_port, https_port) = (free_port(), free_port());
    let (http, https) = (format!("127.0.0.1:{http_port}"), format!("127.0.0.1:{https_port}"));
    let _proxy = cluster.proxy(
        &folder.join("host"),
        &[
            ("KUBELEET_INGRESS_LISTEN", &http),
            ("KUBELEET_INGRESS_TLS_LISTEN", &https),
            ("KUBELEET_CERTIFICATES", directory.to_str().unwrap()),
            ("KUBELEET_POD_WAIT", "100ms"),
        ],
    );
    let mut web = sleeper("web", 0, "keep");
    web["ingress"] = json!([{"host": "web.example", "port": 80, "tls": "files"}]);
    api.http().post("/service", &web).await;

    let (is_made, text) = shell(folder, &command("openssl req"));
    assert!(is_made, "{text}");
    let by_https = command("curl").replace("8443", &https_port.to_string());
    eventually_within(SOON, "HTTPS is served", || async {
        let (is_served, text) = shell(folder, &by_https);
        check(is_served && text.contains("Service web has no ready pod"), || text)
    })
    .await;
    let plain = format!("curl -sS -i -H 'Host: web.example' 'http://{http}/a?b=c'");
    let (_, redirected) = shell(folder, &plain);
    assert!(redirected.starts_with("HTTP/1.1 308"), "{redirected}");
    let location = format!("location: https://web.example:{https_port}/a?b=c");
    assert!(redirected.to_lowercase().contains(&location), "{redirected}");
    let unknown = by_https.replace("web.example", "other.example");
    assert!(!shell(folder, &unknown).0, "a name without a certificate is refused");
}
