//! Translations of lines of other programs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn becomes(typed: &str) -> String {
    let mut line: Vec<String> = format!("kubeleet {typed}").split_whitespace().map(str::to_owned).collect();
    for _ in 0..MAX_ROUNDS {
        let Err(error) = help::command_line().try_get_matches_from(&line) else { break };
        match habit(&line, &error) {
            Some(Habit::Line(other)) => line = other,
            Some(Habit::Advice(text)) => return text,
            None => return error.to_string(),
        }
    }
    line.join(" ")
}

#[test]
fn lines_of_other_programs_mean_lines_of_this_one() {
    for (typed, expected) in [
        ("up -d", "apply"),
        ("up -d --remove-orphans --wait -p shop", "apply --prune --wait -p shop"),
        ("compose -f a.yml up -d", "apply -f a.yml"),
        ("compose up -d --wait", "apply --wait"),
        ("compose down", "app rm --wait --here"),
        ("down", "app rm --wait --here"),
        ("down shop --wait", "app rm --wait shop"),
        ("compose logs -f web", "logs -f web"),
        ("compose ps", "ps"),
        ("compose ls", "app ls"),
        ("compose config", "apply --dry-run"),
        ("stack deploy -c docker-compose.yml shop", "apply -f docker-compose.yml -p shop"),
        ("stack ls", "app"),
        ("stack rm shop", "app rm shop"),
        ("stack ps shop", "ps shop"),
        (
            "service create --name web --replicas 3 --publish 8080:80 nginx",
            "run --name web --replicas 3 --port 8080:80 nginx",
        ),
        ("service update --image nginx:2 web", "set image web nginx:2"),
        ("service update --replicas=4 web", "scale web 4"),
        ("service update --force web", "restart web"),
        ("svc logs web", "logs web"),
        ("service ps web", "ps web"),
        ("service inspect web", "service describe web"),
        ("node update --availability drain worker1", "drain worker1"),
        ("node update --availability=active worker1", "uncordon worker1"),
        ("node update --label-add zone=b worker1", "node label worker1 zone=b"),
        ("node update --label-rm=disk worker1", "node label worker1 disk-"),
        ("label nodes worker1 zone=b disk- --overwrite", "node label worker1 zone=b disk-"),
        ("label node/worker1 zone=b", "node label node/worker1 zone=b"),
        ("node drain worker1", "drain worker1"),
        ("node status", "node ls"),
        ("login reg.example -u bob --password-stdin", "registry login reg.example -u bob --password-stdin"),
        ("login reg.example -u bob -p x", "registry login reg.example -u bob -p x"),
        ("logout reg.example", "registry logout reg.example"),
        ("stats", "top"),
        ("info", "status"),
        ("inspect web", "describe web"),
        ("history web", "rollout history web"),
        ("undo web", "rollout undo web"),
        ("app logs shop -f", "logs app/shop -f"),
        ("app restart shop", "restart app/shop"),
        ("app ps shop", "ps shop"),
        ("job status nightly", "service describe nightly"),
        ("alloc logs web-0", "logs web-0"),
        ("create deployment web --image=nginx --replicas=3", "run --name web nginx --replicas 3"),
        ("run web --image nginx", "run --name web nginx"),
        ("create -f web.yaml", "apply -f web.yaml"),
        ("replace -f web.yaml", "apply -f web.yaml"),
        ("ingress", "route"),
        ("--api http://n:1 -o json info", "--api http://n:1 -o json status"),
        ("get pods -A", "get pods"),
        ("get svc --all-namespaces -o wide", "get svc -o wide"),
        ("drain worker1 --ignore-daemonsets --delete-emptydir-data --force", "drain worker1"),
        ("logs web -p", "logs web --previous"),
        ("logs web --since-time=2026-01-31T12:00:00Z", "logs web --since=2026-01-31T12:00:00Z"),
        ("apply -f a.yaml --dry-run=client", "apply -f a.yaml --dry-run"),
        ("apply -d", "apply"),
        ("shell web", "exec -it web sh"),
        ("deploy web nginx", "run --name web nginx"),
        ("deploy web nginx:2 -p 8080:80", "run --name web -p 8080:80 nginx:2"),
        ("stop web", "scale --replicas 0 web"),
        ("stop -t 5 web db", "scale --replicas 0 web db"),
        ("stop pod/web-0", "pod stop pod/web-0"),
        ("rm -f web", "delete web"),
        ("kill web-0", "pod stop web-0"),
        ("kill svc/web", "pod stop svc/web"),
        ("port web2", "port web2"),
        ("ports web", "port web"),
        ("job run web.yaml", "apply -f web.yaml"),
        ("job plan web.yaml", "diff -f web.yaml"),
        ("validate web.yaml", "apply -f web.yaml --dry-run"),
        ("job stop sums", "delete job sums"),
        ("cron rm nightly", "delete cron nightly"),
        ("alloc status", "ps"),
        ("alloc status web-0", "pod describe web-0"),
        ("service update --env-add A=b --env-rm C web", "set env web A=b C-"),
        ("service update --env-add=A=b web", "set env web A=b"),
        ("stats --no-stream", "top --once"),
        ("create job m --from=cronjob/backup", "cron run backup --job m"),
        ("secret inspect db", "secret describe db"),
        ("run nginx --host web.example", "run nginx --ingress web.example"),
    ] {
        assert_eq!(becomes(typed), format!("kubeleet {expected}"), "{typed}");
    }
}

#[test]
fn other_lines_are_refused_with_what_to_type() {
    for (typed, expected) in [
        ("start web", "kubeleet scale NAME 1"),
        ("rm", "kubeleet service rm"),
        ("rm -v web", "--volumes --yes"),
        ("stop", "kubeleet stop SERVICE"),
        ("deploy web", "kubeleet run IMAGE"),
        ("kill -s HUP web-0", "kubeleet exec"),
        ("set resources web", "kubeleet edit"),
        ("run nginx --node w1", "node.hostname==NODE"),
        ("delete svc db --volumes", "kubeleet service rm"),
        ("ls", "kubeleet ps"),
        ("expose deployment web", "--ingress HOST:PORT"),
        ("label svc/web a=b", "kubeleet edit"),
        ("annotate svc/web a=b", "no annotations"),
        ("images", "kubeleet ps -o wide"),
        ("patch svc web", "kubeleet set image"),
        ("wait --for=condition=Ready pod/web", "kubeleet rollout status"),
        ("alloc", "kubeleet ps"),
        ("app undo shop", "kubeleet rollout undo"),
        ("up web", "the whole app"),
        ("up --build", "builds no images"),
        ("down -v", "volume rm"),
        ("get pods -n prod", "no namespaces"),
        ("logs -n prod web", "no namespaces"),
        ("drain worker1 --grace-period 5", "stop_grace_period"),
        ("backup -o cluster.backup", "kubeleet backup FILE"),
        ("service rm web --volumes", "--volumes --yes"),
        ("delete svc web --volumes", "--volumes --yes"),
        ("queue drop --all", "--all --yes"),
        ("queue requeue --all", "--all --yes"),
        ("swarm join", "kubeleet worker"),
        ("create secret generic db", "kubeleet secret create"),
    ] {
        let text = becomes(typed);
        assert!(text.contains(expected) && !text.contains("Usage:"), "{typed}: {text}");
    }
}

#[test]
fn what_is_typed_right_is_never_looked_up() {
    let root = help::command_line();
    for name in words::all() {
        let (first, second) =
            name.split_once(' ').map_or((name, None), |(first, second)| (first, Some(second)));
        let command = root.find_subcommand(first);
        let is_known = match second {
            Some(second) => command.is_some_and(|command| command.find_subcommand(second).is_some()),
            None => command.is_some(),
        };
        assert!(!is_known, "{name} is a command of this program");
    }
}

#[test]
fn suggestions_are_close_and_never_hidden() {
    for (typed, expected, never) in [
        ("depoy", "", vec!["proxy", "hello", "apply"]),
        ("search x", "", vec!["tip:"]),
        ("config get-contexts", "", vec!["tip:"]),
        ("stauts", "status", vec!["stats"]),
        ("hell", "", vec!["hello"]),
        ("pod lss", "ls", vec![]),
        ("backup -x", "", vec!["as a value", "-- -x"]),
    ] {
        let Err(LineRefusal::Usage(error)) = parse(words(&format!("kubeleet {typed}"))) else {
            panic!("{typed}")
        };
        let text = error.to_string();
        assert!(text.contains(expected) && never.iter().all(|word| !text.contains(word)), "{typed}: {text}");
    }
}

#[test]
fn usage_has_no_options_that_are_set_elsewhere() {
    let Err(LineRefusal::Usage(error)) = parse(words("kubeleet --api http://x get")) else { panic!() };
    let text = error.to_string();
    assert!(text.contains("Usage: kubeleet get [OPTIONS]") && !text.contains("--api <URL>"), "{text}");
}
