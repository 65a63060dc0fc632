//! Mistakes in a document, in words for its author.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use super::node::{DocumentNode, Step, TextPosition};
use crate::json_pointer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// JSON pointer; `""` for the whole document.
    pub pointer: String,
    pub place: Option<TextPosition>,
    pub detail: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{} ({place})", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vocabulary {
    Fields,
    Parameters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    Shown,
    /// They can be secrets.
    Hidden,
}

/// Accepted for compatibility, never proposed.
const ALIASES: [&str; 5] = ["replica", "numInstances", "unless-stopped", "no", "host_port"];
/// A field of `update`; as a value of `restart` an alias.
const ON_FAILURE: (&str, &str) = ("on_failure", "on-failure");

const FOREIGN_NAMES: [(&str, &str); 14] = [
    ("env", "environment"),
    ("args", "command"),
    ("workdir", "working_dir"),
    ("readonly", "read_only"),
    ("cmd", "command"),
    ("count", "replicas"),
    ("scale", "replicas"),
    ("instances", "replicas"),
    ("mem", "memory"),
    ("mem_limit", "memory"),
    ("cpu", "cpus"),
    ("restart_policy", "restart"),
    ("expose", "ports"),
    ("grace_period", "stop_grace_period"),
];

const NOT_SUPPORTED: [(&str, &str); 14] = [
    ("schedule", "it belongs in `cron`: {schedule: …}"),
    ("networks", "kubeleet has no networks"),
    ("network_mode", "kubeleet has no networks"),
    ("build", "kubeleet runs images that exist, and builds none"),
    ("privileged", "no container is privileged"),
    ("container_name", "containers are named after their pods"),
    ("deploy", COMPOSE),
    ("services", COMPOSE),
    ("version", COMPOSE),
    ("x-common", COMPOSE),
    ("apiVersion", KUBERNETES),
    ("kind", KUBERNETES),
    ("metadata", KUBERNETES),
    ("spec", KUBERNETES),
];
const COMPOSE: &str = "it belongs to a Compose file: `kubeleet apply -f` reads those";
const KUBERNETES: &str = "Kubernetes manifests are not supported; a service is name, image, replicas, …";

const CHECK_FORMS: &str = ": write {test: curl -f localhost} or {http: {port: 80}}";

fn is_check(field: &str) -> bool {
    ["healthcheck", "readiness"].contains(&field)
}

/// Characters.
const MAX_QUOTE: usize = 60;

/// Only services have more.
const MAX_LISTED: usize = 12;

#[derive(Debug)]
pub struct DocumentReadError {
    /// Innermost first: it grows while the error propagates.
    steps: Vec<Step>,
    /// Outermost first.
    path: Vec<Step>,
    problem: MistakeKind,
}

#[derive(Debug)]
enum MistakeKind {
    Unfit { found: FoundValue, expected: String },
    UnknownField { known: Vec<&'static str> },
    UnknownVariant { found: String, known: Vec<&'static str> },
    Missing { field: &'static str },
    SetTwice,
    OtherName { field: &'static str },
    Other(String),
}

#[derive(Debug)]
struct FoundValue {
    value: String,
    kind: &'static str,
}

impl DocumentReadError {
    fn new(problem: MistakeKind) -> Self {
        Self { steps: Vec::new(), path: Vec::new(), problem }
    }

    pub(super) fn set_twice() -> Self {
        Self::new(MistakeKind::SetTwice)
    }

    pub(super) fn unknown(name: &str, known: Vec<&'static str>) -> Self {
        Self::new(MistakeKind::UnknownField { known }).inside(Step::Field(name.to_owned()))
    }

    pub(super) fn into_known_fields(self) -> Vec<&'static str> {
        match self.problem {
            MistakeKind::UnknownField { known } => known,
            _ => Vec::new(),
        }
    }

    pub(super) fn is_about_missing(&self) -> bool {
        matches!(self.problem, MistakeKind::Missing { .. })
    }

    fn is_about_key(&self) -> bool {
        matches!(
            self.problem,
            MistakeKind::UnknownField { .. } | MistakeKind::SetTwice | MistakeKind::OtherName { .. }
        )
    }

    /// The map's visitor raised it for the key that it has just read.
    pub(super) fn lacks_its_key(&self) -> bool {
        matches!(self.problem, MistakeKind::OtherName { .. }) && self.steps.is_empty()
    }

    pub(super) fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(super) fn at_root(mut self) -> Self {
        self.path = self.steps.drain(..).rev().collect();
        self
    }

    /// The part to remove; for a missing field, its whole parent.
    pub(super) fn faulty_part(&self) -> &[Step] {
        &self.path
    }

    pub(super) fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            match step {
                Step::Field(field) => pointer.push_str(&format!("/{}", json_pointer::escape(field))),
                Step::Index(index) => pointer.push_str(&format!("/{index}")),
            }
        }
        if let MistakeKind::Missing { field } = self.problem {
            pointer.push_str(&format!("/{}", json_pointer::escape(field)));
        }
        pointer
    }

    pub(super) fn mistake(&self, document: &DocumentNode, vocabulary: Vocabulary) -> Mistake {
        let pointer = self.pointer();
        let place = match self.is_about_key() {
            true => document.place_of_key(&self.path, &pointer),
            false => document.place_of(&pointer),
        };
        Mistake { place, detail: self.message(vocabulary, Values::Shown), pointer }
    }

    pub fn message(&self, vocabulary: Vocabulary, values: Values) -> String {
        let shown = values == Values::Shown;
        let name = self.name();
        let last = match self.path.last() {
            Some(Step::Field(field)) => shorten(field),
            _ => String::new(),
        };
        match &self.problem {
            MistakeKind::Unfit { found, expected } => {
                let found = if shown { found.value.as_str() } else { found.kind };
                let hint = if is_check(&last) { CHECK_FORMS } else { "" };
                format!("{} must be {expected}, not {found}{hint}", self.subject())
            }
            MistakeKind::UnknownField { known } => unknown(vocabulary, &last, known),
            MistakeKind::UnknownVariant { found, known } => {
                let near = known.iter().find(|known| shown && known.eq_ignore_ascii_case(found));
                let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                let found = if shown { format!("{:?}", shorten(found)) } else { "this string".to_owned() };
                format!("{} must be {}, not {found}{near}", self.subject(), one_of(known))
            }
            MistakeKind::Missing { field } if name.is_empty() => format!("{field} is missing"),
            MistakeKind::Missing { field } => format!("{name}.{field} is missing"),
            MistakeKind::SetTwice => format!("{last:?} is set twice"),
            MistakeKind::OtherName { field } => {
                format!("{field:?} is set twice, under different names; keep one")
            }
            MistakeKind::Other(text) => {
                let text = if shown { text.clone() } else { without_quotes(text) };
                if name.is_empty() { text } else { format!("{name}: {text}") }
            }
        }
    }

    fn subject(&self) -> String {
        let name = self.name();
        if name.is_empty() { "the document".to_owned() } else { name }
    }

    fn name(&self) -> String {
        let mut name = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => name.push_str(&format!("[{index}]")),
                Step::Field(field) => {
                    name.push_str(if name.is_empty() { "" } else { "." });
                    name.push_str(&shorten(field));
                }
            }
        }
        name
    }
}

fn unknown(vocabulary: Vocabulary, name: &str, known: &[&str]) -> String {
    let (noun, known) = match vocabulary {
        Vocabulary::Fields => ("field", without_aliases(known)),
        Vocabulary::Parameters => ("parameter", known.to_vec()),
    };
    let start = format!("unknown {noun} {name:?}");
    if let Some(near) = nearest(name, &known) {
        return format!("{start}; did you mean {near:?}?");
    }
    match NOT_SUPPORTED.iter().find(|(foreign, _)| *foreign == name) {
        Some((_, reason)) if vocabulary == Vocabulary::Fields => format!("{start}: {reason}"),
        _ if known.len() > MAX_LISTED => format!("{start}; `kubeleet explain service` lists the fields"),
        _ => format!("{start}; known: {}", known.join(", ")),
    }
}

fn without_aliases<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let is_alias =
        |name: &str| ALIASES.contains(&name) || (name == ON_FAILURE.0 && names.contains(&ON_FAILURE.1));
    names.iter().copied().filter(|name| !is_alias(name)).collect()
}

pub(super) fn one_of(names: &[&str]) -> String {
    format!("one of {}", without_aliases(names).join(", "))
}

fn without_quotes(text: &str) -> String {
    let (mut hidden, mut is_quoted, mut is_escaped) = (String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' if !is_escaped => {
                is_quoted = !is_quoted;
                hidden.push_str(if is_quoted { "…" } else { "" });
            }
            _ if is_quoted => is_escaped = c == '\\' && !is_escaped,
            _ => hidden.push(c),
        }
    }
    hidden
}

/// The name that the author probably meant.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let foreign = FOREIGN_NAMES.iter().find(|(foreign, _)| *foreign == name).map(|(_, own)| *own);
    if let Some(own) = foreign.and_then(|own| known.iter().find(|name| **name == own)) {
        return Some(own);
    }
    let distance = |other: &str| strsim::damerau_levenshtein(&plain(name), &plain(other));
    let (near, distance) = known.iter().map(|other| (*other, distance(other))).min_by_key(|(_, d)| *d)?;
    (distance <= near.len() / 3).then_some(near)
}

/// Also removes terminal control characters.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_QUOTE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

impl FoundValue {
    fn new(unexpected: Unexpected<'_>) -> Self {
        let (value, kind) = match unexpected {
            Unexpected::Bool(flag) => (flag.to_string(), "a boolean"),
            Unexpected::Unsigned(n) => (n.to_string(), "this number"),
            Unexpected::Signed(n) => (n.to_string(), "this number"),
            Unexpected::Float(n) => (n.to_string(), "this number"),
            Unexpected::Char(c) => (format!("{c:?}"), "a string"),
            Unexpected::Str(text) => (format!("{:?}", shorten(text)), "this string"),
            Unexpected::Unit | Unexpected::Option => ("null".to_owned(), "null"),
            Unexpected::Seq => ("a list".to_owned(), "a list"),
            Unexpected::Map => ("a map".to_owned(), "a map"),
            _ => ("this".to_owned(), "this"),
        };
        Self { value, kind }
    }
}

/// The library describes its types in words for programmers.
fn expected(text: &str) -> String {
    match text {
        "a sequence" => "a list",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a map" => "a map of names to values",
        text if text.starts_with("struct ") => "a map of fields",
        text if text.starts_with("enum ") || text.starts_with("variant ") => "one of its names",
        text if text.starts_with("tuple ") => "a value",
        text => text,
    }
    .to_owned()
}

impl fmt::Display for DocumentReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(Vocabulary::Fields, Values::Shown))
    }
}

impl std::error::Error for DocumentReadError {}

impl de::Error for DocumentReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = match message.to_string() {
            text if text == "invalid IP address syntax" => "this is not an IP address".to_owned(),
            text => text,
        };
        Self::new(MistakeKind::Other(text))
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::new(MistakeKind::Unfit {
            found: FoundValue::new(found),
            expected: expected(&wanted.to_string()),
        })
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_type(found, wanted)
    }

    fn invalid_length(length: usize, wanted: &dyn Expected) -> Self {
        Self::new(MistakeKind::Other(format!("{length} values are given, but expected is {wanted}")))
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Self::new(MistakeKind::UnknownVariant { found: found.to_owned(), known: known.to_vec() })
    }

    fn unknown_field(_: &str, known: &'static [&'static str]) -> Self {
        Self::new(MistakeKind::UnknownField { known: known.to_vec() })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(MistakeKind::Missing { field })
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(MistakeKind::OtherName { field })
    }
}
