//! Resources of nodes and pods. A kind is declared here and in `common/store/src/lua/_prelude.lua`; a test
//! compares the two.
//!
//! Host ports are not amounts: see [`HostPorts`](crate::spec::HostPorts).

use serde::{Deserialize, Serialize};

/// Amounts of resources that a node offers or pods use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Resources {
    /// CPU, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Number of processes and threads.
    pub pids: u64,
    /// Disk, in bytes: the space of volumes that are on the node.
    pub disk_bytes: u64,
    /// Number of pods.
    pub pods: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Cpu,
    Memory,
    /// Processes and threads.
    Pids,
    /// Volumes.
    Disk,
}

impl Resource {
    /// In the order of script arguments.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Pids, Self::Disk];

    pub const fn field(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Disk => "disk",
        }
    }

    pub fn used_field(self) -> String {
        format!("used_{}", self.field())
    }
}

impl Resources {
    pub fn get(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Cpu => self.cpu_millis,
            Resource::Memory => self.memory_bytes,
            Resource::Pids => self.pids,
            Resource::Disk => self.disk_bytes,
        }
    }

    pub fn get_mut(&mut self, resource: Resource) -> &mut u64 {
        match resource {
            Resource::Cpu => &mut self.cpu_millis,
            Resource::Memory => &mut self.memory_bytes,
            Resource::Pids => &mut self.pids,
            Resource::Disk => &mut self.disk_bytes,
        }
    }

    pub fn from_amounts<E>(pods: u64, amount: impl Fn(Resource) -> Result<u64, E>) -> Result<Self, E> {
        let mut resources = Self { pods, ..Self::default() };
        for resource in Resource::ALL {
            *resources.get_mut(resource) = amount(resource)?;
        }
        Ok(resources)
    }

    /// Pods, then the amounts in the order of [`Resource::ALL`].
    pub fn to_array(&self) -> [u64; 1 + Resource::ALL.len()] {
        let mut amounts = [self.pods; 1 + Resource::ALL.len()];
        for (at, resource) in Resource::ALL.into_iter().enumerate() {
            amounts[at + 1] = self.get(resource);
        }
        amounts
    }

    pub fn from_array(amounts: [u64; 1 + Resource::ALL.len()]) -> Self {
        let mut resources = Self { pods: amounts[0], ..Self::default() };
        for (resource, amount) in Resource::ALL.into_iter().zip(&amounts[1..]) {
            *resources.get_mut(resource) = *amount;
        }
        resources
    }

    pub fn saturating_add(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }

    pub fn left(&self, resource: Resource, used: &Self) -> u64 {
        self.get(resource).saturating_sub(used.get(resource))
    }

    pub fn times(self, count: u64) -> Self {
        self.combine(self, |amount, _| amount.saturating_mul(count))
    }

    fn combine(self, other: Self, of_both: impl Fn(u64, u64) -> u64) -> Self {
        let mut result = Self { pods: of_both(self.pods, other.pods), ..self };
        for resource in Resource::ALL {
            *result.get_mut(resource) = of_both(self.get(resource), other.get(resource));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(cpu_millis: u64, memory_bytes: u64, pids: u64, disk_bytes: u64, pods: u64) -> Resources {
        Resources { cpu_millis, memory_bytes, pids, disk_bytes, pods }
    }

    #[test]
    fn every_amount_takes_part() {
        let (one, two) = (resources(1, 2, 3, 4, 5), resources(10, 20, 30, 40, 50));
        assert_eq!(one.saturating_add(two), resources(11, 22, 33, 44, 55));
        assert_eq!(two.saturating_sub(one), resources(9, 18, 27, 36, 45));
        assert_eq!(one.saturating_sub(two), Resources::default());
        assert_eq!(one.times(3), resources(3, 6, 9, 12, 15));
        assert_eq!(one.to_array(), [5, 1, 2, 3, 4]);
        let read = Resources::from_amounts(5, |resource| Ok::<_, ()>(one.get(resource)));
        assert_eq!(read, Ok(one));
    }
}
