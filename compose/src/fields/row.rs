//! Row of the table of fields.

use crate::translate::Translate;

#[derive(Clone, Copy)]
pub(crate) enum Support {
    /// Works as with Compose.
    Honoured(How),
    /// Refused: no node may run such a container.
    Refused,
    /// Has no effect, which is noted.
    NotHonoured,
    /// Only a declaration: noted where services use it.
    Declares,
}

#[derive(Clone, Copy)]
pub(crate) enum How {
    /// A function sets fields of the service.
    Translated(Translate),
    /// Handled while the files are assembled.
    Reading,
    /// Honoured by its own fields, which have rows.
    Parts,
}

/// A field with everything below it, except parts with rows of their own.
pub(crate) struct FieldRow {
    /// Names joined by dots, `*` for any name; list levels are left out: `services.*.ports.target`.
    pub(crate) path: &'static str,
    pub(crate) support: Support,
    /// Reason or alternative; may be empty for an honoured field.
    pub(crate) advice: &'static str,
}

pub(crate) const SERVICE: &str = "services.*";
