//! Warning after a write that is not replicated yet.

use std::fmt::Display;

use api_types::{DurabilityState, DurabilityView, ServiceView};

use output::objects::status::durability_text;
use output::stderr;

/// The write is stored, so this is not a failure.
pub(super) fn warn_if_unconfirmed(service: &ServiceView) {
    warn_of_object("service", &service.name, service.durability.as_ref());
}

pub(super) fn warn_of_object(kind: impl Display, name: impl Display, durability: Option<&DurabilityView>) {
    if let Some(durability) = durability.filter(|one| one.state == DurabilityState::Unconfirmed) {
        stderr::warning(&format!("{kind} {name}: {}", durability_text(durability)));
    }
}
