//! Changes the headers of requests and answers in transit. Pure.
//!
//! Pods trust headers about the origin, so those of untrusted clients are replaced.

use std::fmt::Write;
use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use crate::client::framing::upgrade_protocols;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Built once for all requests of a connection for one host.
#[derive(Debug)]
pub(crate) struct ClientOrigin {
    is_trusted: bool,
    scheme: HeaderValue,
    host: String,
    address: Option<HeaderValue>,
    forwarded: Option<HeaderValue>,
    forwarded_host: Option<HeaderValue>,
}

impl ClientOrigin {
    /// `address` may be that of a proxy in front, whose headers are kept if it is trusted.
    pub(crate) fn new(address: IpAddr, is_trusted: bool, scheme: &'static str, host: &str) -> Self {
        let address = address.to_canonical();
        Self {
            is_trusted,
            scheme: HeaderValue::from_static(scheme),
            host: host.to_owned(),
            address: HeaderValue::try_from(address.to_string()).ok(),
            forwarded: HeaderValue::try_from(forwarded(address, scheme, host)).ok(),
            forwarded_host: HeaderValue::from_str(host).ok(),
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

/// gRPC servers require `TE: trailers`.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap, is_http2: bool) {
    // Most have none.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    remove_named_by_connection(headers);
    let keeps_trailers = is_http2 && headers.get_all(header::TE).iter().any(wants_trailers);
    remove(headers, is_hop_by_hop);
    if keeps_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

fn remove(headers: &mut HeaderMap, is_doomed: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_doomed(name)).cloned() {
        headers.remove(name);
    }
}

fn remove_named_by_connection(headers: &mut HeaderMap) {
    let names_none = |value: &HeaderValue| {
        let value = value.as_bytes();
        value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
    };
    if headers.get_all(header::CONNECTION).iter().all(names_none) {
        return;
    }
    let lines: Vec<HeaderValue> = headers.get_all(header::CONNECTION).iter().cloned().collect();
    for name in lines.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')) {
        let is_kept = |name: &_| [header::HOST, header::CONTENT_LENGTH, header::TE].contains(name);
        let name = HeaderName::from_bytes(name.trim().as_bytes());
        if let Some(name) = name.ok().filter(|name| !is_kept(name)) {
            headers.remove(name);
        }
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    // A search in a list takes four times as long.
    let text = name.as_str();
    text.starts_with("proxy-")
        || matches!(
            text,
            "connection" | "te" | "transfer-encoding" | "upgrade" | "http2-settings" | "keep-alive" | "proxy"
        )
}

fn wants_trailers(value: &HeaderValue) -> bool {
    let is_trailers = |part: &str| part.trim().eq_ignore_ascii_case("trailers");
    value.to_str().is_ok_and(|value| value.split(',').any(is_trailers))
}

/// `others` are in lower case.
pub(crate) fn allowed_upgrade(headers: &HeaderMap, others: &[String]) -> Option<HeaderValue> {
    let is_allowed = |name: &&[u8]| {
        let is_other = |other: &String| name.eq_ignore_ascii_case(other.as_bytes());
        name.eq_ignore_ascii_case(b"websocket") || others.iter().any(is_other)
    };
    let lines = headers.get_all(header::UPGRADE).iter().map(HeaderValue::as_bytes);
    let names: Vec<&[u8]> = lines.flat_map(upgrade_protocols).filter(is_allowed).collect();
    HeaderValue::from_bytes(&names.join(&b", "[..])).ok().filter(|value| !value.is_empty())
}

/// Some servers move trailers to the head, where these names mean something else.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    remove(trailers, |name| {
        let is_of_head = [header::HOST, header::CONTENT_LENGTH, header::TRAILER].contains(name);
        is_of_head || is_hop_by_hop(name) || says_origin(name, false)
    });
}

pub(crate) fn set_origin(headers: &mut HeaderMap, origin: &ClientOrigin, new_id: impl FnOnce() -> u128) {
    remove(headers, |name| says_origin(name, origin.is_trusted));
    // Reserves once: each growth would move all headers.
    headers.reserve(5);
    append(headers, FORWARDED_FOR, origin.address.as_ref());
    append(headers, header::FORWARDED, origin.forwarded.as_ref());
    for (name, value) in
        [(FORWARDED_PROTO, Some(&origin.scheme)), (FORWARDED_HOST, origin.forwarded_host.as_ref())]
    {
        if let Some(value) = value {
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
    if let header::Entry::Vacant(vacant) = headers.entry(REQUEST_ID)
        && let Ok(id) =
            HeaderValue::from_str(Uuid::from_u128(new_id()).simple().encode_lower(&mut Uuid::encode_buffer()))
    {
        vacant.insert(id);
    }
}

/// True if this sender may not set the header. Some servers treat `_` as `-`: such names are never trusted.
fn says_origin(name: &HeaderName, is_trusted: bool) -> bool {
    let says = |text: &str| {
        text.starts_with("x-forwarded-")
            || matches!(text, "forwarded" | "x-real-ip" | "x-request-id" | "x-original-url" | "x-rewrite-url")
    };
    let text = name.as_str();
    let has_underscore = text.as_bytes().contains(&b'_');
    if has_underscore { says(&text.replace('_', "-")) } else { !is_trusted && says(text) }
}

fn forwarded(address: IpAddr, scheme: &str, host: &str) -> String {
    let mut text = String::with_capacity(64);
    // IPv6 addresses and ports must be quoted.
    let _ = match address {
        IpAddr::V4(address) => write!(text, "for={address}"),
        IpAddr::V6(address) => write!(text, "for=\"[{address}]\""),
    };
    let is_plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let quote = if is_plain { "" } else { "\"" };
    if !host.is_empty() && !host.contains(['"', '\\']) {
        let _ = write!(text, ";host={quote}{host}{quote}");
    }
    let _ = write!(text, ";proto={scheme}");
    text
}

fn append(headers: &mut HeaderMap, name: HeaderName, element: Option<&HeaderValue>) {
    let Some(element) = element else { return };
    match headers.entry(name) {
        header::Entry::Vacant(vacant) => {
            vacant.insert(element.clone());
        }
        header::Entry::Occupied(mut before) => {
            let elements: Vec<&str> =
                before.iter().chain([element]).filter_map(|value| value.to_str().ok()).collect();
            if let Ok(list) = elements.join(", ").try_into() {
                before.insert(list);
            }
        }
    }
}

/// Only a trusted proxy may be believed.
pub(crate) fn says_https(headers: &HeaderMap) -> bool {
    let scheme = headers.get(FORWARDED_PROTO).and_then(|value| value.to_str().ok()).unwrap_or_default();
    scheme.split(',').next().is_some_and(|first| first.trim().eq_ignore_ascii_case("https"))
}

/// HTTP/1.1 allows only one cookie line.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() < 2 {
        return;
    }
    let joined = lines.join(&b"; "[..]);
    if let Ok(value) = HeaderValue::from_bytes(&joined) {
        headers.insert(header::COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    fn origin(address: &str, is_trusted: bool) -> ClientOrigin {
        ClientOrigin::new(address.parse().unwrap(), is_trusted, "http", "web.example")
    }

    #[test]
    fn what_belongs_to_a_connection_is_removed() {
        let mut sent = headers(&[
            ("connection", "close, X-Own, host"),
            ("connection", "x-other"),
            ("x-own", "1"),
            ("x-other", "1"),
            ("x-kept", "1"),
            ("host", "a"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "x"),
            ("proxy", "x"),
            ("proxy-connection", "x"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("content-length", "3"),
        ]);
        let mut grpc = sent.clone();
        remove_hop_by_hop(&mut sent, false);
        assert_eq!(lines(&sent), ["content-length: 3", "host: a", "x-kept: 1"]);
        remove_hop_by_hop(&mut grpc, true);
        assert_eq!(lines(&grpc), ["content-length: 3", "host: a", "te: trailers", "x-kept: 1"]);
    }

    #[test]
    fn what_a_client_says_of_its_origin_is_replaced() {
        let mut sent = headers(&[
            ("x-forwarded-for", "1.1.1.1"),
            ("x_forwarded_for", "1.1.1.1"),
            ("x-forwarded-port", "1"),
            ("x-real-ip", "1.1.1.1"),
            ("forwarded", "for=1.1.1.1"),
            ("x-request-id", "invented"),
            ("x-original-url", "/admin"),
        ]);
        set_origin(&mut sent, &origin("2001:db8::1", false), || 7);
        assert_eq!(
            lines(&sent),
            [
                "forwarded: for=\"[2001:db8::1]\";host=web.example;proto=http",
                "x-forwarded-for: 2001:db8::1",
                "x-forwarded-host: web.example",
                "x-forwarded-proto: http",
                "x-request-id: 00000000000000000000000000000007",
            ]
        );
    }

    #[test]
    fn a_connection_is_upgraded_to_websocket_and_what_the_rule_allows() {
        let others = ["spdy/3.1".to_owned()];
        for (asked, allowed) in [
            ("websocket", Some("websocket")),
            ("WebSocket", Some("WebSocket")),
            ("h2c", None),
            ("h2c, websocket", Some("websocket")),
            ("tcp", None),
            ("SPDY/3.1, tcp , websocket", Some("SPDY/3.1, websocket")),
            ("", None),
        ] {
            let upgrade = allowed_upgrade(&headers(&[("upgrade", asked)]), &others);
            assert_eq!(upgrade.as_ref().map(|value| value.to_str().unwrap()), allowed, "{asked}");
        }
    }

    #[test]
    fn trailers_say_nothing_of_the_origin_and_of_the_connection() {
        let mut trailers = headers(&[
            ("grpc-status", "0"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x_real_ip", "1.1.1.1"),
            ("forwarded", "for=1.1.1.1"),
            ("connection", "x-checksum"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("host", "b"),
            ("x-checksum", "1"),
        ]);
        clean_trailers(&mut trailers);
        assert_eq!(lines(&trailers), ["grpc-status: 0", "x-checksum: 1"]);
    }

    #[test]
    fn what_a_trusted_proxy_says_is_kept_and_added_to() {
        let mut sent = headers(&[
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("forwarded", "for=1.1.1.1;proto=https"),
            ("x-forwarded-proto", "https"),
            ("x-request-id", "its-id"),
            ("x_forwarded_proto", "ftp"),
        ]);
        set_origin(&mut sent, &origin("::ffff:10.0.0.1", true), || 7);
        assert_eq!(
            lines(&sent),
            [
                "forwarded: for=1.1.1.1;proto=https, for=10.0.0.1;host=web.example;proto=http",
                "x-forwarded-for: 1.1.1.1, 2.2.2.2, 10.0.0.1",
                "x-forwarded-host: web.example",
                "x-forwarded-proto: https",
                "x-request-id: its-id",
            ]
        );
    }

    #[test]
    fn a_proxy_says_https_of_the_client_and_not_of_what_is_between() {
        for (scheme, expected) in
            [("https", true), ("HTTPS, http", true), ("http, https", false), ("", false)]
        {
            assert_eq!(says_https(&headers(&[("x-forwarded-proto", scheme)])), expected, "{scheme}");
        }
        assert!(!says_https(&HeaderMap::new()));
    }

    #[test]
    fn cookies_of_several_lines_become_one() {
        let mut sent = headers(&[("cookie", "a=1"), ("cookie", "b=2; c=3")]);
        join_cookies(&mut sent);
        assert_eq!(lines(&sent), ["cookie: a=1; b=2; c=3"]);
    }
}
