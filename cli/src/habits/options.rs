//! Options of other programs.

use super::habit::{Habit, NO_NAMESPACES};
use super::line::TypedLine;
use crate::help;

#[derive(Debug, Clone, Copy)]
enum OptionHabit {
    Drop,
    Is(&'static str),
    Say(&'static str),
}

type OptionRow = (&'static [&'static str], &'static [&'static str], OptionHabit);

/// A row without commands applies to all.
const TABLE: &[OptionRow] = &[
    (&[], &["-A", "--all-namespaces"], OptionHabit::Drop),
    (&[], &["-n", "--namespace", "--ns"], OptionHabit::Say(NO_NAMESPACES)),
    (
        &["drain"],
        &[
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--delete-local-data",
            "--force",
            "--wait",
            "-y",
            "--yes",
        ],
        OptionHabit::Drop,
    ),
    (
        &["drain"],
        &["--grace-period"],
        OptionHabit::Say("a pod has the `stop_grace_period` of its service to end: `kubeleet edit SERVICE`"),
    ),
    (&["logs", "pod logs"], &["-p"], OptionHabit::Is("--previous")),
    (&["logs", "pod logs"], &["--since-time"], OptionHabit::Is("--since")),
    (&["logs", "pod logs"], &["--all-containers", "--prefix", "--all-pods"], OptionHabit::Drop),
    (&["run"], &["--host", "--domain"], OptionHabit::Is("--ingress")),
    (
        &["run"],
        &["--node", "--node-selector"],
        OptionHabit::Say("--constraint KEY==VALUE chooses nodes by label, and node.hostname==NODE by name"),
    ),
    (
        &["run"],
        &["--placement-pref", "--mode"],
        OptionHabit::Say(
            "replicas go to different zones and nodes by default, and --constraint chooses nodes by label",
        ),
    ),
    (&["run"], &["--publish"], OptionHabit::Is("--port")),
    (&["run"], &["--environment"], OptionHabit::Is("--env")),
    (&["run"], &["--detach-keys", "--no-resolve-image", "--quiet"], OptionHabit::Drop),
    (&["run"], &["--limit-memory"], OptionHabit::Is("--memory")),
    (&["run"], &["--limit-cpu"], OptionHabit::Is("--cpus")),
    (
        &["run"],
        &["--privileged", "--cap-add", "--device", "--pid", "--ipc", "--security-opt"],
        OptionHabit::Say(
            "pods get no privileges that a node's operator has not allowed: see docs/reference/pod-policy.md, and \
             write them in a file for `kubeleet apply`",
        ),
    ),
    (
        &["run"],
        &["--network", "--net", "--link"],
        OptionHabit::Say(
            "pods reach the services of the cluster by name; there are no networks to choose from",
        ),
    ),
    (
        &["run"],
        &["--mount"],
        OptionHabit::Say(
            "`--volume data:/path` is a volume that stays, `--tmpfs /path` a directory in memory",
        ),
    ),
    (
        &["run"],
        &["-P", "--publish-all"],
        OptionHabit::Say(
            "`--port 8080:80` publishes a port on loopback, `--ingress HOST:80` through the proxies",
        ),
    ),
    (
        &["get", "service ls", "pod ls", "ps", "node ls"],
        &["--show-labels"],
        OptionHabit::Say("`-o yaml` shows the labels, and `-l a=b` selects by them"),
    ),
    (
        &["apply", "diff"],
        &["-k", "--kustomize"],
        OptionHabit::Say(
            "there is no kustomize: a Compose file has overrides, `kubeleet apply -f a.yml -f b.yml`",
        ),
    ),
    (&["apply"], &["--server-side", "--force-conflicts", "--record"], OptionHabit::Drop),
    (
        &["apply", "diff"],
        &["-R", "--recursive"],
        OptionHabit::Say("name each folder: `kubeleet apply -f a -f b`; folders in a folder are not read"),
    ),
    (&["apply"], &["--remove-orphans"], OptionHabit::Is("--prune")),
    (&["apply"], &["-d", "--detach"], OptionHabit::Drop),
    (&["top"], &["--no-stream"], OptionHabit::Is("--once")),
    (&["version"], &["--client", "--short"], OptionHabit::Drop),
    (
        &["delete", "app rm"],
        &["--volumes"],
        OptionHabit::Say("`kubeleet service rm NAME --volumes --yes` removes a service with its data"),
    ),
    (
        &["delete", "service rm", "pod stop"],
        &["--grace-period"],
        OptionHabit::Say("a pod has the `stop_grace_period` of its service to end: `kubeleet edit SERVICE`"),
    ),
    (
        &["delete", "service rm", "app rm", "pod stop"],
        &["--force", "--now", "--ignore-not-found"],
        OptionHabit::Drop,
    ),
    (&["backup"], &["--output"], OptionHabit::Say("`kubeleet backup FILE` writes the file, without -o")),
];

pub(super) fn find(line: &TypedLine, option: Option<&str>) -> Option<Habit> {
    let path = line.path(&help::command_line());
    if let Some(position) = line.rest.iter().position(|word| word.starts_with("--dry-run=")) {
        let is_off = line.rest[position] == "--dry-run=none";
        return Some(replaced(line, position, (!is_off).then_some("--dry-run")));
    }
    // kubectl's `-n web` is not a number of lines.
    if line.rest.iter().any(|word| word == "-n" || word == "--namespace")
        && path.ends_with("logs")
        && option.is_none_or(|option| option == "--tail")
    {
        let value = line.rest.iter().skip_while(|word| *word != "-n").nth(1)?;
        return value.parse::<u64>().is_err().then(|| Habit::Advice(NO_NAMESPACES.to_owned()));
    }
    let option = option?;
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let has = |(commands, options, _): &&OptionRow| {
        options.contains(&name) && (commands.is_empty() || commands.contains(&path.as_str()))
    };
    let (_, _, habit) = TABLE.iter().find(has)?;
    let is_it = |word: &&String| word.as_str() == name || word.starts_with(&format!("{name}="));
    let position = line.rest.iter().position(|word| is_it(&word));
    match habit {
        OptionHabit::Say(text) => Some(Habit::Advice((*text).to_owned())),
        OptionHabit::Drop => Some(replaced(line, position?, None)),
        OptionHabit::Is(other) => Some(replaced(line, position?, Some(other))),
    }
}

/// A line that lacks only `--yes`.
pub(super) fn unconfirmed(line: &TypedLine) -> Option<Habit> {
    let path = line.path(&help::command_line());
    let (option, why) = match path.as_str() {
        "service rm" => {
            ("--volumes", "--volumes deletes the data of the service, and nothing brings it back")
        }
        "queue drop" => ("--all", "--all drops every dead letter, and nothing brings them back"),
        "queue requeue" => ("--all", "--all requeues every dead letter"),
        _ => return None,
    };
    Some(Habit::Advice(format!("{why}: to confirm it, add --yes: `kubeleet {path} … {option} --yes`")))
}

fn replaced(line: &TypedLine, position: usize, option: Option<&str>) -> Habit {
    let mut words = vec![line.word.clone()];
    for (index, word) in line.rest.iter().enumerate() {
        match (index == position, option) {
            (false, _) => words.push(word.clone()),
            (true, None) => {}
            (true, Some(option)) => {
                let value = word.split_once('=').filter(|(name, _)| *name != option);
                words.push(value.map_or_else(|| option.to_owned(), |(_, value)| format!("{option}={value}")));
            }
        }
    }
    Habit::Line(line.with(words))
}
