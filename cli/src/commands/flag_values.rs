//! Parsers for the values of flags.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use document::{self, DocumentNode, Vocabulary};
use model::duration::HumanDuration;
use model::network::ingress::{HttpRule, IngressRule, TcpRule, Tls};
use model::spec::{OnDisconnect, RestartPolicy};
use model::value::ValueBytes;

/// A deadline further away may not be representable.
const MAX_DURATION: Duration = Duration::from_secs(365 * 86_400);

/// `90s`, `2m`, `500ms`, or a number of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<HumanDuration>().map(HumanDuration::get).ok();
    let valid = parsed.filter(|duration| *duration <= MAX_DURATION);
    valid.ok_or_else(|| format!("{text:?} is not a duration: write 90s, 2m or a number of seconds"))
}

/// At most 20 seconds: a recovery waits for the workers within the API's time limit.
pub(super) fn wait_seconds(text: &str) -> Result<u64, String> {
    let seconds = duration(text)?.as_secs();
    if seconds <= 20 { Ok(seconds) } else { Err(format!("{text:?} is too long: wait at most 20s")) }
}

/// Hides the value from the moment it is parsed.
pub(super) fn hidden(text: &str) -> Result<ValueBytes, std::convert::Infallible> {
    Ok(ValueBytes::new(text.as_bytes().to_vec()))
}

pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=value")),
    }
}

/// `HOST[/PATH]:PORT`, `:PORT` or `tcp:PORT:PORT`; `,tls` after the first two is `tls: files`, and
/// `,tls=auto` is `tls: auto`. The API checks the values.
pub(super) fn ingress_rule(text: &str) -> Result<IngressRule, String> {
    let invalid = || {
        format!(
            "{text:?} is no rule: write web.example:80, web.example/api:80,tls=auto, :80 or tcp:5432:5432"
        )
    };
    let port = |text: &str| text.parse::<u16>().map_err(|_| invalid());
    let (matched, target) = text.rsplit_once(':').ok_or_else(invalid)?;
    if let Some(tcp) = matched.strip_prefix("tcp:") {
        return Ok(IngressRule::Tcp(TcpRule { tcp: port(tcp)?, port: port(target)? }));
    }
    let (host, path) = matched.split_at(matched.find('/').unwrap_or(matched.len()));
    let path = if path.is_empty() { "/" } else { path };
    let (target, tls) = match target.split_once(',') {
        Some((target, "tls" | "tls=files")) => (target, Some(Tls::Files)),
        Some((target, "tls=auto")) => (target, Some(Tls::Auto)),
        Some(_) => return Err(invalid()),
        None => (target, None),
    };
    Ok(IngressRule::Http(HttpRule {
        host: host.to_owned(),
        path: path.to_owned(),
        port: port(target)?,
        tls,
        ..HttpRule::default()
    }))
}

#[derive(Debug, Clone)]
pub(super) enum IngressArgument {
    Rule(IngressRule),
    Host(String),
}

impl IngressArgument {
    /// For a host without one, unless the pods publish exactly one.
    pub(super) const DEFAULT_PORT: u16 = 80;

    /// As [`ingress_rule`], also without a port.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let host = text.split(',').next().unwrap_or_default();
        if host.is_empty() || host.contains(':') {
            return ingress_rule(text).map(Self::Rule);
        }
        ingress_rule(&with_port(text, Self::DEFAULT_PORT))?;
        Ok(Self::Host(text.to_owned()))
    }

    pub(super) fn rule(&self, port: u16) -> Result<IngressRule, String> {
        match self {
            Self::Rule(rule) => Ok(rule.clone()),
            Self::Host(text) => ingress_rule(&with_port(text, port)),
        }
    }
}

fn with_port(text: &str, port: u16) -> String {
    match text.split_once(',') {
        Some((host, options)) => format!("{host}:{port},{options}"),
        None => format!("{text}:{port}"),
    }
}

pub(super) fn replica_count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number of pods: write 0, 1, 2 …"))
}

pub(super) fn restart_policy() -> impl TypedValueParser<Value = RestartPolicy> {
    let policies = [
        PossibleValue::new("always").alias("unless-stopped"),
        PossibleValue::new("on-failure").alias("on_failure"),
        PossibleValue::new("never").alias("no"),
    ];
    PossibleValuesParser::new(policies).try_map(|text| deserialized(&text))
}

pub(super) fn on_disconnect() -> impl TypedValueParser<Value = OnDisconnect> {
    PossibleValuesParser::new(["keep", "stop"]).try_map(|text| deserialized(&text))
}

pub(super) fn page_size(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=10_000).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a whole number from 1 to 10000"))
}

/// As the API parses a value, such as an enum's name.
pub(super) fn deserialized<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let read = document::read(&DocumentNode::text(text), Vocabulary::Fields).into_result();
    read.map_err(|mistakes| mistakes.into_iter().map(|mistake| mistake.detail).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_rule_of_ingress_may_ask_for_https() {
        for (text, expected) in [
            ("web.example:80", "web 80"),
            ("web.example/api:80,tls", "web 80 tls"),
            (":80,tls=files", "web 80 tls"),
            ("web.example:80,tls=auto", "web 80 tls=auto"),
            ("tcp:5432:5433", "web 5433"),
        ] {
            let web = model::ids::ServiceName::new("web").unwrap();
            assert_eq!(ingress_rule(text).unwrap().target(&web), expected, "{text}");
        }
        for wrong in [
            "web.example",
            "web.example:80,TLS",
            "web.example:80,tls=",
            "web.example:,tls",
            "tcp:5432:5432,tls",
        ] {
            assert!(ingress_rule(wrong).unwrap_err().contains("tcp:5432:5432"), "{wrong}");
        }
    }

    #[test]
    fn a_host_without_a_port_leads_to_the_port_of_the_pods() {
        let web = model::ids::ServiceName::new("web").unwrap();
        for (text, expected) in [
            ("shop.local", "web 8080"),
            ("shop.local/api,tls", "web 8080 tls"),
            ("shop.local:81", "web 81"),
            (":81", "web 81"),
        ] {
            let rule = IngressArgument::parse(text).unwrap().rule(8080).unwrap();
            assert_eq!(rule.target(&web), expected, "{text}");
        }
        assert!(IngressArgument::parse("").is_err() && IngressArgument::parse("shop.local,x").is_err());
    }

    #[test]
    fn durations_in_every_spelling() {
        for (text, millis) in
            [("2m", 120_000), ("90", 90_000), ("0.5", 500), ("500ms", 500), ("1h 1s", 3_601_000)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "soon", "-1", "NaN", "inf", "1e300", "99999y"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_recovery_waits_at_most_twenty_seconds() {
        assert_eq!((wait_seconds("15s"), wait_seconds("0"), wait_seconds("20")), (Ok(15), Ok(0), Ok(20)));
        assert!(wait_seconds("21s").is_err() && wait_seconds("soon").is_err());
    }

    #[test]
    fn a_key_value_pair_needs_a_key() {
        assert_eq!(key_value("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert_eq!(key_value("A=").unwrap(), ("A".to_owned(), String::new()));
        assert!(key_value("A").is_err() && key_value("=b").is_err());
    }

    #[test]
    fn enum_values_are_those_of_the_api() {
        assert_eq!(deserialized::<RestartPolicy>("no").unwrap(), RestartPolicy::Never);
        assert_eq!(deserialized::<OnDisconnect>("stop").unwrap(), OnDisconnect::Stop);
        assert!(deserialized::<RestartPolicy>("sometimes").is_err());
    }
}
