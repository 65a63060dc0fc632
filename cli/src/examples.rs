//! Examples at the end of each command's help.

/// Commands as typed. A comment follows two blanks and a `#`.
pub(crate) const TABLE: &[(&str, &[&str])] = &[
    ("dev", &["kubeleet dev", "kubeleet dev --workers 3 --ha", "kubeleet dev --data ~/cluster"]),
    ("api", &["kubeleet api --redis-url redis://10.0.0.1:6379 --listen 127.0.0.1:7070"]),
    ("scheduler", &["kubeleet scheduler --redis-url redis://10.0.0.1:6379"]),
    ("worker", &["kubeleet worker --redis-url redis://10.0.0.1:6379 --node worker1 --labels zone=a"]),
    ("proxy", &["kubeleet proxy --redis-url redis://10.0.0.1:6379"]),
    ("net rules", &["kubeleet net rules", "kubeleet net rules --remove"]),
    ("net check", &["kubeleet net check web:8080"]),
    ("healthcheck", &["kubeleet healthcheck worker"]),
    (
        "run",
        &[
            "kubeleet run nginx --replicas 3 -p 8080:80 -e MODE=demo --wait",
            "kubeleet run nginx --name web --ingress web.example:80",
            "kubeleet run --rm busybox echo hello  # prints the output, and has its exit code",
            "kubeleet run -it --rm busybox sh",
        ],
    ),
    (
        "apply",
        &[
            "kubeleet apply  # the Compose file of this folder",
            "kubeleet apply -f docker-compose.yml --prune",
            "kubeleet apply -f web.yaml --wait",
        ],
    ),
    ("diff", &["kubeleet diff -f web.yaml"]),
    ("service ls", &["kubeleet service ls", "kubeleet svc -l tier=front -w"]),
    ("service describe", &["kubeleet service describe web"]),
    ("service scale", &["kubeleet service scale web 3"]),
    ("service edit", &["kubeleet service edit web"]),
    ("service restart", &["kubeleet service restart web --wait"]),
    ("service rm", &["kubeleet service rm web db", "kubeleet service rm -l app=shop --wait"]),
    ("job ls", &["kubeleet job ls --cron nightly"]),
    ("job results", &["kubeleet job results sums -o wide"]),
    ("job wait", &["kubeleet job wait sums --timeout 1h"]),
    ("cron ls", &["kubeleet cron ls"]),
    ("cron run", &["kubeleet cron run nightly --wait"]),
    ("cron suspend", &["kubeleet cron suspend nightly"]),
    ("cron resume", &["kubeleet cron resume nightly"]),
    ("app ls", &["kubeleet app ls"]),
    ("app describe", &["kubeleet app describe shop"]),
    ("app rm", &["kubeleet app rm shop --wait", "kubeleet app rm --here"]),
    ("pod ls", &["kubeleet pod ls --service web -o wide", "kubeleet pod ls --node worker1 --phase running"]),
    ("pod describe", &["kubeleet pod describe web-0"]),
    ("pod logs", &["kubeleet pod logs web-0 -f"]),
    ("pod stop", &["kubeleet pod stop web-0 --wait"]),
    ("node ls", &["kubeleet node ls -o wide"]),
    ("node describe", &["kubeleet node describe worker1"]),
    ("node label", &["kubeleet node label worker1 zone=b disk-  # sets zone, removes disk"]),
    ("node cordon", &["kubeleet node cordon worker1"]),
    ("node uncordon", &["kubeleet node uncordon worker1"]),
    ("node leave", &["kubeleet node leave --marker /var/lib/kubeleet/left --timeout 5m"]),
    ("node return", &["kubeleet node return --marker /var/lib/kubeleet/left"]),
    ("node rm", &["kubeleet node rm worker3"]),
    ("node purge", &["kubeleet node purge --dead-for 24h"]),
    ("volume ls", &["kubeleet volume ls"]),
    ("volume describe", &["kubeleet volume describe db_data_0"]),
    ("volume bind", &["kubeleet volume bind shop-db_pgdata_0 machine1"]),
    ("volume rm", &["kubeleet volume rm db_data_0"]),
    ("route ls", &["kubeleet route ls"]),
    ("route explain", &["kubeleet route explain http://web.example/api"]),
    ("secret ls", &["kubeleet secret ls"]),
    (
        "secret create",
        &["kubeleet secret create db_password < password.txt", "kubeleet secret create tls_key key.pem"],
    ),
    ("secret rotate", &["kubeleet secret rotate db_password < password.txt"]),
    ("secret describe", &["kubeleet secret describe db_password"]),
    ("secret rm", &["kubeleet secret rm db_password"]),
    ("secret key", &["kubeleet secret key > /etc/kubeleet/secret.key"]),
    ("config ls", &["kubeleet config ls"]),
    ("config create", &["kubeleet config create nginx.conf nginx.conf"]),
    ("config rotate", &["kubeleet config rotate nginx.conf nginx.conf"]),
    ("config describe", &["kubeleet config describe nginx.conf"]),
    ("config rm", &["kubeleet config rm nginx.conf"]),
    ("registry ls", &["kubeleet registry ls"]),
    (
        "registry login",
        &[
            "kubeleet registry login reg.example:5000 -u bob --password-stdin < password.txt",
            "kubeleet registry login reg.example:5000 -u bob  # asks for the password",
        ],
    ),
    ("registry describe", &["kubeleet registry describe reg.example:5000"]),
    ("registry logout", &["kubeleet registry logout reg.example:5000"]),
    ("queue ls", &["kubeleet queue ls --all"]),
    ("queue peek", &["kubeleet queue peek dq", "kubeleet queue peek pq:worker1 --limit 5"]),
    ("queue requeue", &["kubeleet queue requeue 0123456789ab", "kubeleet queue requeue --all --yes"]),
    ("queue edit", &["kubeleet queue edit 0123456789ab"]),
    ("queue drop", &["kubeleet queue drop 0123456789ab"]),
    ("get", &["kubeleet get svc", "kubeleet get svc/web -o yaml", "kubeleet get all"]),
    ("describe", &["kubeleet describe web", "kubeleet describe pod/web-0"]),
    ("delete", &["kubeleet delete svc web", "kubeleet delete -f web.yaml --wait"]),
    ("scale", &["kubeleet scale web 3", "kubeleet scale web=3 db=2", "kubeleet scale web db --replicas 0"]),
    ("edit", &["kubeleet edit web"]),
    ("restart", &["kubeleet restart web", "kubeleet restart app/shop --wait"]),
    ("rollout history", &["kubeleet rollout history web"]),
    ("rollout undo", &["kubeleet rollout undo web --dry-run", "kubeleet rollout undo web --to 3"]),
    ("rollout status", &["kubeleet rollout status web --timeout 5m"]),
    ("rollout pause", &["kubeleet rollout pause web"]),
    ("rollout resume", &["kubeleet rollout resume web"]),
    ("rollout promote", &["kubeleet rollout promote web"]),
    ("rollout restart", &["kubeleet rollout restart web"]),
    ("set image", &["kubeleet set image web nginx:1.27 --wait"]),
    ("set env", &["kubeleet set env web MODE=demo OLD-  # sets MODE, removes OLD"]),
    ("cordon", &["kubeleet cordon worker1"]),
    ("uncordon", &["kubeleet uncordon worker1"]),
    ("drain", &["kubeleet drain worker1 --timeout 10m"]),
    ("plan drain", &["kubeleet plan drain worker1"]),
    ("plan lose", &["kubeleet plan lose worker1", "kubeleet plan lose zone=a -o json"]),
    ("plan add-node", &["kubeleet plan add-node --cpus 8 --memory 32G --label zone=a --count 2"]),
    ("plan scale", &["kubeleet plan scale web=50 api=20"]),
    ("cluster check", &["kubeleet cluster check", "kubeleet cluster check --repair"]),
    ("cluster recover", &["kubeleet cluster recover", "kubeleet cluster recover --yes"]),
    ("backup", &["kubeleet backup cluster.backup"]),
    ("restore", &["kubeleet restore cluster.backup", "kubeleet restore cluster.backup --yes"]),
    ("ps", &["kubeleet ps", "kubeleet ps web -w", "kubeleet ps app/shop"]),
    (
        "logs",
        &[
            "kubeleet logs web -f",
            "kubeleet logs app/shop --since 10m --grep error",
            "kubeleet logs web-0 --previous",
        ],
    ),
    ("exec", &["kubeleet exec -it web sh", "kubeleet exec web-0 env"]),
    ("attach", &["kubeleet attach web-0"]),
    ("port", &["kubeleet port web", "kubeleet port web-0 80/tcp"]),
    ("port-forward", &["kubeleet port-forward web 8080:80"]),
    ("cp", &["kubeleet cp app.conf web-0:/etc/app/", "kubeleet cp web-0:/var/log/app logs"]),
    ("events", &["kubeleet events --tail 20", "kubeleet events -w"]),
    ("gc", &["kubeleet gc --dry-run", "kubeleet gc worker1"]),
    ("top", &["kubeleet top", "kubeleet top nodes --sort memory"]),
    ("status", &["kubeleet status"]),
    ("version", &["kubeleet version"]),
    (
        "explain",
        &[
            "kubeleet explain service",
            "kubeleet explain service.ports",
            "kubeleet explain pod web-0  # how each node looks for it",
            "kubeleet explain compose  # what becomes of the fields of Compose files",
        ],
    ),
    ("schema", &["kubeleet schema > service.schema.json"]),
    (
        "completions",
        &[
            "kubeleet completions bash > /etc/bash_completion.d/kubeleet",
            "source <(kubeleet completions zsh)",
        ],
    ),
    ("man", &["kubeleet man /usr/local/share/man/man1"]),
];

pub(crate) fn text(path: &str) -> Option<String> {
    let (_, lines) = TABLE.iter().find(|(command, _)| *command == path)?;
    let lines: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
    Some(format!("Examples:\n{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::Command;

    use super::*;
    use crate::help::command_line;

    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
            match sub.has_subcommands() {
                true => leaves(sub, &path, found),
                false => found.push(path),
            }
        }
    }

    #[test]
    fn every_command_has_examples_and_all_of_them_can_be_typed() {
        let mut commands = Vec::new();
        leaves(&command_line(), "", &mut commands);
        let without: Vec<&String> = commands.iter().filter(|path| text(path).is_none()).collect();
        assert!(without.is_empty() && commands.len() >= 90, "no examples: {without:?} of {}", commands.len());
        for (path, lines) in TABLE {
            assert!(commands.iter().any(|command| command == path), "there is no command {path}");
            let help = help(path);
            for line in *lines {
                let typed = line.split("  #").next().unwrap().split('>').next().unwrap();
                let typed = typed.split('<').find(|part| part.contains("kubeleet")).unwrap();
                let words: Vec<&str> =
                    typed.trim_start_matches("source <(").trim_matches(['(', ')', ' ']).split(' ').collect();
                let result = command_line().try_get_matches_from(&words);
                assert!(result.is_ok(), "{line}: {}", result.unwrap_err());
                assert!(help.contains(line), "{path}: {help}");
            }
        }
    }

    fn help(path: &str) -> String {
        let words = std::iter::once("kubeleet").chain(path.split(' ')).chain(["--help"]);
        command_line().try_get_matches_from(words).unwrap_err().to_string()
    }
}
