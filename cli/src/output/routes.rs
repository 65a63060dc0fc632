//! Routes as table rows, and where a request goes.

use common::api::{PodView, RouteView};
use common::ids::ServiceName;
use common::ingress::{HttpProtocol, HttpRule, IngressRule};
use common::lifecycle::Phase;
use jiff::Timestamp;
use serde::Serialize;

use super::describe_layout::DescribeLayout;
use super::{TableRow, pods};

impl TableRow for RouteView {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["ROUTE", "SERVICE", "PORT", "PROTOCOL"]
    }

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        let protocol = match &self.rule {
            IngressRule::Tcp(_) => "tcp",
            IngressRule::Http(HttpRule { protocol, tls, .. }) => match (protocol, tls) {
                (HttpProtocol::Http, None) => "http",
                (HttpProtocol::Http, Some(_)) => "https",
                (HttpProtocol::H2c, None) => "h2c",
                (HttpProtocol::H2c, Some(_)) => "https+h2c",
            },
        };
        let port = self.rule.port().to_string();
        vec![self.route.clone(), self.service.to_string(), port, protocol.to_owned()]
    }

    fn name(&self) -> String {
        format!("route/{}", self.route)
    }
}

/// Where a request or connection goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Explanation {
    /// What was asked about.
    pub(crate) url: String,
    /// The service that the route leads to.
    pub(crate) service: ServiceName,
    /// The port of its pods.
    pub(crate) port: u16,
    /// Its pods.
    pub(crate) pods: Vec<Candidate>,
}

/// A pod of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Candidate {
    /// Its name.
    pub(crate) pod: String,
    /// Its node, if it has one.
    pub(crate) node: Option<String>,
    /// Whether it gets requests.
    pub(crate) is_ready: bool,
    /// The reason why it gets none; empty if it does.
    pub(crate) why_not: String,
}

impl Candidate {
    /// Judges a pod as the proxies do.
    pub(crate) fn of(pod: &PodView) -> Self {
        let is_ready = pod.phase == Phase::Running && pod.reason.is_empty();
        let why = [pod.reason.as_str(), pod.message.as_str()].into_iter().filter(|text| !text.is_empty());
        let why_not = match is_ready {
            true => String::new(),
            false => format!("{}: {}", pod.phase, why.collect::<Vec<_>>().join(": ")),
        };
        Self {
            pod: pods::indexed_name(pod),
            node: pod.node.as_ref().map(ToString::to_string),
            is_ready,
            why_not: why_not.trim_end_matches(": ").to_owned(),
        }
    }
}

impl TableRow for Explanation {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["URL", "SERVICE", "PORT", "READY"]
    }

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        let ready = self.pods.iter().filter(|one| one.is_ready).count();
        let ready = format!("{ready}/{}", self.pods.len());
        vec![self.url.clone(), self.service.to_string(), self.port.to_string(), ready]
    }

    fn name(&self) -> String {
        format!("service/{}", self.service)
    }
}

/// Describes where a request goes.
pub(crate) fn describe(explanation: &Explanation) -> String {
    let Explanation { url, service, port, pods } = explanation;
    let mut layout = DescribeLayout::default();
    layout.field("URL", url).field("Service", service.as_str()).field("Port of pods", port.to_string());
    let line = |one: &Candidate| {
        let node = one.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        match one.is_ready {
            true => format!("{}{node}", one.pod),
            false => format!("{}{node}: {}", one.pod, one.why_not),
        }
    };
    let (ready, others): (Vec<&Candidate>, Vec<&Candidate>) = pods.iter().partition(|one| one.is_ready);
    if ready.is_empty() {
        layout.field("Pods", "none is ready: requests wait, and then get 503");
    }
    layout.section("Pods that get requests", ready.into_iter().map(line));
    layout.section("Other pods, and why not", others.into_iter().map(line));
    layout.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_of_a_route_says_whether_clients_need_https() {
        for (target, expected) in [
            ("web 80", "http"),
            ("web 80 tls", "https"),
            ("web 80 h2c", "h2c"),
            ("web 80 h2c tls", "https+h2c"),
        ] {
            let (service, rule) = IngressRule::parse("web.example/", target).unwrap();
            let view = RouteView { route: rule.route(), service, rule };
            assert_eq!(view.cells(false, Timestamp::UNIX_EPOCH)[3], expected, "{target}");
        }
    }

    #[test]
    fn pods_that_get_nothing_say_why() {
        let candidate = |pod: &str, why_not: &str| Candidate {
            pod: pod.to_owned(),
            node: Some("worker1".to_owned()),
            is_ready: why_not.is_empty(),
            why_not: why_not.to_owned(),
        };
        let explanation = Explanation {
            url: "http://web.example/".to_owned(),
            service: ServiceName::new("web").unwrap(),
            port: 80,
            pods: vec![candidate("web-0", ""), candidate("web-1", "running: Unhealthy")],
        };
        let text = describe(&explanation);
        assert!(text.contains("Pods that get requests\n  web-0 on worker1\n"), "{text}");
        assert!(text.contains("why not\n  web-1 on worker1: running: Unhealthy\n"), "{text}");
    }
}
