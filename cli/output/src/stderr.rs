//! Messages on standard error. Standard output carries only data.

use std::io::Write;

/// Prints `error: …`.
pub fn error(text: &str) {
    note(&format!("\x1b[1;31merror\x1b[0m: {}", daemon::without_error_numbers(text)));
}

/// Prints `warning: …` for a success that needs attention.
pub fn warning(text: &str) {
    note(&format!("\x1b[1;33mwarning\x1b[0m: {text}"));
}

/// Prints a line without a prefix. Removes colours if standard error does not show them.
pub fn note(text: &str) {
    // A closed standard error cannot be reported anywhere.
    drop(writeln!(anstream::stderr(), "{text}"));
}
