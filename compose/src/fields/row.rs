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

/// A field with everything below it, except parts with rows of their own.
pub(crate) struct FieldRow {
    /// Names joined by dots, `*` for any name; list levels are left out: `services.*.ports.target`.
    pub(crate) path: &'static str,
    pub(crate) support: Support,
    pub(crate) advice: &'static str,
}

pub(crate) const SERVICE: &str = "services.*";
