//! Health checks of a container.

use std::fmt;
use std::time::Duration;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::health_http::{HttpCheck, TcpCheck};
use crate::spec::limits::MAX_THRESHOLD;
use crate::spec::units::{self, Command, Milliseconds};

const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_START_INTERVAL: Duration = Duration::from_secs(5);
const DEFAULT_RETRIES: u32 = 3;

/// More frequent probes would cost more than most checked programs.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

const MAX_WORDS: usize = 256;
const MAX_WORD: usize = 16 * 1024;
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// A check of a container. One of `test`, `http`, `tcp` and `command` says how it is done; with none of them
/// it is that of the image, with these times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HealthCheck {
    /// Compose's form of a command that exits with 0 while the container is well: a text for its shell, or a
    /// list that begins with `CMD` or `CMD-SHELL`. `NONE` means no check, also if the image has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<HealthTest>,
    /// Whether there is no check, also if the image has one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disable: bool,
    /// An HTTP request that is answered with a good status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// A port that accepts connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpCheck>,
    /// A command inside the container that exits with 0: a list of arguments, or a text that is split as a
    /// shell would split it. No shell runs it.
    #[serde(default, skip_serializing_if = "Command::is_empty")]
    pub command: Command,
    /// Time from one probe to the next, by default 30 s; at least 100 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Milliseconds>,
    /// Time after which a probe without an answer has failed, by default 30 s; from 10 ms to an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Milliseconds>,
    /// Time after the start in which failures do not count until a probe has passed, by default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_period: Option<Milliseconds>,
    /// Time from one probe to the next while the container starts, by default 5 s, or `interval` if that is
    /// less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_interval: Option<Milliseconds>,
    /// Failures in a row after which the container is unhealthy, by default 3.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count")]
    #[schema(minimum = 1, maximum = 1000, example = 3)]
    pub retries: Option<u32>,
    /// Passed probes in a row after which the container is healthy, by default 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count")]
    #[schema(minimum = 1, maximum = 1000, example = 1)]
    pub healthy_threshold: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ProbeMethod {
    Http(HttpCheck),
    Tcp(TcpCheck),
    Command(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckTiming {
    pub interval: Duration,
    pub timeout: Duration,
    /// Failures after the start do not count until a probe has passed.
    pub start_period: Duration,
    /// Between probes during the start.
    pub start_interval: Duration,
    /// Failures in a row.
    pub retries: u32,
    /// Successes in a row.
    pub healthy_threshold: u32,
}

impl HealthCheck {
    pub fn method(&self) -> Option<ProbeMethod> {
        if self.disable || self.test.as_ref().is_some_and(HealthTest::is_none) {
            return None;
        }
        let test = || self.test.as_ref().and_then(HealthTest::command).map(ProbeMethod::Command);
        let http = || self.http.clone().map(ProbeMethod::Http);
        let tcp = || self.tcp.map(ProbeMethod::Tcp);
        let command = || (!self.command.is_empty()).then(|| ProbeMethod::Command(self.command.0.clone()));
        test().or_else(http).or_else(tcp).or_else(command)
    }

    pub fn has_only_times(&self) -> bool {
        let times =
            Self { interval: None, timeout: None, start_period: None, start_interval: None, ..self.clone() };
        let says_nothing = Self { retries: None, healthy_threshold: None, ..times } == Self::default();
        says_nothing && *self != Self::default()
    }

    /// The image's check with these times.
    #[must_use]
    pub fn of_image_with_times(&self, of_image: &Self) -> Self {
        Self {
            interval: self.interval.or(of_image.interval),
            timeout: self.timeout.or(of_image.timeout),
            start_period: self.start_period.or(of_image.start_period),
            start_interval: self.start_interval.or(of_image.start_interval),
            retries: self.retries.or(of_image.retries),
            healthy_threshold: self.healthy_threshold.or(of_image.healthy_threshold),
            ..of_image.clone()
        }
    }

    pub fn timing(&self) -> CheckTiming {
        let or = |given: Option<Milliseconds>, default| given.map_or(default, Milliseconds::duration);
        let interval = or(self.interval, DEFAULT_INTERVAL);
        CheckTiming {
            interval,
            timeout: or(self.timeout, DEFAULT_TIMEOUT),
            start_period: or(self.start_period, Duration::ZERO),
            start_interval: or(self.start_interval, DEFAULT_START_INTERVAL.min(interval)),
            retries: self.retries.unwrap_or(DEFAULT_RETRIES),
            healthy_threshold: self.healthy_threshold.unwrap_or(1),
        }
    }

    /// Pointers are below the check.
    pub(super) fn problems(&self) -> Vec<(String, String)> {
        let single = [
            ("", self.problem_of_method()),
            ("/test", self.test.as_ref().and_then(HealthTest::problem)),
            ("/command", words_problem(&self.command.0)),
            ("/interval", between(self.interval, MIN_INTERVAL, Milliseconds::MAX, "from 100ms to a day")),
            ("/timeout", between(self.timeout, MIN_TIMEOUT, MAX_TIMEOUT, "from 10ms to an hour")),
            (
                "/start_interval",
                between(self.start_interval, MIN_INTERVAL, Milliseconds::MAX, "from 100ms to a day"),
            ),
            ("/retries", self.retries.and_then(threshold_problem)),
            ("/healthy_threshold", self.healthy_threshold.and_then(threshold_problem)),
        ];
        let single = single.into_iter().filter_map(|(field, problem)| Some((field.to_owned(), problem?)));
        let below = |field: &'static str, problems: Vec<(String, String)>| {
            problems.into_iter().map(move |(pointer, problem)| (format!("{field}{pointer}"), problem))
        };
        let http = self.http.iter().flat_map(|http| below("/http", http.problems()));
        let tcp = self.tcp.iter().flat_map(|tcp| below("/tcp", tcp.problems()));
        single.chain(http).chain(tcp).collect()
    }

    /// One file may disable the check of another.
    fn problem_of_method(&self) -> Option<String> {
        let given = [
            ("`test`", self.test.is_some()),
            ("`http`", self.http.is_some()),
            ("`tcp`", self.tcp.is_some()),
            ("`command`", !self.command.is_empty()),
        ];
        let given: Vec<&str> =
            given.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
        match given.as_slice() {
            _ if self.disable => None,
            [_] => None,
            [] if self.has_only_times() => None,
            [] => Some("says not how to check: add one of `test`, `http`, `tcp` and `command`".to_owned()),
            several => Some(format!("can have only one of {}", several.join(" and "))),
        }
    }
}

fn between(given: Option<Milliseconds>, least: Duration, most: Duration, words: &str) -> Option<String> {
    let given = given?.duration();
    (given < least || given > most).then(|| format!("must be {words}"))
}

fn threshold_problem(count: u32) -> Option<String> {
    (count == 0 || count > MAX_THRESHOLD).then(|| format!("must be from 1 to {MAX_THRESHOLD}"))
}

fn words_problem(words: &[String]) -> Option<String> {
    if words.len() > MAX_WORDS || words.iter().any(|word| word.len() > MAX_WORD) {
        return Some("has at most 256 words of at most 16 KiB".to_owned());
    }
    let is_invalid = words.iter().any(|word| word.contains('\0'));
    if is_invalid {
        return Some("cannot contain a zero byte".to_owned());
    }
    words.first().is_some_and(String::is_empty).then(|| "must begin with a program".to_owned())
}

/// A text for a shell, or a list that begins with `CMD`, `CMD-SHELL` or `NONE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HealthTest(Vec<String>);

impl HealthTest {
    pub fn new(words: Vec<String>) -> Self {
        Self(words)
    }

    fn is_none(&self) -> bool {
        self.0.first().is_some_and(|kind| kind == "NONE")
    }

    fn command(&self) -> Option<Vec<String>> {
        match self.0.split_first() {
            Some((kind, words)) if kind == "CMD" => Some(words.to_vec()),
            Some((kind, words)) if kind == "CMD-SHELL" => {
                Some(SHELL.iter().map(|&word| word.to_owned()).chain(words.iter().cloned()).collect())
            }
            Some(_) | None => None,
        }
    }

    fn problem(&self) -> Option<String> {
        let words = self.0.get(1..).unwrap_or_default();
        match self.0.first().map(String::as_str) {
            Some("NONE") if words.is_empty() => None,
            Some("NONE") => Some("NONE stands alone".to_owned()),
            Some("CMD") if !words.is_empty() => words_problem(words),
            Some("CMD") => Some("names no program after CMD".to_owned()),
            Some("CMD-SHELL") if words.len() == 1 => words_problem(words),
            Some("CMD-SHELL") => Some("must have one text for the shell after CMD-SHELL".to_owned()),
            Some(_) | None => Some("a list must begin with CMD, CMD-SHELL or NONE".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for HealthTest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = HealthTest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text for a shell, or a list that begins with CMD, CMD-SHELL or NONE")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<HealthTest, E> {
                Ok(HealthTest(vec!["CMD-SHELL".to_owned(), text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<HealthTest, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(HealthTest)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> HealthCheck {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    fn command(words: &[&str]) -> Option<ProbeMethod> {
        Some(ProbeMethod::Command(words.iter().map(|&word| word.to_owned()).collect()))
    }

    #[test]
    fn every_form_of_a_command_is_read() {
        for (json, expected) in [
            (
                r#"{"test":"curl -f localhost || exit 1"}"#,
                &["/bin/sh", "-c", "curl -f localhost || exit 1"][..],
            ),
            (r#"{"test":["CMD-SHELL","exit 0"]}"#, &["/bin/sh", "-c", "exit 0"]),
            (r#"{"test":["CMD","pg_isready","-U","app"]}"#, &["pg_isready", "-U", "app"]),
            (r#"{"command":["pg_isready"]}"#, &["pg_isready"]),
            (r#"{"command":"redis-cli 'a b'"}"#, &["redis-cli", "a b"]),
        ] {
            let check = check(json);
            assert_eq!((check.method(), check.problems()), (command(expected), vec![]), "{json}");
            let again = serde_json::to_string(&check).expect("it is JSON");
            assert_eq!(self::check(&again), check);
        }
        for json in [r#"{"test":["NONE"]}"#, r#"{"disable":true}"#, r#"{"disable":true,"test":["CMD","a"]}"#]
        {
            assert_eq!((check(json).method(), check(json).problems()), (None, vec![]), "{json}");
        }
    }

    #[test]
    fn times_alone_are_those_of_the_images_check() {
        let times = check(r#"{"interval":"1s","retries":5}"#);
        assert!(times.has_only_times() && times.problems().is_empty() && times.method().is_none());
        let of_image = check(r#"{"test":["CMD","a"],"interval":"9s","timeout":"2s"}"#);
        let expected = check(r#"{"test":["CMD","a"],"interval":"1s","timeout":"2s","retries":5}"#);
        assert_eq!(times.of_image_with_times(&of_image), expected);
        assert!(!check("{}").has_only_times() && !of_image.has_only_times());
        assert!(!check(r#"{"disable":true,"retries":5}"#).has_only_times());
    }

    #[test]
    fn the_defaults_are_composes() {
        let timing = check(r#"{"tcp":{"port":80}}"#).timing();
        assert_eq!((timing.interval, timing.timeout), (Duration::from_secs(30), Duration::from_secs(30)));
        assert_eq!((timing.start_period, timing.start_interval), (Duration::ZERO, Duration::from_secs(5)));
        assert_eq!((timing.retries, timing.healthy_threshold), (3, 1));
        let fast = check(r#"{"tcp":{"port":80},"interval":"250ms","start_period":0.5}"#).timing();
        assert_eq!((fast.start_interval, fast.start_period.as_millis()), (fast.interval, 500));
    }

    #[test]
    fn every_mistake_is_found_with_its_pointer() {
        let table: [(&str, &[&str]); 12] = [
            ("{}", &[""]),
            (r#"{"tcp":{"port":80},"command":["a"]}"#, &[""]),
            (r#"{"test":[]}"#, &["/test"]),
            (r#"{"test":["curl"]}"#, &["/test"]),
            (r#"{"test":["CMD"]}"#, &["/test"]),
            (r#"{"test":["CMD-SHELL","a","b"]}"#, &["/test"]),
            (r#"{"test":["NONE","a"]}"#, &["/test"]),
            (r#"{"command":["a","b\u0000"]}"#, &["/command"]),
            (r#"{"tcp":{"port":0}}"#, &["/tcp/port"]),
            (r#"{"tcp":{"port":1},"interval":"99ms","timeout":"1ms"}"#, &["/interval", "/timeout"]),
            (r#"{"tcp":{"port":1},"timeout":"61m","start_interval":0}"#, &["/timeout", "/start_interval"]),
            (
                r#"{"tcp":{"port":1},"retries":0,"healthy_threshold":1001}"#,
                &["/retries", "/healthy_threshold"],
            ),
        ];
        for (json, expected) in table {
            let problems = check(json).problems();
            let pointers: Vec<&str> = problems.iter().map(|(pointer, _)| pointer.as_str()).collect();
            assert_eq!(pointers, expected, "{json}: {problems:?}");
        }
    }
}
