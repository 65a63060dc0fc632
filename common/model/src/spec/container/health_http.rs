//! Checks over the network.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::spec::units;
use document::json_pointer;

const MAX_PATH: usize = 2048;
const MAX_HEADERS: usize = 32;
const MAX_HEADER_VALUE: usize = 4096;
const MAX_STATUS_RANGES: usize = 16;

/// The worker writes these itself.
const RESERVED_HEADERS: [&str; 8] =
    ["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// A GET request to the container's address, over HTTP/1.1. Redirects are not followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HttpCheck {
    /// Port inside the container; it need not be published.
    #[serde(deserialize_with = "units::port")]
    #[schema(minimum = 1, maximum = 65535, example = 8080)]
    pub port: u16,
    /// Path, and perhaps a query.
    #[serde(default = "root", skip_serializing_if = "is_root")]
    #[schema(default = "/", example = "/healthz", pattern = "^/[!-~]*$", max_length = 2048)]
    pub path: String,
    /// Good statuses: a number, a range such as `"200-399"`, or a list of them.
    #[serde(default, skip_serializing_if = "crate::spec::is_default")]
    pub status: StatusCodes,
    /// Headers of the request. `Host` is the container's address and port if it is not among them.
    #[serde(default, skip_serializing_if = "HttpHeaders::is_empty")]
    pub headers: HttpHeaders,
}

impl HttpCheck {
    /// Pointers are below the check.
    pub(in crate::spec) fn problems(&self) -> Vec<(String, String)> {
        let single = [
            ("/port".to_owned(), port_problem(self.port)),
            ("/path".to_owned(), path_problem(&self.path)),
            ("/headers".to_owned(), self.headers.number_problem()),
            ("/status".to_owned(), self.status.problem()),
        ];
        let headers = self.headers.iter().map(|(name, value)| {
            (format!("/headers/{}", json_pointer::escape(name)), header_problem(name, value))
        });
        single.into_iter().chain(headers).filter_map(|(pointer, problem)| Some((pointer, problem?))).collect()
    }
}

/// A connection to the container's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TcpCheck {
    /// Port inside the container; it need not be published.
    #[serde(deserialize_with = "units::port")]
    #[schema(minimum = 1, maximum = 65535, example = 5432)]
    pub port: u16,
}

impl TcpCheck {
    /// Pointers are below the check.
    pub(in crate::spec) fn problems(&self) -> Vec<(String, String)> {
        port_problem(self.port).map(|problem| ("/port".to_owned(), problem)).into_iter().collect()
    }
}

fn root() -> String {
    "/".to_owned()
}

fn is_root(path: &str) -> bool {
    path == "/"
}

fn port_problem(port: u16) -> Option<String> {
    (port == 0).then(|| "must be from 1 to 65535".to_owned())
}

fn path_problem(path: &str) -> Option<String> {
    let is_valid = path.starts_with('/')
        && path.len() <= MAX_PATH
        && path.chars().all(|c| c.is_ascii_graphic())
        && !path.contains('#');
    (!is_valid).then(|| "must begin with / and have no spaces, such as /healthz".to_owned())
}

fn header_problem(name: &str, value: &str) -> Option<String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(is_token) {
        return Some(format!("{name:?} cannot be the name of a header"));
    }
    if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Some("is written by the worker: leave it out".to_owned());
    }
    let is_printable = value.chars().all(|c| c == '\t' || c == ' ' || c.is_ascii_graphic());
    let is_valid = is_printable && value.len() <= MAX_HEADER_VALUE;
    (!is_valid).then(|| "a value has at most 4 KiB of printable ASCII characters".to_owned())
}

/// `Debug` hides the values, which can be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HttpHeaders(BTreeMap<String, String>);

impl HttpHeaders {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn number_problem(&self) -> Option<String> {
        (self.0.len() > MAX_HEADERS).then(|| format!("at most {MAX_HEADERS} headers"))
    }
}

impl fmt::Debug for HttpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// By default 200 to 399. Read from a number, a text such as `"200-299,401"`, or a list of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCodes(Vec<(u16, u16)>);

impl Default for StatusCodes {
    fn default() -> Self {
        Self(vec![(200, 399)])
    }
}

impl StatusCodes {
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }

    fn problem(&self) -> Option<String> {
        let (first, last) = self.0.iter().find(|(first, last)| first > last)?;
        Some(format!("{first}-{last} has no status: write {last}-{first}"))
    }
}

impl fmt::Display for StatusCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for StatusCodes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("{text:?} is no HTTP status: write 200, \"200-399\" or a list, each from 100 to 599");
        let status = |text: &str| text.trim().parse().ok().filter(|status| (100..=599).contains(status));
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            // `HttpCheck::problems` checks their order.
            status(first).zip(status(last)).ok_or_else(bad)
        };
        let ranges = text.split(',').map(range).collect::<Result<Vec<_>, _>>()?;
        if ranges.len() > MAX_STATUS_RANGES {
            Err(format!("at most {MAX_STATUS_RANGES} ranges"))
        } else {
            Ok(Self(ranges))
        }
    }
}

impl Serialize for StatusCodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusCodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = StatusCodes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an HTTP status, a range such as \"200-399\", or a list of them")
            }
            fn visit_u64<E: de::Error>(self, status: u64) -> Result<StatusCodes, E> {
                self.visit_str(&status.to_string())
            }
            fn visit_i64<E: de::Error>(self, status: i64) -> Result<StatusCodes, E> {
                self.visit_str(&status.to_string())
            }
            fn visit_f64<E: de::Error>(self, status: f64) -> Result<StatusCodes, E> {
                self.visit_str(&status.to_string())
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<StatusCodes, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StatusCodes, A::Error> {
                let mut all = Vec::new();
                while let Some(StatusCodes(ranges)) = seq.next_element()? {
                    all.extend(ranges);
                }
                match all.len() {
                    0 => Err(de::Error::custom("the list of good statuses is empty")),
                    1..=MAX_STATUS_RANGES => Ok(StatusCodes(all)),
                    _ => Err(de::Error::custom(format!("at most {MAX_STATUS_RANGES} ranges"))),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(json: &str) -> HttpCheck {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn statuses_are_read_in_every_spelling() {
        for (json, good, bad, shown) in [
            ("200", 200, 201, "200"),
            ("204.0", 204, 200, "204"),
            (r#""200-399""#, 399, 400, "200-399"),
            (r#"[200, "300-399"]"#, 304, 201, "200,300-399"),
            (r#""200-299, 401""#, 401, 300, "200-299,401"),
        ] {
            let status: StatusCodes =
                serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
            assert_eq!((status.contains(good), status.contains(bad)), (true, false), "{json}");
            assert_eq!(status.to_string(), shown);
            assert_eq!(shown.parse(), Ok(status));
        }
        for bad in ["99", "600", "200.5", r#""""#, r#""2xx""#, "[]", "[[]]", "-1", "true"] {
            assert!(serde_json::from_str::<StatusCodes>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_left_out_has_defaults_and_is_not_written() {
        let check = http(r#"{"port":8080}"#);
        assert_eq!((check.path.as_str(), check.status.to_string().as_str()), ("/", "200-399"));
        assert_eq!(serde_json::to_string(&check).ok().as_deref(), Some(r#"{"port":8080}"#));
        assert!(serde_json::from_str::<HttpCheck>(r#"{"path":"/"}"#).is_err(), "there is no default port");
    }

    #[test]
    fn every_mistake_is_found_with_its_pointer() {
        for (json, pointer) in [
            (r#"{"port":0}"#, "/port"),
            (r#"{"port":1,"path":"healthz"}"#, "/path"),
            (r#"{"port":1,"path":"/a b"}"#, "/path"),
            (r#"{"port":1,"path":"/a\r\nX: y"}"#, "/path"),
            (r#"{"port":1,"headers":{"a b":"c"}}"#, "/headers/a b"),
            (r#"{"port":1,"headers":{"X":"a\r\nY: b"}}"#, "/headers/X"),
            (r#"{"port":1,"headers":{"Content-Length":"5"}}"#, "/headers/Content-Length"),
        ] {
            let problems = http(json).problems();
            assert_eq!(
                problems.iter().map(|(pointer, _)| pointer.as_str()).collect::<Vec<_>>(),
                [pointer],
                "{json}"
            );
        }
        let fine = http(r#"{"port":1,"path":"/x?a=%20","headers":{"Host":"web","X-Probe":"a b"}}"#);
        assert_eq!(fine.problems(), []);
    }

    #[test]
    fn debug_output_of_headers_has_no_values() {
        let shown = format!("{:?}", http(r#"{"port":1,"headers":{"Authorization":"hunter2"}}"#));
        assert!(shown.contains("Authorization") && !shown.contains("hunter2"), "{shown}");
    }
}
