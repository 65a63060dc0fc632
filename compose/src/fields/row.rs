//! Row of the table of fields.

use crate::translate::Translate;

#[derive(Clone, Copy)]
pub(crate) enum Support {
    Honoured(How),
    /// No node may run such a container.
    Refused,
    NotHonoured,
    /// Noted where services use it.
    Declares,
}

#[derive(Clone, Copy)]
pub(crate) enum How {
    Translated(Translate),
    Reading,
    /// Its own fields have rows.
    Parts,
}

/// And everything below it without rows of its own.
pub(crate) struct FieldRow {
    /// `*` is any name; list levels are left out: `services.*.ports.target`.
    pub(crate) path: &'static str,
    pub(crate) support: Support,
    pub(crate) advice: &'static str,
}

pub(crate) const SERVICE: &str = "services.*";
