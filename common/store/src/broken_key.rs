//! Unreadable keys. Each harms only the object that it names.

use redis::Value;

use model::broken_key::BrokenKey;
use redis_link::StoreError;

use super::keys;
use model::ids::{NodeName, PodId, RegistryHost, ServiceName, ValueName};
use model::value::ValueKind;

/// Any program can write keys and problems.
const MAX_TEXT: usize = 300;

#[derive(Debug, Clone, Copy)]
pub enum RedisKey<'a> {
    Pod(&'a PodId),
    Node(&'a NodeName),
    Service(&'a ServiceName),
    Slots(&'a ServiceName),
    History(&'a ServiceName),
    Runs(&'a ServiceName),
    Done(&'a ServiceName),
    Value(ValueKind, &'a ValueName),
    Registry(&'a RegistryHost),
    Services,
    Pushed,
    Nodes,
    Schedulers,
    Unconfirmed,
}

impl RedisKey<'_> {
    fn name(self) -> String {
        match self {
            Self::Pod(id) => keys::pod(id),
            Self::Node(name) => keys::node(name),
            Self::Service(name) => keys::service(name),
            Self::Slots(service) => keys::slots(service),
            Self::History(service) => keys::history(service),
            Self::Runs(cron) => keys::runs(cron),
            Self::Done(job) => keys::done(job),
            Self::Value(kind, name) => keys::value(kind, name),
            Self::Registry(host) => keys::registry(host),
            Self::Services => keys::SERVICES.to_owned(),
            Self::Pushed => keys::PUSHED.to_owned(),
            Self::Nodes => keys::NODES.to_owned(),
            Self::Schedulers => keys::SCHEDULERS.to_owned(),
            Self::Unconfirmed => keys::UNCONFIRMED.to_owned(),
        }
    }

    pub fn broken(self, error: &StoreError) -> BrokenKey {
        new(self.name(), error)
    }
}

pub(crate) fn new(key: impl Into<String>, error: &StoreError) -> BrokenKey {
    let problem = match error {
        StoreError::WrongType { .. } => "its type is not the one that kubeleet uses".to_owned(),
        StoreError::Corrupt { why, .. } => why.clone(),
        other => other.to_string(),
    };
    BrokenKey { key: shortened(key.into()), problem: shortened(problem) }
}

/// Queues include the container set.
pub fn is_queue_of(broken: &BrokenKey, node: &NodeName) -> bool {
    [keys::pq(node), keys::rq(node), keys::cs(node)].contains(&broken.key)
}

/// Returns the default for a broken key, and adds it to `broken`.
///
/// # Errors
/// Errors that do not concern one key, see [`StoreError::is_broken_key`].
pub fn or_broken<T: Default>(
    read: Result<T, StoreError>,
    broken: &mut Vec<BrokenKey>,
    key: RedisKey<'_>,
) -> Result<T, StoreError> {
    unless_broken(read, broken, || key.name())
}

fn unless_broken<T: Default>(
    read: Result<T, StoreError>,
    broken: &mut Vec<BrokenKey>,
    key: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    match read {
        Err(error) if error.is_broken_key() => {
            broken.push(new(key(), &error));
            Ok(T::default())
        }
        read => read,
    }
}

/// Returns 0 for a broken key, and adds it to `broken`.
pub(crate) fn length_or_broken(
    reply: Result<Value, StoreError>,
    key: String,
    broken: &mut Vec<BrokenKey>,
) -> Result<u64, StoreError> {
    let length = reply.and_then(|reply| super::reply::read("reading a length", reply));
    unless_broken(length, broken, || key)
}

fn shortened(text: String) -> String {
    if text.chars().count() <= MAX_TEXT {
        return text;
    }
    let mut text: String = text.chars().take(MAX_TEXT).collect();
    text.push('…');
    text
}
