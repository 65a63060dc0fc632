//! How much the machine's tasks wait for its resources, as the kernel tells.

use common::node::Psi;
use procfs::{CpuPressure, Current, IoPressure, MemoryPressure};

/// The pressure right now; none where the kernel does not say (before 4.20, or built or booted without PSI).
pub(crate) fn read() -> Option<Psi> {
    let (cpu, memory, io) =
        (CpuPressure::current().ok()?, MemoryPressure::current().ok()?, IoPressure::current().ok()?);
    Some(Psi {
        cpu_some: cpu.some.avg10,
        memory_some: memory.some.avg10,
        memory_full: memory.full.avg10,
        io_some: io.some.avg10,
        io_full: io.full.avg10,
    })
}
