//! The reaper and the other loops that put things back: deaths, drains, orphans, what did not fit.

use std::time::Duration;

use common::node::NodeState;
use common::store::{DeclareOutcome, DrainOutcome, Unpark};

use super::super::world::{DEAD, PAUSE, World};
use super::{Move, Process};

impl Process {
    /// What there is to put back. Each may be done without a cause as well.
    pub(super) fn chores(&self, world: &World<'_>, spurious: bool) -> Vec<(u64, Move)> {
        let mut moves = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            match node.state {
                // Redis believes the model: it is asked only when the model says that the node is silent for too long.
                NodeState::Alive if world.silence(&node.name) > DEAD => moves.push((4, Move::Declare(index))),
                NodeState::Alive => {}
                NodeState::Dead => {
                    let left = ["pq", "rq", "cs"]
                        .iter()
                        .any(|queue| !world.view.in_key(&format!("{queue}:{}", node.name)).is_empty());
                    moves.push((if left { 5 } else { u64::from(spurious) }, Move::Drain(index)));
                }
            }
        }
        for (index, (id, seen)) in world.schedulers.iter().enumerate() {
            let holds = !world.view.in_key(&format!("fq:{id}")).is_empty();
            if world.now > seen + DEAD && (holds || spurious) {
                moves.push((3, Move::Orphans(index)));
            }
        }
        moves
    }

    pub(super) async fn declare(&mut self, world: &mut World<'_>, index: usize) {
        let node = self.nodes[index].clone();
        let store = world.ground.store.clone();
        world.ground.let_time_pass().await;
        let pause = world.pause(PAUSE);
        let verb = store.declare_dead(&node, Duration::ZERO, pause, Duration::ZERO);
        let called = world.call(self.me, format!("declare {} dead", node.name), verb).await;
        world.stats.deaths += u64::from(called.done == Some(DeclareOutcome::Declared));
        if let Some(outcome) = called.heard() {
            world.note(format!("{outcome:?}"));
            self.looked_at = 0;
        }
    }

    pub(super) async fn drain(&mut self, world: &mut World<'_>, index: usize) {
        let node = self.nodes[index].clone();
        let store = world.ground.store.clone();
        let called = world.call(self.me, format!("drain {}", node.name), store.drain_step(&node)).await;
        if let Some(outcome) = called.done {
            world.put_sq_in_order().await;
            world.note(format!("{outcome:?}"));
            if outcome == DrainOutcome::Alive {
                self.looked_at = 0;
            }
        }
    }

    pub(super) async fn return_orphans(&mut self, world: &mut World<'_>, index: usize) {
        let id = world.schedulers[index].0.clone();
        let store = world.ground.store.clone();
        world.ground.let_time_pass().await;
        let most = world.random.between(1, 4) as usize;
        let verb = store.return_orphans(&id, Duration::ZERO, most);
        let called = world.call(self.me, format!("return orphans of scheduler {}", index + 1), verb).await;
        if let Some(count) = called.heard() {
            world.note(format!("{count:?}"));
        }
    }

    pub(super) async fn unpark(&mut self, world: &mut World<'_>) {
        let store = world.ground.store.clone();
        let called = world.call(self.me, "unpark", store.unpark(Unpark::All, 100)).await;
        // They wait for times of Redis' clock, which may be equal.
        world.put_sq_in_order().await;
        if let Some(count) = called.heard() {
            world.note(count);
        }
    }
}
