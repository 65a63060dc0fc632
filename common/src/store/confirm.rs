//! Writes of services that the replicas have not confirmed yet: what was answered with "stored, not yet confirmed" is
//! confirmed later, and an event says so.
//!
//! The script that writes a service notes the write in the same step, so whoever has the one has the other: a failover
//! that loses the write loses the note, and one that keeps it keeps both. A note goes when its very write is confirmed:
//! at once by its writer, as nearly always, or by the confirm loop of a scheduler, whatever became of the writer.

use std::time::Duration;

use redis::{Value, cmd};

use super::link::Durability;
use super::reply::{corrupt, read};
use super::scripts::{self, Call, call};
use super::{Store, StoreError, keys};
use crate::ids::{ServiceName, WriteId};

/// How long a write of desired state waits for the replicas before it is answered as "not yet confirmed".
const CONFIRM_WITHIN: Duration = Duration::from_millis(1000);
/// A younger write is its writer's own matter: he waits for the replicas, and then takes its note away.
const LEFT_BY_ITS_WRITER: Duration = Duration::from_secs(3);
/// An answer is not held up for longer by taking away its note; the confirm loop does it then.
const TIDIED_WITHIN: Duration = Duration::from_millis(250);
/// Notes that are looked at together.
const BATCH: usize = 500;

/// A write of a service that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Which write.
    pub id: WriteId,
    /// What is known of it.
    pub durability: Durability,
}

/// What has become of a write since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteState {
    /// The replicas have not confirmed it yet.
    Waiting,
    /// All that might become the master have it.
    Confirmed,
    /// A newer write took its place, or a failover lost it.
    Gone,
}

impl Store {
    /// Runs a script that writes a service and notes the write under `id`. The note goes when the replicas have it.
    pub(super) async fn write_service(
        &self,
        name: &ServiceName,
        id: WriteId,
        write: &Call<'_>,
    ) -> Result<(Value, Written), StoreError> {
        let (reply, _, written) = self.write_service_and(name, id, write, None).await?;
        Ok((reply, written))
    }

    /// The same with another script right behind it; its reply unless it failed.
    pub(super) async fn write_service_and(
        &self,
        name: &ServiceName,
        id: WriteId,
        write: &Call<'_>,
        also: Option<&Call<'_>>,
    ) -> Result<(Value, Option<Value>, Written), StoreError> {
        let (reply, also, durability) = self.link.durable_scripts(write, also, CONFIRM_WITHIN).await?;
        if let Some(message) = confirmation(durability) {
            let note = [(name.to_string(), id.to_string())];
            let tidy = self.settle("quiet", &message, &note);
            // It changes nothing about the answer. What is left is confirmed once more, and an event too many says so.
            let _left_to_the_loop = tokio::time::timeout(TIDIED_WITHIN, tidy).await;
        }
        Ok((reply, also, Written { id, durability }))
    }

    /// How many services have a write that the replicas have not confirmed, those of this moment included.
    pub async fn unconfirmed_writes(&self) -> Result<u64, StoreError> {
        self.link.query(cmd("HLEN").arg(keys::UNCONFIRMED)).await
    }

    /// Whether a write is confirmed by now.
    pub async fn write_state(&self, name: &ServiceName, id: &WriteId) -> Result<WriteState, StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(keys::UNCONFIRMED).arg(name.as_str());
        pipe.cmd("HGET").arg(keys::service(name)).arg("write");
        let (note, latest): (Option<String>, Option<String>) =
            read("reading what became of a write", self.link.pipeline(&pipe).await?)?;
        let noted = note.as_deref().and_then(|note| note.split(' ').next());
        let is_latest = latest.as_deref() == Some(id.as_str());
        Ok(match noted {
            Some(noted) if noted == id.as_str() => WriteState::Waiting,
            // One that repeated it, and changed nothing, stands for it.
            Some(_) if is_latest => WriteState::Waiting,
            None if is_latest => WriteState::Confirmed,
            _ => WriteState::Gone,
        })
    }

    /// Asks the replicas for the writes that nobody waits for any more, and tells of those that they have. Gives how many
    /// that were; there may be more.
    pub async fn confirm_writes(&self) -> Result<u64, StoreError> {
        let mut due = call(&scripts::writes_unconfirmed);
        due.key(keys::UNCONFIRMED).arg(LEFT_BY_ITS_WRITER.as_millis() as u64).arg(BATCH);
        let (reply, durability) = self.link.durable_script(&due, CONFIRM_WITHIN).await?;
        let notes = notes(read("reading unconfirmed writes", reply)?)?;
        match confirmation(durability) {
            Some(message) if !notes.is_empty() => self.settle("tell", &message, &notes).await,
            _ => Ok(0),
        }
    }

    async fn settle(&self, how: &str, message: &str, notes: &[(String, String)]) -> Result<u64, StoreError> {
        let mut settle = call(&scripts::writes_confirmed);
        settle.key(keys::UNCONFIRMED).arg(how).arg(message);
        for (name, id) in notes {
            settle.arg(name).arg(id);
        }
        read("confirming writes", self.link.script(&settle).await?)
    }
}

/// Names and ids in turn.
fn notes(words: Vec<Vec<u8>>) -> Result<Vec<(String, String)>, StoreError> {
    let text = |bytes: &Vec<u8>| {
        String::from_utf8(bytes.clone()).map_err(|error| corrupt("reading unconfirmed writes", error))
    };
    words.chunks_exact(2).map(|pair| Ok((text(&pair[0])?, text(&pair[1])?))).collect()
}

/// What is said of a write that is as durable as it can be; nothing of another.
fn confirmation(durability: Durability) -> Option<String> {
    match durability {
        Durability::Confirmed { replicas } => Some(format!(
            "what was wanted last is stored by {replicas} replicas now: a failover does not lose it"
        )),
        Durability::SingleMachine => {
            Some("what was wanted last is stored on one machine: Redis has no replicas any more".to_owned())
        }
        Durability::Unconfirmed { .. } => None,
    }
}
