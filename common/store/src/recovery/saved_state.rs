//! The saved state of a worker's pods, and the content of a backup, as JSON lines.
//!
//! The first line is a [`SavedHeader`]. The last one is a [`SavedEnd`] with the number of lines in between,
//! which reveals a truncated file. A backup may have a second section with secrets, configs and logins, and
//! an end of its own. Lines may contain secrets: only the owner can read the files, and nothing is logged.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use model::RedisMillis;
use model::ids::{
    AppName, AssignmentId, ClusterId, NodeName, PodId, RegistryHost, ServiceName, SpecId, ValueName,
};
use model::network::PublishedPort;
use model::node::ResourceIds;
use model::node::labels::OwnLabels;
use model::pod::EndedRun;
use model::pod::lifecycle::Phase;
use model::pod::payload::{InvalidPayload, Payload};
use model::value::ValueKind;
use model::value::secret_key::SecretKey;

/// A file with a greater number is refused.
pub const FORMAT: u32 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedLine {
    Header(SavedHeader),
    Service(SavedService),
    Spec(SavedSpec),
    Volume(SavedVolume),
    Pod(Box<SavedPod>),
    /// Only in the second section.
    Value(SavedValue),
    /// Only in the second section.
    Login(SavedLogin),
    End(SavedEnd),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedHeader {
    pub format: u32,
    pub cluster: ClusterId,
    pub version: String,
    /// RFC 3339 by Redis' clock; empty in the file of a worker.
    #[serde(default)]
    pub at: String,
    /// Nodes that may have volumes. Recovery waits for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// Labels that an operator gave the node. Only in the file of a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_labels: Option<OwnLabels>,
}

impl SavedHeader {
    pub fn new(cluster: ClusterId) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, cluster, version, at: String::new(), nodes: Vec::new(), own_labels: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedService {
    pub name: ServiceName,
    /// The fields of `service:<name>`.
    pub fields: BTreeMap<String, String>,
    /// As in `done:<name>`. Only in a backup.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub done: BTreeMap<String, String>,
    /// As in `tries:<name>`. Only in a backup.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tries: BTreeMap<String, String>,
}

impl SavedService {
    pub fn new(name: ServiceName, fields: BTreeMap<String, String>) -> Self {
        Self { name, fields, done: BTreeMap::new(), tries: BTreeMap::new() }
    }

    pub fn is_job(&self) -> bool {
        self.text("kind") == "job"
    }

    pub fn revision(&self) -> u64 {
        self.number("revision")
    }

    pub fn generation(&self) -> u64 {
        self.number("generation")
    }

    pub fn replicas(&self) -> u32 {
        u32::try_from(self.number("replicas")).unwrap_or(u32::MAX)
    }

    pub fn spec(&self) -> Option<SavedSpec> {
        let id = SpecId::new(self.text("spec")).ok()?;
        let text = self.text("spec_text").to_owned();
        (!text.is_empty()).then(|| SavedSpec { id, generation: self.generation(), text })
    }

    pub fn is_active(&self) -> bool {
        self.text("state") != "deleting"
    }

    /// 0 if unknown.
    pub fn created_at(&self) -> RedisMillis {
        self.number("created_at")
    }

    fn age(&self) -> (RedisMillis, u64) {
        (self.created_at(), self.revision())
    }

    fn text(&self, field: &str) -> &str {
        self.fields.get(field).map(String::as_str).unwrap_or_default()
    }

    fn number(&self, field: &str) -> u64 {
        self.text(field).parse().unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSpec {
    pub id: SpecId,
    /// 0 if unknown.
    #[serde(default)]
    pub generation: u64,
    /// The content of `spec:<id>`.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedVolume {
    pub service: ServiceName,
    /// Its name in the service.
    pub source: String,
    pub replica: u32,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<u64>,
    pub node: NodeName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Its node has had the data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
    /// Other copies were given up until then, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPod {
    /// Byte for byte.
    pub payload: String,
    /// `None` for a pushed pod.
    pub service: Option<ServiceName>,
    pub phase: Phase,
    pub node: Option<NodeName>,
    pub assignment: Option<AssignmentId>,
    /// 0 if unknown.
    #[serde(default)]
    pub generation: u64,
    #[serde(default)]
    pub restarts: u32,
    #[serde(default)]
    pub address: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published_ports: Vec<PublishedPort>,
    /// Of named resources.
    #[serde(default, skip_serializing_if = "ResourceIds::is_empty")]
    pub resource_ids: ResourceIds,
    /// 0 if unknown.
    #[serde(default)]
    pub created_at: RedisMillis,
    /// A time within this assignment, on Redis' clock: of two the later one is younger. 0 if unknown.
    #[serde(default)]
    pub since: RedisMillis,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<EndedRun>,
}

/// The current version, as stored: a secret is encrypted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedValue {
    pub kind: ValueKind,
    pub name: ValueName,
    /// A secret can be decrypted only with its version.
    pub version: u64,
    /// In base64.
    pub data: String,
    pub created_at: RedisMillis,
    pub updated_at: RedisMillis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
}

impl fmt::Debug for SavedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} v{}", self.kind, self.name, self.version)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLogin {
    pub host: RegistryHost,
    pub user: String,
    /// Encrypted.
    pub password: String,
    pub updated_at: RedisMillis,
}

impl SavedPod {
    pub fn id(&self) -> Option<PodId> {
        #[derive(Deserialize)]
        struct Id {
            uuid: PodId,
        }
        serde_json::from_str::<Id>(&self.payload).ok().map(|payload| payload.uuid)
    }

    pub fn parsed(&self) -> Result<Payload, InvalidPayload> {
        Payload::parse(Bytes::copy_from_slice(self.payload.as_bytes()))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedEnd {
    /// Lines between the first and this one.
    pub lines: usize,
    /// Number of running containers.
    #[serde(default)]
    pub unsaved: u64,
    /// The second section follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedValues {
    pub cluster: Option<ClusterId>,
    pub values: Vec<SavedValue>,
    pub logins: Vec<SavedLogin>,
}

impl SavedValues {
    /// Returns the ids of the keys that encrypt the secrets and logins.
    pub fn secret_keys(&self) -> Vec<String> {
        let secrets = self.values.iter().filter(|value| value.kind == ValueKind::Secret);
        let texts = secrets.filter_map(|value| String::from_utf8(STANDARD.decode(&value.data).ok()?).ok());
        let texts = texts.chain(self.logins.iter().map(|login| login.password.clone()));
        texts.filter_map(|text| SecretKey::id_of_text(&text).map(str::to_owned)).collect()
    }

    pub fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidState> {
        let mut lines = lines.into_iter();
        let incomplete = InvalidState::Incomplete { expected: 0, found: 0 };
        let header = SavedHeader::parse(lines.next().ok_or(incomplete)?)?;
        let mut saved = Self { cluster: Some(header.cluster), ..Self::default() };
        for (index, line) in lines.enumerate() {
            let found = saved.values.len() + saved.logins.len();
            match SavedLine::parse(line, index + 2)? {
                SavedLine::Value(value) => saved.values.push(value),
                SavedLine::Login(login) => saved.logins.push(login),
                SavedLine::End(end) if end.lines == found => return Ok(saved),
                SavedLine::End(end) => return Err(InvalidState::Incomplete { expected: end.lines, found }),
                _ => return Err(InvalidState::NotALine(index + 2)),
            }
        }
        let found = saved.values.len() + saved.logins.len();
        Err(InvalidState::Incomplete { expected: 0, found })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedState {
    pub services: BTreeMap<ServiceName, SavedService>,
    pub specs: BTreeMap<SpecId, SavedSpec>,
    /// A pod that several nodes have occurs several times.
    pub pods: Vec<SavedPod>,
    /// Only in a backup: workers report theirs themselves.
    pub volumes: Vec<SavedVolume>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidState {
    #[error("line {0} is not one of a saved state of kubeleet")]
    NotALine(usize),
    #[error("it has the format {0}, and this version of kubeleet reads only up to {FORMAT}: use a newer one")]
    Newer(u32),
    #[error("it is incomplete: its last line is missing, or says {expected} lines where there are {found}")]
    Incomplete {
        /// 0 without a last line.
        expected: usize,
        found: usize,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct SavedFile {
    pub header: SavedHeader,
    pub state: SavedState,
    pub end: SavedEnd,
}

impl SavedState {
    /// The newer revision wins; with one name, the later created service.
    pub fn add_service(&mut self, service: SavedService) {
        match self.services.get(&service.name) {
            Some(known) if known.age() >= service.age() => {}
            _ => drop(self.services.insert(service.name.clone(), service)),
        }
    }

    /// A known generation replaces an unknown one.
    pub fn add_spec(&mut self, spec: SavedSpec) {
        match self.specs.get(&spec.id) {
            Some(known) if known.generation >= spec.generation => {}
            _ => drop(self.specs.insert(spec.id.clone(), spec)),
        }
    }

    pub fn add(&mut self, other: SavedState) {
        other.services.into_values().for_each(|service| self.add_service(service));
        other.specs.into_values().for_each(|spec| self.add_spec(spec));
        self.pods.extend(other.pods);
        self.volumes.extend(other.volumes);
    }

    pub fn lines(&self) -> impl Iterator<Item = String> {
        let volumes = self.volumes.iter().cloned().map(SavedLine::Volume);
        let services = self.services.values().cloned().map(SavedLine::Service);
        let specs = self.specs.values().cloned().map(SavedLine::Spec);
        let pods = self.pods.iter().cloned().map(|pod| SavedLine::Pod(Box::new(pod)));
        volumes.chain(services).chain(specs).chain(pods).map(|line| line.to_json())
    }

    /// `unsaved` counts running containers that are not saved.
    pub fn to_lines(&self, header: SavedHeader, unsaved: u64) -> Vec<String> {
        let header = std::iter::once(SavedLine::Header(header).to_json());
        let mut lines: Vec<String> = header.chain(self.lines()).collect();
        lines.push(SavedLine::End(SavedEnd { lines: lines.len() - 1, unsaved, more: false }).to_json());
        lines
    }
}

impl SavedLine {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always serialize")
    }

    /// `number` counts from 1, for the error.
    pub fn parse(line: &str, number: usize) -> Result<Self, InvalidState> {
        serde_json::from_str(line).map_err(|_| InvalidState::NotALine(number))
    }
}

impl SavedHeader {
    pub fn parse(line: &str) -> Result<Self, InvalidState> {
        #[derive(Deserialize)]
        struct AnyHeader {
            header: Format,
        }
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let AnyHeader { header } = serde_json::from_str(line).map_err(|_| InvalidState::NotALine(1))?;
        if header.format > FORMAT {
            return Err(InvalidState::Newer(header.format));
        }
        match SavedLine::parse(line, 1)? {
            SavedLine::Header(header) => Ok(header),
            _ => Err(InvalidState::NotALine(1)),
        }
    }
}

impl SavedFile {
    /// Ignores lines after the end line.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidState> {
        let mut lines = lines.into_iter();
        let incomplete = InvalidState::Incomplete { expected: 0, found: 0 };
        let header = SavedHeader::parse(lines.next().ok_or(incomplete)?)?;
        let mut state = SavedState::default();
        let mut found = 0;
        for (index, line) in lines.enumerate() {
            match SavedLine::parse(line, index + 2)? {
                SavedLine::Header(_) | SavedLine::Value(_) | SavedLine::Login(_) => {
                    return Err(InvalidState::NotALine(index + 2));
                }
                SavedLine::Service(service) => state.add_service(service),
                SavedLine::Spec(spec) => state.add_spec(spec),
                SavedLine::Pod(pod) => state.pods.push(*pod),
                SavedLine::Volume(volume) => state.volumes.push(volume),
                SavedLine::End(end) if end.lines == found => return Ok(Self { header, state, end }),
                SavedLine::End(end) => return Err(InvalidState::Incomplete { expected: end.lines, found }),
            }
            found += 1;
        }
        Err(InvalidState::Incomplete { expected: 0, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup_with_values() -> Vec<String> {
        let value = SavedValue {
            kind: ValueKind::Secret,
            name: ValueName::new("db").unwrap(),
            version: 3,
            data: "Y2hhY2hh".to_owned(),
            created_at: 1,
            updated_at: 2,
            app: None,
        };
        let login = SavedLogin {
            host: RegistryHost::new("reg.example").unwrap(),
            user: "bob".to_owned(),
            password: "chacha".to_owned(),
            updated_at: 3,
        };
        let header = SavedLine::Header(SavedHeader::new(ClusterId::new("c").unwrap()));
        let end = |lines, more| SavedLine::End(SavedEnd { lines, more, ..SavedEnd::default() });
        let all = [header, end(0, true), SavedLine::Value(value), SavedLine::Login(login), end(2, false)];
        all.iter().map(SavedLine::to_json).collect()
    }

    #[test]
    fn the_second_section_is_read_by_itself_and_does_not_disturb_versions_that_do_not_know_it() {
        let lines = backup_with_values();
        assert!(SavedFile::read(lines.iter().map(String::as_str)).unwrap().end.more);
        let second = || std::iter::once(&lines[0]).chain(&lines[2..]).map(String::as_str);
        let saved = SavedValues::read(second()).unwrap();
        assert_eq!((saved.values[0].version, saved.logins[0].user.as_str()), (3, "bob"));
        assert!(SavedValues::read(second().take(3)).is_err(), "it was cut off");
        assert!(!format!("{:?}", saved.values).contains("Y2hhY2hh"));
    }

    fn state() -> SavedState {
        let name = ServiceName::new("web").unwrap();
        let fields = [("generation", "2"), ("revision", "5")];
        let fields = fields.map(|(field, value)| (field.to_owned(), value.to_owned())).into();
        let pod = SavedPod {
            payload: r#"{"name":"web","uuid":"u","image":"i","replica":0}"#.to_owned(),
            service: Some(name.clone()),
            phase: Phase::Running,
            node: NodeName::new("w1").ok(),
            assignment: AssignmentId::new("a").ok(),
            generation: 2,
            restarts: 0,
            address: String::new(),
            published_ports: Vec::new(),
            resource_ids: Default::default(),
            created_at: 0,
            since: 0,
            runs: Vec::new(),
        };
        let volume = SavedVolume {
            service: name.clone(),
            source: "data".to_owned(),
            replica: 0,
            space: Some(1 << 30),
            node: NodeName::new("w1").unwrap(),
            engine_id: Some("A".to_owned()),
            epoch: Some(7),
            found: true,
            given_up_at: None,
        };
        let mut state = SavedState { pods: vec![pod], volumes: vec![volume], ..SavedState::default() };
        state.add_service(SavedService::new(name, fields));
        state.add_spec(SavedSpec { id: SpecId::new("s").unwrap(), generation: 2, text: "{}".to_owned() });
        state
    }

    #[test]
    fn a_state_is_read_back_as_it_was_written() {
        let header = SavedHeader {
            nodes: vec![NodeName::new("w1").unwrap()],
            ..SavedHeader::new(ClusterId::new("c").unwrap())
        };
        let lines = state().to_lines(header.clone(), 3);
        let file = SavedFile::read(lines.iter().map(String::as_str)).unwrap();
        assert_eq!((&file.header, &file.state), (&header, &state()));
        assert_eq!(file.end, SavedEnd { lines: 4, unsaved: 3, more: false });
    }

    #[test]
    fn a_state_that_was_cut_off_or_is_of_a_later_version_is_refused() {
        let lines = state().to_lines(SavedHeader::new(ClusterId::new("c").unwrap()), 0);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for count in 0..lines.len() {
            let cut = SavedFile::read(lines[..count].iter().copied());
            assert!(matches!(cut, Err(InvalidState::Incomplete { .. })), "{count}: {cut:?}");
        }
        let without_a_pod = lines.iter().enumerate().filter(|(index, _)| *index != 4).map(|(_, line)| *line);
        let incomplete = InvalidState::Incomplete { expected: 4, found: 3 };
        assert_eq!(SavedFile::read(without_a_pod), Err(incomplete));
        let newer = lines[0].replace("\"format\":2", "\"format\":3,\"more\":{}");
        assert_eq!(SavedFile::read([newer.as_str()]), Err(InvalidState::Newer(3)));
        assert_eq!(SavedFile::read(["no state"]), Err(InvalidState::NotALine(1)));
        assert_eq!(SavedFile::read([lines[0], "{"]), Err(InvalidState::NotALine(2)));
    }

    #[test]
    fn of_two_revisions_of_a_service_the_newer_one_stays() {
        let mut state = state();
        let known = state.services.values().next().unwrap().clone();
        assert_eq!((known.revision(), known.generation()), (5, 2));
        let mut older = known.clone();
        older.fields.insert("revision".to_owned(), "4".to_owned());
        state.add_service(older);
        assert_eq!(state.services.values().next(), Some(&known));
    }
}
