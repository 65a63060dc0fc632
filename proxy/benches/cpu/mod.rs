//! CPU time of measured processes.

use std::time::Duration;

use testkit::child_guard::ChildGuard;

pub fn cpu(server: &ChildGuard) -> Duration {
    let own = server.id();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let parent: u32 = fields.get(1)?.parse().ok()?;
        let times = fields.get(11..13)?.iter().filter_map(|time| time.parse::<u64>().ok());
        (id == own || parent == own).then(|| times.sum::<u64>())
    });
    // Linux counts in hundredths of a second.
    Duration::from_millis(processes.sum::<u64>() * 10)
}
