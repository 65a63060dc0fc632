//! A service name from an image reference, for `run` without `--name`.

/// Leaves space for a suffix: names have at most 63 bytes.
const MAX_LENGTH: usize = 50;

/// The last segment of the image's path as a DNS label; `None` without a valid character.
pub(crate) fn from_image(image: &str) -> Option<String> {
    let without_digest = image.split('@').next().unwrap_or_default();
    let last_segment = without_digest.rsplit('/').next().unwrap_or_default();
    let repository = last_segment.split(':').next().unwrap_or_default();
    let mut name = String::new();
    for c in repository.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(MAX_LENGTH);
    let name = name.trim_end_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::ServiceName;

    use super::*;

    #[test]
    fn the_name_is_the_last_segment_of_the_image() {
        for (image, name) in [
            ("nginx", "nginx"),
            ("nginx:1.27", "nginx"),
            ("spaster/alpine-sleep", "alpine-sleep"),
            ("localhost:5000/team/My_App:v2", "my-app"),
            ("ghcr.io/a/b@sha256:0123", "b"),
            ("a/b:1@sha256:0123", "b"),
            ("kubeleet/hello:dev", "hello"),
            ("node.js", "node-js"),
            ("--x--", "x"),
        ] {
            assert_eq!(from_image(image).as_deref(), Some(name), "{image}");
        }
        for image in ["", "___", "a/", ":tag"] {
            assert_eq!(from_image(image), None, "{image}");
        }
    }

    #[test]
    fn every_name_is_valid_with_and_without_a_suffix() {
        let long = "x-".repeat(100);
        for image in ["A.B_C", "0", &long, "ü/é-ñandu", "a--b..c"] {
            let name = from_image(image).unwrap();
            assert!(ServiceName::new(&*name).is_ok(), "{image} -> {name}");
            assert!(ServiceName::new(format!("{name}-ab12")).is_ok(), "{image} -> {name}");
        }
    }
}
