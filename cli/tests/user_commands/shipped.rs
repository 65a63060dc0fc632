//! The safety of shipped files: units, the configuration of Redis, the image.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn the_units_allow_many_connections_and_take_every_privilege_away() {
    for (unit, user) in [
        ("api", "kubeleet"),
        ("scheduler", "kubeleet"),
        ("worker", "kubeleet"),
        ("fence", "kubeleet"),
        ("proxy", "kubeleet"),
    ] {
        let text = read(&format!("packaging/systemd/kubeleet-{unit}.service"));
        let lines = lines(&text);
        for line in
            ["LimitNOFILE=65536", "NoNewPrivileges=yes", &format!("User={user}"), "ProtectSystem=strict"]
        {
            assert!(lines.contains(&line), "kubeleet-{unit}.service has no {line}");
        }
        let may_end = unit == "fence";
        assert!(may_end || lines.contains(&"Restart=always"), "kubeleet-{unit}.service");
    }
}

/// `a_proxy_is_followed_by_the_next_one_and_no_connection_is_lost` tests the effect of a reload.
#[test]
fn the_unit_of_the_proxy_can_be_reloaded() {
    let text = read("packaging/systemd/kubeleet-proxy.service");
    let lines = lines(&text);
    for line in ["Type=notify", "NotifyAccess=all", "ExecReload=/bin/kill -HUP $MAINPID"] {
        assert!(lines.contains(&line), "no {line}");
    }
}

/// In its own user namespace a unit has no right over the machine's network, whatever its capabilities.
#[test]
fn the_drop_in_for_low_ports_gives_a_right_over_the_network_of_the_machine() {
    let text = read("packaging/systemd/privileged-ports.conf");
    let lines = lines(&text);
    for line in ["AmbientCapabilities=CAP_NET_BIND_SERVICE", "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"] {
        assert!(lines.contains(&line), "no {line}");
    }
    assert!(read("packaging/systemd/kubeleet-proxy.service").contains("PrivateUsers=yes"));
    assert!(lines.contains(&"PrivateUsers=no"), "{lines:?}");
}

#[test]
fn the_redis_that_is_shipped_keeps_what_it_stores_and_listens_where_it_is_told() {
    let text = read("sentinel/redis.conf");
    let lines = lines(&text);
    for line in [
        "maxmemory-policy noeviction",
        "appendonly yes",
        "appendfsync everysec",
        "min-replicas-to-write 1",
        "min-replicas-max-lag 3",
    ] {
        assert!(lines.contains(&line), "redis.conf has no {line}");
    }
    assert!(
        lines.iter().any(|line| line.starts_with("maxmemory ")),
        "without it a machine runs out of memory"
    );
    for file in ["sentinel/redis.conf", "sentinel/sentinel.conf"] {
        assert!(!read(file).contains("bind 0.0.0.0"), "{file}");
    }
    for script in ["sentinel/start-redis", "sentinel/start-sentinel"] {
        assert!(read(script).contains("bind "), "{script} binds the server's own address");
    }
}

#[test]
fn the_image_runs_as_no_root() {
    let text = read("Dockerfile");
    let user = lines(&text).into_iter().find_map(|line| line.strip_prefix("USER ")).expect("a USER");
    assert!(!user.starts_with("0") && !user.starts_with("root"), "{user}");
}

/// A worker saves the state for recovering a lost Redis, and its container can write nowhere else.
#[test]
fn each_worker_of_the_stack_has_a_volume_for_its_lease_and_one_for_what_it_saves() {
    let text = read("docker-compose.yml");
    let workers: Vec<&str> = text.lines().filter(|line| line.contains(":/run/kubeleet\"")).collect();
    assert_eq!(workers.len(), 3);
    for (worker, node) in workers.iter().zip(["node1", "node2", "node3"]) {
        for volume in [format!("{node}:/run/kubeleet"), format!("{node}-data:/var/lib/kubeleet")] {
            assert!(worker.contains(&format!("\"{volume}\"")), "{node} has no {volume}: {worker}");
            let name = volume.split(':').next().unwrap();
            assert!(text.contains(&format!("\n  {name}:\n")), "{name} is not declared");
        }
    }
}

/// A Sentinel that forgot its master followed FIRST_MASTER, by then a replica, forever.
#[test]
fn a_sentinel_that_has_forgotten_its_master_asks_the_servers_for_their_roles() {
    let ask = |servers: &str| {
        let script = format!(
            r#". sentinel/common.sh
            cli() {{ case "$3" in a) printf 'slave\nb\n6379\n' ;; b) printf 'master\n0\n' ;; *) return 1 ;; esac }}
            {servers} master_by_role"#
        );
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let asked =
            std::process::Command::new("sh").args(["-euc", &script]).current_dir(root).output().unwrap();
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(ask("REDISES='a b c'"), "b");
    assert_eq!(ask("FIRST_MASTER=a"), "b", "the replica names its master");
    assert_eq!(ask("FIRST_MASTER=c"), "", "at the very first start none answers");
    assert!(read("sentinel/start-sentinel").contains("|| master=$(master_by_role)"));
}
