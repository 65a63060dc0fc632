//! Compares Docker Compose's output with kubeleet's result.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kubeleet_compose::App;
use serde_json::{Map, Value, json};

use crate::run::notes;

/// Others contain them, or they have no effect.
const WITHOUT_MEANING: [&str; 9] =
    ["profiles", "env_file", "links", "volumes_from", "networks", "attach", "extends", "ipc", "cgroup"];
/// With one name in both.
const ALIKE: [&str; 9] =
    ["image", "user", "working_dir", "stop_signal", "init", "read_only", "cap_drop", "tty", "stdin_open"];
const ELSEWHERE: [&str; 5] = ["scale", "mem_limit", "mem_reservation", "pids_limit", "cpus"];

pub(crate) fn differences(read: &Value, app: &App, folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let name = read["name"].as_str().unwrap_or_default().replace('_', "-");
    if app.name.as_str() != name {
        found.push(format!("name: {name} / {}", app.name));
    }
    let read = unescaped(read);
    let services: BTreeMap<String, Value> = app
        .services
        .iter()
        .map(|service| (service.name().to_string(), serde_json::to_value(service).unwrap()))
        .collect();
    let theirs = read["services"].as_object().unwrap();
    if services.len() != theirs.len() {
        found.push(format!("services: {:?} / {:?}", theirs.keys(), services.keys()));
    }
    for (short, service) in theirs {
        let Some(ours) = services.get(&format!("{name}-{}", label(short))) else {
            found.push(format!("{short} is missing"));
            continue;
        };
        let comparison = Comparison { read: &read, name: &name, theirs: service, ours, app, folder };
        found.extend(comparison.differences().into_iter().map(|detail| format!("{short}: {detail}")));
    }
    found
}

/// Compose escapes printed texts.
fn unescaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("$$", "$")),
        Value::Array(items) => Value::Array(items.iter().map(unescaped).collect()),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), unescaped(value))).collect()
        }
        other => other.clone(),
    }
}

fn label(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

struct Comparison<'a> {
    read: &'a Value,
    name: &'a str,
    theirs: &'a Value,
    ours: &'a Value,
    app: &'a App,
    folder: &'a Path,
}

impl Comparison<'_> {
    fn differences(&self) -> Vec<String> {
        let empty = Map::new();
        let fields = self.theirs.as_object().unwrap_or(&empty);
        let mut pairs: Vec<(&str, Value, Value)> = self.pairs();
        pairs.retain(|(_, theirs, ours)| theirs != ours);
        let mut found: Vec<String> =
            pairs.into_iter().map(|(field, theirs, ours)| format!("{field}: {theirs} / {ours}")).collect();
        let compared = self.compared();
        let notes = notes(self.app);
        for (field, value) in fields.iter().filter(|(_, value)| !is_blank(value)) {
            let is_known = ALIKE.contains(&field.as_str())
                || ELSEWHERE.contains(&field.as_str())
                || WITHOUT_MEANING.contains(&field.as_str())
                || compared.contains(field.as_str());
            if !is_known && !notes.iter().any(|note| note.contains(field.as_str())) {
                found.push(format!("{field}: {value} is neither honoured nor noted"));
            }
        }
        found
    }

    fn compared(&self) -> BTreeSet<&'static str> {
        let more = ["command", "entrypoint", "hostname", "deploy"];
        self.pairs().into_iter().map(|(field, _, _)| field).chain(more).collect()
    }

    fn pairs(&self) -> Vec<(&'static str, Value, Value)> {
        let (theirs, ours) = (self.theirs, self.ours);
        let mut pairs: Vec<(&'static str, Value, Value)> =
            ALIKE.iter().map(|field| (*field, not_false(&theirs[field]), not_false(&ours[field]))).collect();
        for field in ["command", "entrypoint"] {
            // An empty one is noted.
            let blank = |value: &Value| if is_blank(value) { Value::Null } else { value.clone() };
            pairs.push((field, blank(&theirs[field]), blank(&ours[field])));
        }
        let hostname = theirs["hostname"].as_str().map(|name| name.replace('_', "-"));
        pairs.push(("hostname", json!(hostname), ours["hostname"].clone()));
        pairs.push(("environment", with_values(&theirs["environment"]), or_empty(&ours["environment"])));
        pairs.push(("pre_stop", or_list(&theirs["pre_stop"]), or_list(&ours["pre_stop"])));
        pairs.push(("labels", self.labels(), or_empty(&ours["labels"])));
        pairs.push(("tmpfs", or_list(&theirs["tmpfs"]), or_list(&ours["tmpfs"])));
        pairs.push(("restart", self.restart(), ours["restart"].clone()));
        pairs.push(("replicas", self.replicas(), ours["replicas"].clone()));
        pairs.extend(self.resources());
        let grace = theirs["stop_grace_period"].as_str().map_or(10, |text| milliseconds(text).div_ceil(1000));
        pairs.push(("stop_grace_period", json!(grace), ours["stop_grace_period"].clone()));
        pairs.push(("healthcheck", their_check(&theirs["healthcheck"]), our_check(&ours["healthcheck"])));
        pairs.push(("depends_on", self.depends_on(), or_empty(&ours["depends_on"])));
        pairs.push(("ports", their_ports(&theirs["ports"]), our_ports(&ours["ports"])));
        pairs.push(("volumes", self.their_volumes(), our_volumes(&ours["volumes"])));
        pairs.push(("secrets", self.their_values("secrets"), self.our_values("secrets")));
        pairs.push(("configs", self.their_values("configs"), self.our_values("configs")));
        pairs.push(("ulimits", or_empty(&theirs["ulimits"]), or_empty(&ours["ulimits"])));
        pairs.push(("logging", their_logging(&theirs["logging"]), our_logging(&ours["logging"])));
        let policy =
            theirs["pull_policy"].as_str().filter(|policy| !matches!(*policy, "missing" | "if_not_present"));
        pairs.push(("pull_policy", json!(policy), ours["pull_policy"].clone()));
        pairs.push(("allow_from", self.reached_by(), sorted(&ours["allow_from"])));
        pairs
    }

    fn labels(&self) -> Value {
        let mut labels = or_empty(&self.theirs["labels"]);
        for (name, value) in or_empty(&self.theirs["deploy"]["labels"]).as_object().into_iter().flatten() {
            labels[name] = value.clone();
        }
        labels
    }

    /// Without `restart`, kubeleet restarts a failed container: a listed difference.
    fn restart(&self) -> Value {
        let policy = self.theirs["deploy"]["restart_policy"]["condition"].as_str();
        let policy = policy.or(self.theirs["restart"].as_str()).unwrap_or("on-failure");
        let policy = match policy {
            "no" | "none" => "never",
            "unless-stopped" | "any" => "always",
            policy if policy.starts_with("on-failure") => "on-failure",
            policy => policy,
        };
        json!(policy)
    }

    fn replicas(&self) -> Value {
        let replicas = self.theirs["deploy"]["replicas"].as_u64().or(self.theirs["scale"].as_u64());
        json!(replicas.unwrap_or(1))
    }

    fn resources(&self) -> Vec<(&'static str, Value, Value)> {
        let (theirs, resources) = (self.theirs, &self.theirs["deploy"]["resources"]);
        let number = |value: &Value| value.as_f64().or(value.as_str().and_then(|text| text.parse().ok()));
        let fields = [
            ("cpus", number(&theirs["cpus"]).or(number(&resources["limits"]["cpus"])), "cpus"),
            ("mem_limit", number(&theirs["mem_limit"]).or(number(&resources["limits"]["memory"])), "memory"),
            (
                "mem_reservation",
                number(&theirs["mem_reservation"]).or(number(&resources["reservations"]["memory"])),
                "memory_reservation",
            ),
            (
                "pids_limit",
                number(&theirs["pids_limit"]).or(number(&resources["limits"]["pids"])),
                "pids_limit",
            ),
        ];
        let pair = |(field, theirs, ours): (&'static str, Option<f64>, &str)| {
            (field, json!(theirs.filter(|limit| *limit > 0.0)), json!(self.ours[ours].as_f64()))
        };
        fields.map(pair).into()
    }

    fn depends_on(&self) -> Value {
        let needed = or_empty(&self.theirs["depends_on"]);
        let services = &self.read["services"];
        let needed =
            needed.as_object().into_iter().flatten().filter(|(name, _)| services.get(name).is_some());
        let condition = |(name, needed): (&String, &Value)| {
            (format!("{}-{}", self.name, label(name)), needed["condition"].clone())
        };
        needed.map(condition).collect()
    }

    /// A local file becomes a config or a secret, and an empty directory a volume.
    fn their_volumes(&self) -> Value {
        let kind = |volume: &Value| {
            let (source, target) = (volume["source"].as_str(), volume["target"].clone());
            let is_read_only = volume["read_only"] == true;
            let is_here = source.is_some_and(|source| Path::new(source).starts_with(self.folder));
            match (volume["type"].as_str(), source) {
                (Some("bind"), Some(source)) if is_here && Path::new(source).is_file() => None,
                (Some("bind"), Some(_)) if is_here => {
                    (!is_read_only).then(|| json!(["persistent", "", target, is_read_only]))
                }
                (Some("bind"), source) => Some(json!(["bind", source, target, is_read_only])),
                (Some("tmpfs"), _) => Some(json!(["tmpfs", Value::Null, target, is_read_only])),
                (_, None) => Some(json!(["local", Value::Null, target, is_read_only])),
                (_, source) => Some(json!(["persistent", source, target, is_read_only])),
            }
        };
        sorted(&self.theirs["volumes"].as_array().into_iter().flatten().filter_map(kind).collect())
    }

    fn their_values(&self, group: &str) -> Value {
        let one = |reference: &Value| {
            let source = reference["source"].as_str().unwrap_or_default();
            let declared = &self.read[group][source];
            let content = match (declared["file"].as_str(), declared["environment"].as_str()) {
                (Some(path), _) => std::fs::read_to_string(path).ok(),
                (None, Some(_)) => Some("from the environment".to_owned()),
                (None, None) => declared["content"].as_str().map(str::to_owned),
            };
            json!([plain_target(&reference["target"], source), content, reference["mode"]])
        };
        let named = self.theirs[group].as_array().into_iter().flatten().map(one);
        let beside = self.theirs["volumes"].as_array().into_iter().flatten().filter_map(|volume| {
            let path = Path::new(volume["source"].as_str()?);
            let content = path.starts_with(self.folder).then(|| std::fs::read_to_string(path).ok())??;
            let is_secret = path.to_string_lossy().contains("secret");
            (is_secret == (group == "secrets"))
                .then(|| json!([plain_target(&volume["target"], ""), content, Value::Null]))
        });
        sorted(&named.chain(beside).collect())
    }

    fn our_values(&self, group: &str) -> Value {
        let one = |reference: &Value| {
            let name = reference["source"].as_str().unwrap_or_default();
            let value = self.app.values.iter().find(|value| value.name.as_str() == name);
            let content = value.map(|value| String::from_utf8_lossy(value.content.expose()).into_owned());
            json!([plain_target(&reference["target"], ""), content, reference["mode"]])
        };
        sorted(&self.ours[group].as_array().into_iter().flatten().map(one).collect())
    }

    /// They share a network; null if the files name no networks.
    fn reached_by(&self) -> Value {
        let services = self.read["services"].as_object().unwrap();
        let networks = |service: &Value| -> BTreeSet<String> {
            service["networks"]
                .as_object()
                .map(|networks| networks.keys().cloned().collect())
                .unwrap_or_default()
        };
        let default = BTreeSet::from(["default".to_owned()]);
        let has_names =
            services.values().any(|service| networks(service) != default && !networks(service).is_empty());
        let own = networks(self.theirs);
        let is_external = |name: &String| self.read["networks"][name]["external"] == true;
        if !has_names || own.iter().any(is_external) {
            return Value::Null;
        }
        let others = services.iter().filter(|(_, other)| !std::ptr::eq(*other, self.theirs));
        let reach = others.filter(|(_, other)| !networks(other).is_disjoint(&own));
        sorted(&reach.map(|(name, _)| json!(format!("{}-{}", self.name, label(name)))).collect())
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_blank),
        _ => false,
    }
}

fn not_false(value: &Value) -> Value {
    if is_blank(value) { Value::Null } else { value.clone() }
}

fn or_empty(value: &Value) -> Value {
    if value.is_null() { json!({}) } else { value.clone() }
}

fn or_list(value: &Value) -> Value {
    if value.is_null() { json!([]) } else { value.clone() }
}

fn with_values(map: &Value) -> Value {
    let fields = map.as_object().into_iter().flatten();
    fields.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn sorted(list: &Value) -> Value {
    let Some(items) = list.as_array() else { return list.clone() };
    let mut items = items.clone();
    items.sort_by_key(ToString::to_string);
    Value::Array(items)
}

fn plain_target(target: &Value, source: &str) -> String {
    let target = target.as_str().unwrap_or(source);
    target.strip_prefix("/run/secrets/").unwrap_or(target).trim_start_matches('/').to_owned()
}

fn milliseconds(text: &str) -> u64 {
    let (mut total, mut number, mut unit) = (0.0, String::new(), String::new());
    for c in text.chars().chain(['0']) {
        if (c.is_ascii_digit() || c == '.') && !unit.is_empty() {
            let factor = match unit.as_str() {
                "h" => 3_600_000.0,
                "m" => 60_000.0,
                "s" => 1_000.0,
                _ => 1.0,
            };
            total += number.parse::<f64>().unwrap() * factor;
            number.clear();
            unit.clear();
        }
        if c.is_ascii_digit() || c == '.' { number.push(c) } else { unit.push(c) }
    }
    total as u64
}

/// Failures before the first success never count: a listed difference.
fn their_check(check: &Value) -> Value {
    let time = |name: &str| check[name].as_str().map(milliseconds).filter(|time| *time > 0);
    let test = check["test"].as_array().map(|test| match test.as_slice() {
        [kind, first, more @ ..] if kind == "CMD-SHELL" && !more.is_empty() => {
            let shell = [json!("CMD"), json!("/bin/sh"), json!("-c"), first.clone()];
            shell.into_iter().chain(more.iter().cloned()).collect()
        }
        test => test.to_vec(),
    });
    let retries = check["retries"].as_u64().filter(|retries| *retries > 0);
    let times = ["interval", "timeout", "start_interval"].map(time);
    json!([test.filter(|test| !test.is_empty()), retries, times, not_false(&check["disable"])])
}

fn our_check(check: &Value) -> Value {
    let time = |name: &str| check[name].as_str().map(milliseconds);
    let times = ["interval", "timeout", "start_interval"].map(time);
    json!([check["test"], check["retries"], times, not_false(&check["disable"])])
}

fn their_ports(ports: &Value) -> Value {
    let port = |port: &Value| {
        let published = port["published"].as_str().and_then(|port| port.parse::<u64>().ok());
        json!([port["host_ip"], published, port["target"], port["protocol"]])
    };
    sorted(&ports.as_array().into_iter().flatten().map(port).collect())
}

fn our_ports(ports: &Value) -> Value {
    let port = |port: &Value| json!([port["host_ip"], port["host"], port["container"], port["protocol"]]);
    sorted(&ports.as_array().into_iter().flatten().map(port).collect())
}

fn our_volumes(volumes: &Value) -> Value {
    let volume = |volume: &Value| {
        let source = match volume["source"].as_str() {
            Some(source)
                if source.starts_with("dir-")
                    || volume["kind"] == "persistent" && is_of_directory(volume) =>
            {
                json!("")
            }
            source => json!(source),
        };
        json!([volume["kind"], source, volume["target"], volume["read_only"] == true])
    };
    sorted(&volumes.as_array().into_iter().flatten().map(volume).collect())
}

fn is_of_directory(volume: &Value) -> bool {
    let (source, target) =
        (volume["source"].as_str().unwrap_or_default(), volume["target"].as_str().unwrap_or_default());
    source.ends_with(&label(&target.trim_matches('/').replace('/', "-"))) && source.contains('-')
}

fn their_logging(logging: &Value) -> Value {
    match logging["driver"].as_str() {
        None | Some("json-file" | "local") => {
            let amount = logging["options"]["max-size"].as_str().map(|text| {
                let (digits, unit) = text.split_at(text.len() - 1);
                digits.parse::<u64>().unwrap() << if unit == "m" { 20 } else { 10 }
            });
            let files = logging["options"]["max-file"].as_str().and_then(|text| text.parse::<u64>().ok());
            json!([amount, files])
        }
        Some(_) => json!([Value::Null, Value::Null]),
    }
}

fn our_logging(logging: &Value) -> Value {
    json!([logging["options"]["max-size"], logging["options"]["max-file"]])
}
