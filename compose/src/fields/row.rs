//! A row of the table of fields.

use crate::translate::Translate;

/// What becomes of a field.
#[derive(Clone, Copy)]
pub(crate) enum Support {
    /// It works as with Compose.
    Honoured(How),
    /// No node may run such a container: the files are refused.
    Refused,
    /// It has no effect, which is noted.
    NotHonoured,
    /// It only declares what services use: that is noted where they use it.
    Declares,
}

/// How a field is honoured.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// A function sets fields of the service.
    Translated(Translate),
    /// While the files are put together.
    Reading,
    /// By its own fields, which have rows of their own.
    Parts,
}

/// A field, with all that is in it unless that has rows of its own.
pub(crate) struct FieldRow {
    /// The path: names joined by dots, `*` for any name. Lists are left out: `services.*.ports.target`.
    pub(crate) path: &'static str,
    pub(crate) support: Support,
    /// Why, or what to do instead; may be empty for a field that is honoured.
    pub(crate) advice: &'static str,
}

/// The part of a path that any service has.
pub(crate) const SERVICE: &str = "services.*";
