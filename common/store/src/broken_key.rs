//! Unreadable keys. Each harms only the object that it names.

use redis::Value;

use model::broken_key::BrokenKey;
use redis_link::StoreError;

use super::keys;
use model::ids::{NodeName, PodId, RegistryHost, ServiceName, ValueName};
use model::value::ValueKind;

/// Limits keys and problems, which any program can write.
const MAX_TEXT: usize = 300;

pub(crate) fn new(key: impl Into<String>, error: &StoreError) -> BrokenKey {
    let problem = match error {
        StoreError::WrongType { .. } => "its type is not the one that kubeleet uses".to_owned(),
        StoreError::Corrupt { why, .. } => why.clone(),
        other => other.to_string(),
    };
    BrokenKey { key: shortened(key.into()), problem: shortened(problem) }
}

/// Returns true if the key is a queue of this node, or its container set.
pub fn is_queue_of(broken: &BrokenKey, node: &NodeName) -> bool {
    [keys::pq(node), keys::rq(node), keys::cs(node)].contains(&broken.key)
}

/// Describes an unreadable record of a pod.
pub fn pod(id: &PodId, error: &StoreError) -> BrokenKey {
    new(keys::pod(id), error)
}

/// Describes an unreadable record of a node.
pub fn node(name: &NodeName, error: &StoreError) -> BrokenKey {
    new(keys::node(name), error)
}

/// Describes an unreadable record of a service.
pub fn service(name: &ServiceName, error: &StoreError) -> BrokenKey {
    new(keys::service(name), error)
}

/// Describes an unreadable record of a secret or config.
pub fn value(kind: ValueKind, name: &ValueName, error: &StoreError) -> BrokenKey {
    new(keys::value(kind, name), error)
}

/// Describes an unreadable login for a registry.
pub fn registry(host: &RegistryHost, error: &StoreError) -> BrokenKey {
    new(keys::registry(host), error)
}

/// Describes the unreadable slots of a service.
pub fn slots(name: &ServiceName, error: &StoreError) -> BrokenKey {
    new(keys::slots(name), error)
}

/// Describes the unreadable list of the jobs of a cron.
pub fn runs(cron: &ServiceName, error: &StoreError) -> BrokenKey {
    new(keys::runs(cron), error)
}

/// Describes the unreadable completions of a job.
pub fn done(job: &ServiceName, error: &StoreError) -> BrokenKey {
    new(keys::done(job), error)
}

/// Describes the unreadable history of a service.
pub fn history(name: &ServiceName, error: &StoreError) -> BrokenKey {
    new(keys::history(name), error)
}

/// Describes the unreadable set of the names of all services.
pub fn services(error: &StoreError) -> BrokenKey {
    new(keys::SERVICES, error)
}

/// Describes the unreadable set of pushed pods.
pub fn pushed(error: &StoreError) -> BrokenKey {
    new(keys::PUSHED, error)
}

/// Describes the unreadable set of the names of all nodes.
pub fn nodes(error: &StoreError) -> BrokenKey {
    new(keys::NODES, error)
}

/// Describes the unreadable set of schedulers.
pub fn schedulers(error: &StoreError) -> BrokenKey {
    new(keys::SCHEDULERS, error)
}

/// Describes the unreadable list of unconfirmed writes.
pub fn unconfirmed(error: &StoreError) -> BrokenKey {
    new(keys::UNCONFIRMED, error)
}

/// Returns the value that was read. If its key is broken, returns the default and adds the key to `broken`.
///
/// # Errors
/// Errors that do not concern one key, see [`StoreError::is_broken_key`].
pub fn or_broken<T: Default>(
    read: Result<T, StoreError>,
    broken: &mut Vec<BrokenKey>,
    describe: impl FnOnce(&StoreError) -> BrokenKey,
) -> Result<T, StoreError> {
    match read {
        Ok(value) => Ok(value),
        Err(error) if error.is_broken_key() => {
            broken.push(describe(&error));
            Ok(T::default())
        }
        Err(error) => Err(error),
    }
}

/// Reads the length of a key: 0 for a broken one, which is added to `broken`.
pub(crate) fn length_or_broken(
    reply: Result<Value, StoreError>,
    key: String,
    broken: &mut Vec<BrokenKey>,
) -> Result<u64, StoreError> {
    let length = reply.and_then(|reply| super::reply::read("reading a length", reply));
    or_broken(length, broken, |error| new(key, error))
}

fn shortened(text: String) -> String {
    if text.chars().count() <= MAX_TEXT {
        return text;
    }
    let mut text: String = text.chars().take(MAX_TEXT).collect();
    text.push('…');
    text
}
