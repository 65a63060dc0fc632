//! Routes as table rows, and the destination of a request.

use api_types::{CertificateView, PodView, RouteView};
use jiff::Timestamp;
use model::ids::ServiceName;
use model::network::ingress::{HttpProtocol, HttpRule, IngressRule};
use model::pod::lifecycle::Phase;
use serde::Serialize;

use super::pods;
use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize};

impl TableRow for RouteView {
    const TITLES: Titles = &["ROUTE", "SERVICE", "PORT", "PROTOCOL", "CERTIFICATE"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
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
        let certificate =
            self.certificate.as_ref().map(|one| certificate_words(one, now)).unwrap_or_default();
        vec![self.route.clone(), self.service.to_string(), port, protocol.to_owned(), certificate]
    }

    fn name(&self) -> String {
        format!("route/{}", self.route)
    }
}

fn certificate_words(view: &CertificateView, now: Timestamp) -> String {
    let until = |time: &String| humanize::until(time, now);
    let state = match (&view.expires_at, view.is_being_ordered, &view.error) {
        (Some(time), ..) => format!("expires {}", until(time)),
        (None, true, _) => "being ordered".to_owned(),
        (None, false, Some(_)) => "none".to_owned(),
        (None, false, None) => "to be ordered".to_owned(),
    };
    match (&view.error, &view.next_order_at) {
        (Some(_), Some(time)) => format!("{state}; last order failed, next {}", until(time)),
        (Some(_), None) => format!("{state}; unreadable"),
        (None, _) => state,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub url: String,
    pub service: ServiceName,
    /// Port of the pods.
    pub port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateView>,
    pub pods: Vec<RoutePod>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoutePod {
    pub pod: String,
    pub node: Option<String>,
    pub is_ready: bool,
    /// Empty if the pod gets requests.
    pub why_not: String,
}

impl RoutePod {
    /// Judges a pod as the proxies do.
    pub fn of(pod: &PodView) -> Self {
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
    const TITLES: Titles = &["URL", "SERVICE", "PORT", "READY"];

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        let ready = self.pods.iter().filter(|one| one.is_ready).count();
        let ready = format!("{ready}/{}", self.pods.len());
        vec![self.url.clone(), self.service.to_string(), self.port.to_string(), ready]
    }

    fn name(&self) -> String {
        format!("service/{}", self.service)
    }
}

pub fn describe(explanation: &Explanation, now: Timestamp) -> String {
    let Explanation { url, service, port, certificate, pods } = explanation;
    let mut layout = DescribeLayout::default();
    layout.field("URL", url).field("Service", service.as_str()).field("Port of pods", port.to_string());
    if let Some(certificate) = certificate {
        layout.field("Certificate", certificate_words(certificate, now));
        if let Some(error) = &certificate.error {
            layout.field("Last order", error);
        }
    }
    let line = |one: &RoutePod| {
        let node = one.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        match one.is_ready {
            true => format!("{}{node}", one.pod),
            false => format!("{}{node}: {}", one.pod, one.why_not),
        }
    };
    let (ready, others): (Vec<&RoutePod>, Vec<&RoutePod>) = pods.iter().partition(|one| one.is_ready);
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
            let view = RouteView { route: rule.route(), service, rule, certificate: None };
            assert_eq!(view.cells(false, Timestamp::UNIX_EPOCH)[3], expected, "{target}");
        }
    }

    #[test]
    fn a_certificate_that_is_ordered_says_when_it_expires_or_why_there_is_none() {
        let view = |json| serde_json::from_value::<CertificateView>(json).unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let failed = serde_json::json!({"error": "no address", "next_order_at": "2026-01-01T00:02:00Z"});
        let mut renewing = failed.clone();
        renewing["expires_at"] = "2026-01-11T00:00:00Z".into();
        for (json, expected) in [
            (serde_json::json!({"expires_at": "2026-03-01T00:00:00Z"}), "expires in 59d"),
            (serde_json::json!({"is_being_ordered": true}), "being ordered"),
            (serde_json::json!({}), "to be ordered"),
            (failed, "none; last order failed, next in 2m"),
            (renewing, "expires in 10d; last order failed, next in 2m"),
        ] {
            assert_eq!(certificate_words(&view(json), now), expected);
        }
    }

    #[test]
    fn pods_that_get_nothing_say_why() {
        let candidate = |pod: &str, why_not: &str| RoutePod {
            pod: pod.to_owned(),
            node: Some("worker1".to_owned()),
            is_ready: why_not.is_empty(),
            why_not: why_not.to_owned(),
        };
        let explanation = Explanation {
            url: "http://web.example/".to_owned(),
            service: ServiceName::new("web").unwrap(),
            port: 80,
            certificate: None,
            pods: vec![candidate("web-0", ""), candidate("web-1", "running: Unhealthy")],
        };
        let text = describe(&explanation, Timestamp::UNIX_EPOCH);
        assert!(text.contains("Pods that get requests\n  web-0 on worker1\n"), "{text}");
        assert!(text.contains("why not\n  web-1 on worker1: running: Unhealthy\n"), "{text}");
    }
}
