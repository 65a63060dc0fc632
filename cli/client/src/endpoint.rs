//! Address of the API, and URLs of routes.

use std::net::IpAddr;

use reqwest::Url;

use crate::error::ClientError;

/// Routes are appended to its path: the API can be behind a proxy with a prefix.
#[derive(Debug, Clone)]
pub struct ApiUrl(Url);

impl ApiUrl {
    /// `http://host:port`, or `host:port` for short.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let invalid =
            |reason: &str| ClientError::InvalidAddress { text: text.to_owned(), reason: reason.to_owned() };
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&full).map_err(|e| invalid(&e.to_string()))?;
        match url.scheme() {
            "http" => {}
            "https" => {
                return Err(invalid(
                    "TLS is not built in: reach the API through a tunnel (ssh -L 7070:127.0.0.1:7070 …), or \
                     through a TLS proxy on this machine",
                ));
            }
            other => {
                return Err(invalid(&format!("{other}:// is not supported: write http://127.0.0.1:7070")));
            }
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("give the token with --token-file or KUBELEET_TOKEN, not in the address"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must not contain `?` or `#`"));
        }
        Ok(Self(url))
    }

    /// Each segment of `path` is percent-encoded.
    pub fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.0.clone();
        url.path_segments_mut().expect("http addresses have paths").pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    pub fn port(&self) -> Option<u16> {
        self.0.port_or_known_default()
    }

    /// On this machine proxy settings of the environment do not apply.
    pub fn is_loopback(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

impl std::fmt::Display for ApiUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn accepts_the_usual_addresses() {
        for (text, shown) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
            ("http://127.0.0.1:7070/", "http://127.0.0.1:7070"),
            ("node1:7070", "http://node1:7070"),
            ("http://proxy/kubeleet/", "http://proxy/kubeleet"),
        ] {
            assert_eq!(ApiUrl::parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn refuses_an_invalid_address_with_the_reason() {
        for (text, reason) in [
            ("https://node1:7070", "TLS is not built in"),
            ("redis://node1:6379", "redis://"),
            ("http://me:pass@node1", "--token-file"),
            ("http://", "http://"),
            ("http://a?b=c", "`?`"),
        ] {
            let error = ApiUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("--api"), "{error}");
        }
    }

    #[test]
    fn path_segments_are_percent_encoded() {
        let endpoint = ApiUrl::parse("http://proxy/kubeleet").unwrap();
        let url = endpoint.url(&["pod", "a/b ü?"], &[("prefix", "a&b".to_owned())]);
        assert_eq!(url.as_str(), "http://proxy/kubeleet/pod/a%2Fb%20%C3%BC%3F?prefix=a%26b");
        let root = ApiUrl::parse("node1:7070").unwrap();
        assert_eq!(root.url(&["status"], &[]).as_str(), "http://node1:7070/status");
    }

    #[test]
    fn recognizes_every_spelling_of_loopback() {
        for (text, loopback) in [
            ("localhost:1", true),
            ("127.0.0.9:1", true),
            ("http://[::1]:1", true),
            ("10.0.0.1:1", false),
            ("web:1", false),
        ] {
            assert_eq!(ApiUrl::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }
}
