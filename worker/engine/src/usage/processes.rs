//! Counters of processes without their own control group, summed up per process tree.

use std::collections::HashMap;

use procfs::process::{Process, Stat, all_processes};

use super::counters::Counters;

#[derive(Debug, Clone, Copy, Default)]
struct ProcessRow {
    pid: i32,
    parent: i32,
    group: i32,
    ticks: u64,
    pages: u64,
}

impl ProcessRow {
    fn of(stat: &Stat) -> Self {
        let ended = [stat.cutime, stat.cstime].map(|ticks| u64::try_from(ticks).unwrap_or(0));
        Self {
            pid: stat.pid,
            parent: stat.ppid,
            group: stat.pgrp,
            ticks: stat.utime + stat.stime + ended.iter().sum::<u64>(),
            pages: stat.rss,
        }
    }
}

pub(crate) fn read(leaders: &[i32]) -> Vec<Counters> {
    let stats = all_processes().into_iter().flatten().filter_map(Result::ok);
    let rows: Vec<ProcessRow> =
        stats.filter_map(|process| Some(ProcessRow::of(&process.stat().ok()?))).collect();
    let owners = owners(&rows, leaders);
    let (tick, page) = (1_000_000 / procfs::ticks_per_second().max(1), procfs::page_size());
    let mut sums: HashMap<i32, Counters> = HashMap::new();
    for row in &rows {
        let Some(leader) = owners.get(&row.pid) else { continue };
        let sum = sums.entry(*leader).or_default();
        let add = |to: &mut Option<u64>, more: u64| *to = Some(to.unwrap_or(0).saturating_add(more));
        add(&mut sum.cpu_micros, row.ticks * tick);
        add(&mut sum.memory_bytes, row.pages * page);
        // Only readable for processes of the same user.
        if let Ok(io) = Process::new(row.pid).and_then(|process| process.io()) {
            add(&mut sum.read_bytes, io.read_bytes);
            add(&mut sum.write_bytes, io.write_bytes);
        }
    }
    leaders.iter().map(|leader| sums.get(leader).copied().unwrap_or_default()).collect()
}

fn owners(rows: &[ProcessRow], leaders: &[i32]) -> HashMap<i32, i32> {
    let leaders: std::collections::HashSet<i32> = leaders.iter().copied().collect();
    let by_pid: HashMap<i32, &ProcessRow> = rows.iter().map(|row| (row.pid, row)).collect();
    let owner = |row: &ProcessRow| {
        let mut at = Some(row);
        // Rows read at different moments could form a cycle.
        for _ in 0..64 {
            let row = at?;
            if leaders.contains(&row.group) {
                return Some(row.group);
            }
            at = by_pid.get(&row.parent).copied();
        }
        None
    };
    rows.iter().filter_map(|row| Some((row.pid, owner(row)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_its_group_or_to_that_of_a_parent() {
        let row = |pid, parent, group| ProcessRow { pid, parent, group, ..ProcessRow::default() };
        let rows = [
            row(1, 0, 1),
            row(10, 1, 10),
            row(11, 10, 10),
            row(12, 11, 12),
            row(13, 12, 12),
            row(20, 1, 20),
            row(30, 31, 30),
            row(31, 30, 31),
        ];
        let owners = owners(&rows, &[10, 20]);
        let mut owners: Vec<(i32, i32)> = owners.into_iter().collect();
        owners.sort_unstable();
        assert_eq!(owners, [(10, 10), (11, 10), (12, 10), (13, 10), (20, 20)]);
    }

    #[test]
    fn this_process_has_used_something() {
        let own = Process::myself().and_then(|process| process.stat()).map_or(0, |stat| stat.pgrp);
        let counters = read(&[own, -1]);
        assert!(counters[0].memory_bytes > Some(0), "{counters:?}");
        assert_eq!(counters[1], Counters::default());
    }
}
