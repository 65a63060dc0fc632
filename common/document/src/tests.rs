#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;

#[test]
fn json_errors_are_in_plain_words() {
    for (text, detail) in [
        ("", "the text ends too early; is a bracket or quotation mark not closed? (line 1, column 1)"),
        ("nonsense", "text must stand in quotation marks (line 1, column 2)"),
        ("{\"a\":1} x", "text follows the end of the JSON value (line 1, column 9)"),
        ("{\"a\":1,}", "a comma too many (line 1, column 8)"),
        ("{a:1}", "the name of a field must stand in quotation marks (line 1, column 2)"),
        ("{\"a\" 1}", "a \":\" is missing after the name of a field (line 1, column 6)"),
        ("{\"a\":1 \"b\":2}", "a comma or a closing bracket is missing (line 1, column 8)"),
        ("\"\\q\"", "a backslash in quotation marks begins something unknown (line 1, column 3)"),
        ("{\"a\":1e999}", "this is not a number (line 1, column 10)"),
    ] {
        assert_eq!(json(text.as_bytes()).err().unwrap().to_string(), detail, "{text}");
    }
}
