//! Runs the commands of pages for operators, and the units that these pages install.

use std::path::Path;
use std::process::Command;

use testkit::eventually::blocking_eventually;

use super::{BINARY, Cluster, kubeleet, kubeleet_with, parts};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn commands(page: &str) -> Vec<String> {
    let page = read(page);
    page.lines().filter_map(|line| line.strip_prefix("    kubeleet ")).map(str::to_owned).collect()
}

#[test]
fn a_cluster_is_looked_at_and_backed_up_before_and_after_an_upgrade() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let commands = commands("docs/how-to/upgrades.md");
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let line = command.replace("before-upgrade", folder.path().join("before").to_str().unwrap());
        let (exit, out, err) = parts(&kubeleet(&cluster.api, &line));
        assert_eq!(exit, 0, "{command}: {out} {err}");
        if command == "node ls -o wide" {
            assert!(out.contains(env!("CARGO_PKG_VERSION")), "no version of the node: {out}");
        }
    }
    assert!(folder.path().join("before.backup").exists());
}

#[test]
fn a_machine_is_added_drained_and_removed() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.add_worker("machine4");
    // Of the page's plans.
    let service = "name: web\nimage: nginx\nreplicas: 0";
    let (exit, out, err) = parts(&kubeleet_with(&cluster.api, "apply -f -", service));
    assert_eq!(exit, 0, "{out} {err}");
    let page = read("docs/how-to/machines.md");
    let changes = page.split("```yaml\n").find(|block| block.starts_with("changes:")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("changes.yaml");
    std::fs::write(&file, changes.split("```").next().unwrap()).unwrap();
    let commands = commands("docs/how-to/machines.md");
    let last = commands.last().unwrap().clone();
    assert_eq!(last, "node rm machine4");
    for command in &commands[..commands.len() - 1] {
        let command = &command.replace("changes.yaml", &file.display().to_string());
        let (exit, out, err) = parts(&kubeleet(&cluster.api, command));
        assert_eq!(exit, 0, "{command}: {out} {err}");
    }
    cluster.end_worker("machine4");
    blocking_eventually("a machine that is gone can be removed", || {
        let (exit, out, err) = parts(&kubeleet(&cluster.api, &last));
        if exit == 0 { Ok(()) } else { Err(format!("{exit} {out} {err}")) }
    });
}

#[test]
fn the_unit_of_backups_writes_a_backup_that_can_be_restored() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let unit = read("packaging/systemd/kubeleet-backup.service");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")).unwrap();
    let command = command.trim_end_matches('\'').replace("%%", "%").replace("/usr/bin/kubeleet", BINARY);
    let run = |command: &str| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).env("STATE_DIRECTORY", folder.path()).env("KUBELEET_API", &cluster.api);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    };
    run(&command);
    let backups: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(backups.len() == 1 && backups[0].extension().unwrap() == "backup", "{backups:?}");
    let (exit, out, err) = parts(&kubeleet(&cluster.api, &format!("restore {}", backups[0].display())));
    assert_eq!(exit, 0, "{out} {err}");

    let old = folder.path().join("2020-01-01-0000.backup");
    let aged = format!("touch -d '15 days ago' {}", old.display());
    run(&aged);
    let clean = unit.lines().find_map(|line| line.strip_prefix("ExecStartPost=")).unwrap();
    run(clean);
    assert!(!old.exists() && backups[0].exists(), "only old ones are removed");
}

#[test]
fn prometheus_takes_the_configuration_and_the_rules_of_the_page() {
    let page = read("docs/how-to/monitoring.md");
    let mut blocks = page.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("kubeleet-token");
    std::fs::write(&token, "token").unwrap();
    for (check, text) in ["config", "rules"].into_iter().zip(blocks.by_ref()) {
        let file = folder.path().join(check);
        let text = text.replace("/etc/prometheus/kubeleet-token", token.to_str().unwrap());
        std::fs::write(&file, text).unwrap();
        let Ok(output) = Command::new("promtool").args(["check", check]).arg(&file).output() else {
            testkit::require::skipped("promtool", "it is not installed: `scripts/install promtool`");
            return;
        };
        assert!(output.status.success(), "{check}: {output:?}");
    }
}

#[test]
fn pages_install_only_files_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for file in std::fs::read_dir(root.join("docs/how-to")).unwrap() {
        let path = file.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        for word in page.split_whitespace().filter(|word| word.starts_with("packaging/")) {
            let word = word.trim_matches(['`', ',', '.', ')']);
            let list = format!("ls -d {word}");
            let found = Command::new("bash").args(["-c", &list]).current_dir(root).output().unwrap();
            let is_glob = word.contains('*');
            assert!(is_glob || found.status.success(), "{}: {word}", path.display());
        }
    }
}
