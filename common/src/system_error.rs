//! The operating system's errors in messages for people.

/// Returns the system's message without its number: `Connection refused`, not `Connection refused (os error
/// 111)`.
pub fn system_error(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((message, _number)) => message.to_owned(),
        None => text,
    }
}
