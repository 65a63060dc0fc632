//! The known endpoints of one service. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use model::ids::{NodeName, PodId};
use model::network::endpoint::Endpoint;
use store::{EndpointChange, EndpointVersion};

use crate::snapshot::Endpoints;

#[derive(Debug, Clone, Default)]
pub struct EndpointSet {
    version: Option<EndpointVersion>,
    endpoints: BTreeMap<PodId, Arc<Endpoint>>,
    shared: OnceLock<Endpoints>,
    /// A new master has none: it may have lost them.
    is_kept: bool,
    /// Hosts reported endpoints since Redis had this version.
    is_heard: bool,
}

impl PartialEq for EndpointSet {
    fn eq(&self, other: &Self) -> bool {
        let Self { version, endpoints, shared: _, is_kept, is_heard } = self;
        (version, endpoints, is_kept, is_heard)
            == (&other.version, &other.endpoints, &other.is_kept, &other.is_heard)
    }
}

impl Eq for EndpointSet {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Changed,
    Old,
    /// Messages are missing: all endpoints must be read.
    Gap,
}

impl EndpointSet {
    pub fn saved(version: EndpointVersion, endpoints: Vec<Endpoint>, is_heard: bool) -> Self {
        Self { version: Some(version), endpoints: by_pod(endpoints), is_heard, ..Self::default() }
    }

    /// `None` if hosts reported endpoints since the last answer of Redis.
    pub fn version(&self) -> Option<&EndpointVersion> {
        self.version.as_ref().filter(|_| !self.is_heard)
    }

    /// True if hosts reported endpoints since.
    pub(crate) fn to_save(&self) -> Option<(&EndpointVersion, bool)> {
        Some((self.version.as_ref()?, self.is_heard))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values().map(Arc::as_ref)
    }

    pub fn shared(&self) -> Endpoints {
        self.shared.get_or_init(|| self.endpoints.values().cloned().collect()).clone()
    }

    /// A failover that lost writes repeats versions, but also breaks the connection, so all endpoints are
    /// read.
    pub fn apply(&mut self, change: EndpointChange) -> Applied {
        let Some(known) = self.version().filter(|known| known.master == change.version.master) else {
            return Applied::Gap;
        };
        if change.version.version <= known.version {
            return Applied::Old;
        }
        // A change relative to Redis does not apply to kept endpoints that Redis lacks.
        if change.version.version != known.version + 1 || self.is_kept {
            return Applied::Gap;
        }
        self.shared = OnceLock::new();
        for (pod, endpoint) in change.changes {
            match endpoint {
                Some(endpoint) => drop(self.endpoints.insert(pod, Arc::new(endpoint))),
                None => drop(self.endpoints.remove(&pod)),
            }
        }
        self.version = Some(change.version);
        Applied::Changed
    }

    /// A new master may have lost all endpoints: known ones stay, and gates of stopped pods refuse anyway.
    pub fn replace(&mut self, version: EndpointVersion, endpoints: Vec<Endpoint>) {
        let is_new_master = self.version.as_ref().is_some_and(|known| known.master != version.master);
        self.is_kept = endpoints.is_empty() && !self.endpoints.is_empty() && (is_new_master || self.is_kept);
        self.version = Some(version);
        self.is_heard = false;
        if !self.is_kept {
            self.endpoints = by_pod(endpoints);
            self.shared = OnceLock::new();
        }
    }

    /// A paged read that began at `before` may contain changes after `version`. If messages advanced the set
    /// further, it stays.
    pub fn take_read(
        &mut self,
        before: Option<&EndpointVersion>,
        version: EndpointVersion,
        endpoints: Vec<Endpoint>,
    ) {
        let known = self.version().filter(|known| before != Some(*known) && known.master == version.master);
        if self.is_kept || known.is_none_or(|known| known.version < version.version) {
            self.replace(version, endpoints);
        }
    }

    /// Replaces the pods of one host, until the next answer of Redis.
    pub fn hear(&mut self, nodes: &BTreeSet<NodeName>, endpoints: Vec<Endpoint>) {
        let heard = by_pod(endpoints);
        let stays = |endpoint: &Endpoint| !nodes.contains(&endpoint.node);
        let is_same = self.endpoints.values().filter(|known| !stays(known)).eq(heard.values());
        if is_same {
            return;
        }
        self.endpoints.retain(|_, endpoint| stays(endpoint));
        self.endpoints.extend(heard);
        self.shared = OnceLock::new();
        self.is_heard = true;
    }
}

fn by_pod(endpoints: Vec<Endpoint>) -> BTreeMap<PodId, Arc<Endpoint>> {
    endpoints.into_iter().map(|endpoint| (endpoint.pod.clone(), Arc::new(endpoint))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;

    fn version(number: u64, master: &str) -> EndpointVersion {
        EndpointVersion { version: number, master: master.to_owned() }
    }

    fn endpoint(pod: &str, line: &str) -> Endpoint {
        Endpoint::parse(PodId::new(pod).unwrap(), line).unwrap()
    }

    fn change(number: u64, master: &str, lines: &[(&str, Option<&str>)]) -> EndpointChange {
        let changes =
            lines.iter().map(|(pod, line)| (PodId::new(*pod).unwrap(), line.map(|line| endpoint(pod, line))));
        EndpointChange { version: version(number, master), changes: changes.collect() }
    }

    fn one() -> EndpointSet {
        EndpointSet::saved(version(7, "0"), vec![endpoint("p", "0 w a ready")], false)
    }

    fn hear(set: &mut EndpointSet, lines: &[(&str, &str)]) {
        let nodes = BTreeSet::from([NodeName::new("w").unwrap()]);
        set.hear(&nodes, lines.iter().map(|(pod, line)| endpoint(pod, line)).collect());
    }

    fn pods(set: &EndpointSet) -> Vec<&str> {
        set.iter().map(|one| one.pod.as_str()).collect()
    }

    #[test]
    fn what_a_host_says_replaces_its_own_pods_until_redis_says_something() {
        let mut set = one();
        set.replace(version(8, "0"), vec![endpoint("p", "0 w a ready"), endpoint("q", "1 v a ready")]);
        hear(&mut set, &[("p", "0 w a ready")]);
        assert_eq!(set.version(), Some(&version(8, "0")), "it says what is known");
        hear(&mut set, &[("r", "0 w b ready")]);
        assert_eq!(pods(&set), ["q", "r"]);
        assert_eq!(set.version(), None);
        assert_eq!(set.to_save(), Some((&version(8, "0"), true)));
        assert_eq!(set.apply(change(9, "0", &[("q", None)])), Applied::Gap);
        set.replace(version(8, "0"), vec![endpoint("q", "1 v a ready")]);
        assert_eq!((pods(&set), set.version()), (vec!["q"], Some(&version(8, "0"))));
        let mut unknown = EndpointSet::default();
        hear(&mut unknown, &[("p", "0 w a ready")]);
        assert_eq!((pods(&unknown), unknown.to_save()), (vec!["p"], None));
    }

    #[test]
    fn snapshots_share_the_endpoints_until_they_change() {
        let mut set = one();
        let first = set.shared();
        set.apply(change(7, "0", &[("p", None)]));
        set.hear(&BTreeSet::new(), Vec::new());
        assert!(Arc::ptr_eq(&first, &set.shared()), "nothing has changed");
        let mut before = first;
        let acts: [fn(&mut EndpointSet); 3] = [
            |set| assert_eq!(set.apply(change(8, "0", &[("q", Some("1 w b ready"))])), Applied::Changed),
            |set| hear(set, &[("r", "0 w b ready")]),
            |set| set.replace(version(9, "0"), vec![endpoint("s", "1 w b ready")]),
        ];
        for act in acts {
            act(&mut set);
            let shared: Vec<_> = set.shared().iter().map(|one| one.pod.clone()).collect();
            assert_eq!(shared, set.iter().map(|one| one.pod.clone()).collect::<Vec<_>>());
            assert!(!Arc::ptr_eq(&before, &set.shared()));
            before = set.shared();
        }
    }

    #[test]
    fn a_new_master_without_endpoints_replaces_none_that_a_host_has_said() {
        let mut set = one();
        hear(&mut set, &[("r", "0 w b ready")]);
        set.replace(version(100, "1"), Vec::new());
        assert_eq!(pods(&set), ["r"]);
        assert_eq!(set.apply(change(101, "1", &[("q", Some("1 w b ready"))])), Applied::Gap);
        set.replace(version(101, "1"), vec![endpoint("q", "1 w b ready")]);
        assert_eq!(pods(&set), ["q"]);
    }

    #[test]
    fn only_the_next_change_of_the_same_master_is_applied() {
        for (number, master, expected) in
            [(6, "0", Applied::Old), (7, "0", Applied::Old), (9, "0", Applied::Gap), (8, "1", Applied::Gap)]
        {
            let mut set = one();
            assert_eq!(set.apply(change(number, master, &[("p", None)])), expected, "{number} {master}");
            assert_eq!(set, one());
        }
        let mut set = one();
        assert_eq!(set.apply(change(8, "0", &[("p", None), ("q", Some("1 w b ready"))])), Applied::Changed);
        assert_eq!(pods(&set), ["q"]);
        assert_eq!(EndpointSet::default().apply(change(1, "0", &[])), Applied::Gap, "nothing is known");
    }

    #[test]
    fn a_new_master_without_endpoints_replaces_no_known_ones_until_it_has_some() {
        let mut set = one();
        for number in [100, 101] {
            set.replace(version(number, "1"), Vec::new());
            assert_eq!(set.iter().count(), 1, "{number}");
        }
        set.replace(version(102, "1"), vec![endpoint("q", "0 w b ready")]);
        assert_eq!(pods(&set), ["q"]);
        set.replace(version(103, "1"), Vec::new());
        assert_eq!(set.iter().count(), 0, "the same master knows that they are gone");
    }

    /// With two flags: its message arrives, the host is asked.
    fn steps() -> impl Strategy<Value = Vec<(u8, bool, bool, bool)>> {
        prop::collection::vec((0..6_u8, any::<bool>(), any::<bool>(), any::<bool>()), 0..60)
    }

    proptest! {
        #[test]
        fn whatever_is_lost_the_set_becomes_what_redis_has(steps in steps()) {
            let mut known = EndpointSet::default();
            let mut cluster = EndpointSet::default();
            cluster.replace(version(1, "0"), Vec::new());
            for (index, (pod, is_added, arrives, is_asked)) in steps.into_iter().enumerate() {
                let pod = format!("p{pod}");
                let line = is_added.then_some("0 w a ready");
                let message = change(index as u64 + 2, "0", &[(&pod, line)]);
                assert_eq!(cluster.apply(message.clone()), Applied::Changed);
                if arrives && known.apply(message) == Applied::Gap {
                    known.replace(cluster.version().unwrap().clone(), cluster.iter().cloned().collect());
                }
                if known.version() == cluster.version() {
                    prop_assert_eq!(&known, &cluster);
                }
                if is_asked {
                    let nodes = BTreeSet::from([NodeName::new("w").unwrap()]);
                    known.hear(&nodes, cluster.iter().skip(1).cloned().collect());
                }
            }
            known.replace(cluster.version().unwrap().clone(), cluster.iter().cloned().collect());
            prop_assert_eq!(known, cluster);
        }
    }

    #[test]
    fn what_was_read_in_pages_replaces_nothing_that_messages_have_brought_further() {
        let one = |name: &str| {
            let pod = PodId::new(name).unwrap();
            vec![Endpoint::parse(pod, "0 w1 a ready").unwrap()]
        };
        let pods = |set: &EndpointSet| set.iter().map(|one| one.pod.to_string()).collect::<Vec<_>>();
        let at = |number| EndpointSet::saved(version(number, "0"), one("known"), false);
        // The version when the reading began, and when it ends; the version read.
        for (before, now, read, is_taken) in
            [(5, 5, 7, true), (5, 8, 7, false), (5, 6, 7, true), (7, 7, 3, true), (5, 7, 7, false)]
        {
            let mut set = at(now);
            set.take_read(Some(&version(before, "0")), version(read, "0"), one("read"));
            let expected = if is_taken { "read" } else { "known" };
            assert_eq!(pods(&set), [expected], "{before} {now} {read}");
        }
        let mut of_former_master = at(8);
        of_former_master.take_read(Some(&version(5, "0")), version(7, "1"), one("read"));
        assert_eq!(pods(&of_former_master), ["read"]);
    }
}
