//! What this machine has.

use common::node::Resources;
use procfs::{Current, Meminfo};

/// Cores this process may use and the memory there is. `pods` is not the machine's to say and left at zero.
pub fn resources() -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let memory_bytes = Meminfo::current().map_or_else(
        |error| {
            tracing::warn!(%error, "this machine's memory can not be read: no memory is offered; set KUBELEET_MEMORY");
            0
        },
        |memory| memory.mem_total,
    );
    Resources { cpu_millis: cores * 1000, memory_bytes, pods: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_core_and_some_memory() {
        let machine = resources();
        assert!(machine.cpu_millis >= 1000 && machine.memory_bytes > 64 << 20, "{machine:?}");
    }
}
