//! The kernel's pressure stall information: how much tasks wait for CPU, memory and I/O.

use model::node::Psi;
use procfs::{CpuPressure, Current, IoPressure, MemoryPressure};

/// `None` if the kernel has no PSI (before 4.20, or built or booted without it).
pub(crate) fn read() -> Option<Psi> {
    let cpu = CpuPressure::current().ok()?;
    let memory = MemoryPressure::current().ok()?;
    let io = IoPressure::current().ok()?;
    Some(Psi {
        cpu_some: cpu.some.avg10,
        memory_some: memory.some.avg10,
        memory_full: memory.full.avg10,
        io_some: io.some.avg10,
        io_full: io.full.avg10,
    })
}
