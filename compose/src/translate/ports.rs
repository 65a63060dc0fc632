//! Published ports: `"8080:80"`, ranges of them, and the long form.

use document::{DocumentNode, Field};

use super::draft::ServiceDraft;
use crate::compose_document::text_of;
use crate::report::NoteKind;

const ON_LOOPBACK: &str = "ports without an address are reachable on the node's loopback only; write 0.0.0.0:8080:80 to \
                           open one";

pub(crate) fn ports(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let Some(items) = field.value.items() else { return draft.set("ports", field, field.value.clone()) };
    let mut ports = Vec::new();
    for item in items {
        let text = match item.is_map() {
            true => long(item),
            false => item.scalar().map(|text| text.into_owned()),
        };
        match text.as_deref().map(parse) {
            Some(Ok(port)) => {
                if port.address.is_none() {
                    draft.note(NoteKind::Different, item.place(), ON_LOOPBACK);
                }
                ports.extend(port.each().into_iter().map(|text| item.with_text(text)));
            }
            Some(Err(problem)) => draft.mistake(item.place(), &format!("ports: {problem}")),
            None if item.is_map() => draft.mistake(item.place(), "ports: target is missing"),
            // Malformed ports are reported where ports are parsed.
            None => ports.push(item.clone()),
        }
    }
    draft.set("ports", field, DocumentNode::list(ports, field.value.place()));
}

pub(crate) fn one_by_one(item: &DocumentNode) -> Vec<DocumentNode> {
    let ports = match item.scalar().as_deref().map(parse) {
        Some(Ok(port)) => port.each(),
        _ => Vec::new(),
    };
    match ports.len() {
        0 | 1 => vec![item.clone()],
        _ => ports.into_iter().map(|text| item.with_text(text)).collect(),
    }
}

pub(crate) fn key(item: &DocumentNode) -> Option<String> {
    let text = if item.is_map() { long(item)? } else { item.scalar()?.into_owned() };
    let port = parse(&text).ok()?;
    let address = port.address.unwrap_or("0.0.0.0");
    Some(format!("{address} {}", PortRange { address: None, ..port }.each().join(" ")))
}

struct PortRange<'a> {
    address: Option<&'a str>,
    host: Range<'a>,
    container: Range<'a>,
    protocol: &'a str,
}

enum Range<'a> {
    None,
    /// Perhaps malformed.
    One(&'a str),
    Several(u16, u16),
}

fn long(item: &DocumentNode) -> Option<String> {
    let part = |name: &str| text_of(item, name).filter(|text| !text.is_empty());
    let host = match (part("host_ip"), part("published")) {
        (Some(ip), host) if ip.contains(':') => format!("[{ip}]:{}:", host.unwrap_or_default()),
        (Some(ip), host) => format!("{ip}:{}:", host.unwrap_or_default()),
        (None, Some(host)) => format!("{host}:"),
        (None, None) => String::new(),
    };
    Some(format!("{host}{}/{}", part("target")?, part("protocol").unwrap_or_else(|| "tcp".to_owned())))
}

fn parse(text: &str) -> Result<PortRange<'_>, String> {
    let (rest, protocol) = text.rsplit_once('/').unwrap_or((text, "tcp"));
    let (before, container) = match rest.rsplit_once(':') {
        Some((before, container)) => (Some(before), container),
        None => (None, rest),
    };
    let (address, host) = match before {
        None => (None, ""),
        Some(before) => match before.rsplit_once(':') {
            // The address may come from an empty variable.
            Some((address, host)) => (Some(address).filter(|address| !address.is_empty()), host),
            // `127.0.0.1::80` without its last colon, or an address as the host port.
            None if before.contains('.') => (Some(before), ""),
            None => (None, before),
        },
    };
    if !matches!(protocol, "tcp" | "udp") {
        return Err(format!("{text:?}: the protocol is tcp or udp, not {protocol}"));
    }
    let port = PortRange { address, host: range(host), container: range(container), protocol };
    match (&port.host, &port.container) {
        (Range::Several(..), Range::One(_)) => {
            Err(format!("{text:?} leaves the choice of the host's port: write one, or none for any"))
        }
        (Range::Several(first, last), Range::Several(from, to)) if last - first != to - from => {
            Err(format!("{text:?} has ranges of different lengths"))
        }
        (Range::One(_), Range::Several(..)) => {
            Err(format!("{text:?} has one port of the host for several of the container: write as many"))
        }
        _ => Ok(port),
    }
}

fn range(text: &str) -> Range<'_> {
    let bounds = text.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match bounds {
        _ if text.is_empty() => Range::None,
        Some((from, to)) if from <= to => Range::Several(from, to),
        _ => Range::One(text),
    }
}

impl PortRange<'_> {
    fn each(&self) -> Vec<String> {
        match (&self.host, &self.container) {
            (_, Range::None) => vec![self.one("", "")],
            (Range::None, Range::One(container)) => vec![self.one("", container)],
            (Range::One(host), Range::One(container)) => vec![self.one(host, container)],
            (Range::Several(host, _), Range::Several(from, to)) => (*from..=*to)
                .map(|port| self.one(&(host + (port - from)).to_string(), &port.to_string()))
                .collect(),
            (_, Range::Several(from, to)) => {
                (*from..=*to).map(|port| self.one("", &port.to_string())).collect()
            }
            (Range::Several(host, _), Range::One(container)) => vec![self.one(&host.to_string(), container)],
        }
    }

    fn one(&self, host: &str, container: &str) -> String {
        let host = match (self.address, host) {
            (Some(address), host) => format!("{address}:{host}:"),
            (None, "") => String::new(),
            (None, host) => format!("{host}:"),
        };
        format!("{host}{container}/{}", self.protocol)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::testing::service_of;

    #[test]
    fn every_spelling_becomes_single_ports() {
        for (text, ports) in [
            ("80", vec!["80/tcp"]),
            ("8080:80", vec!["8080:80/tcp"]),
            ("6060:6060/udp", vec!["6060:6060/udp"]),
            ("127.0.0.1:8001:8001", vec!["127.0.0.1:8001:8001/tcp"]),
            ("127.0.0.1::80", vec!["127.0.0.1::80/tcp"]),
            (":443:443", vec!["443:443/tcp"]),
            (":80", vec!["80/tcp"]),
            ("[::1]:8080:80", vec!["[::1]:8080:80/tcp"]),
            ("3000-3001", vec!["3000/tcp", "3001/tcp"]),
            ("9090-9091:8080-8081", vec!["9090:8080/tcp", "9091:8081/tcp"]),
            ("0.0.0.0:5000-5001:5000-5001/udp", vec!["0.0.0.0:5000:5000/udp", "0.0.0.0:5001:5001/udp"]),
            ("http", vec!["http/tcp"]),
        ] {
            assert_eq!(parse(text).unwrap().each(), ports, "{text}");
        }
        for bad in ["8000-9000:80", "80:8000-9000", "1-3:1-2", "80:80/sctp"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_long_form_becomes_the_short_one() {
        for (yaml, text) in [
            ("{target: 80}", "80/tcp"),
            ("{target: 80, published: '8080', mode: host}", "8080:80/tcp"),
            ("{target: 80, published: 8080, host_ip: 10.0.0.1, protocol: udp}", "10.0.0.1:8080:80/udp"),
            ("{target: 80, host_ip: '::1'}", "[::1]::80/tcp"),
        ] {
            assert_eq!(long(&service_of(yaml)).unwrap(), text, "{yaml}");
        }
        assert!(long(&service_of("{published: 80}")).is_none());
    }
}
