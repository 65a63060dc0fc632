//! Finds the service of a request or connection. Pure.
//!
//! An exact host precedes `*.host`, and a longer `*.host` a shorter one; rules for any host come last. Then
//! the longest path wins.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use model::ids::{AppName, ServiceName};
use model::network::ingress::{HttpProtocol, IngressRule, Tls};
use model::spec::Seconds;
use store::{AliasesByApp, Callers, Routing};

#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// Without `*.` in `wildcard`; the longest path first.
    exact: HashMap<String, Vec<HttpRoute>>,
    wildcard: HashMap<String, Vec<HttpRoute>>,
    any: Vec<HttpRoute>,
    tcp: BTreeMap<u16, TcpRoute>,
    auto: BTreeSet<String>,
    has_paths: bool,
    callers: Callers,
    aliases: AliasesByApp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRoute {
    pub service: ServiceName,
    pub port: u16,
    pub protocol: HttpProtocol,
    pub tls: Option<Tls>,
    pub answer_timeout: Option<Duration>,
    /// Besides WebSocket, in lower case.
    pub upgrade: Vec<String>,
    /// Without its last `/`: empty for all paths.
    path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpRoute {
    pub service: ServiceName,
    pub port: u16,
}

impl RouteTable {
    /// The first service by name wins with two equal rules, so that all proxies agree.
    pub fn new(mut rules: Vec<(ServiceName, IngressRule)>) -> Self {
        rules.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut table = Self::default();
        for (service, rule) in rules {
            table.auto.extend(rule.auto_host().map(str::to_ascii_lowercase));
            match rule {
                IngressRule::Tcp(rule) => {
                    table.tcp.entry(rule.tcp).or_insert(TcpRoute { service, port: rule.port });
                }
                IngressRule::Http(rule) => {
                    let path = rule.path.trim_end_matches('/').to_owned();
                    table.has_paths |= !path.is_empty();
                    let (port, protocol, tls) = (rule.port, rule.protocol, rule.tls);
                    let (answer_timeout, upgrade) =
                        (rule.answer_timeout.map(Seconds::duration), rule.upgrade);
                    let route = HttpRoute { service, port, protocol, tls, answer_timeout, upgrade, path };
                    table.routes_of(rule.host.to_ascii_lowercase()).push(route);
                }
            }
        }
        let lists = table.exact.values_mut().chain(table.wildcard.values_mut());
        for routes in lists.chain([&mut table.any]) {
            // A stable sort keeps the order of services within a path.
            routes.sort_by_key(|route| Reverse(route.path.len()));
        }
        table
    }

    pub fn of(routing: &Routing) -> Self {
        let Routing { routes, callers, aliases } = routing.clone();
        Self { callers, aliases, ..Self::new(routes) }
    }

    pub fn alias(&self, app: &AppName, name: &str) -> Option<&ServiceName> {
        self.aliases.get(app)?.get(name)
    }

    pub fn has_callers(&self, service: &ServiceName) -> bool {
        self.callers.contains_key(service)
    }

    /// A service's own pods always may.
    pub fn may_reach(&self, from: Option<&ServiceName>, service: &ServiceName) -> bool {
        let is_named = |callers: &BTreeSet<ServiceName>| {
            from.is_some_and(|from| from == service || callers.contains(from))
        };
        self.callers.get(service).is_none_or(is_named)
    }

    fn routes_of(&mut self, host: String) -> &mut Vec<HttpRoute> {
        match host.strip_prefix("*.") {
            _ if host.is_empty() => &mut self.any,
            Some(parent) => self.wildcard.entry(parent.to_owned()).or_default(),
            None => self.exact.entry(host).or_default(),
        }
    }

    /// `host` may have a port and any case; `path` is as sent.
    pub fn http(&self, host: &str, path: &str) -> Option<&HttpRoute> {
        let host = host_name(host);
        let exact = self.exact.get(&*host).into_iter();
        let parents = (!self.wildcard.is_empty()).then(|| parents(&host));
        let wildcard = parents.into_iter().flatten().filter_map(|parent| self.wildcard.get(parent));
        exact.chain(wildcard).chain([&self.any]).flatten().find(|route| route.matches(path))
    }

    pub fn tcp(&self) -> &BTreeMap<u16, TcpRoute> {
        &self.tcp
    }

    /// Sorted.
    pub fn auto_hosts(&self) -> impl Iterator<Item = &str> {
        self.auto.iter().map(String::as_str)
    }

    pub fn is_auto(&self, host: &str) -> bool {
        !self.auto.is_empty() && self.auto.contains(&*host_name(host))
    }

    pub fn has_paths(&self) -> bool {
        self.has_paths
    }

    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        let lists = self.exact.values().chain(self.wildcard.values()).chain([&self.any]);
        let http = lists.flatten().map(|route| &route.service);
        http.chain(self.tcp.values().map(|route| &route.service))
    }
}

impl HttpRoute {
    fn matches(&self, path: &str) -> bool {
        path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// A pod could resolve `.` or `..`, also percent-encoded, to another route.
pub fn has_dot_segments(path: &str) -> bool {
    let is_dots = |segment: &str| {
        let mut rest = segment;
        let mut dots = 0;
        while let Some(after) =
            rest.strip_prefix('.').or_else(|| rest.strip_prefix("%2e")).or_else(|| rest.strip_prefix("%2E"))
        {
            rest = after;
            dots += 1;
        }
        rest.is_empty() && (dots == 1 || dots == 2)
    };
    let bytes = path.as_bytes();
    let may = bytes.windows(2).any(|two| matches!(two, b"/." | b"/%" | b"\\." | b"\\%"));
    may && path.split(['/', '\\']).any(is_dots)
}

/// In lower case, without its port and last dot.
pub fn host_name(host: &str) -> Cow<'_, str> {
    let digits = host.bytes().rev().take_while(u8::is_ascii_digit).count();
    let name = host[..host.len() - digits].strip_suffix(':').unwrap_or(host);
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// `b.c` and `c` for `a.b.c`.
fn parents(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host), |name| name.split_once('.').map(|(_, parent)| parent)).skip(1)
}

#[cfg(test)]
mod tests {
    use model::network::ingress::{HttpRule, TcpRule};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_those_that_are_named_and_its_own_pods_reach_a_service() {
        let name = |name: &str| ServiceName::new(name).unwrap();
        let callers = [("db", vec!["web"]), ("closed", vec![])];
        let callers = callers.map(|(service, names)| (name(service), names.into_iter().map(name).collect()));
        let table = RouteTable::of(&Routing { callers: callers.into(), ..Routing::default() });
        for (from, service, may) in [
            (Some("web"), "db", true),
            (Some("db"), "db", true),
            (Some("api"), "db", false),
            (None, "db", false),
            (Some("web"), "closed", false),
            (Some("closed"), "closed", true),
            (Some("api"), "web", true),
            (None, "web", true),
        ] {
            assert_eq!(table.may_reach(from.map(name).as_ref(), &name(service)), may, "{from:?} {service}");
        }
    }

    fn service(name: &str) -> ServiceName {
        ServiceName::new(name).unwrap()
    }

    fn rule(words: &str) -> (ServiceName, IngressRule) {
        let (name, address) = words.split_once(' ').unwrap();
        let (host, path) = address.split_at(address.find('/').unwrap_or(address.len()));
        let path = if path.is_empty() { "/" } else { path };
        let rule = HttpRule { host: host.into(), path: path.into(), port: 80, ..HttpRule::default() };
        (service(name), IngressRule::Http(rule))
    }

    fn table(rules: &[&str]) -> RouteTable {
        RouteTable::new(rules.iter().map(|words| rule(words)).collect())
    }

    #[test]
    fn the_most_specific_host_and_then_the_longest_path_wins() {
        let table = table(&[
            "exact a.example",
            "exact-api a.example/api",
            "exact-api-v1 a.example/api/v1/",
            "wild *.example/",
            "wild-deep *.b.example",
            "any /",
            "any-api /api",
        ]);
        for (host, path, expected) in [
            ("a.example", "/", "exact"),
            ("A.Example:8080", "/x", "exact"),
            ("a.example.", "/apix", "exact"),
            ("a.example", "/api", "exact-api"),
            ("a.example", "/api/", "exact-api"),
            ("a.example", "/api/v10", "exact-api"),
            ("a.example", "/api/v1", "exact-api-v1"),
            ("a.example", "/api/v1/pods", "exact-api-v1"),
            ("x.example", "/api", "wild"),
            ("b.example", "/", "wild"),
            ("x.b.example", "/", "wild-deep"),
            ("x.y.b.example", "/", "wild-deep"),
            ("example", "/", "any"),
            ("", "/api/x", "any-api"),
            ("[::1]:80", "/", "any"),
        ] {
            let route = table.http(host, path).unwrap();
            assert_eq!(route.service.as_str(), expected, "{host} {path}");
        }
    }

    #[test]
    fn a_host_without_a_matching_path_leaves_the_request_to_less_specific_hosts() {
        let table = table(&["api a.example/api", "wild *.example/api", "all /web"]);
        assert_eq!(table.http("a.example", "/web").unwrap().service.as_str(), "all");
        assert_eq!(table.http("a.example", "/other"), None);
        assert_eq!(table.http("other", "/api"), None);
    }

    #[test]
    fn hosts_with_a_certificate_that_is_ordered_are_known_by_name() {
        let rules = [("b.example/", "b 80 tls=auto"), ("b.example/api", "a 80"), ("c.example/", "c 80 tls")];
        let rules = rules.map(|(route, target)| IngressRule::parse(route, target).unwrap());
        let table = RouteTable::new(rules.to_vec());
        assert_eq!(table.auto_hosts().collect::<Vec<_>>(), ["b.example"]);
        for (host, expected) in
            [("b.example", true), ("B.example.:80", true), ("c.example", false), ("", false)]
        {
            assert_eq!(table.is_auto(host), expected, "{host}");
        }
    }

    #[test]
    fn of_two_equal_rules_the_first_service_by_name_is_taken() {
        for rules in [["b a.example", "a a.example"], ["a a.example", "b a.example"]] {
            assert_eq!(table(&rules).http("a.example", "/").unwrap().service.as_str(), "a");
        }
        let tcp = |name| (service(name), IngressRule::Tcp(TcpRule { tcp: 5432, port: 1 }));
        assert_eq!(RouteTable::new(vec![tcp("b"), tcp("a")]).tcp()[&5432].service.as_str(), "a");
    }

    #[test]
    fn dot_segments_are_seen_in_every_spelling() {
        for path in ["/..", "/a/../b", "/./a", "/a/.", "/%2e%2E/b", "/.%2e", "/%2e", "/a/..\\b", "/a\\..\\b"]
        {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["/", "/a.b", "/.well-known/x", "/...", "/a..", "/..a", "/%2f", "/a/.b/c", "*", ""] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }

    /// The documented rules, one by one.
    fn best<'a>(rules: &'a [(String, String)], host: &str, path: &str) -> Option<&'a (String, String)> {
        let host_rank = |rule: &str| match rule.strip_prefix("*.") {
            Some(parent) => host.ends_with(&format!(".{parent}")).then_some(parent.len() + 1),
            None if rule.is_empty() => Some(0),
            None => (rule == host).then_some(usize::MAX),
        };
        let path_rank = |rule: &str| {
            let rule: Vec<_> = rule.split('/').filter(|segment| !segment.is_empty()).collect();
            let path: Vec<_> = path[1..].split('/').collect();
            (rule.is_empty() || path.starts_with(&rule)).then_some(rule.len())
        };
        let rank = |(host, path): &(String, String)| Some((host_rank(host)?, path_rank(path)?));
        rules.iter().filter(|rule| rank(rule).is_some()).max_by_key(|rule| rank(rule))
    }

    proptest! {
        #[test]
        fn the_table_finds_what_comparing_all_rules_finds(
            rules in proptest::collection::btree_set(
                ("(\\*\\.)?[ab](\\.[ab]){0,2}|", "(/[ab]{1,2}){0,3}"), 0..12),
            host in "[ab](\\.[ab]){0,3}",
            path in "(/[ab]{1,2}){1,4}",
        ) {
            let rules: Vec<_> = rules.into_iter().collect();
            let wire = rules.iter().enumerate().map(|(n, (host, path))| rule(&format!("s{n} {host}{path}")));
            let table = RouteTable::new(wire.collect());
            let expected = best(&rules, &host, &path)
                .map(|best| format!("s{}", rules.iter().position(|rule| rule == best).unwrap()));
            let found = table.http(&host, &path).map(|route| route.service.as_str().to_owned());
            prop_assert_eq!(found, expected);
        }
    }
}
