//! Image references, by the grammar of the OCI distribution project: `[registry/]name[:tag][@digest]`.

/// Bytes; the grammar limits only name and tag.
const MAX_REFERENCE: usize = 512;
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// The error omits the text: a dead letter may have to keep it secret.
pub fn check_image(image: &str) -> Result<(), &'static str> {
    if image.is_empty() {
        return Err("an image is required, as for `docker run`");
    }
    if image.len() > MAX_REFERENCE {
        return Err("an image reference has at most 512 bytes");
    }
    if image.contains(char::is_whitespace) {
        return Err("an image reference has no spaces");
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    check_name(name)?;
    tag.map_or(Ok(()), check_tag)?;
    digest.map_or(Ok(()), check_digest)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_NAME {
        return Err("the name in an image reference has at most 255 bytes");
    }
    let repository = match name.split_once('/') {
        Some((registry, repository)) if is_registry(registry) => {
            check_registry(registry)?;
            repository
        }
        _ => name,
    };
    repository.split('/').try_for_each(check_component)
}

/// Docker's rule.
fn is_registry(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost" || part.contains(|c: char| c.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), &'static str> {
    let (host, port) = match registry.rsplit_once(':') {
        // IPv6 addresses are in brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let is_label = |label: &str| {
        label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    let is_port = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    match is_host && is_port {
        true => Ok(()),
        false => {
            Err("the registry in an image reference must be a host name or address, with or without :port")
        }
    }
}

/// Separators are `.`, `_`, `__` or any number of `-`.
fn check_component(part: &str) -> Result<(), &'static str> {
    let is_group = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if part.is_empty() {
        return Err("the name in an image reference has an empty part");
    }
    if part.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err("the name in an image reference must be lower-case");
    }
    let is_separator = |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    let separators = part.split(|c: char| c.is_ascii() && is_group(c as u8)).filter(|text| !text.is_empty());
    let ends_well = part.as_bytes().first().copied().is_some_and(is_group)
        && part.as_bytes().last().copied().is_some_and(is_group);
    match ends_well && separators.into_iter().all(is_separator) {
        true => Ok(()),
        false => {
            Err("the name in an image reference consists of lower-case letters and digits, separated by \
                      `/`, `.`, `_`, `__` or `-`")
        }
    }
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    if tag.is_empty() {
        return Err("the tag after `:` is empty");
    }
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_valid = tag.len() <= MAX_TAG
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
        && tag.as_bytes().first().copied().is_some_and(is_word);
    match is_valid {
        true => Ok(()),
        false => {
            Err("the tag of an image reference has at most 128 letters, digits, `_`, `.` and `-`, and does \
                      not begin with the last two")
        }
    }
}

fn check_digest(digest: &str) -> Result<(), &'static str> {
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    let is_valid = match digest.split_once(':') {
        Some(("sha256", hex)) => hex.len() == 64 && is_hex(hex),
        Some(("sha384", hex)) => hex.len() == 96 && is_hex(hex),
        Some(("sha512", hex)) => hex.len() == 128 && is_hex(hex),
        _ => false,
    };
    match is_valid {
        true => Ok(()),
        false => Err("the digest after `@` must be `sha256:` and 64 hexadecimal digits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_references_are_accepted() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        for image in [
            "nginx",
            "nginx:1.27-alpine",
            "library/nginx",
            "spaster/alpine-sleep",
            "a/b/c__d-e---f.g_h:V1.0_x",
            "localhost/web",
            "localhost:5000/web:v1",
            "registry.example.com/team/web:v1",
            "REGISTRY/web",
            "192.0.2.1:5000/web",
            "[2001:db8::1]:5000/web",
            &format!("nginx@{digest}"),
            &format!("registry:5000/nginx:1@{digest}"),
            &digest,
        ] {
            assert_eq!(check_image(image), Ok(()), "{image}");
        }
    }

    #[test]
    fn invalid_references_are_refused_with_the_reason() {
        let long = "x".repeat(256);
        for (image, part) in [
            ("", "is required"),
            (" nginx", "no spaces"),
            ("ng inx", "no spaces"),
            ("Nginx", "lower-case"),
            ("UPPER/Image", "must be lower-case"),
            ("nginx:", "tag after `:` is empty"),
            ("nginx:-x", "does not begin"),
            ("nginx:a+b", "tag of an image"),
            ("nginx:1:2", "consists of"),
            ("nginx@", "sha256"),
            ("nginx@sha256:abc", "64 hexadecimal"),
            ("nginx@md5:0123", "64 hexadecimal"),
            ("a//b", "empty part"),
            ("/nginx", "empty part"),
            ("nginx/", "empty part"),
            (":5000", "empty part"),
            ("-nginx", "consists of"),
            ("a..b", "consists of"),
            ("a___b", "consists of"),
            ("ünx", "consists of"),
            ("host:port/web", "registry"),
            ("-a.b/web", "registry"),
            ("[::x]:5000/web", "registry"),
            ("http://example.com/web", "registry"),
            (&long, "255 bytes"),
            (&long.repeat(3), "512 bytes"),
        ] {
            let reason = check_image(image).expect_err(image);
            assert!(reason.contains(part), "{image}: {reason}");
        }
    }
}
