//! The table, and the same as JSON.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

/// One fault.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Row {
    /// What was done.
    pub fault: String,
    /// How often.
    pub injected: usize,
    /// Writes that were answered as durable meanwhile (200, 201).
    pub acknowledged: u64,
    /// Writes that were answered with 202.
    pub stored: u64,
    /// Writes without an answer, or with an error.
    pub unanswered: u64,
    /// Services that are not what a durable answer said.
    pub lost: usize,
    /// 202s that came to nothing.
    pub forgotten: u64,
    /// Pods that ran twice under good leases.
    pub doubled: usize,
    /// `stop` pods that ran twice, once without a lease.
    pub stale: usize,
    /// Payloads that are not in just one place, accounts that do not add up.
    pub unaccounted: usize,
    /// Containers that were started again, as their pods' records say.
    pub restarts: i64,
    /// From the end of the fault until everything was as it should be, the longest, seconds.
    pub converged: f64,
    /// What is wrong, in words.
    pub wrong: Vec<String>,
    /// For an ablation: whether it showed the loss that it has to show.
    pub noticed: Option<bool>,
}

impl Row {
    /// Whether a promise was broken; of an ablation, whether nobody noticed.
    pub fn broken(&self) -> bool {
        if let Some(noticed) = self.noticed {
            return !noticed;
        }
        self.lost + self.doubled + self.unaccounted > 0 || !self.wrong.is_empty()
    }

    /// Of a part that ended early, by a panic: what it says was printed.
    pub fn broken_off(part: &str) -> Self {
        let wrong = vec!["it broke off; what it has found was printed before".to_owned()];
        Self { fault: format!("{part} broke off"), wrong, ..Self::default() }
    }

    /// How often another Redis became the master by it.
    fn failovers(&self) -> usize {
        let is_one = FAILOVERS.iter().any(|name| self.fault.starts_with(name));
        if is_one { self.injected } else { 0 }
    }

    /// How many processes were killed, or ended themselves at a step.
    fn kills(&self) -> usize {
        let is_one = ["kill -9", "engine kill -9", "abort"].iter().any(|name| self.fault.starts_with(name));
        if is_one { self.injected } else { 0 }
    }
}

/// What makes another Redis the master each time.
const FAILOVERS: [&str; 5] = [
    "kill -9 master",
    "SENTINEL FAILOVER",
    "master cut off with clients",
    "SIGSTOP master",
    "failover under 50 POST/s",
];

/// Where results are left.
pub fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../target").into()).join("chaos")
}

/// Leaves the results of a part, and prints them.
pub fn leave(part: &str, rows: &[Row]) {
    let folder = folder();
    fs::create_dir_all(&folder).unwrap();
    let json = serde_json::to_vec_pretty(rows).unwrap();
    fs::write(folder.join(format!("{part}.json")), json).unwrap();
    print(rows);
}

/// Prints all of it once more: faults, and ablations, which are no part of the sum.
pub fn sum_up(rows: &[Row]) {
    let (faults, ablations): (Vec<Row>, Vec<Row>) =
        rows.iter().cloned().partition(|row| row.noticed.is_none());
    for rows in [&faults, &ablations] {
        if !rows.is_empty() {
            print(rows);
        }
    }
    let failovers: usize = faults.iter().map(Row::failovers).sum();
    let kills: usize = faults.iter().map(Row::kills).sum();
    println!("\n{failovers} failovers, {kills} processes killed or aborted at a step");
}

fn print(rows: &[Row]) {
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
    let mut sum = Row { fault: "all".to_owned(), ..Row::default() };
    for row in rows {
        line(row);
        sum.injected += row.injected;
        sum.acknowledged += row.acknowledged;
        sum.stored += row.stored;
        sum.unanswered += row.unanswered;
        sum.lost += row.lost;
        sum.forgotten += row.forgotten;
        sum.doubled += row.doubled;
        sum.stale += row.stale;
        sum.unaccounted += row.unaccounted;
        sum.restarts += row.restarts;
        sum.converged = sum.converged.max(row.converged);
    }
    line(&sum);
    let stored = sum.acknowledged + sum.stored;
    if stored > 0 {
        println!("202s: {:.1} % of what was stored", 100.0 * sum.stored as f64 / stored as f64);
    }
    if sum.stale > 0 {
        println!("{} times a `stop` pod ran on without a lease while it ran elsewhere", sum.stale);
    }
    for row in rows.iter().filter(|row| row.broken()) {
        println!("BROKEN: {}", row.fault);
        row.wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
    }
}

fn line(row: &Row) {
    println!(
        "{:<56} {:>8} {:>6} {:>5} {:>9} {:>5} {:>8} {:>12} {:>9} {:>8} {:>8.1} s",
        row.fault,
        row.injected,
        row.acknowledged,
        row.stored,
        row.unanswered,
        row.lost,
        row.doubled,
        row.unaccounted,
        row.forgotten,
        row.restarts,
        row.converged
    );
}
