//! The warning after a write that is not replicated yet.

use common::api::{DurabilityState, ServiceView};

use crate::output::status::durability_text;
use crate::stderr;

/// Warns if the replicas of Redis have not confirmed a write yet. The write is stored, so this is not a
/// failure.
pub(super) fn warn_if_unconfirmed(service: &ServiceView) {
    if let Some(durability) = &service.durability
        && durability.state == DurabilityState::Unconfirmed
    {
        stderr::warning(&format!("service {}: {}", service.name, durability_text(durability)));
    }
}
