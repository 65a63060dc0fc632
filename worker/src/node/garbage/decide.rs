//! Decides which images and logs to remove from a disk that is filling up, and their order. Pure.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use daemon::config::DiskMarks;

/// The pod of an image used more recently may be about to start.
pub(super) const MIN_IMAGE_AGE: Duration = Duration::from_secs(600);
/// In percent, so that a node does not flap.
const HYSTERESIS: f64 = 2.0;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    pub(crate) total: u64,
    /// For ordinary users.
    pub(crate) available: u64,
    /// 0 if the file system has no such limit.
    pub(crate) total_inodes: u64,
    pub(crate) available_inodes: u64,
}

impl DiskSpace {
    /// A disk without a size is empty.
    pub(crate) fn used_percent(self) -> f64 {
        self.used_bytes_percent().max(self.used_inodes_percent())
    }

    pub(crate) fn used_bytes_percent(self) -> f64 {
        percent(self.total, self.available)
    }

    pub(crate) fn used_inodes_percent(self) -> f64 {
        percent(self.total_inodes, self.available_inodes)
    }
}

fn percent(total: u64, available: u64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    (total.saturating_sub(available)) as f64 * 100.0 / total as f64
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Removal {
    OldestKeptLog,
    Image(String),
}

/// Kept logs first, then images. Logs stay if only inodes are short, because each uses just one. `kept_logs`
/// is their size on this disk.
pub(super) fn next_removal(
    disk: DiskSpace,
    marks: DiskMarks,
    kept_logs: u64,
    images: &[String],
    is_removing: bool,
) -> Option<Removal> {
    let limit = if is_removing { marks.low } else { marks.high };
    if disk.used_percent() <= f64::from(limit) {
        return None;
    }
    if kept_logs > 0 && disk.used_bytes_percent() > f64::from(limit) {
        return Some(Removal::OldestKeptLog);
    }
    images.first().cloned().map(Removal::Image)
}

pub(super) fn is_full(disk: DiskSpace, marks: DiskMarks, was_full: bool) -> bool {
    let limit = f64::from(marks.full) - if was_full { HYSTERESIS } else { 0.0 };
    disk.used_percent() >= limit
}

/// The longest unused first, by the time since the last use.
pub(super) fn removable(used: &BTreeMap<String, Duration>, needed: &HashSet<String>) -> Vec<String> {
    let needed: HashSet<String> = needed.iter().map(|image| canonical(image)).collect();
    // The same image may have been used under several names.
    let is_new =
        |name: &str| used.iter().any(|(other, age)| *age < MIN_IMAGE_AGE && canonical(other) == name);
    let may_go = |image: &str| {
        let name = canonical(image);
        !needed.contains(&name) && !is_new(&name)
    };
    let mut found: Vec<(&String, &Duration)> = used.iter().filter(|(image, _)| may_go(image)).collect();
    found.sort_by_key(|(_, age)| std::cmp::Reverse(**age));
    found.into_iter().map(|(image, _)| image.clone()).collect()
}

fn canonical(image: &str) -> String {
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    let image = image.strip_prefix("library/").unwrap_or(image);
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: DiskMarks = DiskMarks { high: 85, low: 80, full: 95 };

    fn used(percent: u64) -> DiskSpace {
        DiskSpace { total: 1000, available: 1000 - percent * 10, ..DiskSpace::default() }
    }

    #[test]
    fn kept_logs_go_first_and_then_images() {
        let images = ["old:1".to_owned(), "older:2".to_owned()];
        let image = |name: &str| Some(Removal::Image(name.to_owned()));
        for (percent, kept_logs, count, is_removing, expected) in [
            (85, 3, 2, false, None),
            (86, 3, 2, false, Some(Removal::OldestKeptLog)),
            (86, 0, 2, false, image("old:1")),
            (86, 0, 0, false, None),
            (82, 0, 2, false, None),
            (82, 0, 2, true, image("old:1")),
            (82, 1, 2, true, Some(Removal::OldestKeptLog)),
            (80, 1, 2, true, None),
        ] {
            let next = next_removal(used(percent), MARKS, kept_logs, &images[..count], is_removing);
            assert_eq!(next, expected, "{percent} % {kept_logs} {count} {is_removing}");
        }
        let none = DiskSpace::default();
        assert_eq!(next_removal(none, MARKS, 1, &images, false), None, "a disk that tells nothing");
    }

    #[test]
    fn a_disk_without_inodes_is_full_and_images_make_room_there() {
        let inodes = |percent: u64| DiskSpace {
            total_inodes: 1000,
            available_inodes: 1000 - percent * 10,
            ..used(10)
        };
        assert!(is_full(inodes(95), MARKS, false) && !is_full(inodes(94), MARKS, false));
        let images = ["old:1".to_owned()];
        let next = next_removal(inodes(90), MARKS, 3, &images, false);
        assert_eq!(next, Some(Removal::Image("old:1".to_owned())));
        assert_eq!(next_removal(inodes(90), MARKS, 3, &[], false), None, "logs would not help");
        assert_eq!(next_removal(inodes(80), MARKS, 3, &images, false), None);
    }

    #[test]
    fn a_full_disk_is_full_until_there_is_some_room() {
        for (percent, was_full, expected) in
            [(94, false, false), (95, false, true), (94, true, true), (93, true, true), (92, true, false)]
        {
            assert_eq!(is_full(used(percent), MARKS, was_full), expected, "{percent} {was_full}");
        }
    }

    #[test]
    fn images_that_are_needed_or_new_stay() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let used = [("a:1", 11), ("b:1", 500), ("new:1", 9), ("needed:1", 900), ("c:1", 60)];
        let used = used.map(|(image, age)| (image.to_owned(), minutes(age)));
        let needed = HashSet::from(["needed:1".to_owned()]);
        assert_eq!(removable(&BTreeMap::from(used), &needed), ["b:1", "c:1", "a:1"]);
        assert_eq!(removable(&BTreeMap::new(), &needed), Vec::<String>::new());
    }

    #[test]
    fn an_image_stays_under_all_its_names() {
        let old = Duration::from_secs(9000);
        let used =
            ["nginx", "docker.io/library/redis:7", "reg:5000/app"].map(|image| (image.to_owned(), old));
        for (needed, expected) in [
            ("nginx:latest", vec!["docker.io/library/redis:7", "reg:5000/app"]),
            ("redis:7", vec!["nginx", "reg:5000/app"]),
            ("reg:5000/app:latest", vec!["docker.io/library/redis:7", "nginx"]),
        ] {
            let found = removable(&BTreeMap::from(used.clone()), &HashSet::from([needed.to_owned()]));
            assert_eq!(found, expected, "{needed}");
        }
        let new = [("nginx".to_owned(), old), ("library/nginx:latest".to_owned(), Duration::ZERO)];
        assert_eq!(removable(&BTreeMap::from(new), &HashSet::new()), Vec::<String>::new());
    }
}
