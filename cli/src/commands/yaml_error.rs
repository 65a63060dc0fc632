//! Messages for errors in YAML and JSON files, in the words of a user instead of a programmer.

use std::borrow::Cow;

use serde_saphyr::localizer::Localizer;
use serde_saphyr::{Error, Location, MessageFormatter, UserMessageFormatter};

/// Returns what is wrong, without its position.
pub(super) fn message(error: &Error) -> String {
    error.without_snippet().render_with_formatter(&PlainMessages)
}

struct PlainMessages;

impl MessageFormatter for PlainMessages {
    fn localizer(&self) -> &dyn Localizer {
        &WithoutLocation
    }

    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("the field `{key}` is there twice; is a line with `---` missing above it?").into()
            }
            Error::InvalidScalar { ty, .. } if is_unsigned(ty) => "expected a whole number from 0 up".into(),
            Error::Message { msg, .. } if msg.contains("untagged enum") => {
                "this value has the wrong type".into()
            }
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

fn is_unsigned(rust_type: &str) -> bool {
    matches!(rust_type, "u8" | "u16" | "u32" | "u64" | "usize")
}

/// The caller puts the position in front of the message, as compilers do.
struct WithoutLocation;

impl Localizer for WithoutLocation {
    fn attach_location<'a>(&self, message: Cow<'a, str>, _location: Location) -> Cow<'a, str> {
        message
    }
}
