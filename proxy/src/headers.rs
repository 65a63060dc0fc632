//! Changes the headers of requests and answers on their way through the proxy. Pure.
//!
//! What belongs to one connection is removed, and what says where a request came from is made anew: pods
//! trust it, so it must not be a client's invention. Only trusted proxies before this one may say more.

use std::fmt::Write;
use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The id of a request, for logs of several programs.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// Address of the client, or of the proxy before this one.
    pub address: IpAddr,
    /// Whether it is a trusted proxy: what it says of the request's way is kept.
    pub is_trusted: bool,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The host that the request is for.
    pub host: &'a str,
}

/// Removes what belongs to one connection. `TE: trailers` is kept if `is_http2`: gRPC
/// servers ask for it.
pub fn remove_hop_by_hop(headers: &mut HeaderMap, is_http2: bool) {
    remove_named_by_connection(headers);
    let keeps_trailers = is_http2 && headers.get_all(header::TE).iter().any(wants_trailers);
    let doomed: Vec<HeaderName> = headers.keys().filter(|name| is_hop_by_hop(name)).cloned().collect();
    for name in doomed {
        headers.remove(name);
    }
    if keeps_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// A client may name any header as its connection's own, but not take away those that say what the request
/// is.
fn remove_named_by_connection(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONNECTION) {
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
    const OTHERS: [HeaderName; 5] =
        [header::CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE, HTTP2_SETTINGS];
    let text = name.as_str();
    OTHERS.contains(name) || text == "keep-alive" || text == "proxy" || text.starts_with("proxy-")
}

fn wants_trailers(value: &HeaderValue) -> bool {
    let is_trailers = |part: &str| part.trim().eq_ignore_ascii_case("trailers");
    value.to_str().is_ok_and(|value| value.split(',').any(is_trailers))
}

/// Sets the headers that say where the request came from, and its id if it has none that is trusted.
pub fn set_origin(headers: &mut HeaderMap, origin: &Origin<'_>, new_id: impl FnOnce() -> u128) {
    let doomed: Vec<HeaderName> = headers.keys().filter(|name| says_origin(name, origin)).cloned().collect();
    for name in doomed {
        headers.remove(name);
    }
    let address = origin.address.to_canonical();
    append(headers, FORWARDED_FOR, address.to_string());
    append(headers, header::FORWARDED, forwarded(address, origin));
    for (name, text) in [(FORWARDED_PROTO, origin.scheme), (FORWARDED_HOST, origin.host)] {
        if let (false, Ok(value)) = (headers.contains_key(&name), HeaderValue::from_str(text)) {
            headers.insert(name, value);
        }
    }
    if !headers.contains_key(&REQUEST_ID)
        && let Ok(id) = HeaderValue::from_str(&format!("{:032x}", new_id()))
    {
        headers.insert(REQUEST_ID, id);
    }
}

/// Returns whether the header would tell the pod something of the request's origin that this sender may not
/// say. Some servers take `_` for `-`: such names are never trusted.
fn says_origin(name: &HeaderName, origin: &Origin<'_>) -> bool {
    const EXACT: [&str; 5] = ["forwarded", "x-real-ip", "x-request-id", "x-original-url", "x-rewrite-url"];
    let says = |text: &str| EXACT.contains(&text) || text.starts_with("x-forwarded-");
    let text = name.as_str();
    if text.contains('_') { says(&text.replace('_', "-")) } else { !origin.is_trusted && says(text) }
}

fn forwarded(address: IpAddr, origin: &Origin<'_>) -> String {
    let mut text = String::with_capacity(64);
    // An IPv6 address and a host with a port have to be quoted.
    let _ = match address {
        IpAddr::V4(address) => write!(text, "for={address}"),
        IpAddr::V6(address) => write!(text, "for=\"[{address}]\""),
    };
    let is_plain = origin.host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let quote = if is_plain { "" } else { "\"" };
    if !origin.host.is_empty() && !origin.host.contains(['"', '\\']) {
        let _ = write!(text, ";host={quote}{}{quote}", origin.host);
    }
    let _ = write!(text, ";proto={}", origin.scheme);
    text
}

/// Adds an element to a list, in one line.
fn append(headers: &mut HeaderMap, name: HeaderName, element: String) {
    let mut list = String::new();
    for before in headers.get_all(&name).iter().filter_map(|value| value.to_str().ok()) {
        list.push_str(before);
        list.push_str(", ");
    }
    list.push_str(&element);
    if let Ok(value) = HeaderValue::try_from(list) {
        headers.insert(name, value);
    }
}

/// Joins the cookies of an HTTP/2 request, which may come in several lines, into the one line that HTTP/1.1
/// allows.
pub fn join_cookies(headers: &mut HeaderMap) {
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

    fn origin(address: &str, is_trusted: bool) -> Origin<'_> {
        Origin { address: address.parse().unwrap(), is_trusted, scheme: "http", host: "web.example" }
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
    fn cookies_of_several_lines_become_one() {
        let mut sent = headers(&[("cookie", "a=1"), ("cookie", "b=2; c=3")]);
        join_cookies(&mut sent);
        assert_eq!(lines(&sent), ["cookie: a=1; b=2; c=3"]);
    }
}
