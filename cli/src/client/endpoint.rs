//! Where the API is: what `--api` may say, and the addresses made from it.

use std::net::IpAddr;

use reqwest::Url;

use super::ClientError;

/// The API's base address. Paths are added to its own, so that it may stand behind a proxy's prefix.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint(Url);

impl Endpoint {
    /// Reads `--api`: `http://host:port`, or `host:port` for short.
    pub(crate) fn parse(text: &str) -> Result<Self, ClientError> {
        let bad = |why: String| ClientError::BadAddress { text: text.to_owned(), why };
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&full).map_err(|e| bad(e.to_string()))?;
        match url.scheme() {
            "http" => {}
            "https" => {
                let why = "TLS is not built in: reach the API through http on loopback (ssh -L 7070:127.0.0.1:7070 …), or \
                           let a proxy on this machine speak TLS";
                return Err(bad(why.to_owned()));
            }
            other => return Err(bad(format!("{other}:// is not spoken here: write http://127.0.0.1:7070"))),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(
                "a token is given with --token-file or KUBELEET_TOKEN, not in the address".into()
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("an address ends before `?` and `#`".into()));
        }
        Ok(Self(url))
    }

    /// The address of something below: each part of the path is escaped.
    pub(crate) fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.0.clone();
        url.path_segments_mut().expect("http addresses have paths").pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// Whether it is this machine. Then no proxy is asked, whatever the environment says.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn addresses_people_write() {
        for (text, shown) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
            ("http://127.0.0.1:7070/", "http://127.0.0.1:7070"),
            ("node1:7070", "http://node1:7070"),
            ("http://proxy/kubeleet/", "http://proxy/kubeleet"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn addresses_that_can_not_work_say_why() {
        for (text, why) in [
            ("https://node1:7070", "TLS is not built in"),
            ("redis://node1:6379", "redis://"),
            ("http://me:pass@node1", "--token-file"),
            ("http://", "http://"),
            ("http://a?b=c", "`?`"),
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("--api"), "{error}");
        }
    }

    #[test]
    fn parts_of_a_path_are_escaped() {
        let endpoint = Endpoint::parse("http://proxy/kubeleet").unwrap();
        let url = endpoint.url(&["pod", "a/b ü?"], &[("prefix", "a&b".to_owned())]);
        assert_eq!(url.as_str(), "http://proxy/kubeleet/pod/a%2Fb%20%C3%BC%3F?prefix=a%26b");
        let root = Endpoint::parse("node1:7070").unwrap();
        assert_eq!(root.url(&["status"], &[]).as_str(), "http://node1:7070/status");
    }

    #[test]
    fn loopback_in_every_spelling() {
        for (text, loopback) in [
            ("localhost:1", true),
            ("127.0.0.9:1", true),
            ("http://[::1]:1", true),
            ("10.0.0.1:1", false),
            ("web:1", false),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }
}
