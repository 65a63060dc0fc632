//! The results of all faults, as a table and as JSON.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

#[derive(Debug, Clone, Default, Serialize)]
pub struct FaultResult {
    pub fault: String,
    pub injected: usize,
    /// 200, 201.
    pub acknowledged: u64,
    /// 202.
    pub stored: u64,
    pub unanswered: u64,
    pub lost: usize,
    /// Lost writes that were answered with 202.
    pub forgotten: u64,
    /// Pods that ran twice with valid leases.
    pub doubled: usize,
    /// `stop` pods that ran twice, once without a lease.
    pub stale: usize,
    pub unaccounted: usize,
    pub restarts: i64,
    /// In seconds.
    pub converged: f64,
    pub wrong: Vec<String>,
    #[serde(rename = "noticed")]
    pub is_loss_found: Option<bool>,
}

impl FaultResult {
    pub fn is_broken(&self) -> bool {
        if let Some(is_loss_found) = self.is_loss_found {
            return !is_loss_found;
        }
        self.lost + self.doubled + self.unaccounted > 0 || !self.wrong.is_empty()
    }

    pub fn aborted(part: &str) -> Self {
        let wrong = vec!["the part panicked; what it had found was printed before".to_owned()];
        Self { fault: format!("{part} aborted"), wrong, ..Self::default() }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            fault: self.fault,
            injected: self.injected + other.injected,
            acknowledged: self.acknowledged + other.acknowledged,
            stored: self.stored + other.stored,
            unanswered: self.unanswered + other.unanswered,
            lost: self.lost + other.lost,
            forgotten: self.forgotten + other.forgotten,
            doubled: self.doubled + other.doubled,
            stale: self.stale + other.stale,
            unaccounted: self.unaccounted + other.unaccounted,
            restarts: self.restarts + other.restarts,
            converged: self.converged.max(other.converged),
            wrong: [self.wrong, other.wrong].concat(),
            is_loss_found: None,
        }
    }

    fn failovers(&self) -> usize {
        let is_failover = FAILOVERS.iter().any(|name| self.fault.starts_with(name));
        if is_failover { self.injected } else { 0 }
    }

    fn kills(&self) -> usize {
        let is_kill = ["kill -9", "engine kill -9", "abort"].iter().any(|name| self.fault.starts_with(name));
        if is_kill { self.injected } else { 0 }
    }
}

const FAILOVERS: [&str; 5] = [
    "kill -9 master",
    "SENTINEL FAILOVER",
    "master cut off with clients",
    "SIGSTOP master",
    "failover under 50 POST/s",
];

pub fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../target").into()).join("chaos")
}

pub fn save(part: &str, results: &[FaultResult]) {
    let folder = folder();
    fs::create_dir_all(&folder).unwrap();
    let json = serde_json::to_vec_pretty(results).unwrap();
    fs::write(folder.join(format!("{part}.json")), json).unwrap();
    print_table(results);
}

/// Ablations do not count.
pub fn print_summary(results: &[FaultResult]) {
    let (faults, ablations): (Vec<FaultResult>, Vec<FaultResult>) =
        results.iter().cloned().partition(|result| result.is_loss_found.is_none());
    for results in [&faults, &ablations] {
        if !results.is_empty() {
            print_table(results);
        }
    }
    let failovers: usize = faults.iter().map(FaultResult::failovers).sum();
    let kills: usize = faults.iter().map(FaultResult::kills).sum();
    println!("\n{failovers} failovers, {kills} processes killed or aborted at a failpoint");
}

fn print_table(results: &[FaultResult]) {
    println!(
        "\n{:<56} {:>8} {:>6} {:>5} {:>9} {:>5} {:>8} {:>12} {:>9} {:>8} {:>10}",
        "fault",
        "injected",
        "201",
        "202",
        "no answer",
        "lost",
        "doubled",
        "unaccounted",
        "202 lost",
        "restarts",
        "converged"
    );
    results.iter().for_each(print_row);
    let all = FaultResult { fault: "all".to_owned(), ..FaultResult::default() };
    let sum = results.iter().cloned().fold(all, FaultResult::plus);
    print_row(&sum);
    let stored = sum.acknowledged + sum.stored;
    if stored > 0 {
        println!("202s: {:.1} % of the stored writes", 100.0 * sum.stored as f64 / stored as f64);
    }
    if sum.stale > 0 {
        println!("{} times a `stop` pod ran on without a lease while it ran elsewhere", sum.stale);
    }
    for result in results.iter().filter(|result| result.is_broken()) {
        println!("BROKEN: {}", result.fault);
        result.wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
    }
}

fn print_row(result: &FaultResult) {
    println!(
        "{:<56} {:>8} {:>6} {:>5} {:>9} {:>5} {:>8} {:>12} {:>9} {:>8} {:>8.1} s",
        result.fault,
        result.injected,
        result.acknowledged,
        result.stored,
        result.unanswered,
        result.lost,
        result.doubled,
        result.unaccounted,
        result.forgotten,
        result.restarts,
        result.converged
    );
}
