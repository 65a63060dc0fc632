//! Named resources: countable things of a node that its operator declares, such as GPUs or licences. Each has
//! an id, and belongs to one pod at a time.
//!
//! Tests: beside the code, placement::named_resources, scripts::named_resources, worker::named_resources

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{ResourceId, ResourceName};

/// Names of amounts that every node has, with the field of a container that asks for them.
const AMOUNTS: [(&str, &str); 8] = [
    ("cpu", "cpus"),
    ("cpus", "cpus"),
    ("memory", "memory"),
    ("pid", "pids_limit"),
    ("pids", "pids_limit"),
    ("disk", "space` of a volume, and not `resources"),
    ("port", "ports"),
    ("ports", "ports"),
];

/// Returns the field that asks for this amount; `None` if a node may declare a resource with this name.
pub fn field_of_amount(name: &ResourceName) -> Option<&'static str> {
    AMOUNTS.iter().find(|(amount, _)| *amount == name.as_str()).map(|(_, field)| *field)
}

/// Ids of named resources: those that a node offers, or that a pod was given. Stored as `gpu/0 slots/3`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ResourceIds(BTreeMap<ResourceName, Vec<ResourceId>>);

impl ResourceIds {
    pub const MAX_NAMES: usize = 16;
    /// Of one node, of all names.
    pub const MAX_IDS: usize = 1024;

    pub const NONE: Self = Self(BTreeMap::new());

    /// Leaves out what is no id, and what is beyond [`Self::MAX_IDS`]: it may be written by hand.
    pub fn from_text(text: &str) -> Self {
        let mut ids = Self::default();
        for word in text.split_ascii_whitespace().take(Self::MAX_IDS) {
            let Some((name, id)) = word.split_once('/') else { continue };
            if let (Ok(name), Ok(id)) = (ResourceName::new(name), ResourceId::new(id)) {
                ids.0.entry(name).or_default().push(id);
            }
        }
        ids
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, &[ResourceId])> {
        self.0.iter().map(|(name, ids)| (name, ids.as_slice()))
    }

    /// In the order in which they are given away.
    pub fn of(&self, name: &ResourceName) -> &[ResourceId] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    pub fn count(&self, name: &ResourceName) -> u64 {
        self.of(name).len() as u64
    }

    /// Each as `gpu/0`.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        self.iter().flat_map(|(name, ids)| ids.iter().map(move |id| key(name, id)))
    }

    pub fn has_common(&self, other: &Self) -> bool {
        self.iter().any(|(name, ids)| ids.iter().any(|id| other.of(name).contains(id)))
    }

    /// The variables of a pod that was given these: `KUBELEET_RESOURCE_GPU` is `0,1`.
    pub fn environment(&self) -> impl Iterator<Item = (String, String)> {
        self.iter().map(|(name, ids)| {
            let name = name.as_str().to_ascii_uppercase().replace('-', "_");
            (format!("KUBELEET_RESOURCE_{name}"), list(ids))
        })
    }
}

/// Returns the name of an id in Redis, `gpu/0`: the node has it as the field `id:gpu/0`.
pub fn key(name: &ResourceName, id: &ResourceId) -> String {
    format!("{name}/{id}")
}

fn list(ids: &[ResourceId]) -> String {
    ids.iter().map(ResourceId::as_str).collect::<Vec<_>>().join(",")
}

impl From<String> for ResourceIds {
    fn from(text: String) -> Self {
        Self::from_text(&text)
    }
}

impl From<ResourceIds> for String {
    fn from(ids: ResourceIds) -> Self {
        ids.to_string()
    }
}

impl fmt::Display for ResourceIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.keys().collect::<Vec<_>>().join(" "))
    }
}

/// Reads what an operator declares, `gpu=0,1 slots=8`: a list of ids, or a single number, which is a count. A
/// list with a single number ends with a comma: `gpu=3,`.
impl FromStr for ResourceIds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut declared = Self::default();
        for word in text.split_whitespace() {
            let example = "write gpu=0,1 for two ids, or slots=8 for a count";
            let (name, ids) =
                word.split_once('=').ok_or_else(|| format!("{word:?} has no `=`: {example}"))?;
            let name = ResourceName::new(name).map_err(|invalid| invalid.to_string())?;
            if field_of_amount(&name).is_some() {
                return Err(format!(
                    "{name} is no resource with ids: every node has some; choose another name"
                ));
            }
            let ids = declared_ids(ids).map_err(|problem| format!("{word:?}: {problem}; {example}"))?;
            if declared.0.insert(name.clone(), ids).is_some() {
                return Err(format!("{name} is there twice: write all of its ids behind one `=`"));
            }
        }
        if declared.0.len() > Self::MAX_NAMES {
            return Err(format!("a node has at most {} named resources", Self::MAX_NAMES));
        }
        if declared.0.values().map(Vec::len).sum::<usize>() > Self::MAX_IDS {
            return Err(format!("a node has at most {} ids of named resources", Self::MAX_IDS));
        }
        Ok(declared)
    }
}

fn declared_ids(text: &str) -> Result<Vec<ResourceId>, String> {
    let is_count = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_count {
        let count: usize = text.parse().unwrap_or(usize::MAX);
        return match count {
            0 => Err("a count is at least 1: leave out what the node does not have".to_owned()),
            1..=ResourceIds::MAX_IDS => {
                Ok((0..count).filter_map(|id| ResourceId::new(id.to_string()).ok()).collect())
            }
            _ => Err(format!(
                "a single number is a count, of at most {}; the list of one id is {text},",
                ResourceIds::MAX_IDS
            )),
        };
    }
    let text = text.strip_suffix(',').unwrap_or(text);
    let ids = text.split(',').map(|id| ResourceId::new(id).map_err(|invalid| invalid.to_string()));
    let ids: Vec<ResourceId> = ids.collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    match ids.iter().find(|id| !seen.insert(*id)) {
        Some(twice) => Err(format!("the id {twice} is there twice")),
        None => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_number_is_a_count_and_anything_else_a_list() {
        for (declared, expected) in [
            ("", ""),
            ("gpu=0,1 slots=3", "gpu/0 gpu/1 slots/0 slots/1 slots/2"),
            ("gpu=3,", "gpu/3"),
            ("gpu=3,5,", "gpu/3 gpu/5"),
            ("  slots=1\n", "slots/0"),
            ("gpu=GPU-8f2", "gpu/GPU-8f2"),
            ("gpu=0000:65:00.0,0000:66:00.0", "gpu/0000:65:00.0 gpu/0000:66:00.0"),
            ("gpu=1,0", "gpu/1 gpu/0"),
            ("fpga=007,", "fpga/007"),
        ] {
            let ids: ResourceIds = declared.parse().unwrap();
            assert_eq!(ids.to_string(), expected, "{declared}");
            assert_eq!(ResourceIds::from_text(expected), ids, "{declared}");
        }
    }

    #[test]
    fn a_declaration_that_cannot_be_meant_is_refused_with_the_reason() {
        for (declared, part) in [
            ("gpu", "has no `=`"),
            ("gpu=", "id of a resource"),
            ("gpu=,", "id of a resource"),
            ("gpu=0,,1", "id of a resource"),
            ("gpu=0", "a count is at least 1"),
            ("gpu=1,0,1", "the id 1 is there twice"),
            ("gpu=0 gpu=1", "a count is at least 1"),
            ("gpu=1 gpu=2", "gpu is there twice"),
            ("GPU=1", "name of a resource"),
            ("gpu-=1", "name of a resource"),
            ("0=1", "name of a resource"),
            ("gpu=a/b", "id of a resource"),
            ("memory=4", "every node has some"),
            ("slots=2000", "a single number is a count, of at most 1024"),
            ("a=1000 b=25", "at most 1024 ids"),
            ("gpu = 1", "has no `=`"),
        ] {
            let problem = declared.parse::<ResourceIds>().unwrap_err();
            assert!(problem.contains(part), "{declared}: {problem}");
        }
        let many: Vec<String> = (0..17).map(|n| format!("r{n}=1")).collect();
        assert!(many.join(" ").parse::<ResourceIds>().unwrap_err().contains("at most 16"));
    }

    #[test]
    fn a_pod_gets_a_variable_for_each_resource() {
        let ids = ResourceIds::from_text("gpu/0 gpu/1 nvidia-a100/GPU-3");
        let expected = [("KUBELEET_RESOURCE_GPU", "0,1"), ("KUBELEET_RESOURCE_NVIDIA_A100", "GPU-3")];
        assert_eq!(
            ids.environment().collect::<Vec<_>>(),
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn what_is_no_id_is_left_out_of_a_stored_text() {
        let ids = ResourceIds::from_text("gpu/0 GPU/1 gpu slots/ /3 gpu/a/b");
        assert_eq!(ids.to_string(), "gpu/0");
        let stored = serde_json::to_string(&ids).unwrap();
        assert_eq!(stored, r#""gpu/0""#);
        assert_eq!(serde_json::from_str::<ResourceIds>(&stored).unwrap(), ids);
    }

    #[test]
    fn ids_with_the_same_name_are_common() {
        let ids = |text| ResourceIds::from_text(text);
        for (one, other, expected) in
            [("gpu/0 gpu/1", "gpu/1", true), ("gpu/0", "slots/0", false), ("", "gpu/0", false)]
        {
            assert_eq!(ids(one).has_common(&ids(other)), expected, "{one} {other}");
        }
    }
}
