//! Finds keys for secrets that differ from the cluster's: before a secret is stored, and for `status`. Pure.
//!
//! The cluster's key is the one that most workers have: Redis never knows it. A node without a key gets no
//! secrets, which may be intended.

use std::collections::BTreeMap;

use model::ids::NodeName;
use model::node::{Node, NodeState};
use model::value::secret_key::SecretKey;

use crate::first_names::first_names;
use crate::http::problem::{ApiProblem, ProblemKind};

const MAX_NAMES: usize = 3;

pub(crate) struct WorkerKeys {
    /// Ids of keys, each with the nodes that have it: the most common first, and among equals the API's own.
    keys: Vec<(String, Vec<String>)>,
}

impl WorkerKeys {
    pub(crate) fn of(nodes: &[Node], own: Option<&SecretKey>) -> Self {
        let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for node in nodes.iter().filter(|node| node.state == NodeState::Alive) {
            let Some(key) = node.facts.settings.as_ref().and_then(|settings| settings.secret_key.clone())
            else {
                continue;
            };
            keys.entry(key).or_default().push(node.name.to_string());
        }
        let mut keys: Vec<_> = keys.into_iter().collect();
        let is_own = |key: &str| own.is_some_and(|own| own.id() == key);
        keys.sort_by_key(|(key, nodes)| (std::cmp::Reverse(nodes.len()), !is_own(key)));
        Self { keys }
    }

    /// Returns the id of the key that most workers have.
    pub(crate) fn most(&self) -> Option<&str> {
        self.keys.first().map(|(key, _)| key.as_str())
    }

    pub(crate) fn problems(&self, own: Option<&SecretKey>) -> Vec<String> {
        let Some(most) = self.most() else { return Vec::new() };
        let others = self.keys.iter().skip(1).map(|(key, nodes)| {
            let have = if nodes.len() == 1 { "has" } else { "have" };
            let nodes = named(nodes);
            format!(
                "{nodes} {have} the secret key {key}, and the others {most}: pods that need a secret wait \
                 there; give all APIs, workers and proxies the same KUBELEET_SECRET_KEY_FILE, and start them again"
            )
        });
        let of_api = own.filter(|own| own.id() != most).map(|own| {
            format!(
                "this API has the secret key {}, and the workers {most}: it stores no secrets; give it the workers' \
                 KUBELEET_SECRET_KEY_FILE, and start it again",
                own.id()
            )
        });
        others.chain(of_api).collect()
    }

    pub(crate) fn problems_of_proxies(&self, proxies: &BTreeMap<NodeName, String>) -> Vec<String> {
        let Some(most) = self.most() else { return Vec::new() };
        let mut others: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (node, key) in proxies.iter().filter(|(_, key)| *key != most) {
            others.entry(key).or_default().push(node.to_string());
        }
        let sentence = |(key, nodes): (&str, Vec<String>)| {
            let (proxies, have) =
                if nodes.len() == 1 { ("the proxy", "has") } else { ("the proxies", "have") };
            let nodes = named(&nodes);
            format!(
                "{proxies} of {nodes} {have} the secret key {key}, and the workers {most}: certificates of `tls: auto` \
                 that others have stored are not served there; give it the workers' KUBELEET_SECRET_KEY_FILE, and start \
                 it again"
            )
        };
        others.into_iter().map(sentence).collect()
    }

    pub(crate) fn check(&self, own: &SecretKey) -> Result<(), ApiProblem> {
        match self.most() {
            Some(most) if most != own.id() => Err(ApiProblem::new(
                ProblemKind::OtherSecretKey,
                format!(
                    "this API has the secret key {}, and the workers {most}, so they could not read it; nothing was \
                     stored. Ask another API, or give this one the workers' KUBELEET_SECRET_KEY_FILE and start it again; \
                     a new key goes to the workers first",
                    own.id()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// `restored` are the ids of the keys with which restored secrets and logins are encrypted.
    pub(crate) fn unreadable(&self, restored: &[String]) -> Vec<String> {
        let Some(most) = self.most() else { return Vec::new() };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        restored.iter().filter(|key| *key != most).for_each(|key| *counts.entry(key).or_default() += 1);
        let sentence = |(key, count): (&str, usize)| {
            let (what, are) =
                if count == 1 { ("secret or login is", "it") } else { ("secrets and logins are", "them") };
            format!(
                "{count} {what} encrypted with the key {key}, and the workers have {most}: pods wait for {are} until \
                 the workers have that key, or until each secret is rotated and each login stored again"
            )
        };
        counts.into_iter().map(sentence).collect()
    }
}

fn named(nodes: &[String]) -> String {
    let word = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}", first_names(nodes, MAX_NAMES))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::node::{NodeSettings, Resources};
    use testkit::fixtures;

    use super::*;

    fn key(digit: char) -> SecretKey {
        SecretKey::parse(&digit.to_string().repeat(64)).unwrap()
    }

    /// `-` is no key, `?` a worker that has not registered one.
    fn nodes(keys: &str) -> Vec<Node> {
        let node = |(index, digit): (usize, char)| {
            let settings = |secret_key| NodeSettings { secret_key, ..NodeSettings::default() };
            let mut node = fixtures::node(&format!("n{index}"), Resources::default());
            node.facts.settings = match digit {
                '?' => None,
                '-' => Some(settings(None)),
                _ => Some(settings(Some(key(digit).id().to_owned()))),
            };
            node
        };
        keys.chars().enumerate().map(node).collect()
    }

    #[test]
    fn a_key_that_differs_from_that_of_most_workers_is_a_problem_and_stores_nothing() {
        for (case, workers, own, problems, is_refused) in [
            ("no worker is known", "", Some('a'), &[][..], false),
            ("none has told", "??", Some('a'), &[], false),
            ("a node without secrets", "a-a", Some('a'), &[], false),
            ("all have the same", "aaa", Some('a'), &[], false),
            ("one worker has another", "aab", Some('a'), &["node n2 has the secret key"], false),
            ("the API has another", "aaa", Some('b'), &["this API has the secret key"], true),
            (
                "a machine has another file, for its worker and its API",
                "aab",
                Some('b'),
                &["node n2 has the secret key", "this API has the secret key"],
                true,
            ),
            ("which is right is unknown", "ab", Some('b'), &["node n0 has the secret key"], false),
            ("the API has none", "ab", None, &["node n1 has the secret key"], false),
            ("a new key, first half", "aba", Some('a'), &["node n1 has the secret key"], false),
            ("a new key, second half", "bba", Some('b'), &["node n2 has the secret key"], false),
            ("many", "aaaaaabbbbb", Some('a'), &["nodes n6, n7, n8 and 2 more have the secret key"], false),
        ] {
            let own = own.map(key);
            let keys = WorkerKeys::of(&nodes(workers), own.as_ref());
            let found = keys.problems(own.as_ref());
            assert_eq!(found.len(), problems.len(), "{case}: {found:?}");
            assert!(
                found.iter().zip(problems).all(|(line, start)| line.starts_with(start)),
                "{case}: {found:?}"
            );
            assert_eq!(own.is_some_and(|own| keys.check(&own).is_err()), is_refused, "{case}");
        }
        let mut dead = nodes("aab");
        dead.iter_mut().take(2).for_each(|node| node.state = NodeState::Dead);
        assert_eq!(WorkerKeys::of(&dead, None).most(), Some(key('b').id()), "a dead node reads nothing");
        let refused = WorkerKeys::of(&nodes("aa"), None).check(&key('b')).unwrap_err();
        let both = [key('a').id().to_owned(), key('b').id().to_owned()];
        assert!(both.iter().all(|id| refused.detail.contains(id)), "{}", refused.detail);
    }

    #[test]
    fn a_proxy_whose_key_differs_from_that_of_most_workers_is_a_problem() {
        let proxies = |keys: &str| -> BTreeMap<NodeName, String> {
            let proxy = |(index, digit): (usize, char)| {
                (NodeName::new(format!("n{index}")).unwrap(), key(digit).id().to_owned())
            };
            keys.chars().enumerate().map(proxy).collect()
        };
        for (workers, of_proxies, problems) in [
            ("aab", "aa", &[][..]),
            ("", "b", &[]),
            ("aa", "ab", &["the proxy of node n1 has the secret key"]),
            ("aa", "bbbb", &["the proxies of nodes n0, n1, n2 and 1 more have the secret key"]),
        ] {
            let found = WorkerKeys::of(&nodes(workers), None).problems_of_proxies(&proxies(of_proxies));
            assert_eq!(found.len(), problems.len(), "{workers} {of_proxies}: {found:?}");
            assert!(found.iter().zip(problems).all(|(line, start)| line.starts_with(start)), "{found:?}");
        }
    }

    #[test]
    fn what_is_restored_with_another_key_is_said() {
        let keys = WorkerKeys::of(&nodes("aa"), None);
        let [a, b] = ['a', 'b'].map(|digit| key(digit).id().to_owned());
        assert_eq!(keys.unreadable(std::slice::from_ref(&a)), [""; 0]);
        let said = keys.unreadable(&[a, b.clone(), b.clone()]);
        assert!(
            said.len() == 1 && said[0].starts_with("2 secrets and logins are encrypted with"),
            "{said:?}"
        );
        assert_eq!(WorkerKeys::of(&[], None).unreadable(&[b]), [""; 0]);
    }
}
