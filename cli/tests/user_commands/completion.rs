//! Completion in a real bash.

use std::path::Path;
use std::process::Command;

use super::cluster::Cluster;
use super::{BINARY, kubeleet, parts};

/// Readline passes the text after the last `:` or `=` as the word.
const DRIVER: &str = r#"
source <(kubeleet completions bash)
COMP_LINE=$1 COMP_POINT=${#1}
last=${1##* }
_kubeleet_complete kubeleet "${last##*[:=]}" ""
printf '%s\n' "${COMPREPLY[@]}"
"#;

fn offered(api: &str, line: &str) -> String {
    let folder = Path::new(BINARY).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", DRIVER, "bash", line]).env_clear().env("PATH", path).env("KUBELEET_API", api);
    let (exit, out, err) = parts(&bash.output().unwrap());
    assert_eq!((exit, err.as_str()), (0, ""), "{line}");
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn bash_completes_the_names_of_objects() {
    let Some(cluster) = Cluster::start() else { return };
    let run = |line: &str| parts(&kubeleet(&cluster.api, line));
    assert_eq!(run("run hello --name web -l tier=front --replicas 2 --wait --timeout 30s").0, 0);
    assert_eq!(run("run hello --name db -l tier=back --wait --timeout 30s").0, 0);
    for (line, expected) in [
        ("kubeleet pod describe ", "db-0 web-0 web-1"),
        ("kubeleet pod describe w", "web-0 web-1"),
        ("kubeleet describe pod web-", "web-0 web-1"),
        ("kubeleet describe p", "pod"),
        ("kubeleet logs svc/", "svc/db svc/web"),
        ("kubeleet scale w", "web"),
        ("kubeleet svc rm db w", "web"),
        ("kubeleet drain ", "worker1"),
        ("kubeleet drain --he", "--help"),
        ("kubeleet delete no/", "no/worker1"),
        ("kubeleet queue peek pq:w", "worker1"),
        ("kubeleet ps -l tier=f", "front"),
        ("kubeleet ps --label tier!=x,ti", "x,tier=back x,tier=front"),
        ("kubeleet pod describe nothing", ""),
    ] {
        assert_eq!(offered(&cluster.api, line), expected, "{line}");
    }
}

#[test]
fn without_an_api_commands_are_completed_and_nothing_is_said() {
    for (line, expected) in [("kubeleet unc", "uncordon"), ("kubeleet pod describe w", "")] {
        assert_eq!(offered("http://127.0.0.1:1", line), expected, "{line}");
    }
}
