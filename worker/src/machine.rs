//! The resources of this machine.

use common::node::Resources;
use procfs::sys::kernel;
use procfs::{Current, Meminfo};

/// Returns the cores that this process may use, and the memory and the processes of the machine. `pods` is a
/// setting and left at zero.
pub fn resources() -> Resources {
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
    Resources { cpu_millis: cores * 1000, memory_bytes, pids: pids(), pods: 0 }
}

/// What the kernel allows where nothing else was configured.
const DEFAULT_PIDS: u64 = 32_768;

/// Returns how many processes and threads the kernel allows.
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
        let machine = resources();
        assert!(machine.cpu_millis >= 1000 && machine.memory_bytes > 64 << 20, "{machine:?}");
        assert!(machine.pids > 100, "{machine:?}");
    }
}
