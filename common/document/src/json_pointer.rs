//! JSON pointers (RFC 6901) to fields, for errors.

pub fn escape(key: &str) -> String {
    // The other order would escape the `~` of `~1` again.
    key.replace('~', "~0").replace('/', "~1")
}

pub fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// `containers[0].image` for `/containers/0/image`.
pub fn readable(pointer: &str) -> String {
    let mut name = String::new();
    for segment in pointer.split('/').skip(1).map(unescape) {
        let is_index = segment.bytes().all(|b| b.is_ascii_digit()) && !segment.is_empty();
        match (is_index, name.is_empty()) {
            (true, false) => name.push_str(&format!("[{segment}]")),
            (_, true) => name.push_str(&segment),
            (false, false) => name.push_str(&format!(".{segment}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_tildes_and_slashes() {
        assert_eq!(escape("plain"), "plain");
        assert_eq!(escape("a/b~c"), "a~1b~0c");
        assert_eq!(escape("~1"), "~01");
        for key in ["plain", "a/b~c", "~1", "~0/"] {
            assert_eq!(unescape(&escape(key)), key);
        }
    }
}
