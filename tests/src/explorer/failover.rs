//! Failovers: a replica that has fallen behind becomes the master, and what it had not got is lost.

use std::collections::BTreeMap;

use super::ground::Copy;
use super::view::View;
use super::world::World;

/// A copy of Redis, and what was promised then.
pub(super) struct Past {
    copy: Copy,
    view: View,
    beats: BTreeMap<String, u64>,
    step: u64,
    unsure: Option<String>,
}

impl World<'_> {
    pub(super) async fn remember(&mut self, step: u64, unsure: Option<String>) {
        let copy = self.ground.copy().await;
        let view = self.view.clone();
        self.past = Some(Past { copy, view, beats: self.beats.clone(), step, unsure });
        self.say("redis", "from here on nothing reaches the replica");
    }

    /// Whether a failover now would undo that some pod runs as it does.
    pub(super) fn would_lose_a_start(&self) -> bool {
        let Some(past) = &self.past else { return false };
        let mut running = self.view.pods.iter().filter(|(_, pod)| pod.phase == "running");
        running.any(|(uuid, pod)| past.view.pods.get(uuid).is_none_or(|old| old.assignment != pod.assignment))
    }

    /// The master dies, and the replica takes over: what it had not got is lost.
    pub(super) async fn fail_over(&mut self, unsure: Option<&str>) {
        let Some(past) = self.past.take() else { return };
        self.ground.fail_over_to(&past.copy).await;
        self.beats = past.beats;
        self.master_changed = Some(self.now);
        self.stats.failovers += 1;
        self.say("redis", "FAILOVER: the replica takes over");
        self.seen = self.ground.look().await;
        self.view = View::of(&self.seen);
        let known = self.names.all();
        self.wishes.roll_back(past.step, past.unsure.as_deref(), &self.view, &mut self.heads, known.clone());
        self.wishes.roll_back(past.step, unsure, &self.view, &mut self.heads, known);
    }
}
