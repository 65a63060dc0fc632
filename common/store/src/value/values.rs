//! Secrets and configs: named values with versions. Secrets arrive here encrypted.

use redis::{Value, cmd};

use crate::loaded::{Loaded, fields};
use crate::reply::{corrupt, parse, read, sorted_names, unexpected, verdict, word};
use crate::scripts::{value_delete, value_put};
use crate::service::confirm::CONFIRM_TIMEOUT;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{AppName, ValueName};
use model::value::{KEPT_VERSIONS, StoredValue, ValueInfo, ValueKind};
use redis_link::Durability;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutValueOutcome {
    Stored,
    /// The reply to an earlier call was lost.
    Same,
    /// Another version is the current one; 0 if the value does not exist.
    Conflict {
        current: u64,
    },
    Full {
        count: u64,
    },
    OtherApp {
        owner: Option<AppName>,
    },
}

impl Store {
    /// Version 1 creates a value; any other one must be the next. With an app, a new value becomes part of
    /// it, and an existing one must belong to it.
    ///
    /// # Errors
    /// An unconfirmed write is not an error: see the durability.
    pub async fn put_value(
        &self,
        value: &StoredValue,
        max_count: u64,
        app: Option<&AppName>,
    ) -> Result<(PutValueOutcome, Durability), StoreError> {
        let what = "storing a secret or config";
        let put = value_put::Head {
            value_key: keys::value(value.kind(), value.name()),
            names: keys::value_names(value.kind()),
            rollouts: keys::ROLLOUTS,
            kind: title(value.kind()),
            name: value.name(),
            version: value.version(),
            value: value.bytes(),
            kept: KEPT_VERSIONS,
            max_count,
            app,
        };
        let (reply, _, durability) = self.link.durable_scripts(&put.call(), None, CONFIRM_TIMEOUT).await?;
        let (answer, rest) = verdict(what, reply)?;
        let outcome = match (answer.as_str(), rest.into_iter().next()) {
            ("OK", _) => PutValueOutcome::Stored,
            ("SAME", _) => PutValueOutcome::Same,
            ("CONFLICT", Some(current)) => PutValueOutcome::Conflict { current: read(what, current)? },
            ("FULL", Some(count)) => PutValueOutcome::Full { count: read(what, count)? },
            ("OTHER_APP", Some(owner)) => {
                let owner: String = read(what, owner)?;
                PutValueOutcome::OtherApp { owner: AppName::new(owner).ok() }
            }
            (other, _) => return Err(unexpected(what, other)),
        };
        Ok((outcome, durability))
    }

    pub async fn delete_value(
        &self,
        kind: ValueKind,
        name: &ValueName,
    ) -> Result<(bool, Durability), StoreError> {
        let delete = value_delete::Head {
            value_key: keys::value(kind, name),
            names: keys::value_names(kind),
            rollouts: keys::ROLLOUTS,
            kind: title(kind),
            name,
        };
        let (reply, _, durability) = self.link.durable_scripts(&delete.call(), None, CONFIRM_TIMEOUT).await?;
        Ok((word("deleting a secret or config", reply)? == "OK", durability))
    }

    pub async fn value_names(&self, kind: ValueKind) -> Result<Vec<ValueName>, StoreError> {
        let prefix = format!("{kind}:");
        Ok(sorted_names(self.members_or_records(keys::value_names(kind), &prefix).await?))
    }

    /// Leaves the content out.
    pub async fn value_info(
        &self,
        kind: ValueKind,
        name: &ValueName,
    ) -> Result<Option<ValueInfo>, StoreError> {
        self.value_infos(kind, std::slice::from_ref(name)).await?.only()
    }

    /// Leaves the contents out.
    pub async fn value_infos(
        &self,
        kind: ValueKind,
        names: &[ValueName],
    ) -> Result<Loaded<ValueInfo>, StoreError> {
        let get = |name: &ValueName| {
            fields(keys::value(kind, name), &["current", "created_at", "updated_at", "app"])
        };
        self.load(names, get, |name, reply| read_info(kind, name, reply)).await
    }

    pub async fn current_value(
        &self,
        kind: ValueKind,
        name: &ValueName,
    ) -> Result<Option<StoredValue>, StoreError> {
        let Some(ValueInfo { version, .. }) = self.value_info(kind, name).await? else { return Ok(None) };
        // Earlier versions are kept, if the value is rotated meanwhile.
        let mut get = cmd("HGET");
        get.arg(keys::value(kind, name)).arg(format!("v:{version}"));
        let bytes: Option<Vec<u8>> = self.link.query(&get).await?;
        Ok(bytes.map(|bytes| StoredValue::new(kind, name.clone(), version, bytes)))
    }
}

/// Used in the reasons of events.
pub(crate) fn title(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Secret => "Secret",
        ValueKind::Config => "Config",
    }
}

fn read_info(kind: ValueKind, name: &ValueName, reply: Value) -> Result<Option<ValueInfo>, StoreError> {
    let what = format!("the {kind} {name}");
    let fields: Vec<Option<Vec<u8>>> = read(&what, reply)?;
    let number = |index: usize, field: &str| -> Result<Option<u64>, StoreError> {
        let Some(text) = fields.get(index).cloned().flatten() else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| corrupt(&what, format!("{field} is not a number")))
    };
    let Some(version) = number(0, "current")? else { return Ok(None) };
    let created_at: RedisMillis = number(1, "created_at")?.unwrap_or_default();
    let updated_at: RedisMillis = number(2, "updated_at")?.unwrap_or_default();
    let app = fields.get(3).and_then(|app| parse(app.as_deref()?));
    Ok(Some(ValueInfo { name: name.clone(), version, created_at, updated_at, app }))
}
