//! Writes of services that the replicas have not confirmed yet; an event announces the confirmation.
//!
//! The script that writes a service also adds a note, so a failover loses both or none. The writer or the
//! confirm loop removes it.

use std::time::Duration;

use redis::{Value, cmd};

use crate::reply::read;
use crate::scripts::{Call, writes_confirmed, writes_unconfirmed};
use crate::{Store, StoreError, keys};
use model::ids::{ServiceName, WriteId};
use redis_link::Durability;

pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_millis(1000);
/// The writers of younger writes still wait.
const MIN_AGE: Duration = Duration::from_secs(3);
const REMOVE_NOTE_TIMEOUT: Duration = Duration::from_millis(250);
const BATCH: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteReceipt {
    pub id: WriteId,
    pub durability: Durability,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteState {
    Waiting,
    Confirmed,
    /// A newer write replaced it, or a failover lost it.
    Gone,
}

impl Store {
    /// Runs a script that notes the write under `id`, and removes the note once the write is confirmed.
    pub(crate) async fn write_service(
        &self,
        name: &ServiceName,
        id: WriteId,
        write: &Call<'_>,
    ) -> Result<(Value, WriteReceipt), StoreError> {
        let (reply, _, receipt) = self.write_service_and(name, id, write, None).await?;
        Ok((reply, receipt))
    }

    /// Runs `also` in the same pipeline. Returns its reply, unless it failed.
    pub(crate) async fn write_service_and(
        &self,
        name: &ServiceName,
        id: WriteId,
        write: &Call<'_>,
        also: Option<&Call<'_>>,
    ) -> Result<(Value, Option<Value>, WriteReceipt), StoreError> {
        let (reply, also, durability) =
            self.link.durable_scripts(write, also.map(|call| &**call), CONFIRM_TIMEOUT).await?;
        if let Some(message) = confirmation(durability) {
            let notes = [(name.to_string(), id.to_string())];
            let remove_note = self.remove_notes("owed", &message, &notes);
            // If this fails, the confirm loop confirms the write again, with an event.
            let _left_to_the_loop = tokio::time::timeout(REMOVE_NOTE_TIMEOUT, remove_note).await;
        }
        Ok((reply, also, WriteReceipt { id, durability }))
    }

    pub async fn unconfirmed_writes(&self) -> Result<u64, StoreError> {
        self.link.query(cmd("HLEN").arg(keys::UNCONFIRMED)).await
    }

    /// Counts at most 500.
    pub async fn lasting_unconfirmed_writes(&self, min_age: Duration) -> Result<u64, StoreError> {
        let sample = cmd("HRANDFIELD").arg(keys::UNCONFIRMED).arg(BATCH).arg("WITHVALUES").clone();
        let noted: Vec<Vec<u8>> = self.link.query(&sample).await?;
        if noted.is_empty() {
            return Ok(0);
        }
        let now = self.redis_now().await?;
        let is_old = |(_, note): &(String, String)| {
            let at = note.split(' ').nth(1).and_then(|at| at.parse::<u64>().ok()).unwrap_or(0);
            Duration::from_millis(now.saturating_sub(at)) >= min_age
        };
        Ok(notes(noted).iter().filter(|note| is_old(note)).count() as u64)
    }

    pub async fn write_state(&self, name: &ServiceName, id: &WriteId) -> Result<WriteState, StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(keys::UNCONFIRMED).arg(name.as_str());
        pipe.cmd("HGET").arg(keys::service(name)).arg("write");
        let (note, latest): (Option<String>, Option<String>) =
            read("reading the state of a write", self.link.pipeline(&pipe).await?)?;
        let noted = note.as_deref().and_then(|note| note.split(' ').next());
        let is_latest = latest.as_deref() == Some(id.as_str());
        Ok(match noted {
            Some(noted) if noted == id.as_str() => WriteState::Waiting,
            // A later write repeated this one and changed nothing: its note stands for both.
            Some(_) if is_latest => WriteState::Waiting,
            None if is_latest => WriteState::Confirmed,
            _ => WriteState::Gone,
        })
    }

    /// Confirms writes whose writers no longer wait. Returns their number; more may be left.
    pub async fn confirm_writes(&self) -> Result<u64, StoreError> {
        let unconfirmed = writes_unconfirmed::Head {
            unconfirmed: keys::UNCONFIRMED,
            min_age_ms: MIN_AGE,
            max_count: BATCH,
        };
        let (reply, durability) = self.link.durable_script(&unconfirmed.call(), CONFIRM_TIMEOUT).await?;
        let notes = notes(read("reading unconfirmed writes", reply)?);
        match confirmation(durability) {
            Some(message) if !notes.is_empty() => self.remove_notes("all", &message, &notes).await,
            _ => Ok(0),
        }
    }

    /// `announce` is `all`, or `owed` for services with an earlier unconfirmed write only: this writer learns
    /// its own from the reply.
    async fn remove_notes(
        &self,
        announce: &str,
        message: &str,
        notes: &[(String, String)],
    ) -> Result<u64, StoreError> {
        let mut call = writes_confirmed::Head { unconfirmed: keys::UNCONFIRMED, announce, message }.call();
        for (service, write) in notes {
            call.add(writes_confirmed::Write { service, write });
        }
        read("confirming writes", self.link.script(&call).await?)
    }
}

fn notes(words: Vec<Vec<u8>>) -> Vec<(String, String)> {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
    words.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
}

fn confirmation(durability: Durability) -> Option<String> {
    match durability {
        Durability::Confirmed { replicas } => {
            Some(format!("the last write is stored on {replicas} replicas now: it survives a failover"))
        }
        Durability::SingleMachine => {
            Some("the last write is stored on one machine: Redis has no replicas any more".to_owned())
        }
        Durability::Unconfirmed { .. } => None,
    }
}
