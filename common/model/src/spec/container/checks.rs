//! The rules for single values of a container.

use crate::spec::limits::{MAX_MEMORY_BYTES, MAX_PIDS, MIN_MEMORY_BYTES};
use crate::spec::units::{Cpus, Memory};

const MAX_TEXT: usize = 4096;

pub(in crate::spec) fn memory(memory: Memory) -> Option<String> {
    match memory.bytes() {
        // Most tools take such a number for mebibytes.
        bytes if bytes < 1 << 16 && bytes % 1000 != 0 && bytes % 1024 != 0 => {
            Some(format!("must be at least 6 MiB, and {bytes} without a unit is in bytes: write {bytes}MiB"))
        }
        bytes if bytes < MIN_MEMORY_BYTES => {
            Some("must be at least 6 MiB: Docker does not start a container with less".to_owned())
        }
        bytes if bytes > MAX_MEMORY_BYTES => Some("at most 1 PiB".to_owned()),
        _ => None,
    }
}

pub(in crate::spec) fn reservation(least: Memory, limit: Option<Memory>) -> Option<String> {
    match limit {
        Some(limit) if least > limit => Some("cannot be more than the limit in `memory`".to_owned()),
        _ => memory(least),
    }
}

pub(in crate::spec) fn hostname(name: &str) -> Option<String> {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_valid = name.len() <= 63 && name.split('.').all(is_label);
    (!is_valid).then(|| {
        "must be the name of a host, such as mail or mail.example.org, with at most 63 characters".to_owned()
    })
}

pub(in crate::spec) fn cpus(cpus: Cpus) -> Option<String> {
    (cpus.millis() < 10).then(|| "must be at least 0.01 cores".to_owned())
}

pub(in crate::spec) fn pids_limit(pids: u32) -> Option<String> {
    (pids == 0 || pids > MAX_PIDS).then(|| format!("must be from 1 to {MAX_PIDS}"))
}

pub(in crate::spec) fn path(path: &str) -> Option<String> {
    let is_valid = path.starts_with('/') && path.len() <= MAX_TEXT && !path.contains('\0');
    (!is_valid).then(|| "must be an absolute path, such as /srv".to_owned())
}

pub(in crate::spec) fn user(user: &str) -> Option<String> {
    let is_name = |part: &str| {
        !part.is_empty() && part.len() <= 256 && !part.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    let mut parts = user.split(':');
    let is_valid =
        parts.next().is_some_and(is_name) && parts.next().is_none_or(is_name) && parts.next().is_none();
    (!is_valid).then(|| "must be a user, or a user and a group: 1000, 1000:1000 or app:app".to_owned())
}

pub(in crate::spec) fn tmpfs(entry: &str) -> Option<String> {
    let (directory, options) = entry.split_once(':').unwrap_or((entry, ""));
    let is_option = |c: char| c.is_ascii_alphanumeric() || matches!(c, '=' | ',' | '-' | '_' | '%');
    match path(directory) {
        Some(problem) => Some(problem),
        None if directory == "/" => Some("cannot replace the root of the container".to_owned()),
        None if !options.chars().all(is_option) => {
            Some("the options after the path must be like size=64m,mode=1777".to_owned())
        }
        None => None,
    }
}

pub(in crate::spec) fn capability(name: &str) -> Option<String> {
    let is_valid =
        !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    (!is_valid).then(|| "must be the name of a capability, such as NET_RAW, or ALL".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_accepts_what_docker_does() {
        type Rule = fn(&str) -> Option<String>;
        let table: [(Rule, &[&str], &[&str]); 4] = [
            (path, &["/", "/srv/app", "/a b"], &["", "srv", "./x", "/a\0b"]),
            (user, &["0", "1000:1000", "app", "app:www-data"], &["", ":", "a:", ":b", "a:b:c", "a b"]),
            (
                tmpfs,
                &["/run", "/tmp:size=64m,mode=1777", "/tmp:noexec"],
                &["run", "/", "/run:a b", ":size=1", "/run:x;y"],
            ),
            (capability, &["ALL", "NET_RAW", "CAP_CHOWN", "net_raw"], &["", "NET RAW", "a-b", "1"]),
        ];
        for (rule, valid, invalid) in table {
            for text in valid {
                assert_eq!(rule(text), None, "{text}");
            }
            for text in invalid {
                assert!(rule(text).is_some(), "{text:?}");
            }
        }
        assert_eq!((pids_limit(0).is_some(), pids_limit(1), pids_limit(MAX_PIDS)), (true, None, None));
        assert!(pids_limit(MAX_PIDS + 1).is_some());
    }
}
