//! The checks, their due probes, and the effects of results. Pure: the caller has the clock.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use daemon::clock::BootInstant;
use model::pod::health::Health;
use model::spec::ProbeMethod;
use tokio::task::AbortHandle;

use super::judge::{HealthJudge, ProbeOutcome};
use super::{CheckKind, ContainerCheck, HealthChange};

/// A replacement has a new id, so that late results find nothing.
pub(super) type CheckId = u64;

/// Each lane has its own limit, so that hanging commands do not block connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Commands,
    Connections,
}

impl Lane {
    pub(super) const ALL: [Lane; 2] = [Lane::Commands, Lane::Connections];

    fn of(method: &ProbeMethod) -> Self {
        match method {
            ProbeMethod::Command(_) => Lane::Commands,
            ProbeMethod::Http(_) | ProbeMethod::Tcp(_) => Lane::Connections,
        }
    }
}

struct ScheduledCheck {
    check: Arc<ContainerCheck>,
    judge: HealthJudge,
    probe: Option<AbortHandle>,
}

impl Drop for ScheduledCheck {
    fn drop(&mut self) {
        if let Some(probe) = &self.probe {
            probe.abort();
        }
    }
}

#[derive(Default)]
pub(super) struct CheckSchedule {
    next_id: CheckId,
    ids: HashMap<(String, CheckKind), CheckId>,
    entries: HashMap<CheckId, ScheduledCheck>,
    due: BTreeSet<(BootInstant, CheckId)>,
    ready: [VecDeque<CheckId>; 2],
}

impl CheckSchedule {
    pub(super) fn set(&mut self, check: ContainerCheck, now: BootInstant) {
        let key = (check.handle.clone(), check.kind);
        let known = self.ids.get(&key).and_then(|id| self.entries.get(id));
        if known.is_some_and(|known| is_same(&known.check, &check)) {
            return;
        }
        self.remove_one(&key);
        self.next_id += 1;
        let id = self.next_id;
        let judge = HealthJudge::new(check.timing, check.started, check.health, now, spread(&key));
        self.due.insert((judge.due, id));
        self.ids.insert(key, id);
        self.entries.insert(id, ScheduledCheck { check: Arc::new(check), judge, probe: None });
    }

    pub(super) fn remove(&mut self, handle: &str) {
        for kind in [CheckKind::Healthcheck, CheckKind::Readiness] {
            self.remove_one(&(handle.to_owned(), kind));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        let gone = self.ids.keys().filter(|(handle, _)| !is_kept(handle));
        let gone: Vec<(String, CheckKind)> = gone.cloned().collect();
        gone.iter().for_each(|key| self.remove_one(key));
    }

    fn remove_one(&mut self, key: &(String, CheckKind)) {
        let Some(id) = self.ids.remove(key) else { return };
        if let Some(entry) = self.entries.remove(&id) {
            self.due.remove(&(entry.judge.due, id));
        }
    }

    #[cfg(test)]
    pub(super) fn judge(&self, handle: &str, kind: CheckKind) -> Option<&HealthJudge> {
        let id = self.ids.get(&(handle.to_owned(), kind))?;
        self.entries.get(id).map(|entry| &entry.judge)
    }

    pub(super) fn advance(&mut self, now: BootInstant) -> Option<BootInstant> {
        while let Some((due, id)) = self.due.first().copied() {
            if due > now {
                return Some(due);
            }
            self.due.pop_first();
            if let Some(entry) = self.entries.get(&id) {
                self.ready[Lane::of(&entry.check.method) as usize].push_back(id);
            }
        }
        None
    }

    pub(super) fn next(&mut self, lane: Lane) -> Option<(CheckId, Arc<ContainerCheck>)> {
        loop {
            let id = self.ready[lane as usize].pop_front()?;
            if let Some(entry) = self.entries.get(&id) {
                return Some((id, entry.check.clone()));
            }
        }
    }

    pub(super) fn begun(&mut self, id: CheckId, probe: AbortHandle) {
        match self.entries.get_mut(&id) {
            Some(entry) => entry.probe = Some(probe),
            None => probe.abort(),
        }
    }

    pub(super) fn ended(
        &mut self,
        id: CheckId,
        outcome: ProbeOutcome,
        begun: BootInstant,
        ended: BootInstant,
    ) -> Option<HealthChange> {
        let entry = self.entries.get_mut(&id)?;
        entry.probe = None;
        let change = entry.judge.observe(outcome, begun, ended);
        self.due.insert((entry.judge.due, id));
        Some(HealthChange {
            handle: entry.check.handle.clone(),
            kind: entry.check.kind,
            started: entry.check.started,
            change: change?,
            health: entry.judge.health,
            message: message(&entry.check, &entry.judge),
            at: ended,
        })
    }
}

/// The health known at its start is irrelevant.
fn is_same(one: &ContainerCheck, other: &ContainerCheck) -> bool {
    let ContainerCheck { handle, kind, method, timing, address, started, health: _ } = one;
    (handle, kind, method, timing, address, started)
        == (&other.handle, &other.kind, &other.method, &other.timing, &other.address, &other.started)
}

fn message(check: &ContainerCheck, judge: &HealthJudge) -> String {
    match (judge.health, &judge.last) {
        (_, Some(ProbeOutcome::Inconclusive(why))) => inconclusive(check, judge.inconclusive_in_row, why),
        (Health::Unhealthy, Some(ProbeOutcome::Failed(why))) => match judge.failed_in_row {
            1 => why.clone(),
            failures => format!("{why} ({failures} times in a row)"),
        },
        (Health::Starting, Some(ProbeOutcome::Failed(why))) => {
            format!("{why} ({} times)", judge.failed_since_start)
        }
        _ => String::new(),
    }
}

fn inconclusive(check: &ContainerCheck, probes: u32, why: &str) -> String {
    let kind = check.kind.as_str();
    let probes = if probes == 1 { "probe".to_owned() } else { format!("{probes} probes") };
    let advice = match Lane::of(&check.method) {
        Lane::Commands => {
            "see whether the container has this command, and whether the engine of its node answers"
        }
        Lane::Connections => "see whether its node is too busy, and whether the pod has an address there",
    };
    format!("the last {probes} of its {kind} had no result, so its health stays as it was: {why}; {advice}")
}

/// From 0 to 1: a thousand checks that begin together are probed one after another, and at the same times
/// after a restart of the worker.
fn spread(key: &(String, CheckKind)) -> f64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64
}
