//! Loads the settings printed in `docs/how-to` as the packaged daemons do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kubeleet_daemon::config::{Serves, Sources, parse_file, settings};
use model::value::secret_key::SecretKey;

type Environment = BTreeMap<String, String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn units() -> BTreeMap<String, (Serves, Environment)> {
    let mut units = BTreeMap::new();
    for file in std::fs::read_dir(root().join("packaging/systemd")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(command) = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/kubeleet "))
        else {
            continue;
        };
        let serves = match command {
            "api" => Serves::Api,
            "scheduler" | "worker" | "proxy" => Serves::Metrics,
            _ => Serves::Nothing,
        };
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        units.insert(name, (serves, environment(&text)));
    }
    assert!(units.len() >= 6, "{units:?}");
    units
}

fn environment(unit: &str) -> Environment {
    let lines = unit.lines().filter_map(|line| line.trim().strip_prefix("Environment="));
    lines.flat_map(str::split_whitespace).filter_map(variable).collect()
}

fn variable(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let value = value.replace("\"$PWD", "/srv").replace("$HOME", "/root").replace('"', "");
    name.starts_with("KUBELEET_").then(|| (name.to_owned(), value))
}

fn documents(page: &str) -> Vec<(String, String)> {
    let mut lines = page.lines().map(str::trim_start);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some((command, end)) = line.split_once(" <<") else { continue };
        let path = command.split_whitespace().last().unwrap().to_owned();
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
        found.push((path, text.join("\n")));
    }
    found
}

fn printed_drop_ins(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in page.match_indices("\n\n    [Service]\n") {
        let before = page[..at].rsplit("\n\n").next().unwrap();
        let path = before.split('`').find(|word| word.contains(".service.d/")).unwrap_or_else(|| {
            panic!("the text before a drop-in names its file in /etc/systemd/system: {before}")
        });
        let block = page[at + 2..].split("\n\n").next().unwrap();
        found.push((path.to_owned(), block.to_owned()));
    }
    found
}

fn installed_drop_ins(page: &str) -> Vec<(String, String)> {
    let (mut found, mut units) = (Vec::new(), Vec::new());
    for line in page.lines().map(str::trim) {
        if let Some(list) = line.strip_prefix("for unit in ") {
            units = list.trim_end_matches("; do").split_whitespace().collect();
        }
        let mut words = line.split_whitespace().skip_while(|word| !word.starts_with("packaging/systemd/"));
        if let (Some(source), Some(target)) = (words.next(), words.next())
            && target.contains(".service.d/")
        {
            let text = std::fs::read_to_string(root().join(source)).unwrap();
            let targets = match target.contains("$unit") {
                true => units.iter().map(|unit| target.replace("$unit", unit)).collect(),
                false => vec![target.to_owned()],
            };
            found.extend(targets.into_iter().map(|target| (target, text.clone())));
        }
    }
    found
}

fn settings_file(page: &str, documents: &[(String, String)]) -> String {
    let whole =
        documents.iter().filter(|(path, _)| path.ends_with("kubeleet.toml")).map(|(_, text)| text.as_str());
    let fenced = page.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
    whole.chain(fenced).collect::<Vec<_>>().join("\n")
}

fn variables(page: &str) -> Environment {
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.map(|line| line.strip_prefix("export ").unwrap_or(line));
    let words = lines.flat_map(|line| line.split_whitespace().take_while(|word| word.contains('=')));
    words.filter_map(variable).filter(|(_, value)| !value.contains("$(")).collect()
}

fn load(serves: Serves, environment: &Environment, file: &str) -> Result<(), String> {
    let key = SecretKey::generate().unwrap();
    let sources = Sources {
        flags: BTreeMap::new(),
        environment: &|name| environment.get(name).cloned(),
        file: parse_file(file)?,
        read_file: &|path| Ok(if path.ends_with("secret-key") { key.clone() } else { format!("of {path}") }),
        host_name: "host".to_owned(),
    };
    let loaded = sources.config(serves);
    loaded.map(|_| ()).map_err(|problems| problems.iter().map(ToString::to_string).collect::<String>())
}

#[test]
fn every_daemon_takes_the_settings_that_a_page_prints() {
    let mut checked = 0;
    for file in std::fs::read_dir(root().join("docs/how-to")).unwrap() {
        let path = file.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        let documents = [documents(&page), printed_drop_ins(&page), installed_drop_ins(&page)].concat();
        let file = settings_file(&page, &documents);
        let shell = variables(&page);
        for (unit, (serves, own)) in units() {
            let mut environment = own;
            let is_for_unit = |path: &str| path.contains(&format!("/{unit}.service.d/"));
            for (_, text) in documents.iter().filter(|(path, _)| is_for_unit(path)) {
                environment.extend(self::environment(text));
            }
            for with_shell in [Environment::new(), shell.clone()] {
                let environment = environment.clone().into_iter().chain(with_shell).collect();
                let loaded = load(serves, &environment, &file);
                assert_eq!(
                    loaded,
                    Ok(()),
                    "{unit} with the settings of {}: {environment:?} {file}",
                    path.display()
                );
                checked += usize::from(!environment.is_empty());
            }
        }
    }
    assert!(checked >= 100, "{checked}");
}

#[test]
fn a_page_is_read_as_its_reader_would() {
    let page = "Text.\n\n    install -D /dev/stdin /etc/kubeleet/kubeleet.toml <<TOML\n    node = \"a\"\n    TOML\n\n\
                In `/etc/systemd/system/kubeleet-api.service.d/x.conf`:\n\n    [Service]\n    \
                Environment=KUBELEET_LISTEN=10.0.0.1:7070\n\n    export KUBELEET_LOG=debug KUBELEET_NODE=b\n    \
                KUBELEET_POD_WAIT=5s kubeleet proxy\n";
    assert_eq!(documents(page), [("/etc/kubeleet/kubeleet.toml".to_owned(), "node = \"a\"".to_owned())]);
    let drop_ins = printed_drop_ins(page);
    assert!(drop_ins[0].0.ends_with("kubeleet-api.service.d/x.conf"), "{drop_ins:?}");
    assert_eq!(environment(&drop_ins[0].1)["KUBELEET_LISTEN"], "10.0.0.1:7070");
    assert_eq!(
        variables(page).into_keys().collect::<Vec<_>>(),
        ["KUBELEET_LOG", "KUBELEET_NODE", "KUBELEET_POD_WAIT"]
    );
    let loop_of_page = "    for unit in api proxy; do\n      install packaging/systemd/read-token.conf \
                        /etc/systemd/system/kubeleet-$unit.service.d/read-token.conf\n    done\n";
    let installed = installed_drop_ins(loop_of_page);
    assert!(installed.len() == 2 && installed[1].0.contains("kubeleet-proxy.service.d/"), "{installed:?}");
    let fenced = "```toml\nlisten = \"10.0.0.1:7070\"\n```\n";
    assert_eq!(settings_file(fenced, &[]).trim(), "listen = \"10.0.0.1:7070\"");
    let refused = load(Serves::Api, &Environment::new(), "listen = \"10.0.0.1:7070\"").unwrap_err();
    assert!(refused.contains("KUBELEET_TOKEN"), "{refused}");
}

#[test]
fn the_reference_has_a_row_for_every_setting() {
    let page = std::fs::read_to_string(root().join("docs/reference/settings.md")).unwrap();
    let rows: String = page.lines().filter(|line| line.starts_with('|')).collect();
    let missing = settings().into_keys().filter(|name| !rows.contains(&format!("`{name}`")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn the_reference_has_the_defaults_that_are_in_force() {
    let page = std::fs::read_to_string(root().join("docs/reference/settings.md")).unwrap();
    let mut documented = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `KUBELEET_")) {
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let names: Vec<&str> = cells[1].split(", ").collect();
        let defaults: Vec<&str> = cells[2].split(", ").collect();
        for (at, name) in names.iter().enumerate() {
            let default = if defaults.len() == names.len() { defaults[at] } else { &cells[2] };
            documented.insert((*name).to_owned(), default.to_owned());
        }
    }
    assert_eq!(documented.remove("KUBELEET_CONFIG").unwrap(), "/etc/kubeleet/kubeleet.toml");
    let known = settings();
    for (name, documented) in documented {
        match known.get(name.as_str()) {
            None => panic!("{name} is no setting"),
            Some(Some(default)) => assert_eq!(&documented, default, "{name}"),
            Some(None) => {}
        }
    }
}
