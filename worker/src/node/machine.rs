//! The facts that a worker tells of its machine: amounts of CPU, memory, disk and processes for pods, and the
//! settings that decide which pods it can run.

use std::path::Path;

use daemon::config::Config;
use model::node::{NodeSettings, Resources};
use model::spec::MAX_MEMORY_BYTES;
use procfs::sys::kernel;
use procfs::{Current, Meminfo};

/// `pods` is a setting and left at zero.
pub fn resources(volumes: &Path) -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let memory_bytes = Meminfo::current().map_or_else(
        |error| {
            tracing::warn!(
                %error,
                "the memory of this machine cannot be read: offering none to pods; set KUBELEET_MEMORY"
            );
            0
        },
        |memory| memory.mem_total,
    );
    Resources { cpu_millis: cores * 1000, memory_bytes, pids: pids(), disk_bytes: disk(volumes), pods: 0 }
}

/// A filter of the scheduler can judge by each of them.
pub fn settings(config: &Config) -> NodeSettings {
    NodeSettings {
        secret_key: config.secret_key.as_ref().map(|key| key.id().to_owned()),
        host: config.policy.host.clone(),
        forms: store::NEWEST_FORM,
        resources: config.resources.clone(),
    }
}

/// The size of the disk of the nearest existing parent, as in `garbage`.
fn disk(directory: &Path) -> u64 {
    let Some(found) = directory.ancestors().find_map(|path| rustix::fs::statvfs(path).ok()) else {
        tracing::warn!(
            directory = %directory.display(),
            "the size of the disk of volumes cannot be read: offering none to volumes with `space`; set KUBELEET_DISK"
        );
        return 0;
    };
    found.f_blocks.saturating_mul(found.f_frsize).min(MAX_MEMORY_BYTES)
}

const DEFAULT_PIDS: u64 = 32_768;

fn pids() -> u64 {
    let numbers = kernel::pid_max().ok().and_then(|max| u64::try_from(max).ok());
    let threads = kernel::threads_max().ok().map(u64::from);
    numbers.into_iter().chain(threads).min().unwrap_or(DEFAULT_PIDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_core_and_some_memory() {
        let machine = resources(Path::new("/var/lib/kubeleet/not/there"));
        assert!(machine.cpu_millis >= 1000 && machine.memory_bytes > 64 << 20, "{machine:?}");
        assert!(machine.pids > 100 && machine.disk_bytes > 64 << 20, "{machine:?}");
    }
}
