//! Counters of control groups, version 1 and 2. A worker in a container sees them only if the machine's
//! `/sys/fs/cgroup` is mounted.

use std::path::{Path, PathBuf};

use model::node::Psi;
use parking_lot::Mutex;

use super::counters::Counters;

const ROOT: &str = "/sys/fs/cgroup";

/// Paths of a container's group: Docker with systemd and without, Podman likewise.
const PLACES: [&str; 4] =
    ["system.slice/docker-ID.scope", "docker/ID", "machine.slice/libpod-ID.scope", "libpod_parent/libpod-ID"];

pub(crate) struct Cgroups {
    root: PathBuf,
    /// An engine uses one for all containers.
    place: Mutex<usize>,
}

impl Default for Cgroups {
    fn default() -> Self {
        Self::at(PathBuf::from(ROOT))
    }
}

impl Cgroups {
    pub(crate) fn at(root: PathBuf) -> Self {
        Self { root, place: Mutex::default() }
    }

    pub(crate) fn read(&self, id: &str) -> Option<Counters> {
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return None;
        }
        let first = *self.place.lock();
        (0..PLACES.len()).map(|n| (first + n) % PLACES.len()).find_map(|place| {
            let counters = self.read_at(&PLACES[place].replace("ID", id))?;
            *self.place.lock() = place;
            Some(counters)
        })
    }

    fn read_at(&self, group: &str) -> Option<Counters> {
        let unified = self.root.join(group);
        match text(&unified, "cpu.stat") {
            Some(cpu) => Some(version_2(&unified, &cpu)),
            None => version_1(&self.root, group),
        }
    }
}

fn version_2(group: &Path, cpu: &str) -> Counters {
    let io = text(group, "io.stat").unwrap_or_default();
    Counters {
        cpu_micros: field(cpu, "usage_usec"),
        throttled_micros: field(cpu, "throttled_usec"),
        // "max" is none.
        memory_limit_bytes: text(group, "memory.max").and_then(|limit| limit.trim().parse().ok()),
        memory_bytes: working_set(group, "memory.current", "inactive_file"),
        read_bytes: Some(sum_of(&io, "rbytes=")),
        write_bytes: Some(sum_of(&io, "wbytes=")),
        psi: pressure(group),
    }
}

fn version_1(root: &Path, group: &str) -> Option<Counters> {
    let of = |controller: &str| root.join(controller).join(group);
    // `cpuacct` is often a link to `cpu,cpuacct`.
    let cpu = text(&of("cpuacct"), "cpuacct.usage").or_else(|| text(&of("cpu,cpuacct"), "cpuacct.usage"));
    let cpu: u64 = cpu?.trim().parse().ok()?;
    let io = ["blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"];
    let io = io.iter().find_map(|file| text(&of("blkio"), file)).unwrap_or_default();
    Some(Counters {
        cpu_micros: Some(cpu / 1000),
        memory_bytes: working_set(&of("memory"), "memory.usage_in_bytes", "total_inactive_file"),
        read_bytes: Some(sum_of(&io, "Read ")),
        write_bytes: Some(sum_of(&io, "Write ")),
        // With both versions mounted, pressure is in the second one.
        psi: pressure(&of("unified")),
        ..Counters::default()
    })
}

fn text(group: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(group.join(file)).ok()
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn working_set(group: &Path, usage: &str, inactive: &str) -> Option<u64> {
    let used: u64 = text(group, usage)?.trim().parse().ok()?;
    let inactive = text(group, "memory.stat").and_then(|stat| field(&stat, inactive)).unwrap_or(0);
    Some(used.saturating_sub(inactive))
}

fn sum_of(text: &str, word: &str) -> u64 {
    let numbers =
        text.lines().flat_map(|line| line.match_indices(word).map(|(at, _)| &line[at + word.len()..]));
    let digits = numbers.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    digits.filter_map(|digits| digits.parse::<u64>().ok()).fold(0, u64::saturating_add)
}

fn pressure(group: &Path) -> Option<Psi> {
    let avg10 = |file: &str, line: &str| average(&text(group, file)?, line);
    Some(Psi {
        cpu_some: avg10("cpu.pressure", "some")?,
        memory_some: avg10("memory.pressure", "some")?,
        memory_full: avg10("memory.pressure", "full")?,
        io_some: avg10("io.pressure", "some")?,
        io_full: avg10("io.pressure", "full")?,
    })
}

fn average(text: &str, line: &str) -> Option<f32> {
    let line = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(" avg10="))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path.replace("ID", ID));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn groups_of_version_2_are_read_wherever_an_engine_puts_them() {
        for place in PLACES {
            let root = tempfile::tempdir().unwrap();
            let file = |name: &str| format!("{place}/{name}");
            let pressure =
                "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.25 avg60=0.00 total=1\n";
            write(
                root.path(),
                &[
                    (&file("cpu.stat"), "usage_usec 1500000\nuser_usec 1000000\nthrottled_usec 250\n"),
                    (&file("memory.current"), "1000\n"),
                    (&file("memory.max"), "4096\n"),
                    (&file("memory.stat"), "anon 5\nfile 7\ninactive_file 300\nactive_file 1\n"),
                    (&file("io.stat"), "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=5 wbytes=7\n\n"),
                    (&file("cpu.pressure"), pressure),
                    (&file("memory.pressure"), pressure),
                    (&file("io.pressure"), pressure),
                ],
            );
            let expected = Counters {
                cpu_micros: Some(1_500_000),
                throttled_micros: Some(250),
                memory_limit_bytes: Some(4096),
                memory_bytes: Some(700),
                read_bytes: Some(15),
                write_bytes: Some(27),
                psi: Some(Psi {
                    cpu_some: 1.5,
                    memory_some: 1.5,
                    memory_full: 0.25,
                    io_some: 1.5,
                    io_full: 0.25,
                }),
            };
            let groups = Cgroups::at(root.path().to_path_buf());
            assert_eq!((groups.read(ID), groups.read(ID)), (Some(expected), Some(expected)), "{place}");
        }
    }

    #[test]
    fn groups_of_version_1_are_in_a_tree_for_each_controller() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("cpuacct/docker/ID/cpuacct.usage", "2500000\n"),
                ("memory/docker/ID/memory.usage_in_bytes", "1000\n"),
                ("memory/docker/ID/memory.stat", "inactive_file 1\ntotal_inactive_file 400\n"),
                (
                    "blkio/docker/ID/blkio.throttle.io_service_bytes_recursive",
                    "8:0 Read 10\n8:0 Write 20\n8:16 Read 1\n8:0 Total 31\nTotal 31\n",
                ),
            ],
        );
        let groups = Cgroups::at(root.path().to_path_buf());
        let expected = Counters {
            cpu_micros: Some(2500),
            memory_bytes: Some(600),
            read_bytes: Some(11),
            write_bytes: Some(20),
            ..Counters::default()
        };
        assert_eq!(groups.read(ID), Some(expected));
    }

    #[test]
    fn what_is_no_id_or_has_no_group_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let groups = Cgroups::at(root.path().to_path_buf());
        for id in [ID, "", "web-0-12ab", "../../etc", &ID[1..]] {
            assert_eq!(groups.read(id), None, "{id}");
        }
    }
}
