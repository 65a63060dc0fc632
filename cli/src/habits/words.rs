//! Commands of other programs, with their translations.

use clap::Command;
use model::ids::ServiceName;

use super::habit::Habit;
use super::line::TypedLine;

/// From the words after a command; the error is advice on what to type instead.
type Reader = fn(&[String]) -> Result<Vec<String>, String>;

#[derive(Clone, Copy)]
enum Meaning {
    Is(&'static str),
    Read(Reader),
    Say(&'static str),
}

pub(super) struct WordRow(Meaning);

impl WordRow {
    pub(super) fn apply(self, line: &TypedLine, rest: &[String]) -> Option<Habit> {
        let words = match self.0 {
            Meaning::Is(words) => {
                Ok(words.split(' ').map(str::to_owned).chain(rest.iter().cloned()).collect())
            }
            Meaning::Read(read) => read(rest),
            Meaning::Say(text) => Err(text.to_owned()),
        };
        Some(words.map_or_else(Habit::Advice, |words| Habit::Line(line.with(words))))
    }
}

const DELETES: &str = "`kubeleet service rm NAME` deletes a service, `kubeleet app rm APP` an app, \
                       `kubeleet pod stop POD` stops one pod";
const STOPS: &str = "`kubeleet stop SERVICE` and `kubeleet scale SERVICE 0` stop the pods of a service, which stays; \
                     `kubeleet pod stop POD` stops one pod, which its service replaces; `kubeleet down` deletes an app";
const STARTS: &str = "`kubeleet scale NAME 1` starts a pod of a service that was scaled to 0, `kubeleet run IMAGE` a new \
                      service";
const LISTS: &str =
    "`kubeleet ps` lists pods, `kubeleet svc` services, `kubeleet app` apps, `kubeleet get all` all";
const DEPLOYS: &str = "`kubeleet run IMAGE` starts a service, `kubeleet apply -f FILE` the services of a file, \
                       `kubeleet set image NAME IMAGE` updates one";
const EXPOSES: &str = "`kubeleet run IMAGE --ingress HOST:PORT` or `ingress:` in the service's file, as in \
                       `kubeleet edit NAME`, leads requests from outside to a service; others reach it by its name";
const LABELS: &str = "`kubeleet node label NODE zone=b disk-` changes labels of a node; those of a service are in its \
                      file: `kubeleet edit NAME`";
const IMAGES: &str = "nodes pull images by themselves: `kubeleet svc` and `kubeleet ps -o wide` show those of services and \
                      pods, `kubeleet gc --dry-run` those that nothing needs";
const BUILDS: &str =
    "kubeleet builds no images: build and push one with docker, then `kubeleet set image NAME IMAGE`";
const JOINS: &str = "a machine joins when a `kubeleet worker` runs there with KUBELEET_REDIS_URL of the cluster: see \
                     docs/how-to/three-machines.md";
const WAITS: &str = "`kubeleet rollout status NAME` waits for a service, `kubeleet job wait NAME` for a job, and most \
                     commands have --wait";
const CHANGES: &str = "`kubeleet set image NAME IMAGE` and `kubeleet scale NAME 3` change a service, `kubeleet edit NAME` \
                       anything of it, `kubeleet apply -f FILE` what a file says";
const SIGNALS: &str =
    "`kubeleet pod stop POD` stops a pod; `kubeleet exec POD kill -HUP 1` sends its program a signal";
const UNDOES: &str = "`kubeleet rollout undo SERVICE` goes back with one service, and `kubeleet rollout history SERVICE` shows \
                      to what";
const NETWORKS: &str =
    "pods reach the services of the cluster by name; `kubeleet route ls` lists what is reached from outside";
const SCHEDULES: &str =
    "`kubeleet apply -f FILE` with `kind: job` or `kind: cron` makes one: see docs/how-to/jobs.md";

/// Two words stand for a subcommand.
const TABLE: &[(&[&str], Meaning)] = &[
    // Compose.
    (&["up"], Meaning::Read(up)),
    (&["down", "compose down"], Meaning::Read(down)),
    (&["compose"], Meaning::Read(compose)),
    // Docker.
    (&["rm", "remove", "destroy", "del", "purge", "uninstall", "unapply"], Meaning::Read(remove)),
    (&["stop", "halt", "quit"], Meaning::Read(stop)),
    (&["start", "unpause"], Meaning::Say(STARTS)),
    (
        &["pause"],
        Meaning::Say("`kubeleet rollout pause NAME` holds an update; `kubeleet scale NAME 0` stops the pods"),
    ),
    (&["resume"], Meaning::Is("rollout resume")),
    (&["ls", "list"], Meaning::Say(LISTS)),
    (&["login"], Meaning::Is("registry login")),
    (&["logout"], Meaning::Is("registry logout")),
    (&["stats"], Meaning::Is("top")),
    (&["info", "cluster-info", "system info", "system status"], Meaning::Is("status")),
    (&["inspect", "show"], Meaning::Is("describe")),
    (&["kill"], Meaning::Read(kill)),
    (&["ports"], Meaning::Is("port")),
    (&["images", "image", "pull", "rmi"], Meaning::Say(IMAGES)),
    (&["build", "push", "tag", "commit", "save", "load", "import"], Meaning::Say(BUILDS)),
    (&["network", "networks"], Meaning::Say(NETWORKS)),
    (&["container ls", "container list", "container ps"], Meaning::Is("ps")),
    (&["container logs", "alloc logs", "allocation logs"], Meaning::Is("logs")),
    (&["container exec", "alloc exec", "pod exec", "service exec", "app exec"], Meaning::Is("exec")),
    (&["container inspect", "pod inspect", "pod status"], Meaning::Is("pod describe")),
    (
        &["alloc status", "alloc ls", "alloc list"],
        Meaning::Read(|rest| Ok(one_or_all("pod describe", "ps", rest))),
    ),
    (
        &["container stop", "container rm", "container kill", "alloc stop", "pod kill"],
        Meaning::Is("pod stop"),
    ),
    (&["container stats", "pod top"], Meaning::Is("top pods")),
    (&["node top"], Meaning::Is("top nodes")),
    (&["pod attach"], Meaning::Is("attach")),
    (&["pod cp"], Meaning::Is("cp")),
    (&["pod port-forward"], Meaning::Is("port-forward")),
    (
        &["container", "containers", "alloc", "allocation"],
        Meaning::Say("`kubeleet ps` lists pods: see `kubeleet pod --help`"),
    ),
    (
        &["system prune", "image prune"],
        Meaning::Say(
            "`kubeleet gc` removes images that nothing needs, `kubeleet node purge` \
        dead nodes, `kubeleet volume rm NAME` a volume with its data",
        ),
    ),
    (
        &["system df", "system"],
        Meaning::Say(
            "`kubeleet status` shows the cluster, `kubeleet top nodes` what nodes use, \
        `kubeleet gc --dry-run` the images that nothing needs",
        ),
    ),
    (&["volume inspect"], Meaning::Is("volume describe")),
    (
        &["volume create"],
        Meaning::Say("`volumes: [data:/path]` of a service, or `kubeleet run -v data:/path`, makes a volume"),
    ),
    (
        &["volume prune"],
        Meaning::Say(
            "`kubeleet volume ls` shows which are unused; `kubeleet volume rm NAME` removes one with \
        its data",
        ),
    ),
    (&["secret inspect"], Meaning::Is("secret describe")),
    (&["config inspect"], Meaning::Is("config describe")),
    (&["history"], Meaning::Is("rollout history")),
    (&["rollback", "undo", "revert"], Meaning::Is("rollout undo")),
    (&["promote"], Meaning::Is("rollout promote")),
    (&["tail"], Meaning::Is("logs -f")),
    (&["sh", "shell", "bash", "ssh", "console"], Meaning::Read(shell)),
    // Swarm.
    (&["deploy"], Meaning::Read(deploy)),
    (&["deployment", "rollforward"], Meaning::Say(DEPLOYS)),
    (&["stack deploy", "stack up"], Meaning::Read(stack_deploy)),
    (&["stack ls", "stack list", "stack"], Meaning::Is("app")),
    (
        &["stack rm", "stack down", "stack remove", "app down", "app remove", "app destroy"],
        Meaning::Is("app rm"),
    ),
    (&["stack ps", "service ps", "app ps", "app pods", "service pods"], Meaning::Is("ps")),
    (
        &["stack services", "stack config", "app inspect", "app status", "app services"],
        Meaning::Is("app describe"),
    ),
    (&["service create", "service run"], Meaning::Is("run")),
    (&["service update"], Meaning::Read(service_update)),
    (&["service logs", "service log", "job logs", "cron logs"], Meaning::Is("logs")),
    (
        &[
            "service inspect",
            "service status",
            "job describe",
            "job inspect",
            "cron describe",
            "cron inspect",
        ],
        Meaning::Is("service describe"),
    ),
    (&["service rollback", "service undo", "job revert"], Meaning::Is("rollout undo")),
    (&["service history", "job history"], Meaning::Is("rollout history")),
    (&["service stop"], Meaning::Read(stop)),
    (&["app stop"], Meaning::Say(STOPS)),
    (&["service start", "app start"], Meaning::Say(STARTS)),
    (&["service label"], Meaning::Say(LABELS)),
    (&["label"], Meaning::Read(label)),
    (
        &["node inspect", "node status"],
        Meaning::Read(|rest| Ok(one_or_all("node describe", "node ls", rest))),
    ),
    (&["node drain"], Meaning::Is("drain")),
    (&["node ps"], Meaning::Is("ps --node")),
    (&["node update"], Meaning::Read(node_update)),
    (
        &["node promote", "node demote"],
        Meaning::Say("all machines are alike: schedulers and APIs run where you start them"),
    ),
    (&["swarm", "join", "init", "node join", "node add"], Meaning::Say(JOINS)),
    // Apps as commands of `app`.
    (&["app logs", "app log"], Meaning::Read(|rest| of_app("logs", rest))),
    (&["app restart"], Meaning::Read(|rest| of_app("restart", rest))),
    (&["app up", "app apply", "app deploy", "app create"], Meaning::Read(up)),
    (&["app undo", "app rollback"], Meaning::Say(UNDOES)),
    (&["app scale"], Meaning::Say("`kubeleet scale APP-SERVICE 3` scales a service of an app")),
    // Nomad.
    (&["job run"], Meaning::Read(|rest| of_file("apply -f", "", rest))),
    (&["job plan"], Meaning::Read(|rest| of_file("diff -f", "", rest))),
    (&["validate", "job validate"], Meaning::Read(|rest| of_file("apply -f", "--dry-run", rest))),
    (&["job status"], Meaning::Read(|rest| Ok(one_or_all("service describe", "job ls", rest)))),
    (&["job stop", "job rm", "job delete"], Meaning::Is("delete job")),
    (&["cron rm", "cron delete", "cron stop"], Meaning::Is("delete cron")),
    (&["job create", "cron create"], Meaning::Say(SCHEDULES)),
    (&["job scale"], Meaning::Is("scale")),
    (&["cron trigger", "cron start"], Meaning::Is("cron run")),
    (&["cron pause"], Meaning::Is("cron suspend")),
    (
        &["namespace", "namespaces", "ns"],
        Meaning::Say(
            "there are no namespaces: labels group services, as in \
        `kubeleet get svc -l team=a`, and apps do",
        ),
    ),
    (
        &["server", "agent", "operator"],
        Meaning::Say(
            "`kubeleet status` shows the cluster; its daemons are `kubeleet api`, \
        `scheduler`, `worker` and `proxy`",
        ),
    ),
    // kubectl.
    (&["create"], Meaning::Read(create)),
    (&["replace"], Meaning::Is("apply")),
    (&["patch", "update"], Meaning::Say(CHANGES)),
    (
        &["set resources", "set label"],
        Meaning::Say(
            "`kubeleet edit NAME` changes any field of a service; or \
        change its file, and `kubeleet apply -f FILE`",
        ),
    ),
    (&["expose"], Meaning::Say(EXPOSES)),
    (&["ingress", "ingresses", "ing"], Meaning::Is("route")),
    (&["annotate"], Meaning::Say("services have labels and no annotations: `kubeleet edit NAME`")),
    (&["wait"], Meaning::Say(WAITS)),
    (
        &["taint"],
        Meaning::Say(
            "`kubeleet cordon NODE` keeps new pods off a node, `kubeleet drain NODE` moves its pods as well",
        ),
    ),
    (&["autoscale"], Meaning::Say("nothing scales by itself: `kubeleet scale NAME 3`")),
    (
        &["debug"],
        Meaning::Say(
            "`kubeleet exec -it POD sh` runs a shell in a container, `kubeleet describe pod POD` shows its problem",
        ),
    ),
    (&["deployments", "deploys"], Meaning::Is("service")),
    (
        &["context", "use-context"],
        Meaning::Say("--api, or KUBELEET_API, says which cluster: `kubeleet --api http://node1:7070 status`"),
    ),
    (
        &["api-resources"],
        Meaning::Say("`kubeleet get --help` lists the types, `kubeleet explain service` the fields"),
    ),
    (
        &["upgrade"],
        Meaning::Say(
            "`kubeleet set image NAME IMAGE` updates a service; docs/how-to/upgrades.md is about kubeleet itself",
        ),
    ),
];

pub(super) fn find(line: &TypedLine, root: &Command) -> Option<(WordRow, Vec<String>)> {
    let known = root.find_subcommand(&line.word);
    let first = known.map_or(line.word.as_str(), Command::get_name);
    if let Some(second) = line.second()
        && known.is_none_or(|known| known.find_subcommand(second).is_none())
        && let Some(row) = row(&format!("{first} {second}"))
    {
        return Some((row, line.rest[1..].to_vec()));
    }
    match known {
        Some(_) if first == "run" => kubectl_run(line),
        Some(_) => None,
        None => row(first).map(|row| (row, line.rest.clone())),
    }
}

fn row(words: &str) -> Option<WordRow> {
    TABLE.iter().find(|(known, _)| known.contains(&words)).map(|(_, meaning)| WordRow(*meaning))
}

/// `kubectl run NAME --image=IMAGE`
fn kubectl_run(line: &TypedLine) -> Option<(WordRow, Vec<String>)> {
    let has_image = line.rest.iter().any(|word| word == "--image" || word.starts_with("--image="));
    has_image.then(|| (WordRow(Meaning::Read(deployment)), line.rest.clone()))
}

const COMPOSE_VALUES: [&str; 8] =
    ["-f", "--file", "-p", "--project-name", "--profile", "--env-file", "--timeout", "--project-directory"];

fn words(text: &str, rest: impl IntoIterator<Item = String>) -> Vec<String> {
    text.split(' ').map(str::to_owned).chain(rest).collect()
}

/// `docker compose -f FILE up`: moves the options behind the command.
fn compose(rest: &[String]) -> Result<Vec<String>, String> {
    let mut index = 0;
    while rest.get(index).is_some_and(|word| word.starts_with('-')) {
        index += if COMPOSE_VALUES.contains(&rest[index].as_str()) { 2 } else { 1 };
    }
    let Some(command) = rest.get(index) else {
        return Err(
            "`kubeleet apply` applies the Compose file of this folder, `kubeleet app` lists apps".to_owned()
        );
    };
    let (before, after) = (&rest[..index.min(rest.len())], &rest[index + 1..]);
    let takes_files = ["up", "down", "config", "create", "convert"].contains(&command.as_str());
    let before = before.iter().filter(|_| takes_files).cloned();
    match command.as_str() {
        "ls" => Ok(words("app ls", after.iter().cloned())),
        "config" | "convert" => Ok(words("apply --dry-run", before.chain(after.iter().cloned()))),
        "create" => Ok(words("up", before.chain(after.iter().cloned()))),
        "run" => Err("`kubeleet run -it --rm IMAGE COMMAND` runs a container of its own, `kubeleet exec SERVICE COMMAND` \
                      something in one that runs"
            .to_owned()),
        command => Ok(words(command, before.chain(after.iter().cloned()))),
    }
}

/// `docker compose up -d`
fn up(rest: &[String]) -> Result<Vec<String>, String> {
    let mut kept = Vec::new();
    let mut words_left = rest.iter();
    while let Some(word) = words_left.next() {
        match word.as_str() {
            "-d" | "--detach" | "--no-color" | "--quiet-pull" | "--no-build" | "-y" | "--yes" => {}
            "--remove-orphans" => kept.push("--prune".to_owned()),
            "--build" => return Err(BUILDS.to_owned()),
            "--force-recreate" | "--renew-anon-volumes" | "-V" => {
                return Err("`kubeleet apply` replaces changed services, `kubeleet restart NAME` all pods of a service".to_owned());
            }
            "--scale" => {
                return Err("`kubeleet scale NAME 3` changes the number of pods of a service".to_owned());
            }
            option if COMPOSE_VALUES.contains(&option) => {
                kept.push(word.clone());
                kept.extend(words_left.next().cloned());
            }
            option if option.starts_with('-') => kept.push(word.clone()),
            name => {
                return Err(format!(
                    "the whole app is applied, with `kubeleet apply` and without {name}: unchanged services stay as they are"
                ));
            }
        }
    }
    Ok(words("apply", kept))
}

/// `docker compose down`, or `down APP`
fn down(rest: &[String]) -> Result<Vec<String>, String> {
    let (mut apps, mut options) = (Vec::new(), Vec::new());
    let mut words_left = rest.iter();
    while let Some(word) = words_left.next() {
        match word.as_str() {
            // Docker waits as well, and `up` after it needs the names.
            "--remove-orphans" | "--wait" => {}
            "-t" | "--timeout" => drop(words_left.next()),
            "-p" | "--project-name" => apps.extend(words_left.next().cloned()),
            "-f" | "--file" => {
                let file = words_left.next().cloned().unwrap_or_default();
                return Ok(words("delete --wait -f", std::iter::once(file).chain(words_left.cloned())));
            }
            "-v" | "--volumes" => {
                return Err(
                    "`kubeleet app rm APP` leaves the volumes: `kubeleet volume ls` lists them, and \
                            `kubeleet volume rm NAME` removes one with its data"
                        .to_owned(),
                );
            }
            option if option.starts_with('-') => options.push(word.clone()),
            _ => apps.push(word.clone()),
        }
    }
    if apps.is_empty() {
        options.push("--here".to_owned());
    }
    Ok(words("app rm --wait", apps.into_iter().chain(options)))
}

/// `docker stack deploy -c FILE NAME`
fn stack_deploy(rest: &[String]) -> Result<Vec<String>, String> {
    let mut kept = Vec::new();
    let mut words_left = rest.iter();
    while let Some(word) = words_left.next() {
        match word.as_str() {
            "-c" | "--compose-file" => {
                kept.push("-f".to_owned());
                kept.extend(words_left.next().cloned());
            }
            "--with-registry-auth" | "-q" | "--quiet" | "-d" | "--detach" | "--detach=true" => {}
            option if option.starts_with('-') => kept.push(word.clone()),
            name => kept.extend(["-p".to_owned(), name.to_owned()]),
        }
    }
    Ok(words("apply", kept))
}

/// `docker service update --image IMAGE NAME`
fn service_update(rest: &[String]) -> Result<Vec<String>, String> {
    let rest = split_values(rest);
    let value = |name: &str| rest.iter().position(|word| word == name).and_then(|at| rest.get(at + 1));
    let name = rest.last().filter(|word| !word.starts_with('-'));
    if let Some(name) = name
        && let Some(changes) = environment_changes(&rest[..rest.len() - 1])
    {
        return Ok(words("set env", std::iter::once(name.clone()).chain(changes)));
    }
    match (value("--image"), value("--replicas"), name) {
        (Some(image), None, Some(name)) if rest.len() == 3 => {
            Ok(words("set image", [name.clone(), image.clone()]))
        }
        (None, Some(replicas), Some(name)) if rest.len() == 3 => {
            Ok(words("scale", [name.clone(), replicas.clone()]))
        }
        (None, None, Some(name)) if rest == ["--force", name] => Ok(words("restart", [name.clone()])),
        _ => Err(CHANGES.to_owned()),
    }
}

/// `--env-add A=b --env-rm C` is `A=b C-`; `None` with other options or without any.
fn environment_changes(options: &[String]) -> Option<Vec<String>> {
    let change = |pair: &[String]| match pair {
        [option, value] if option == "--env-add" => Some(value.clone()),
        [option, value] if option == "--env-rm" => Some(format!("{value}-")),
        _ => None,
    };
    let changes: Option<Vec<String>> = options.chunks(2).map(change).collect();
    changes.filter(|changes| !changes.is_empty())
}

/// `docker node update --availability drain NODE`
fn node_update(rest: &[String]) -> Result<Vec<String>, String> {
    let rest = split_values(rest);
    match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--availability", "drain", node] => Ok(words("drain", [node.to_owned()])),
        ["--availability", "pause", node] => Ok(words("cordon", [node.to_owned()])),
        ["--availability", "active", node] => Ok(words("uncordon", [node.to_owned()])),
        ["--label-add", label, node] => Ok(words("node label", [node.to_owned(), label.to_owned()])),
        ["--label-rm", key, node] => Ok(words("node label", [node.to_owned(), format!("{key}-")])),
        _ => Err(format!("`kubeleet cordon`, `uncordon` and `drain NODE` say what a node gets; {LABELS}")),
    }
}

/// `kubectl label node NAME zone=b disk- --overwrite`
fn label(rest: &[String]) -> Result<Vec<String>, String> {
    let mut kept: Vec<String> = rest.iter().filter(|word| *word != "--overwrite").cloned().collect();
    match kept.first().map(String::as_str) {
        Some("node" | "nodes" | "no") => drop(kept.remove(0)),
        Some(first) if first.starts_with("node/") => {}
        _ => return Err(LABELS.to_owned()),
    }
    Ok(words("node label", kept))
}

/// Nomad's `job status [JOB]` and the like.
fn one_or_all(one: &str, all: &str, rest: &[String]) -> Vec<String> {
    let is_named = rest.iter().any(|word| !word.starts_with('-'));
    words(if is_named { one } else { all }, rest.iter().cloned())
}

fn of_names(command: &str, rest: &[String], without: &str) -> Result<Vec<String>, String> {
    match rest.iter().any(|word| !word.starts_with('-')) {
        true => Ok(words(command, rest.iter().cloned())),
        false => Err(without.to_owned()),
    }
}

/// Nomad's `job run FILE` and `plan FILE`
fn of_file(command: &str, after: &str, rest: &[String]) -> Result<Vec<String>, String> {
    match rest {
        [file] if !file.starts_with('-') || file == "-" => {
            let after = Some(after.to_owned()).filter(|word| !word.is_empty());
            Ok(words(command, std::iter::once(file.clone()).chain(after)))
        }
        _ => {
            Err("`kubeleet apply -f FILE` applies a file, `kubeleet diff -f FILE` shows what it would change"
                .to_owned())
        }
    }
}

/// `docker compose stop SERVICE`; for a pod, `docker stop`.
fn stop(rest: &[String]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut words_left = rest.iter();
    while let Some(word) = words_left.next() {
        match word.as_str() {
            "-t" | "--time" | "--timeout" => drop(words_left.next()),
            option if option.starts_with('-') => return Err(STOPS.to_owned()),
            name => names.push(name.to_owned()),
        }
    }
    let is_pod = |name: &String| name.starts_with("pod/") || name.starts_with("po/");
    match names.is_empty() {
        true => Err(STOPS.to_owned()),
        false if names.iter().any(is_pod) => Ok(words("pod stop", names)),
        false => Ok(words("scale --replicas 0", names)),
    }
}

/// `docker rm -f NAME`
fn remove(rest: &[String]) -> Result<Vec<String>, String> {
    let is_dropped =
        |word: &&String| ["-f", "--force", "-s", "--stop", "-fs", "-sf"].contains(&word.as_str());
    let kept: Vec<String> = rest.iter().filter(|word| !is_dropped(word)).cloned().collect();
    match kept.iter().any(|word| word == "-v" || word == "--volumes") {
        true => {
            Err(format!("{DELETES}; `kubeleet service rm NAME --volumes --yes` removes its data as well"))
        }
        false => of_names("delete", &kept, DELETES),
    }
}

/// `docker kill POD`: other signals need `exec`.
fn kill(rest: &[String]) -> Result<Vec<String>, String> {
    match rest.iter().any(|word| word.starts_with('-')) {
        true => Err(SIGNALS.to_owned()),
        false => of_names("pod stop", rest, SIGNALS),
    }
}

/// `deploy NAME IMAGE`, `deploy NAME --image=IMAGE`, `deploy -f FILE`
fn deploy(rest: &[String]) -> Result<Vec<String>, String> {
    match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(words("apply", [])),
        ["-f" | "--file", ..] => Ok(words("apply", rest.iter().cloned())),
        _ if rest.iter().any(|word| word.starts_with("--image")) => deployment(rest),
        [name, image, ..] if ServiceName::new(name).is_ok() && !image.starts_with('-') => {
            let options = rest[2..].iter().cloned();
            let image = std::iter::once(image.to_owned());
            Ok(words("run --name", std::iter::once(name.to_owned()).chain(options).chain(image)))
        }
        _ => Err(DEPLOYS.to_owned()),
    }
}

/// `app logs APP`; without a name, for this folder's app.
fn of_app(command: &str, rest: &[String]) -> Result<Vec<String>, String> {
    let app = |word: &String| match word.starts_with('-')
        || word.starts_with("app/")
        || word.parse::<u64>().is_ok()
    {
        true => word.clone(),
        false => format!("app/{word}"),
    };
    Ok(words(command, rest.iter().map(app)))
}

/// `shell POD`
fn shell(rest: &[String]) -> Result<Vec<String>, String> {
    match rest {
        [pod] => Ok(words("exec -it", [pod.clone(), "sh".to_owned()])),
        _ => Err("`kubeleet exec -it POD sh` runs a shell in a container".to_owned()),
    }
}

/// `kubectl create …`
fn create(rest: &[String]) -> Result<Vec<String>, String> {
    match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["deployment" | "deploy" | "service" | "svc" | "pod", ..]
            if rest.iter().any(|word| word.starts_with("--image")) =>
        {
            deployment(&rest[1..])
        }
        ["-f" | "--file" | "--filename", ..] => Ok(words("apply", rest.iter().cloned())),
        ["secret", ..] => Err(
            "`kubeleet secret create NAME FILE` stores a secret; without a FILE it is read from standard \
                               input"
                .to_owned(),
        ),
        ["configmap" | "cm" | "config", ..] => {
            Err("`kubeleet config create NAME FILE` stores a config".to_owned())
        }
        ["job", name, from] | ["job", from, name] if from.starts_with("--from=") => {
            let cron = from.trim_start_matches("--from=").rsplit('/').next().unwrap_or_default();
            Ok(words("cron run", [cron.to_owned(), "--job".to_owned(), name.to_owned()]))
        }
        ["job" | "cronjob" | "cron", ..] => Err(SCHEDULES.to_owned()),
        ["ingress" | "ing", ..] => Err(EXPOSES.to_owned()),
        ["namespace" | "ns", ..] => {
            Err("there are no namespaces: labels group services, and apps do".to_owned())
        }
        _ => Err(DEPLOYS.to_owned()),
    }
}

/// `NAME --image=IMAGE …`
fn deployment(rest: &[String]) -> Result<Vec<String>, String> {
    let rest = split_values(rest);
    let mut image = None;
    let mut kept = Vec::new();
    let mut name = None;
    let mut words_left = rest.into_iter();
    while let Some(word) = words_left.next() {
        match word.as_str() {
            "--image" => image = words_left.next(),
            "--" => {
                kept.push(word);
                kept.extend(words_left.by_ref());
            }
            option if option.starts_with('-') => {
                kept.push(word);
                kept.extend(words_left.next());
            }
            _ if name.is_none() => name = Some(word),
            _ => kept.push(word),
        }
    }
    match (image, name) {
        (Some(image), Some(name)) => Ok(words("run --name", [name, image].into_iter().chain(kept))),
        _ => Err(DEPLOYS.to_owned()),
    }
}

/// Splits `--name=value` in two.
fn split_values(rest: &[String]) -> Vec<String> {
    let is_after_end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
    let parts = rest.iter().enumerate().flat_map(|(index, word)| match word.split_once('=') {
        Some((name, value)) if index < is_after_end && name.starts_with("--") => {
            vec![name.to_owned(), value.to_owned()]
        }
        _ => vec![word.clone()],
    });
    parts.collect()
}

#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|(words, _)| words.iter().copied())
}
