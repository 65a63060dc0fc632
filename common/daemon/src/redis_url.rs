//! The URL of Redis, parsed and checked before anything connects.
//!
//! ```text
//! redis://[user:pass@]host[:port][/db]            rediss://…            (TLS)
//! redis+sentinel://[user:pass@]h1[:p],h2[:p]/mymaster[/db]              rediss+sentinel://…
//! unix:///path/to/redis.sock
//! ```
//! Options after `?`: `ca` (a PEM file with the authority to trust instead of the system's), `cert` and `key`
//! (PEM files with a client certificate), `sentinel_user`, `sentinel_password`, and for `unix://` also `db`.
//! Characters with a meaning in a URL must be escaped as `%xx`.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// `Display` and `Debug` hide the passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub endpoint: RedisEndpoint,
    pub login: RedisLogin,
    pub sentinel_login: RedisLogin,
    pub db: u32,
    pub tls: Option<RedisTls>,
}

impl RedisUrl {
    pub fn has_sentinels(&self) -> bool {
        matches!(self.endpoint, RedisEndpoint::Sentinel { .. })
    }

    pub fn servers(&self) -> Vec<(&str, u16)> {
        let servers = match &self.endpoint {
            RedisEndpoint::Tcp(server) => std::slice::from_ref(server),
            RedisEndpoint::Unix(_) => &[],
            RedisEndpoint::Sentinel { peers, .. } => peers,
        };
        servers.iter().map(|server| (server.host.as_str(), server.port)).collect()
    }
}

/// No password: no AUTH.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisLogin {
    pub user: Option<String>,
    pub password: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum RedisEndpoint {
    Tcp(HostPort),
    Unix(PathBuf),
    Sentinel {
        peers: Vec<HostPort>,
        /// The name of the master.
        name: String,
    },
}

/// PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Instead of the system's.
    pub ca: Option<PathBuf>,
    /// For the client.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

/// Omits the URL: it can contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Redis URL {why}; valid are for example redis://127.0.0.1:6379 and \
     redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"
)]
pub struct UrlError {
    why: String,
}

fn bad(why: impl Into<String>) -> UrlError {
    UrlError { why: why.into() }
}

#[derive(Clone, Copy, PartialEq)]
enum UrlScheme {
    Single,
    Sentinel,
    Unix,
}

impl FromStr for RedisUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(|| bad("has no scheme (redis://)"))?;
        let (scheme, tls) = match scheme {
            "redis" => (UrlScheme::Single, false),
            "rediss" => (UrlScheme::Single, true),
            "redis+sentinel" => (UrlScheme::Sentinel, false),
            "rediss+sentinel" => (UrlScheme::Sentinel, true),
            "unix" | "redis+unix" => (UrlScheme::Unix, false),
            other if other.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') && other.len() < 24 => {
                return Err(bad(format!("has the unknown scheme '{other}://'")));
            }
            _ => return Err(bad("does not begin with a scheme (redis://)")),
        };
        if rest.contains('#') {
            return Err(bad("has a '#' (write a '#' in a password as %23)"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, ""),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (parse_login(login)?, hosts),
            None => (RedisLogin::default(), authority),
        };
        let query = Query::parse(query)?;
        let (endpoint, db) = parse_endpoint(scheme, hosts, path)?;
        let is_sentinel = matches!(endpoint, RedisEndpoint::Sentinel { .. });
        if !is_sentinel && query.sentinel_login != RedisLogin::default() {
            return Err(bad("has a login for Sentinels but names no sentinels (redis+sentinel://)"));
        }
        if !tls && query.tls != RedisTls::default() {
            return Err(bad("has certificates (ca, cert, key) but does not use TLS (rediss://)"));
        }
        if query.tls.cert.is_some() != query.tls.key.is_some() {
            return Err(bad("has one of cert and key, which belong together"));
        }
        let db = match (db, query.db) {
            (Some(_), Some(_)) => return Err(bad("has the database twice")),
            (one, other) => one.or(other).unwrap_or(0),
        };
        Ok(Self { endpoint, login, sentinel_login: query.sentinel_login, db, tls: tls.then_some(query.tls) })
    }
}

fn parse_endpoint(
    scheme: UrlScheme,
    hosts: &str,
    path: &str,
) -> Result<(RedisEndpoint, Option<u32>), UrlError> {
    match scheme {
        UrlScheme::Unix if !hosts.is_empty() => {
            Err(bad("has a host before the socket's path (unix:///path)"))
        }
        UrlScheme::Unix if path.is_empty() => Err(bad("has no path to a socket (unix:///path)")),
        UrlScheme::Unix => Ok((RedisEndpoint::Unix(PathBuf::from(format!("/{}", decode(path)?))), None)),
        UrlScheme::Single if hosts.contains(',') => {
            Err(bad("has several hosts, which needs Sentinels (redis+sentinel://h1,h2,h3/mymaster)"))
        }
        UrlScheme::Single => Ok((RedisEndpoint::Tcp(parse_host(hosts, 6379)?), parse_db(path)?)),
        UrlScheme::Sentinel => {
            let peers =
                hosts.split(',').map(|host| parse_host(host, 26379)).collect::<Result<Vec<_>, _>>()?;
            let (name, db) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(bad("has no name of the master after the Sentinels (…/mymaster)"));
            }
            Ok((RedisEndpoint::Sentinel { peers, name: decode(name)? }, parse_db(db)?))
        }
    }
}

fn parse_db(text: &str) -> Result<Option<u32>, UrlError> {
    match text.trim_end_matches('/') {
        "" => Ok(None),
        number => number.parse().map(Some).map_err(|_| bad("has a database that is not a number")),
    }
}

fn parse_login(text: &str) -> Result<RedisLogin, UrlError> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (decode(user)?, Some(decode(password)?)),
        None => (decode(text)?, None),
    };
    if password.is_none() {
        return Err(bad("has a user without a password (user:password@, or :password@)"));
    }
    Ok(RedisLogin { user: (!user.is_empty()).then_some(user), password })
}

fn parse_host(text: &str, default_port: u16) -> Result<HostPort, UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(|| bad("has a '[' without its ']'"))?;
            (host, after.strip_prefix(':'))
        }
        None if text.matches(':').count() > 1 => return Err(bad("has an IPv6 address without [brackets]")),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(bad("has no host"));
    }
    let port = match port {
        None => default_port,
        Some(digits) => match digits.parse() {
            Ok(port) if port != 0 => port,
            _ => {
                return Err(bad("has a port that is not between 1 and 65535"));
            }
        },
    };
    Ok(HostPort { host: decode(host)?, port })
}

#[derive(Default)]
struct Query {
    tls: RedisTls,
    db: Option<u32>,
    sentinel_login: RedisLogin,
}

impl Query {
    fn parse(text: &str) -> Result<Self, UrlError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            match key {
                "ca" => query.tls.ca = Some(PathBuf::from(value)),
                "cert" => query.tls.cert = Some(PathBuf::from(value)),
                "key" => query.tls.key = Some(PathBuf::from(value)),
                "db" => query.db = parse_db(&value)?,
                "sentinel_user" => query.sentinel_login.user = Some(value),
                "sentinel_password" => query.sentinel_login.password = Some(value),
                // It may be a part of a password that contains '?'.
                _ => return Err(bad("has an unknown option after '?' (write a '?' in a password as %3F)")),
            }
        }
        if query.sentinel_login.user.is_some() && query.sentinel_login.password.is_none() {
            return Err(bad("has a sentinel_user without a sentinel_password"));
        }
        Ok(query)
    }
}

/// A `%` that does not begin an escape is likely part of a password.
fn decode(text: &str) -> Result<String, UrlError> {
    let begins_escape =
        |after: &str| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    if !text.split('%').skip(1).all(begins_escape) {
        return Err(bad("has a '%' that is not followed by two hex digits (write %25)"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| bad("is not UTF-8 after decoding its %xx"))
}

fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.tls.is_some() { "s" } else { "" };
        match &self.endpoint {
            RedisEndpoint::Tcp(_) => write!(f, "redis{secure}://")?,
            RedisEndpoint::Sentinel { .. } => write!(f, "redis{secure}+sentinel://")?,
            RedisEndpoint::Unix(_) => write!(f, "unix://")?,
        }
        if self.login.password.is_some() {
            write!(f, "{}:***@", encode(self.login.user.as_deref().unwrap_or_default()))?;
        }
        match &self.endpoint {
            RedisEndpoint::Tcp(host) => write!(f, "{host}/{}", self.db)?,
            RedisEndpoint::Sentinel { peers, name } => {
                let peers: Vec<String> = peers.iter().map(HostPort::to_string).collect();
                write!(f, "{}/{}/{}", peers.join(","), encode(name), self.db)?;
            }
            RedisEndpoint::Unix(path) => write!(f, "{}?db={}", encode(&path.to_string_lossy()), self.db)?,
        }
        let mut options = Vec::new();
        let tls = self.tls.clone().unwrap_or_default();
        for (name, file) in [("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)] {
            options.extend(file.map(|file| format!("{name}={}", encode(&file.to_string_lossy()))));
        }
        if let Some(user) = &self.sentinel_login.user {
            options.push(format!("sentinel_user={}", encode(user)));
        }
        if self.sentinel_login.password.is_some() {
            options.push("sentinel_password=***".into());
        }
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn valid_urls_are_shown_without_passwords() {
        let table = [
            ("redis://127.0.0.1", "redis://127.0.0.1:6379/0"),
            (" redis://localhost:7000/2 ", "redis://localhost:7000/2"),
            ("redis://localhost:7000/", "redis://localhost:7000/0"),
            ("redis://:secret@host", "redis://:***@host:6379/0"),
            ("redis://kube:s%40:c%2Fret@host/1", "redis://kube:***@host:6379/1"),
            ("redis://kube:se@cret@host/1", "redis://kube:***@host:6379/1"),
            ("redis://[::1]:6380", "redis://[::1]:6380/0"),
            ("rediss://host?ca=/etc/ca.pem", "rediss://host:6379/0?ca=/etc/ca.pem"),
            ("rediss://host?key=/k.pem&cert=/c.pem", "rediss://host:6379/0?cert=/c.pem&key=/k.pem"),
            ("redis+sentinel://a,b:1,[::2]/mymaster", "redis+sentinel://a:26379,b:1,[::2]:26379/mymaster/0"),
            (
                "rediss+sentinel://u:secret@a/m/4?sentinel_user=s&sentinel_password=secret",
                "rediss+sentinel://u:***@a:26379/m/4?sentinel_user=s&sentinel_password=***",
            ),
            ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0"),
        ];
        for (text, shown) in table {
            let url: RedisUrl = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(url.to_string(), shown, "{text}");
            assert_eq!(format!("{url:?}"), format!("RedisUrl({shown})"), "{text}");
        }
    }

    #[test]
    fn logins_are_decoded() {
        let url: RedisUrl = "redis://kube:s%40:c%2Fret@host".parse().unwrap();
        assert!(url.login == RedisLogin { user: Some("kube".into()), password: Some("s@:c/ret".into()) });
        let url: RedisUrl = "redis://:only@host".parse().unwrap();
        assert!(url.login == RedisLogin { user: None, password: Some("only".into()) });
        let url: RedisUrl = "redis+sentinel://h/m?sentinel_password=a%26b".parse().unwrap();
        assert!(url.login == RedisLogin::default());
        assert!(url.sentinel_login == RedisLogin { user: None, password: Some("a&b".into()) });
    }

    #[test]
    fn errors_say_why_and_do_not_repeat_a_password() {
        let table = [
            ("127.0.0.1:6379", "no scheme"),
            ("http://host", "unknown scheme 'http://'"),
            ("u:secret@host://x", "does not begin with a scheme"),
            ("redis://", "no host"),
            ("redis://:secret@", "no host"),
            ("redis://:secret@host:0", "port"),
            ("redis://:secret@host:port", "port"),
            ("redis://::1", "brackets"),
            ("redis://[::1", "']'"),
            ("redis://:secret@host/abc", "database"),
            ("redis://a,b", "several hosts"),
            ("redis://secret@host", "user without a password"),
            ("redis://:sec%zzret@host", "hex"),
            ("redis://:sec#ret@host", "%23"),
            ("redis://:sec?ret@host", "%3F"),
            ("redis://:sec%ffret@host", "UTF-8"),
            ("redis://host?ca=/x", "TLS"),
            ("redis://host?cert=/x&key=/y", "TLS"),
            ("rediss://host?cert=/x", "belong together"),
            ("redis://host?sentinel_password=secret", "sentinels"),
            ("redis://host/1?db=2", "twice"),
            ("redis+sentinel://a,b", "no name"),
            ("redis+sentinel://a,,b/m", "no host"),
            ("redis+sentinel://a/m?sentinel_user=u", "sentinel_user without"),
            ("unix://host/path", "host before"),
            ("unix://", "no path"),
        ];
        for (text, why) in table {
            let error = text.parse::<RedisUrl>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("secret") && !error.contains("ret@"), "{text}: {error}");
        }
    }
}
