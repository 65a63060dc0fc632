//! The pods saved by this worker, across its sessions: enough to restore their records in Redis.
//!
//! Missing records in Redis remove nothing: an entry goes when its container is gone, or when the pod was
//! moved. An entry whose container the fence stopped stays for an hour.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::config::Config;
use daemon::state_file::{IfFound, StateFile};
use engine::{Container, PodKey};
use model::RedisMillis;
use model::ids::{AssignmentId, ClusterId, NodeName, PodId, RecoveryId, ServiceName, SpecId};
use model::node::HeldPod;
use model::node::labels::OwnLabels;
use model::pod::lifecycle::Phase;
use parking_lot::Mutex;
use store::saved_state::{SavedFile, SavedHeader, SavedPod, SavedService, SavedSpec, SavedState};

use tokio::time::Instant;

use crate::running::table::EndedPod;

const FENCED_RETENTION: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodStore {
    /// The worker also answers no recovery request.
    Nowhere,
    Memory,
    File(PathBuf),
}

impl PodStore {
    pub(crate) fn file(config: &Config) -> Self {
        Self::File(file_of(&config.data_dir, &config.node))
    }
}

pub(crate) fn file_of(data_dir: &Path, node: &NodeName) -> PathBuf {
    data_dir.join(format!("{node}.pods"))
}

pub(crate) struct PodBackup {
    store: PodStore,
    inner: Mutex<BackupInner>,
}

#[derive(Default)]
struct BackupInner {
    pods: BTreeMap<PodKey, SavedPod>,
    specs: BTreeMap<SpecId, SavedSpec>,
    services: BTreeMap<ServiceName, SavedService>,
    listed: HashSet<PodKey>,
    fenced: HashMap<PodKey, Instant>,
    nodes: Vec<NodeName>,
    own_labels: Option<OwnLabels>,
    is_changed: bool,
    answered: Option<RecoveryId>,
}

impl PodBackup {
    pub(crate) fn load(store: PodStore) -> Self {
        let mut inner = BackupInner::default();
        if let PodStore::File(path) = &store
            && let Some(file) = read(path)
        {
            inner.add(file.state);
            inner.nodes = file.header.nodes;
            inner.own_labels = file.header.own_labels;
            inner.is_changed = false;
        }
        Self { store, inner: Mutex::new(inner) }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.store != PodStore::Nowhere
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.store, PodStore::File(_))
    }

    pub(crate) fn observe(&self, containers: &[Container]) {
        if self.is_used() {
            let keys = containers.iter().map(Container::key);
            self.inner.lock().listed = keys.collect();
        }
    }

    /// Redis should still have these pods but may have lost them.
    pub(crate) fn note_fenced<'a>(&self, containers: impl IntoIterator<Item = &'a Container>) {
        let (mut inner, now) = (self.inner.lock(), Instant::now());
        for container in containers {
            let key = container.key();
            if inner.pods.contains_key(&key) {
                inner.fenced.insert(key, now);
            }
        }
    }

    pub(crate) fn fenced(&self) -> Vec<(PodId, AssignmentId)> {
        self.inner.lock().fenced.keys().cloned().collect()
    }

    /// These pods come back here, or have moved.
    pub(crate) fn forget_fenced(&self, pods: &[(PodId, AssignmentId)]) {
        let mut inner = self.inner.lock();
        inner.fenced.retain(|key, _| !pods.contains(key));
    }

    pub(crate) fn undated(&self) -> Vec<(PodId, AssignmentId)> {
        let inner = self.inner.lock();
        inner.pods.iter().filter(|(_, pod)| pod.since == 0).map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn set_since(&self, pod: &PodId, assignment: &AssignmentId, since: RedisMillis) {
        let mut inner = self.inner.lock();
        if let Some(saved) = inner.pods.get_mut(&(pod.clone(), assignment.clone())) {
            saved.since = since;
            inner.is_changed = true;
        }
    }

    pub(crate) fn slot_of(&self, pod: &PodId, assignment: &AssignmentId) -> Option<HeldPod> {
        let inner = self.inner.lock();
        let saved = inner.pods.get(&(pod.clone(), assignment.clone()))?;
        let payload = saved.parsed().ok()?;
        Some(HeldPod { service: saved.service.clone()?, replica: payload.replica, pod: pod.clone() })
    }

    pub(crate) fn older(&self, pods: &HashSet<PodKey>, before: RedisMillis) -> SavedState {
        let inner = self.inner.lock();
        let is_older = |key: &PodKey| inner.pods.get(key).is_some_and(|pod| (1..before).contains(&pod.since));
        inner.state(|key| pods.contains(key) && is_older(key))
    }

    pub(crate) fn update(&self, pods: Vec<SavedPod>, is_kept: impl Fn(&PodId, &AssignmentId) -> Keep) {
        let mut inner = self.inner.lock();
        let BackupInner { pods: saved, listed, fenced, is_changed, .. } = &mut *inner;
        fenced.retain(|_, since| since.elapsed() < FENCED_RETENTION);
        let mut current = BTreeSet::new();
        for mut pod in pods {
            let Some(key) = pod.id().zip(pod.assignment.clone()) else { continue };
            current.insert(key.clone());
            pod.since = saved.get(&key).map_or(0, |saved| saved.since);
            if saved.get(&key) != Some(&pod) {
                saved.insert(key, pod);
                *is_changed = true;
            }
        }
        // A pod restarted under another assignment is saved under that one.
        let here: HashSet<&PodId> = current.iter().map(|(pod, _)| pod).collect();
        fenced.retain(|key, _| current.contains(key) || !here.contains(&key.0));
        let before = saved.len();
        saved.retain(|key, _| {
            current.contains(key)
                || fenced.contains_key(key)
                || match is_kept(&key.0, &key.1) {
                    Keep::Yes => true,
                    Keep::WithContainer => listed.contains(key),
                    Keep::No => false,
                }
        });
        *is_changed |= saved.len() != before;
    }

    pub(crate) fn ended(&self, ended: &[EndedPod]) -> Vec<SavedPod> {
        let inner = self.inner.lock();
        let saved = |one: &EndedPod| {
            let pod = inner.pods.get(&(one.pod.clone(), one.assignment.clone()))?;
            Some(SavedPod { phase: one.phase, ..pod.clone() })
        };
        ended.iter().filter_map(saved).collect()
    }

    pub(crate) fn needed(&self) -> (Vec<ServiceName>, Vec<SpecId>) {
        let inner = self.inner.lock();
        let services: BTreeSet<ServiceName> =
            inner.pods.values().filter_map(|pod| pod.service.clone()).collect();
        let specs = inner.used_specs();
        let missing = specs.into_iter().filter(|id| !inner.specs.contains_key(id)).collect();
        (services.into_iter().collect(), missing)
    }

    /// An older state of a service replaces no newer one.
    pub(crate) fn add(&self, services: Vec<SavedService>, specs: BTreeMap<SpecId, String>) {
        let mut state = SavedState::default();
        for service in services {
            if let Some(spec) = service.spec() {
                state.add_spec(spec);
            }
            state.add_service(service);
        }
        for (id, text) in specs {
            state.add_spec(SavedSpec { id, generation: 0, text });
        }
        let mut inner = self.inner.lock();
        inner.add(state);
        inner.forget_unused();
    }

    pub(crate) fn set_nodes(&self, nodes: Vec<NodeName>) {
        let mut inner = self.inner.lock();
        if !nodes.is_empty() && inner.nodes != nodes {
            inner.nodes = nodes;
            inner.is_changed = true;
        }
    }

    pub(crate) fn own_labels(&self) -> Option<OwnLabels> {
        self.inner.lock().own_labels.clone()
    }

    pub(crate) fn set_own_labels(&self, labels: Option<OwnLabels>) {
        let mut inner = self.inner.lock();
        if inner.own_labels != labels {
            inner.own_labels = labels;
            inner.is_changed = true;
        }
    }

    pub(crate) fn take_changes(&self, cluster: &ClusterId) -> Option<(StateFile, String)> {
        let PodStore::File(path) = &self.store else { return None };
        let mut inner = self.inner.lock();
        if !std::mem::take(&mut inner.is_changed) {
            return None;
        }
        let lines = inner.state(|_| true).to_lines(inner.header(cluster), 0);
        // It has environments: no other user may ever be able to open it.
        let file = StateFile::new(path).private().creating_directory();
        Some((file, lines.join("\n") + "\n"))
    }

    pub(crate) fn set_changed(&self) {
        self.inner.lock().is_changed = true;
    }

    pub(crate) fn answer(&self, cluster: &ClusterId, containers: &[Container]) -> Vec<String> {
        let inner = self.inner.lock();
        let mut by_key: BTreeMap<PodKey, &Container> = BTreeMap::new();
        for container in containers {
            let first = by_key.entry(container.key()).or_insert(container);
            // Only the sandbox of several containers has the pod's address.
            if container.name.is_none() {
                *first = container;
            }
        }
        let is_fenced =
            |key: &PodKey| inner.fenced.get(key).is_some_and(|at| at.elapsed() < FENCED_RETENTION);
        let mut state = inner.state(|key| by_key.contains_key(key) || is_fenced(key));
        for pod in &mut state.pods {
            let container = pod.id().zip(pod.assignment.clone()).and_then(|key| by_key.get(&key));
            if container.is_none() && pod.phase == Phase::Running {
                // A running pod takes precedence.
                pod.phase = Phase::Assigned;
            }
            let network = container.and_then(|container| container.network.as_ref());
            let network = network.cloned().unwrap_or_default();
            (pod.address, pod.published_ports) = (network.address, network.ports);
        }
        let is_unsaved = |key: &PodKey, c: &Container| c.state.may_run() && !inner.pods.contains_key(key);
        let unsaved = by_key.iter().filter(|(key, container)| is_unsaved(key, container)).count();
        state.to_lines(inner.header(cluster), unsaved as u64)
    }

    pub(crate) fn is_new_request(&self, id: &RecoveryId) -> bool {
        self.inner.lock().answered.as_ref() != Some(id)
    }

    pub(crate) fn set_answered(&self, id: RecoveryId) {
        self.inner.lock().answered = Some(id);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    WithContainer,
    No,
}

impl BackupInner {
    fn add(&mut self, state: SavedState) {
        let mut merged = SavedState {
            services: std::mem::take(&mut self.services),
            specs: std::mem::take(&mut self.specs),
            ..SavedState::default()
        };
        let before = (merged.services.clone(), merged.specs.clone());
        merged.add(state);
        for pod in merged.pods {
            if let Some(key) = pod.id().zip(pod.assignment.clone()) {
                self.pods.insert(key, pod);
            }
        }
        self.is_changed |= before != (merged.services.clone(), merged.specs.clone());
        (self.services, self.specs) = (merged.services, merged.specs);
    }

    fn used_specs(&self) -> BTreeSet<SpecId> {
        self.pods.values().filter_map(spec_of).collect()
    }

    fn forget_unused(&mut self) {
        let used = self.used_specs();
        let services: BTreeSet<&ServiceName> =
            self.pods.values().filter_map(|pod| pod.service.as_ref()).collect();
        let before = (self.specs.len(), self.services.len());
        self.services.retain(|name, _| services.contains(name));
        self.specs.retain(|id, _| used.contains(id));
        self.is_changed |= before != (self.specs.len(), self.services.len());
    }

    fn state(&self, is_wanted: impl Fn(&PodKey) -> bool) -> SavedState {
        let pods = self.pods.iter().filter(|(key, _)| is_wanted(key)).map(|(_, pod)| pod.clone());
        let (services, specs) = (self.services.clone(), self.specs.clone());
        SavedState { services, specs, pods: pods.collect(), ..SavedState::default() }
    }

    fn header(&self, cluster: &ClusterId) -> SavedHeader {
        let (nodes, own_labels) = (self.nodes.clone(), self.own_labels.clone());
        SavedHeader { nodes, own_labels, ..SavedHeader::new(cluster.clone()) }
    }
}

fn spec_of(pod: &SavedPod) -> Option<SpecId> {
    pod.parsed().ok()?.spec
}

fn read(path: &Path) -> Option<SavedFile> {
    let read = std::fs::read_to_string(path).if_found().unwrap_or_else(|error| {
        tracing::error!(path = %path.display(), %error, "the saved pods cannot be read");
        None
    });
    let text = read?;
    match SavedFile::read(text.lines()) {
        Ok(file) => Some(file),
        Err(why) => {
            let mut aside = path.as_os_str().to_owned();
            aside.push(".broken");
            tracing::error!(
                path = %path.display(), aside = %Path::new(&aside).display(), %why,
                "the file of the saved pods is broken and is set aside; it is written anew from Redis"
            );
            let _set_aside = std::fs::rename(path, &aside);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use engine::{ContainerState, testing};

    fn pod(id: &str) -> SavedPod {
        SavedPod {
            payload: format!(r#"{{"name":"web","uuid":"{id}","image":"i","replica":0,"spec":"s"}}"#),
            service: ServiceName::new("web").ok(),
            phase: Phase::Running,
            node: None,
            assignment: AssignmentId::new(format!("of-{id}")).ok(),
            generation: 0,
            restarts: 0,
            address: String::new(),
            published_ports: Vec::new(),
            resource_ids: Default::default(),
            created_at: 0,
            since: 0,
            runs: Vec::new(),
        }
    }

    fn ids(saved: &PodBackup) -> Vec<String> {
        saved.inner.lock().pods.keys().map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn an_entry_goes_only_with_its_container_or_when_its_pod_has_moved() {
        let saved = PodBackup::load(PodStore::Memory);
        saved.update(vec![pod("kept"), pod("moved"), pod("gone"), pod("listed")], |_, _| Keep::No);
        saved.inner.lock().listed =
            [(PodId::new("listed").unwrap(), AssignmentId::new("of-listed").unwrap())].into();
        saved.update(vec![pod("new")], |id, _| match id.as_str() {
            "kept" => Keep::Yes,
            "moved" => Keep::No,
            _ => Keep::WithContainer,
        });
        assert_eq!(ids(&saved), ["kept", "listed", "new"]);
    }

    #[test]
    fn what_the_fence_has_stopped_stays_until_redis_has_a_record_or_it_is_started_again() {
        let saved = PodBackup::load(PodStore::Memory);
        saved.update(vec![pod("a"), pod("b"), pod("c")], |_, _| Keep::No);
        let container = |id: &str| {
            let identity = testing::identity("n", id, &format!("of-{id}"));
            Container::new(id.to_owned(), &identity, ContainerState::Running)
        };
        let all: Vec<Container> = ["a", "b", "c"].map(container).into();
        saved.observe(&all);
        saved.note_fenced(&all);
        saved.update(vec![pod("a"), pod("b"), pod("c")], |_, _| Keep::No);
        saved.observe(&[]);
        saved.update(Vec::new(), |_, _| Keep::No);
        assert_eq!(ids(&saved), ["a", "b", "c"]);
        saved.forget_fenced(&[(PodId::new("a").unwrap(), AssignmentId::new("of-a").unwrap())]);
        let again = SavedPod { assignment: AssignmentId::new("next").ok(), ..pod("b") };
        saved.update(vec![again], |_, _| Keep::No);
        assert_eq!(ids(&saved), ["b", "c"]);
        let lines = saved.answer(&ClusterId::new("x").unwrap(), &[]);
        assert_eq!(lines.iter().filter(|line| line.contains("\"assigned\"")).count(), 1, "{lines:?}");
    }

    #[test]
    fn the_file_is_its_owners_only_and_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("w.pods");
        let saved = PodBackup::load(PodStore::File(path.clone()));
        saved.update(vec![pod("a")], |_, _| Keep::No);
        saved.add(Vec::new(), [(SpecId::new("s").unwrap(), "secret".to_owned())].into());
        let nodes = vec![NodeName::new("w1").unwrap()];
        saved.set_nodes(nodes.clone());
        saved.set_nodes(Vec::new());
        let labels: OwnLabels = [("zone".to_owned(), Some("b".to_owned())), ("disk".to_owned(), None)].into();
        saved.set_own_labels(Some(labels.clone()));
        let cluster = ClusterId::new("c").unwrap();
        let (file, text) = saved.take_changes(&cluster).unwrap();
        file.write(text.as_bytes()).unwrap();
        assert_eq!(saved.take_changes(&cluster), None, "nothing has changed since");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = PodBackup::load(PodStore::File(path.clone()));
        assert_eq!((ids(&again), again.inner.lock().specs.len()), (vec!["a".to_owned()], 1));
        assert_eq!(again.inner.lock().nodes, nodes, "an emptied Redis knows of no nodes");
        assert_eq!(again.own_labels(), Some(labels));
        assert_eq!(again.take_changes(&cluster), None, "it is as it is in the file");
    }

    #[test]
    fn a_broken_file_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("w.pods");
        std::fs::write(&path, "{").unwrap();
        assert_eq!(ids(&PodBackup::load(PodStore::File(path.clone()))), Vec::<String>::new());
        assert!(!path.exists() && directory.path().join("w.pods.broken").exists());
    }
}
