//! One fault at a time on one stack: load, fault, no more load, and then everything has to become what was acknowledged.

use std::time::{Duration, Instant};

use kubeleet_tests::Keyspace;
use kubeleet_tests::book::Answers;
use kubeleet_tests::invariants::violations;

use crate::load::Load;
use crate::report::Row;
use crate::stack::{Plan, Stack};
use crate::watch::{Sightings, Watch};

/// How long everything may take to become right again: a change of master pauses declarations of death for 30 s.
const REST: Duration = Duration::from_secs(75);
/// What took longer than this is worth a word.
const SLOW: Duration = Duration::from_secs(8);
/// Load before the first and after each injection.
const BREATH: Duration = Duration::from_millis(700);

/// A stack under load, and what was found.
pub struct Arena {
    /// The stack.
    pub stack: Stack,
    /// Who writes.
    pub load: Load,
    watch: Watch,
    /// How long everything may take to become right again.
    pub rest: Duration,
    /// The results so far.
    pub rows: Vec<Row>,
    restarts: i64,
}

/// Counts at the beginning of a round.
struct Before {
    at: Instant,
    answers: Answers,
    sightings: Sightings,
}

impl Arena {
    /// A stack at rest.
    pub async fn new(plan: Plan, seed: u64) -> Self {
        let stack = Stack::start(plan).await;
        let load = Load::new(stack.https(), seed);
        let watch = Watch::over(&stack);
        Self { stack, load, watch, rest: REST, rows: Vec::new(), restarts: 0 }
    }

    /// Injects a fault `times` times under load, each with a breath after it, and judges what becomes of it together.
    pub async fn round(&mut self, fault: &str, times: usize, mut inject: impl AsyncFnMut(&mut Stack, usize)) {
        let before = self.begin();
        tokio::time::sleep(BREATH).await;
        for number in 0..times {
            inject(&mut self.stack, number).await;
            tokio::time::sleep(BREATH).await;
        }
        self.end(fault, times, before).await;
    }

    /// The same with a judgement after each injection, for what takes its time; one row for all.
    pub async fn rounds(
        &mut self,
        fault: &str,
        times: usize,
        mut inject: impl AsyncFnMut(&mut Stack, usize),
    ) {
        let begun = self.rows.len();
        for number in 0..times {
            self.round(fault, 1, async |stack: &mut Stack, _| inject(stack, number).await).await;
        }
        let row = self.rows.drain(begun..).reduce(together);
        self.rows.extend(row);
    }

    fn begin(&self) -> Before {
        self.load.go();
        Before { at: Instant::now(), answers: self.load.answers(), sightings: self.watch.sightings() }
    }

    async fn end(&mut self, fault: &str, times: usize, before: Before) {
        let ended = Instant::now();
        self.load.pause().await;
        let (rested, missing) = self.stack.comes_to_rest(self.rest).await;
        let converged = ended.elapsed();
        let answers = self.load.answers().since(before.answers);
        let sightings = self.watch.sightings();
        let mut row = Row {
            fault: fault.to_owned(),
            injected: times,
            acknowledged: answers.durable,
            stored: answers.stored,
            unanswered: answers.unknown,
            doubled: sightings.doubled - before.sightings.doubled,
            stale: sightings.stale - before.sightings.stale,
            converged: converged.as_secs_f64(),
            ..Row::default()
        };
        if row.doubled > 0 {
            row.wrong.extend(self.watch.doubled());
        }
        match rested {
            Some(keyspace) => self.audit(&mut row, &keyspace),
            None => {
                row.wrong.push(format!("not at rest within {:?}", self.rest));
                row.wrong.extend(missing.iter().cloned());
                if let Some(keyspace) = self.stack.trio.keyspace().await {
                    self.audit(&mut row, &keyspace);
                }
            }
        }
        println!(
            "{:<34} x{:<3} {:>5.1} s under way, {:>5.1} s until converged{}",
            row.fault,
            row.injected,
            (ended - before.at).as_secs_f64(),
            row.converged,
            if row.broken() { "  LOSSES" } else { "" }
        );
        if converged > SLOW {
            missing.iter().take(3).for_each(|missing| println!("    missing last: {missing:.160}"));
        }
        if row.broken() {
            let logs = self.stack.keep_logs(&fault.replace([' ', ','], "-"));
            row.wrong.push(format!("logs are in {}", logs.display()));
        }
        self.rows.push(row);
    }

    fn audit(&mut self, row: &mut Row, keyspace: &Keyspace) {
        let audit = self.load.book().audit(keyspace);
        row.lost = audit.lost.len();
        row.forgotten = audit.forgotten;
        row.wrong.extend(audit.lost);
        let unaccounted = violations(keyspace);
        row.unaccounted = unaccounted.len();
        row.wrong.extend(unaccounted);
        let restarts: i64 = keyspace
            .below("pod:")
            .filter_map(|(id, _)| keyspace.field(&format!("pod:{id}"), "restarts").parse::<i64>().ok())
            .sum();
        row.restarts = (restarts - self.restarts).max(0);
        self.restarts = restarts;
    }
}

fn together(one: Row, other: Row) -> Row {
    Row {
        fault: one.fault,
        injected: one.injected + other.injected,
        acknowledged: one.acknowledged + other.acknowledged,
        stored: one.stored + other.stored,
        unanswered: one.unanswered + other.unanswered,
        lost: one.lost + other.lost,
        forgotten: one.forgotten + other.forgotten,
        doubled: one.doubled + other.doubled,
        stale: one.stale + other.stale,
        unaccounted: one.unaccounted + other.unaccounted,
        restarts: one.restarts + other.restarts,
        converged: one.converged.max(other.converged),
        wrong: [one.wrong, other.wrong].concat(),
        noticed: None,
    }
}
