//! Ingress rules: the routes from outside the cluster.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::Ipv4Addr;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use crate::ids::{AppName, ServiceName};
use crate::spec::{Aliases, AllowFrom, Seconds, Violation};

const MAX_RULES: usize = 64;
const MAX_UPGRADES: usize = 8;
/// DNS.
const MAX_HOST: usize = 253;
const MAX_PATH: usize = 1024;

/// One rule of a service's `ingress`: requests for a host and path, or connections to a port of every node,
/// go to a port of the service's pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum IngressRule {
    /// Requests by HTTP.
    Http(HttpRule),
    /// Connections by TCP.
    Tcp(TcpRule),
}

/// Requests for a host and path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpRule {
    /// Host of the request, in lower case: a name, or `*.` and a name for all names below it. Empty for any
    /// host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(
        example = "web.example",
        max_length = 253,
        pattern = r"^((\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*)?$"
    )]
    pub host: String,
    /// The beginning of the request's path, by whole segments. The longest that matches is taken.
    #[serde(default = "root")]
    #[schema(
        default = "/",
        max_length = 1024,
        pattern = r"^/(\.?[A-Za-z0-9_~@:$!&'()*+,;=-][A-Za-z0-9._~@:$!&'()*+,;=-]*(/\.?[A-Za-z0-9_~@:$!&'()*+,;=-][A-Za-z0-9._~@:$!&'()*+,;=-]*)*/?)?$"
    )]
    pub path: String,
    /// Port of the pods.
    #[schema(minimum = 1, maximum = 65535)]
    pub port: u16,
    /// How the pods are spoken to.
    #[serde(default)]
    pub protocol: HttpProtocol,
    /// Clients are spoken to by HTTPS only, with a certificate from here: plain HTTP is redirected. Without
    /// it by HTTP, and by HTTPS where a proxy has a certificate for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The longest time from the end of a request to the beginning of the pod's answer; then 504. Without it
    /// a pod may take as long as its client waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_timeout: Option<Seconds>,
    /// Protocols besides WebSocket to which a pod may change a connection by `Upgrade`, such as `spdy/3.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8, example = json!(["tcp"]))]
    pub upgrade: Vec<String>,
}

impl Default for HttpRule {
    fn default() -> Self {
        Self {
            host: String::new(),
            path: root(),
            port: 0,
            protocol: HttpProtocol::default(),
            tls: None,
            answer_timeout: None,
            upgrade: Vec::new(),
        }
    }
}

/// Connections to a port of every node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpRule {
    /// Port of every node.
    #[schema(minimum = 1, maximum = 65535)]
    pub tcp: u16,
    /// Port of the pods.
    #[schema(minimum = 1, maximum = 65535)]
    pub port: u16,
}

/// How pods are spoken to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HttpProtocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// HTTP/2 without TLS, as gRPC servers expect it.
    H2c,
}

/// Where the certificate for a host comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// From the files of each proxy, `KUBELEET_CERTIFICATES`.
    Files,
    /// Ordered by ACME, as from Let's Encrypt, and renewed. The host is one name, which leads to the proxies
    /// by port 80.
    Auto,
}

impl Tls {
    fn word(self) -> &'static str {
        match self {
            Self::Files => "tls",
            Self::Auto => "tls=auto",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        [Self::Files, Self::Auto].into_iter().find(|tls| tls.word() == word)
    }
}

fn root() -> String {
    "/".to_owned()
}

impl<'de> Deserialize<'de> for IngressRule {
    /// Both kinds at once, so that a mistake names its field.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            host: Option<String>,
            path: Option<String>,
            port: u16,
            protocol: Option<HttpProtocol>,
            tls: Option<Tls>,
            answer_timeout: Option<Seconds>,
            upgrade: Option<Vec<String>>,
            tcp: Option<u16>,
        }
        let Fields { host, path, port, protocol, tls, answer_timeout, upgrade, tcp } =
            Fields::deserialize(deserializer)?;
        let Some(tcp) = tcp else {
            let (host, path) = (host.unwrap_or_default(), path.unwrap_or_else(root));
            return Ok(Self::Http(HttpRule {
                host,
                path,
                port,
                protocol: protocol.unwrap_or_default(),
                tls,
                answer_timeout,
                upgrade: upgrade.unwrap_or_default().iter().map(|name| name.to_ascii_lowercase()).collect(),
            }));
        };
        let is_of_http = host.is_some() || path.is_some() || protocol.is_some() || tls.is_some();
        if is_of_http || answer_timeout.is_some() || upgrade.is_some() {
            return Err(D::Error::custom(
                "a rule with `tcp` has only `port` beside it: host, path, protocol, tls, answer_timeout and \
                 upgrade are of HTTP",
            ));
        }
        Ok(Self::Tcp(TcpRule { tcp, port }))
    }
}

const CALLERS: &str = "from:";

/// Field and value: `from:<service> <service> <names>`, the names separated by commas, or `-`.
pub fn callers_line(service: &ServiceName, allowed: &AllowFrom) -> String {
    let names: Vec<String> = allowed.services().map(|name| name.to_string()).collect();
    let names = if names.is_empty() { "-".to_owned() } else { names.join(",") };
    format!("{CALLERS}{service} {service} {names}")
}

/// `None` for another field. A malformed value admits only the service's own pods.
pub fn parse_callers(route: &str, target: &str) -> Option<(ServiceName, BTreeSet<ServiceName>)> {
    let service = ServiceName::new(route.strip_prefix(CALLERS)?).ok()?;
    let names = target.split_once(' ').map_or("", |(_, names)| names);
    let callers = names.split(',').filter_map(|name| ServiceName::new(name).ok()).collect();
    Some((service, callers))
}

const ALIAS: &str = "alias:";

/// `alias:<app>/<name> <service>`.
pub fn alias_lines(app: &AppName, service: &ServiceName, aliases: &Aliases) -> Vec<String> {
    aliases.names().map(|name| format!("{ALIAS}{app}/{name} {service}")).collect()
}

pub fn alias_of_route(route: &str) -> Option<(AppName, &str)> {
    let (app, name) = route.strip_prefix(ALIAS)?.split_once('/')?;
    Some((AppName::new(app).ok()?, name))
}

pub fn parse_alias(route: &str, target: &str) -> Option<(AppName, String, ServiceName)> {
    let (app, name) = alias_of_route(route)?;
    Some((app, name.to_owned(), ServiceName::new(target).ok()?))
}

const OPTIONS: &str = "rule:";
const ANSWER_TIMEOUT: &str = "answer_timeout=";
const UPGRADE: &str = "upgrade=";

pub fn read_rules<'a>(
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<(ServiceName, IngressRule)> {
    let (options, rules): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(route, _)| route.starts_with(OPTIONS));
    let options: HashMap<&str, &str> =
        options.into_iter().map(|(route, value)| (&route[OPTIONS.len()..], value)).collect();
    let rule = |(route, target): (&str, &str)| {
        let (service, mut rule) = IngressRule::parse(route, target).ok()?;
        if let (IngressRule::Http(rule), Some(words)) = (&mut rule, options.get(route)) {
            rule.read_options(&service, words);
        }
        Some((service, rule))
    };
    rules.into_iter().filter_map(rule).collect()
}

impl HttpRule {
    fn read_options(&mut self, service: &ServiceName, words: &str) {
        let mut words = words.split(' ');
        if words.next() != Some(service.as_str()) {
            return;
        }
        for word in words {
            if let Some(seconds) = word.strip_prefix(ANSWER_TIMEOUT) {
                self.answer_timeout = seconds.parse().ok();
            } else if let Some(names) = word.strip_prefix(UPGRADE) {
                self.upgrade = names.split(',').map(str::to_owned).collect();
            }
        }
        if answer_problem(self.answer_timeout).is_some() {
            self.answer_timeout = None;
        }
        self.upgrade.retain(|name| upgrade_problem(std::slice::from_ref(name)).is_none());
    }
}

/// Skips invalid rules.
pub fn stored_rules(rules: &serde_json::Value) -> Vec<IngressRule> {
    let rules = rules.as_array().into_iter().flatten();
    let rules = rules.filter_map(|rule| IngressRule::deserialize(rule).ok());
    rules.filter(|rule| rule.problem().is_none()).collect()
}

type RuleProblem = (&'static str, String);

impl IngressRule {
    pub fn port(&self) -> u16 {
        match self {
            Self::Http(rule) => rule.port,
            Self::Tcp(rule) => rule.port,
        }
    }

    /// `<host><path>`, or `tcp:<port>`: unique to one service.
    pub fn route(&self) -> String {
        match self {
            Self::Http(rule) => format!("{}{}", rule.host, rule.path),
            Self::Tcp(rule) => format!("tcp:{}", rule.tcp),
        }
    }

    /// `<service> <port>`, then `h2c` for pods that speak it, and `tls` or `tls=auto` for HTTPS only.
    ///
    /// Proxies that do not know a word skip the route: they answer 404, never by plain HTTP.
    pub fn target(&self, service: &ServiceName) -> String {
        let words = match self {
            Self::Http(HttpRule { protocol, tls, .. }) => {
                let protocol = if *protocol == HttpProtocol::H2c { " h2c" } else { "" };
                let tls = tls.map(|tls| format!(" {}", tls.word())).unwrap_or_default();
                format!("{protocol}{tls}")
            }
            Self::Tcp(_) => String::new(),
        };
        format!("{service} {}{words}", self.port())
    }

    /// `rule:<route>` and `<service> answer_timeout=300 upgrade=tcp,spdy/3.1`.
    pub fn options(&self, service: &ServiceName) -> Option<(String, String)> {
        let Self::Http(HttpRule { answer_timeout, upgrade, .. }) = self else { return None };
        let timeout = answer_timeout.map(|time| format!(" {ANSWER_TIMEOUT}{}", time.duration().as_secs()));
        let upgrade = (!upgrade.is_empty()).then(|| format!(" {UPGRADE}{}", upgrade.join(",")));
        if timeout.is_none() && upgrade.is_none() {
            return None;
        }
        let words = format!("{service}{}{}", timeout.unwrap_or_default(), upgrade.unwrap_or_default());
        Some((format!("{OPTIONS}{}", self.route()), words))
    }

    pub fn parse(route: &str, target: &str) -> Result<(ServiceName, Self), String> {
        let invalid = || format!("{target:?} is not `<service> <port>`");
        let parts: Vec<&str> = target.split(' ').collect();
        let (service, port, words) = match &parts[..] {
            [service, port, words @ ..] => (*service, *port, words),
            _ => return Err(invalid()),
        };
        let (protocol, words) = match words {
            ["h2c", words @ ..] => (HttpProtocol::H2c, words),
            words => (HttpProtocol::Http, words),
        };
        let tls = match words {
            [] => None,
            [word] => Some(Tls::of_word(word).ok_or_else(invalid)?),
            _ => return Err(invalid()),
        };
        let service = ServiceName::new(service).map_err(|error| error.to_string())?;
        let port = port.parse().map_err(|_| invalid())?;
        let rule = match route.strip_prefix("tcp:") {
            Some(tcp) => {
                Self::Tcp(TcpRule { tcp: tcp.parse().map_err(|_| format!("{route:?} has no port"))?, port })
            }
            None => {
                let (host, path) = route.split_at(route.find('/').unwrap_or(route.len()));
                let (host, path) = (host.to_owned(), path.to_owned());
                Self::Http(HttpRule { host, path, port, protocol, tls, ..HttpRule::default() })
            }
        };
        match rule.problem() {
            Some((field, problem)) => Err(format!("{field}: {problem}")),
            None => Ok((service, rule)),
        }
    }

    pub fn auto_host(&self) -> Option<&str> {
        match self {
            Self::Http(HttpRule { host, tls: Some(Tls::Auto), .. }) => Some(host),
            Self::Http(_) | Self::Tcp(_) => None,
        }
    }

    /// Only the path `/` ends with `/`.
    pub fn normalize(self) -> Self {
        match self {
            Self::Http(mut rule) => {
                if rule.path.len() > 1 && rule.path.ends_with('/') {
                    rule.path.pop();
                }
                Self::Http(rule)
            }
            tcp => tcp,
        }
    }

    fn problem(&self) -> Option<RuleProblem> {
        let zero = |field, port: u16| (port == 0).then(|| (field, "a port is 1 to 65535".to_owned()));
        let of_kind = match self {
            Self::Http(rule) => host_problem(&rule.host)
                .or_else(|| path_problem(&rule.path))
                .or_else(|| rule.tls.filter(|tls| *tls == Tls::Auto).and_then(|_| auto_problem(&rule.host)))
                .or_else(|| answer_problem(rule.answer_timeout))
                .or_else(|| upgrade_problem(&rule.upgrade)),
            Self::Tcp(rule) => zero("tcp", rule.tcp),
        };
        of_kind.or_else(|| zero("port", self.port()))
    }
}

impl fmt::Display for IngressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.route())
    }
}

pub fn violations(rules: &[IngressRule]) -> Vec<Violation> {
    let mut found = Vec::new();
    if rules.len() > MAX_RULES {
        found.push(Violation::new("/ingress", format!("a service has at most {MAX_RULES} rules")));
    }
    let mut routes = BTreeSet::new();
    for (index, rule) in rules.iter().enumerate() {
        if let Some((field, problem)) = rule.problem() {
            found.push(Violation::new(format!("/ingress/{index}/{field}"), problem));
        } else if !routes.insert(rule.route()) {
            let problem = format!("a rule before it has {rule} too");
            found.push(Violation::new(format!("/ingress/{index}"), problem));
        }
    }
    found
}

fn host_problem(host: &str) -> Option<RuleProblem> {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_valid = host.is_empty() || (host.len() <= MAX_HOST && name.split('.').all(is_label));
    (!is_valid).then(|| {
        let text =
            "a host is a DNS name in lower case, such as web.example, or *.example for all names below it";
        ("host", text.to_owned())
    })
}

fn answer_problem(timeout: Option<Seconds>) -> Option<RuleProblem> {
    let is_zero = timeout.is_some_and(|timeout| timeout.duration().is_zero());
    is_zero.then(|| ("answer_timeout", "at least 1s; without it there is no limit".to_owned()))
}

fn upgrade_problem(names: &[String]) -> Option<RuleProblem> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte);
    let problem = if names.len() > MAX_UPGRADES {
        format!("a rule has at most {MAX_UPGRADES} protocols")
    } else if let Some(name) =
        names.iter().find(|name| !(1..=64).contains(&name.len()) || !name.bytes().all(is_token))
    {
        format!("{name:?} is no protocol: write a name as tcp or spdy/3.1")
    } else if names.iter().any(|name| name == "h2c") {
        "h2c would pass by the rules: use `protocol: h2c`, and clients use HTTP/2 as they like".to_owned()
    } else {
        return None;
    };
    Some(("upgrade", problem))
}

fn auto_problem(host: &str) -> Option<RuleProblem> {
    let text = if host.is_empty() {
        "needs a `host`: a certificate is ordered for a name"
    } else if host.starts_with("*.") {
        "is for one name only, as ACME proves by HTTP that it is yours: name each host, or use `tls: files`"
    } else if host.parse::<Ipv4Addr>().is_ok() {
        "needs a name: no certificate is ordered for an IP address; use `tls: files`"
    } else if !host.contains('.') {
        "needs a name that the authority can look up, such as web.example; for one within your network use `tls: files`"
    } else {
        return None;
    };
    Some(("tls", format!("`auto` {text}")))
}

fn path_problem(path: &str) -> Option<RuleProblem> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~@:$!&'()*+,;=-".contains(&byte);
    let is_segment = |segment: &str| {
        let first = segment.strip_prefix('.').unwrap_or(segment);
        !first.is_empty() && !first.starts_with('.') && segment.bytes().all(is_plain)
    };
    let is_valid = path.len() <= MAX_PATH
        && path.strip_prefix('/').is_some_and(|inner| {
            inner.is_empty() || inner.strip_suffix('/').unwrap_or(inner).split('/').all(is_segment)
        });
    (!is_valid).then(|| {
        let text = "a path begins with / and has segments of the characters A-Z a-z 0-9 - . _ ~ ! $ & ' ( ) * + , ; = : @, none of them . or ..";
        ("path", text.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reaches_a_service_is_read_as_it_is_written() {
        let service = ServiceName::new("db").unwrap();
        for (names, line) in [(&["web", "api"][..], "from:db db api,web"), (&[], "from:db db -")] {
            let allowed: AllowFrom = serde_json::from_value(serde_json::json!(names)).unwrap();
            assert_eq!(callers_line(&service, &allowed), line);
            let (route, target) = line.split_once(' ').unwrap();
            assert_eq!(parse_callers(route, target), Some((service.clone(), allowed.services().collect())));
            assert!(IngressRule::parse(route, target).is_err(), "a version before takes it for a route");
        }
        for target in ["", "db", "db !,", "db  "] {
            assert_eq!(
                parse_callers("from:db", target),
                Some((service.clone(), BTreeSet::new())),
                "{target:?}"
            );
        }
        for route in ["tcp:1", "from.example/", "from:", "from:a b"] {
            assert_eq!(parse_callers(route, "db web"), None, "{route:?}");
        }
    }

    #[test]
    fn aliases_are_read_as_they_are_written() {
        let (app, service) = (AppName::new("shop").unwrap(), ServiceName::new("shop-db").unwrap());
        let aliases: Aliases = serde_json::from_str(r#"["database", "db.internal"]"#).unwrap();
        let lines = alias_lines(&app, &service, &aliases);
        assert_eq!(lines, ["alias:shop/database shop-db", "alias:shop/db.internal shop-db"]);
        for (line, name) in lines.iter().zip(aliases.names()) {
            let (route, target) = line.split_once(' ').unwrap();
            assert_eq!(parse_alias(route, target), Some((app.clone(), name.to_owned(), service.clone())));
            assert!(IngressRule::parse(route, target).is_err(), "a version before takes it for a route");
        }
        for (route, target) in [("alias:shop", "shop-db"), ("alias:shop/db", "a b"), ("shop/db", "shop-db")] {
            assert_eq!(parse_alias(route, target), None, "{route:?}");
        }
    }

    fn rule(json: &str) -> Result<IngressRule, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    fn problems(json: &str) -> Vec<String> {
        let rules: Vec<IngressRule> = serde_json::from_str(json).unwrap();
        let rules: Vec<IngressRule> = rules.into_iter().map(IngressRule::normalize).collect();
        violations(&rules).into_iter().map(|violation| violation.pointer).collect()
    }

    #[test]
    fn a_rule_is_of_http_or_of_tcp() {
        let http = rule(r#"{"host":"web.example","port":80}"#).unwrap();
        assert_eq!(http.route(), "web.example/");
        assert_eq!(
            serde_json::to_string(&http).unwrap(),
            r#"{"host":"web.example","path":"/","port":80,"protocol":"http"}"#
        );
        let https = rule(r#"{"host":"web.example","port":80,"tls":"files"}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&https).unwrap(),
            r#"{"host":"web.example","path":"/","port":80,"protocol":"http","tls":"files"}"#
        );
        assert_eq!(rule(r#"{"tcp":5432,"port":5433}"#).unwrap().route(), "tcp:5432");
        assert_eq!(rule(r#"{"path":"/api","port":80}"#).unwrap().route(), "/api");
        for wrong in [
            r#"{"host":"web.example"}"#,
            r#"{"tcp":1,"host":"a","port":1}"#,
            r#"{"tcp":1,"tls":"files","port":1}"#,
            r#"{"tcp":1,"answer_timeout":1,"port":1}"#,
            r#"{"port":1,"tls":"files "}"#,
            r#"{"hots":"a","port":1}"#,
            r#"{"port":70000}"#,
            r#"{"port":1,"protocol":"ftp"}"#,
        ] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_rule_says_beyond_its_target_is_read_as_it_is_written() {
        let service = ServiceName::new("web").unwrap();
        for (json, line) in [
            (r#"{"port":80}"#, None),
            (r#"{"tcp":1,"port":80}"#, None),
            (r#"{"port":80,"answer_timeout":"5m"}"#, Some("rule:/ web answer_timeout=300")),
            (
                r#"{"host":"a","path":"/b","port":80,"upgrade":["TCP","spdy/3.1"]}"#,
                Some("rule:a/b web upgrade=tcp,spdy/3.1"),
            ),
            (
                r#"{"port":80,"answer_timeout":7,"upgrade":["tcp"]}"#,
                Some("rule:/ web answer_timeout=7 upgrade=tcp"),
            ),
        ] {
            let rule = rule(json).unwrap();
            let options = rule.options(&service);
            let written = options.as_ref().map(|(route, value)| format!("{route} {value}"));
            assert_eq!(written.as_deref(), line);
            let (route, target) = (rule.route(), rule.target(&service));
            let fields = [Some((&route, &target)), options.as_ref().map(|(route, value)| (route, value))];
            let fields: Vec<_> =
                fields.iter().flatten().map(|(route, value)| (route.as_str(), value.as_str())).collect();
            assert_eq!(read_rules(fields.clone()), [(service.clone(), rule)]);
            for (route, value) in &fields[1..] {
                assert!(IngressRule::parse(route, value).is_err(), "a version before takes it for a route");
            }
        }
        for words in ["api answer_timeout=7", "web", "web answer_timeout=0 new=1", "web upgrade=,h2c b", ""] {
            let rules = read_rules([("rule:/", words), ("/", "web 80")]);
            assert_eq!(rules, [(service.clone(), rule(r#"{"port":80}"#).unwrap())], "{words}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_rule_is_found_at_its_field() {
        for (json, expected) in [
            (r#"[{"host":"*.example","path":"/.well-known/x","port":1},{"tcp":1,"port":1}]"#, vec![]),
            (r#"[{"host":"Web.example","port":1}]"#, vec!["/ingress/0/host"]),
            (r#"[{"port":1,"answer_timeout":0}]"#, vec!["/ingress/0/answer_timeout"]),
            (r#"[{"port":1,"upgrade":["H2C"]}]"#, vec!["/ingress/0/upgrade"]),
            (r#"[{"port":1,"upgrade":["a b"]}]"#, vec!["/ingress/0/upgrade"]),
            (r#"[{"host":"a..b","port":1}]"#, vec!["/ingress/0/host"]),
            (r#"[{"host":"a.*","port":1}]"#, vec!["/ingress/0/host"]),
            (r#"[{"path":"api","port":1}]"#, vec!["/ingress/0/path"]),
            (r#"[{"path":"/a/../b","port":1}]"#, vec!["/ingress/0/path"]),
            (r#"[{"path":"/a//b","port":1}]"#, vec!["/ingress/0/path"]),
            (r#"[{"path":"/%61","port":1}]"#, vec!["/ingress/0/path"]),
            (r#"[{"host":"a.example","port":1,"tls":"auto"}]"#, vec![]),
            (r#"[{"port":1,"tls":"auto"}]"#, vec!["/ingress/0/tls"]),
            (r#"[{"host":"*.example","port":1,"tls":"auto"}]"#, vec!["/ingress/0/tls"]),
            (r#"[{"host":"10.0.0.1","port":1,"tls":"auto"}]"#, vec!["/ingress/0/tls"]),
            (r#"[{"host":"web","port":1,"tls":"auto"}]"#, vec!["/ingress/0/tls"]),
            (r#"[{"port":0}]"#, vec!["/ingress/0/port"]),
            (r#"[{"tcp":0,"port":1}]"#, vec!["/ingress/0/tcp"]),
            (r#"[{"path":"/a","port":1},{"path":"/a/","port":2}]"#, vec!["/ingress/1"]),
        ] {
            assert_eq!(problems(json), expected, "{json}");
        }
    }

    #[test]
    fn a_route_in_redis_is_read_as_it_is_written() {
        let service = ServiceName::new("web").unwrap();
        for json in [
            r#"{"host":"*.example","path":"/a","port":80,"protocol":"h2c"}"#,
            r#"{"port":80}"#,
            r#"{"port":80,"tls":"files"}"#,
            r#"{"port":80,"protocol":"h2c","tls":"files"}"#,
            r#"{"host":"web.example","port":80,"tls":"auto"}"#,
            r#"{"host":"web.example","port":80,"protocol":"h2c","tls":"auto"}"#,
            r#"{"tcp":5432,"port":5432}"#,
        ] {
            let rule = rule(json).unwrap();
            let read = IngressRule::parse(&rule.route(), &rule.target(&service));
            assert_eq!(read, Ok((service.clone(), rule)), "{json}");
        }
        for (route, target) in [
            ("web.example", "web 80"),
            ("/", "web"),
            ("tcp:x", "web 1"),
            ("/", "-web 1"),
            ("/", "web 0"),
            ("/", "web 80 tls h2c"),
            ("/", "web 80 tls tls=auto"),
            ("/", "web 80 tls=auto"),
            ("/", "web 80 new"),
        ] {
            assert!(IngressRule::parse(route, target).is_err(), "{route} {target}");
        }
    }

    #[test]
    fn a_stored_rule_that_is_none_harms_no_other() {
        let rules = serde_json::json!([{"port":80},{"port":0},{"new":1},{"tcp":1,"port":2}]);
        let routes: Vec<String> = stored_rules(&rules).iter().map(IngressRule::route).collect();
        assert_eq!(routes, ["/", "tcp:1"]);
        assert!(stored_rules(&"junk".into()).is_empty());
    }
}
