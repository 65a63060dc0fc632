//! Marks about a rollout, in the hash of its service. A new generation need not remove them: each begins with
//! its generation.

use crate::reply::{HashFields, unexpected, word};
use crate::scripts::rollout_mark;
use crate::{Store, StoreError, keys};
use model::service::{RolloutMarks, Service};

const PAUSED_BY_HAND: &str = "paused by hand";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutMark<'a> {
    Paused(&'a str),
    /// Pauses later changes, too.
    PausedByHand,
    /// The text is empty if nothing is in the way.
    Held(&'a str),
    /// It continues even if pods are bad.
    Resumed,
    AtCanary(&'a str),
    Promoted,
    Settled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkOutcome {
    Marked,
    Same,
    Changed,
}

impl Store {
    pub async fn mark_rollout(
        &self,
        service: &Service,
        mark: RolloutMark<'_>,
    ) -> Result<MarkOutcome, StoreError> {
        let what = "noting how far a rollout is";
        let (mark, text) = match mark {
            RolloutMark::Paused(why) => ("paused", why),
            RolloutMark::PausedByHand => ("paused_by_hand", PAUSED_BY_HAND),
            RolloutMark::Held(why) => ("held", why),
            RolloutMark::Resumed => ("resumed", ""),
            RolloutMark::AtCanary(text) => ("canary", text),
            RolloutMark::Promoted => ("promoted", ""),
            // The first generation without a policy was no rollout.
            RolloutMark::Settled if service.generation == 1 && service.fields.update.is_none() => {
                ("settled", "")
            }
            RolloutMark::Settled => ("settled", "rollout"),
        };
        let call = rollout_mark::Head {
            service_key: keys::service(&service.name),
            service: &service.name,
            generation: service.generation,
            mark,
            text,
        }
        .call();
        match word(what, self.link.script(&call).await?)?.as_str() {
            "OK" => Ok(MarkOutcome::Marked),
            "SAME" => Ok(MarkOutcome::Same),
            "CHANGED" => Ok(MarkOutcome::Changed),
            other => Err(unexpected(what, other)),
        }
    }
}

pub(crate) fn rollout_marks(fields: &HashFields<'_>, generation: u64) -> RolloutMarks {
    let mark = |field: &str| {
        let text = fields.text(field);
        let (about, rest) = text.split_once(' ').unwrap_or((&text, ""));
        Some((about.parse::<u64>().ok()?, rest.to_owned()))
    };
    let current = |field: &str| mark(field).filter(|(about, _)| *about == generation).map(|(_, text)| text);
    let settled_fingerprint = mark("settled").map(|(_, fingerprint)| fingerprint);
    let settled_fingerprint = settled_fingerprint.filter(|text| !text.is_empty());
    let fingerprint = fields.text("fingerprint");
    RolloutMarks {
        paused: current("paused")
            .or_else(|| (fields.text("paused_by_hand") == "1").then(|| PAUSED_BY_HAND.to_owned())),
        held: current("held"),
        undone: current("undone").and_then(|from| from.parse().ok()),
        step: fields.text("step"),
        at_canary: current("canary"),
        is_promoted: current("promoted").is_some(),
        is_resumed: current("resumed").is_some(),
        is_settled: current("settled").is_some(),
        is_known_good: settled_fingerprint.as_deref() == fingerprint.rsplit(' ').next(),
        settled_fingerprint,
        rolled_back: mark("rolled_back").filter(|(about, _)| about.checked_add(1) == Some(generation)),
    }
}
