//! `depends_on`: conditions for a start.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// How far the other one has to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartCondition {
    /// It was started.
    #[default]
    #[serde(alias = "started")]
    ServiceStarted,
    /// Its health check has passed.
    #[serde(alias = "healthy")]
    ServiceHealthy,
    /// It has ended with exit code 0.
    #[serde(alias = "completed_successfully")]
    ServiceCompletedSuccessfully,
}

/// Read from a list of names, or from a map: `db: service_healthy`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct DependsOn(pub BTreeMap<String, StartCondition>);

impl DependsOn {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, StartCondition)> {
        self.0.iter().map(|(name, condition)| (name.as_str(), *condition))
    }
}

impl<'de> Deserialize<'de> for DependsOn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = DependsOn;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names, or a map of names to conditions")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<DependsOn, A::Error> {
                let names = Vec::<String>::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(DependsOn(names.into_iter().map(|name| (name, StartCondition::default())).collect()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DependsOn, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(DependsOn)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// In the order of need.
pub fn circle<'a>(names: &[&'a str], needs: impl Fn(&str) -> Vec<&'a str>) -> Option<Vec<&'a str>> {
    let mut done = Vec::new();
    for name in names {
        let mut path = Vec::new();
        if let Some(circle) = walk(name, &needs, &mut path, &mut done) {
            return Some(circle);
        }
    }
    None
}

fn walk<'a>(
    name: &'a str,
    needs: &impl Fn(&str) -> Vec<&'a str>,
    path: &mut Vec<&'a str>,
    done: &mut Vec<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(begin) = path.iter().position(|known| *known == name) {
        return Some(path[begin..].to_vec());
    }
    if done.contains(&name) {
        return None;
    }
    path.push(name);
    for next in needs(name) {
        if let Some(circle) = walk(next, needs, path, done) {
            return Some(circle);
        }
    }
    path.pop();
    done.push(name);
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn it_is_read_from_a_list_or_a_map() {
        use StartCondition::{ServiceCompletedSuccessfully, ServiceHealthy, ServiceStarted};
        let table = [
            (r#"["a","b"]"#, vec![("a", ServiceStarted), ("b", ServiceStarted)]),
            (r#"{"a":"service_healthy"}"#, vec![("a", ServiceHealthy)]),
            (r#"{"a":"service_completed_successfully"}"#, vec![("a", ServiceCompletedSuccessfully)]),
            (r#"{"a":"healthy","b":"started"}"#, vec![("a", ServiceHealthy), ("b", ServiceStarted)]),
            ("[]", vec![]),
        ];
        for (json, expected) in table {
            let read: DependsOn = serde_json::from_str(json).unwrap();
            assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{json}");
            let again: DependsOn = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
            assert_eq!(again, read, "what is stored is read again");
        }
        assert!(serde_json::from_str::<DependsOn>(r#"{"a":"service_great"}"#).is_err());
    }

    #[test]
    fn a_circle_is_found_with_its_path() {
        let of = |edges: &'static [(&'static str, &'static str)]| {
            let names: Vec<&str> = vec!["a", "b", "c", "d"];
            circle(&names, |name| edges.iter().filter(|(from, _)| *from == name).map(|(_, to)| *to).collect())
        };
        assert_eq!(of(&[("a", "b"), ("b", "c"), ("a", "c")]), None);
        assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "b")]), Some(vec!["b", "c"]));
        assert_eq!(of(&[("d", "d")]), Some(vec!["d"]));
    }
}
