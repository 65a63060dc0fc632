//! Injects one fault at a time under load, and checks that the stack converges to exactly the acknowledged
//! writes.

use std::time::{Duration, Instant};

use kubeleet_tests::Keyspace;
use kubeleet_tests::invariants::violations;
use kubeleet_tests::journal::WriteAnswers;

use crate::load::Load;
use crate::monitor::{DoubleRunCounts, DoubleRunMonitor};
use crate::report::FaultResult;
use crate::stack::{Stack, StackOptions};

/// After a change of master no node is declared dead for 30 s.
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(75);
const SLOW_CONVERGENCE: Duration = Duration::from_secs(8);
const LOAD_TIME: Duration = Duration::from_millis(700);

pub struct FaultRunner {
    pub stack: Stack,
    pub load: Load,
    monitor: DoubleRunMonitor,
    pub convergence_limit: Duration,
    pub results: Vec<FaultResult>,
    restarts: i64,
}

struct RoundStart {
    at: Instant,
    answers: WriteAnswers,
    double_runs: DoubleRunCounts,
}

impl FaultRunner {
    pub async fn new(options: StackOptions, seed: u64) -> Self {
        let stack = Stack::start(options).await;
        let load = Load::new(stack.https(), seed);
        let monitor = DoubleRunMonitor::start(&stack);
        let (results, restarts) = (Vec::new(), 0);
        Self { stack, load, monitor, convergence_limit: CONVERGENCE_LIMIT, results, restarts }
    }

    pub async fn round(&mut self, fault: &str, times: usize, mut inject: impl AsyncFnMut(&mut Stack, usize)) {
        let start = self.begin_round();
        tokio::time::sleep(LOAD_TIME).await;
        for number in 0..times {
            inject(&mut self.stack, number).await;
            tokio::time::sleep(LOAD_TIME).await;
        }
        self.end_round(fault, times, start).await;
    }

    /// Adds one result for all.
    pub async fn rounds(
        &mut self,
        fault: &str,
        times: usize,
        mut inject: impl AsyncFnMut(&mut Stack, usize),
    ) {
        let first = self.results.len();
        for number in 0..times {
            self.round(fault, 1, async |stack: &mut Stack, _| inject(stack, number).await).await;
        }
        let sum = self.results.drain(first..).reduce(FaultResult::plus);
        self.results.extend(sum);
    }

    /// The client is paused during the fault.
    pub async fn rests(&mut self, fault: &str, times: usize, mut inject: impl AsyncFnMut(&mut Stack, usize)) {
        let first = self.results.len();
        for number in 0..times {
            let start = self.begin_round();
            tokio::time::sleep(LOAD_TIME).await;
            self.load.pause().await;
            inject(&mut self.stack, number).await;
            self.load.resume();
            tokio::time::sleep(LOAD_TIME).await;
            self.end_round(fault, 1, start).await;
        }
        let sum = self.results.drain(first..).reduce(FaultResult::plus);
        self.results.extend(sum);
    }

    fn begin_round(&self) -> RoundStart {
        self.load.resume();
        RoundStart { at: Instant::now(), answers: self.load.answers(), double_runs: self.monitor.counts() }
    }

    async fn end_round(&mut self, fault: &str, times: usize, start: RoundStart) {
        let ended = Instant::now();
        self.load.pause().await;
        let (keyspace, missing) = self.stack.wait_until_converged(self.convergence_limit).await;
        let convergence = ended.elapsed();
        let answers = self.load.answers().since(start.answers);
        let double_runs = self.monitor.counts();
        let mut result = FaultResult {
            fault: fault.to_owned(),
            injected: times,
            acknowledged: answers.durable,
            stored: answers.stored,
            unanswered: answers.unknown,
            doubled: double_runs.doubled - start.double_runs.doubled,
            stale: double_runs.stale - start.double_runs.stale,
            converged: convergence.as_secs_f64(),
            ..FaultResult::default()
        };
        if result.doubled > 0 {
            result.wrong.extend(self.monitor.describe_doubled());
        }
        match keyspace {
            Some(keyspace) => self.audit(&mut result, &keyspace),
            None => {
                result.wrong.push(format!("not converged within {:?}", self.convergence_limit));
                result.wrong.extend(missing.iter().cloned());
                if let Some(keyspace) = self.stack.trio.keyspace().await {
                    self.audit(&mut result, &keyspace);
                }
            }
        }
        println!(
            "{:<34} x{:<3} {:>5.1} s of faults, {:>5.1} s until converged{}",
            result.fault,
            result.injected,
            (ended - start.at).as_secs_f64(),
            result.converged,
            if result.is_broken() { "  BROKEN" } else { "" }
        );
        if convergence > SLOW_CONVERGENCE {
            missing.iter().take(3).for_each(|missing| println!("    converged last: {missing:.160}"));
        }
        if result.is_broken() {
            let logs = self.stack.keep_logs(&fault.replace([' ', ','], "-"));
            result.wrong.push(format!("logs are in {}", logs.display()));
        }
        self.results.push(result);
    }

    fn audit(&mut self, result: &mut FaultResult, keyspace: &Keyspace) {
        let audit = self.load.journal().audit(keyspace);
        result.lost = audit.lost.len();
        result.forgotten = audit.forgotten;
        result.wrong.extend(audit.lost);
        let unaccounted = violations(keyspace);
        result.unaccounted = unaccounted.len();
        result.wrong.extend(unaccounted);
        let restarts: i64 = keyspace
            .below("pod:")
            .filter_map(|(id, _)| keyspace.field(&format!("pod:{id}"), "restarts").parse::<i64>().ok())
            .sum();
        result.restarts = (restarts - self.restarts).max(0);
        self.restarts = restarts;
    }
}
