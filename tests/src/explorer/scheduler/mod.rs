//! A scheduler, one call at a time: placing, and the chores of its control loops. All it knows may be old.

mod chores;
mod place;
mod reconcile;

use std::collections::{BTreeMap, VecDeque};

use common::ids::{PodId, SchedulerId};
use common::node::Node;
use common::store::SchedulerQueue;

use super::who::Who;
use super::world::World;
use reconcile::Action;

/// A scheduler and what of it survives a crash: nothing.
pub(super) struct Scheduler {
    me: Who,
    process: Option<Process>,
    down_until: u64,
}

struct Process {
    me: Who,
    id: SchedulerId,
    queue: Option<SchedulerQueue>,
    /// What it believes to have in hand.
    hand: Vec<Vec<u8>>,
    /// Something may be in its in-flight list that it does not know of.
    must_take: bool,
    /// When the master it knows became the master.
    master: Option<u64>,
    rejects: VecDeque<(Vec<u8>, Option<PodId>)>,
    nodes: Vec<Node>,
    looked_at: u64,
    actions: VecDeque<Action>,
    reconciled: BTreeMap<String, u64>,
}

enum Move {
    Take,
    Wait,
    Place,
    Reject,
    Look,
    Declare(usize),
    Drain(usize),
    Orphans(usize),
    Unpark,
    Act,
    Reconcile,
    Suspect,
}

impl Scheduler {
    pub(super) fn new(index: usize) -> Self {
        Self { me: Who::Scheduler(index), process: None, down_until: 0 }
    }

    pub(super) fn crash(&mut self, until: u64) {
        self.process = None;
        self.down_until = until;
    }

    pub(super) async fn step(&mut self, world: &mut World<'_>) {
        if self.process.is_none() {
            if world.now < self.down_until && !world.settles {
                return;
            }
            let id = SchedulerId::random();
            world.schedulers.push((id.clone(), world.now));
            self.process = Some(Process {
                me: self.me,
                id,
                queue: None,
                hand: Vec::new(),
                must_take: true,
                master: None,
                rejects: VecDeque::new(),
                nodes: Vec::new(),
                looked_at: 0,
                actions: VecDeque::new(),
                reconciled: BTreeMap::new(),
            });
        }
        if let Some(process) = &mut self.process {
            process.step(world).await;
        }
    }
}

impl Process {
    async fn step(&mut self, world: &mut World<'_>) {
        if self.master != world.master_changed {
            // A failover breaks its connections; then it takes before it waits again, and is known again.
            self.master = world.master_changed;
            (self.queue, self.must_take) = (None, true);
        }
        let moves = self.moves(world);
        match world.random.weighted(moves) {
            None => {}
            Some(Move::Take) => self.take(world).await,
            Some(Move::Wait) => self.wait(world).await,
            Some(Move::Place) => self.place(world).await,
            Some(Move::Reject) => self.reject(world).await,
            Some(Move::Look) => self.look(world).await,
            Some(Move::Declare(index)) => self.declare(world, index).await,
            Some(Move::Drain(index)) => self.drain(world, index).await,
            Some(Move::Orphans(index)) => self.return_orphans(world, index).await,
            Some(Move::Unpark) => self.unpark(world).await,
            Some(Move::Act) => self.act(world).await,
            Some(Move::Reconcile) => self.reconcile(world).await,
            Some(Move::Suspect) => self.suspect(world).await,
        }
    }

    /// What it may do next. Now and then things are done without a cause: hints come late and twice.
    fn moves(&self, world: &mut World<'_>) -> Vec<(u64, Move)> {
        let spurious = world.random.per_mille(20);
        let some =
            |wanted: bool, weight: u64, then: Move| (if wanted || spurious { weight } else { 0 }, then);
        let waiting = !world.view.in_key("sq").is_empty();
        let mut moves = vec![
            some(waiting || self.must_take, 6, Move::Take),
            (if waiting && !self.must_take { 2 } else { 0 }, Move::Wait),
            some(!self.hand.is_empty(), 8, Move::Place),
            some(!self.rejects.is_empty(), 4, Move::Reject),
            some(world.now > self.looked_at + 50, 3, Move::Look),
            some(!world.view.in_key("uq").is_empty(), 1, Move::Unpark),
            some(!self.actions.is_empty(), 8, Move::Act),
            some(self.is_reconcile_due(world), 3, Move::Reconcile),
            (1, Move::Suspect),
        ];
        moves.extend(self.chores(world, spurious));
        moves
    }

    async fn look(&mut self, world: &mut World<'_>) {
        let store = world.ground.store.clone();
        let read = async {
            let names = store.node_names().await?;
            store.nodes(&names).await
        };
        if let Some(nodes) = world.call(self.me, "look at the nodes", read).await.heard() {
            self.nodes = nodes;
            self.looked_at = world.now;
        }
    }
}
