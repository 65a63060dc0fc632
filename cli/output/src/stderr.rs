//! Messages on standard error.

use std::io::Write;

pub fn error(text: &str) {
    note(&format!("\x1b[1;31merror\x1b[0m: {}", daemon::without_error_numbers(text)));
}

pub fn warning(text: &str) {
    note(&format!("\x1b[1;33mwarning\x1b[0m: {text}"));
}

/// Removes colours if standard error does not show them.
pub fn note(text: &str) {
    // A closed standard error cannot be reported anywhere.
    drop(writeln!(anstream::stderr(), "{text}"));
}
