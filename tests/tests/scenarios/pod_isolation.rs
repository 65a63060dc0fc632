//! Network isolation of pods, whatever rules an engine has put before those of kubeleet.

use std::process::Command;

use testkit::require;

/// On a host that accepts all packets of pods, as Podman's rules do. Prints results before, with and after
/// kubeleet's rules: `1` is a refused connection, `124` no answer.
const SCRIPT: &str = r#"
    set -e
    mount -t tmpfs tmpfs /run
    ip link set lo up
    member() { # NAME ADDRESS GATEWAY
        ip netns add $1
        ip link add $1 type veth peer name eth0 netns $1
        ip link set $1 up
        ip -n $1 addr add $2 dev eth0
        ip -n $1 link set eth0 up
        ip -n $1 route add default via $3
    }
    ip link add kl-test type bridge
    ip addr add 10.1.0.1/24 dev kl-test
    ip link set kl-test up
    member one 10.1.0.2/24 10.1.0.1
    member two 10.1.0.3/24 10.1.0.1
    ip link set one master kl-test
    ip link set two master kl-test
    member metadata 169.254.169.254/16 169.254.0.1
    ip addr add 169.254.0.1/16 dev metadata
    echo 1 >/proc/sys/net/ipv4/ip_forward
    echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables
    knock() {
        for address in 10.1.0.3 169.254.169.254; do
            code=0
            timeout 3 ip netns exec one bash -c "exec 3<>/dev/tcp/$address/9" 2>/dev/null || code=$?
            echo $code
        done
    }
    knock
    "$0" net rules
    iptables -I FORWARD -i kl-test -j ACCEPT
    knock
    "$0" net rules --remove
    knock
"#;

#[tokio::test]
async fn pods_are_kept_apart_although_the_engine_accepts_all_that_they_send() {
    if !rustix::process::geteuid().is_root() {
        return require::skipped("netns", "the rules of a host take the right of root");
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--fork", "--kill-child", "bash", "-c", SCRIPT]);
    let output = command.arg(kubeleet_tests::binary()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let codes = String::from_utf8(output.stdout).unwrap();
    assert_eq!(codes.split_whitespace().collect::<Vec<_>>(), ["1", "1", "124", "124", "1", "1"], "{said}");
}
