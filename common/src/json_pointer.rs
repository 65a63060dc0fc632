//! JSON pointers (RFC 6901), which errors use to name a field of a document.

/// Returns `key` as one segment of a JSON pointer: `~` becomes `~0` and `/` becomes `~1`.
pub fn escape(key: &str) -> String {
    // The order matters: the other way round the `~` of `~1` would be escaped again.
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_tildes_and_slashes() {
        assert_eq!(escape("plain"), "plain");
        assert_eq!(escape("a/b~c"), "a~1b~0c");
        assert_eq!(escape("~1"), "~01");
    }
}
