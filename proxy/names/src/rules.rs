//! The host's `iptables` rules that lead from pods to the proxy.
//!
//! The interface prefix and the ports are fixed, so root can set these rules once for an unprivileged proxy.
//! Only closed addresses depend on the cluster.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;

use model::network::address_range::AddressRange;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::closed::{ClosedAddresses, ToClose};
use super::{connections, dns};

/// Docker's chain for other programs' rules.
const DOCKER_USER: &str = "DOCKER-USER";
/// On hosts without Docker.
const FORWARD: &str = "FORWARD";
/// Podman's first rules in `filter` accept everything from pods, but the packets still pass this last table,
/// where rules can drop and not reject.
const LAST_TABLE: &str = "security";
/// Applies rules between pods of one network. Docker sets it for `enable_icc`, which Podman lacks.
const BRIDGED: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
const INTERFACES: &str = "kl-";
/// In seconds.
const LOCK_WAIT: &str = "5";

#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("`iptables` is not installed: install the package iptables")]
    NotInstalled,
    #[error("setting rules takes the right of root (CAP_NET_ADMIN and CAP_NET_RAW)")]
    NotAllowed,
    #[error("{command}: {detail}")]
    Failed { command: String, detail: String },
}

struct Jump {
    table: &'static str,
    chain: &'static str,
    condition: String,
    target: &'static str,
}

#[derive(Debug, Clone, Copy)]
struct Forwarding {
    chain: &'static str,
    has_last_table: bool,
}

fn chains(ranges: &[AddressRange], closed: &ClosedAddresses, has_last_table: bool) -> String {
    let (questions, connections) = (dns::PORT, connections::PORT);
    let resolver = model::network::address::PoolAddress::RESOLVER.ip();
    // Pods have no IPv6.
    let ranges = ranges.iter().map(ToString::to_string).filter(|range| !range.contains(':'));
    let of_ranges = ranges.map(|range| format!("-d {range}"));
    let of_hosts =
        closed.iter().map(|address| format!("-d {} -p tcp --dport {}", address.ip(), address.port()));
    let refused: Vec<String> =
        std::iter::once("-d 198.18.0.0/15".to_owned()).chain(of_ranges).chain(of_hosts).collect();
    let forwarded = |verdict: &str, refused: &[String]| {
        let refused = refused.iter().map(|what| format!("-A KUBELEET-FROM-PODS {what} -j {verdict}\n"));
        format!(
            "-A KUBELEET-TO-PODS -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j RETURN\n\
             -A KUBELEET-TO-PODS -j DROP\n\
             -A KUBELEET-FROM-PODS -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN\n\
             {}COMMIT\n",
            refused.collect::<String>()
        )
    };
    let in_filter = forwarded("REJECT", &refused);
    let mut chains = format!(
        "*nat\n\
         :KUBELEET - [0:0]\n\
         -A KUBELEET -d {resolver} -p udp --dport 53 -j REDIRECT --to-ports {questions}\n\
         -A KUBELEET -d {resolver} -p tcp --dport 53 -j REDIRECT --to-ports {questions}\n\
         -A KUBELEET -p tcp -j REDIRECT --to-ports {connections}\n\
         COMMIT\n\
         *filter\n\
         :KUBELEET-HOST - [0:0]\n\
         :KUBELEET-PORTS - [0:0]\n\
         :KUBELEET-TO-PODS - [0:0]\n\
         :KUBELEET-FROM-PODS - [0:0]\n\
         -A KUBELEET-HOST -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A KUBELEET-HOST -p udp --dport {questions} -m conntrack --ctstate DNAT -j ACCEPT\n\
         -A KUBELEET-HOST -p tcp --dport {questions}:{connections} -m conntrack --ctstate DNAT -j ACCEPT\n\
         -A KUBELEET-HOST -p icmp -j ACCEPT\n\
         -A KUBELEET-HOST -j REJECT\n\
         -A KUBELEET-PORTS -i lo -j RETURN\n\
         -A KUBELEET-PORTS -j DROP\n\
         {in_filter}"
    );
    if has_last_table {
        // Pods must not reach each other by their addresses.
        let refused = [&[format!("-o {INTERFACES}+")], &refused[..]].concat();
        chains += &format!(
            "*{LAST_TABLE}\n:KUBELEET-TO-PODS - [0:0]\n:KUBELEET-FROM-PODS - [0:0]\n{}",
            forwarded("DROP", &refused)
        );
    }
    chains
}

fn jumps(forwarding: Forwarding) -> Vec<Jump> {
    let (questions, connections) = (dns::PORT, connections::PORT);
    let jump = |table, chain, condition: String, target| Jump { table, chain, condition, target };
    let pool = "-d 198.18.0.0/15";
    let mut jumps = vec![
        jump("nat", "PREROUTING", format!("-i {INTERFACES}+ {pool}"), "KUBELEET"),
        // For people on the host.
        jump("nat", "OUTPUT", pool.to_owned(), "KUBELEET"),
        // Neighbours must not reach the proxy's ports through the host's address in a pod network.
        jump("filter", "INPUT", format!("! -i {INTERFACES}+ -p udp --dport {questions}"), "KUBELEET-PORTS"),
        jump(
            "filter",
            "INPUT",
            format!("! -i {INTERFACES}+ -p tcp --dport {questions}:{connections}"),
            "KUBELEET-PORTS",
        ),
        jump("filter", "INPUT", format!("-i {INTERFACES}+"), "KUBELEET-HOST"),
    ];
    let last = forwarding.has_last_table.then_some((LAST_TABLE, FORWARD));
    for (table, chain) in std::iter::once(("filter", forwarding.chain)).chain(last) {
        jumps.push(jump(table, chain, format!("! -i {INTERFACES}+ -o {INTERFACES}+"), "KUBELEET-TO-PODS"));
        jumps.push(jump(table, chain, format!("-i {INTERFACES}+"), "KUBELEET-FROM-PODS"));
    }
    jumps
}

impl Jump {
    fn arguments<'a>(&'a self, action: &'a str) -> Vec<&'a str> {
        let mut arguments = vec!["-t", self.table, action, self.chain];
        arguments.extend(self.condition.split(' '));
        arguments.extend(["-j", self.target]);
        arguments
    }
}

/// As arguments of `iptables`.
pub async fn missing() -> Result<Vec<String>, RulesError> {
    let missing = missing_jumps(forwarding().await?).await;
    Ok(missing.iter().map(|jump| jump.arguments("-I").join(" ")).collect())
}

async fn missing_jumps(forwarding: Forwarding) -> Vec<Jump> {
    let mut missing = Vec::new();
    for jump in jumps(forwarding) {
        if iptables(&jump.arguments("-C")).await.is_err() {
            missing.push(jump);
        }
    }
    missing
}

/// As this program sets them. Proxies of other clusters may set theirs.
#[derive(Debug, Default)]
pub struct Rules {
    own: ClosedAddresses,
    has_warned: bool,
}

impl Rules {
    /// Idempotent.
    pub async fn set(&mut self, to_close: &ToClose) -> Result<(), RulesError> {
        let forwarding = forwarding().await?;
        let missing = missing_jumps(forwarding).await;
        let mut listed = String::new();
        for table in ["nat", "filter"].into_iter().chain(forwarding.has_last_table.then_some(LAST_TABLE)) {
            listed += &iptables(&["-t", table, "-S"]).await?;
        }
        let now = conditions(&listed);
        let closed = to_close.beside(&closed_in(&now), &self.own);
        let chains = chains(&to_close.ranges, &closed, forwarding.has_last_table);
        if !missing.is_empty() || now != conditions(&chains) {
            run("iptables-restore", &["-w", LOCK_WAIT, "--noflush"], &chains).await?;
        }
        if to_close.unknown.is_empty() {
            self.own.clear();
        }
        self.own.extend(&to_close.closed);
        for jump in missing {
            iptables(&jump.arguments("-I")).await?;
        }
        self.keep_pods_apart(forwarding).await;
        Ok(())
    }

    async fn keep_pods_apart(&mut self, forwarding: Forwarding) {
        let why = match see_bridged().await {
            _ if !forwarding.has_last_table && forwarding.chain == FORWARD => {
                "the kernel has no table `security` for iptables; with Podman, pods may also reach the addresses closed to them"
                    .to_owned()
            }
            Ok(()) => return,
            Err(error) => format!(
                "{BRIDGED} cannot be set to 1: {error}; as root run `modprobe br_netfilter` and \
                 `sysctl net.bridge.bridge-nf-call-iptables=1`"
            ),
        };
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!("Pods of this host may reach each other by their addresses: {why}");
        }
    }
}

async fn see_bridged() -> io::Result<()> {
    if !Path::new(BRIDGED).exists() {
        // If it fails, reading the file fails too.
        let _ = run("modprobe", &["br_netfilter"], "").await;
    }
    if std::fs::read_to_string(BRIDGED)?.trim() != "1" {
        std::fs::write(BRIDGED, "1")?;
        tracing::info!("{BRIDGED} is 1 now, so that rules keep pods of one network apart");
    }
    Ok(())
}

fn closed_in(rules: &Conditions<'_>) -> ClosedAddresses {
    let address = |rule: &[Option<&str>; 3]| match rule {
        [Some(host), Some("tcp"), Some(port)] => format!("{host}:{port}").parse().ok(),
        _ => None,
    };
    rules.get("KUBELEET-FROM-PODS").into_iter().flatten().filter_map(address).collect()
}

type Conditions<'a> = BTreeMap<&'a str, Vec<[Option<&'a str>; 3]>>;

/// Destination, protocol and port, which do not depend on the format of `iptables`.
fn conditions(text: &str) -> Conditions<'_> {
    let mut conditions = Conditions::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["-A", chain, rule @ ..] = &words[..] else { continue };
        if chain.starts_with("KUBELEET") {
            let after = |option| rule.iter().position(|word| *word == option).and_then(|at| rule.get(at + 1));
            let host = after("-d").map(|host| host.strip_suffix("/32").unwrap_or(host));
            conditions.entry(chain).or_default().push([
                host,
                after("-p").copied(),
                after("--dport").copied(),
            ]);
        }
    }
    conditions
}

pub async fn remove() -> Result<(), RulesError> {
    let has_last_table = forwarding().await?.has_last_table;
    // Docker may have been installed since they were set.
    let all = [FORWARD, DOCKER_USER].map(|chain| jumps(Forwarding { chain, has_last_table }));
    for jump in all.into_iter().flatten() {
        // A rule may exist several times.
        while iptables(&jump.arguments("-D")).await.is_ok() {}
    }
    let chains = [
        ("nat", "KUBELEET"),
        ("filter", "KUBELEET-HOST"),
        ("filter", "KUBELEET-PORTS"),
        ("filter", "KUBELEET-TO-PODS"),
        ("filter", "KUBELEET-FROM-PODS"),
        (LAST_TABLE, "KUBELEET-TO-PODS"),
        (LAST_TABLE, "KUBELEET-FROM-PODS"),
    ];
    for (table, chain) in chains {
        if iptables(&["-t", table, "-F", chain]).await.is_ok() {
            iptables(&["-t", table, "-X", chain]).await?;
        }
    }
    Ok(())
}

pub fn are_in_use() -> bool {
    let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    interfaces.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(INTERFACES))
}

/// Before Docker's rules, after Podman's.
async fn forwarding() -> Result<Forwarding, RulesError> {
    // Also checks for the program and the privileges.
    iptables(&["-S", "INPUT"]).await?;
    let has_docker_user = iptables(&["-S", DOCKER_USER]).await.is_ok();
    let has_last_table = iptables(&["-t", LAST_TABLE, "-S"]).await.is_ok();
    Ok(Forwarding { chain: if has_docker_user { DOCKER_USER } else { FORWARD }, has_last_table })
}

async fn iptables(arguments: &[&str]) -> Result<String, RulesError> {
    run("iptables", &[&["-w", LOCK_WAIT], arguments].concat(), "").await
}

async fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, RulesError> {
    let failed = |detail: String| {
        let command = [&[program], arguments].concat().join(" ");
        RulesError::Failed { command, detail }
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RulesError::NotInstalled,
        _ => failed(error.to_string()),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early reports the cause.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let detail = said.lines().find(|line| !line.starts_with('#')).unwrap_or("it failed").to_owned();
    let is_refused = ["Permission denied", "Operation not permitted", "must be root"];
    Err(match is_refused.iter().any(|text| said.contains(text)) {
        true => RulesError::NotAllowed,
        false => failed(detail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pods_must_not_reach_is_refused_on_a_host_without_docker_too() {
        for chain in [DOCKER_USER, FORWARD] {
            let jumps = jumps(Forwarding { chain, has_last_table: false });
            let to = |target| jumps.iter().any(|jump| jump.chain == chain && jump.target == target);
            assert!(to("KUBELEET-FROM-PODS") && to("KUBELEET-TO-PODS"), "{chain}");
        }
    }

    #[test]
    fn rules_are_the_same_however_they_are_written_and_others_are_not() {
        let closed = ClosedAddresses::from(["10.0.0.1:6379".parse().expect("it is one")]);
        let metadata: [AddressRange; 2] =
            ["169.254.0.0/16", "168.63.129.16"].map(|range| range.parse().expect("it is one"));
        let text = chains(&metadata, &closed, true);
        // As `iptables -S` prints it.
        let listed = text
            .replace("-d 10.0.0.1 -p tcp --dport", "-d 10.0.0.1/32 -p tcp -m tcp --dport")
            .replace("-d 168.63.129.16 -j", "-d 168.63.129.16/32 -j")
            .replace("-j REJECT", "-j REJECT --reject-with icmp-port-unreachable")
            + "-A DOCKER-USER -i kl-+ -j KUBELEET-FROM-PODS\n-P INPUT ACCEPT\n-N KUBELEET\n";
        assert_eq!(conditions(&listed), conditions(&text));
        assert_eq!(closed_in(&conditions(&listed)), closed);
        let more = ClosedAddresses::from(
            ["10.0.0.1:6379", "10.0.0.2:6379"].map(|one| one.parse().expect("it is one")),
        );
        for other in [ClosedAddresses::new(), more] {
            assert_ne!(conditions(&listed), conditions(&chains(&metadata, &other, true)));
        }
        assert_ne!(conditions(&listed), conditions(&chains(&metadata[..1], &closed, true)));
        let flushed: String =
            listed.lines().filter(|line| !line.contains("TO-PODS")).collect::<Vec<_>>().join("\n");
        assert_ne!(conditions(&flushed), conditions(&text));
    }
}
