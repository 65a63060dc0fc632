//! Numbers and booleans as Compose reads them: by YAML 1.2 with parts of 1.1.

use document::DocumentNode;

use crate::compose_document::names_of;
use crate::fields;

const TRUE: [&str; 3] = ["y", "yes", "on"];
const FALSE: [&str; 3] = ["n", "no", "off"];

const OF_SERVICES: [&str; 12] = [
    "services.*.init",
    "services.*.read_only",
    "services.*.privileged",
    "services.*.tty",
    "services.*.stdin_open",
    "services.*.oom_kill_disable",
    "services.*.use_api_socket",
    "services.*.healthcheck.disable",
    "services.*.volumes.read_only",
    "services.*.env_file.required",
    "services.*.depends_on.*.required",
    "services.*.depends_on.*.restart",
];
const OF_RESOURCES: [&str; 4] = ["external", "internal", "attachable", "enable_ipv6"];

pub(crate) fn write_booleans(root: &mut DocumentNode) {
    for name in names_of(root, "services") {
        if let Some(service) = root.get_mut("services").and_then(|services| services.get_mut(&name)) {
            write_below(service, fields::SERVICE);
        }
    }
    for group in ["networks", "volumes", "secrets", "configs"] {
        for name in names_of(root, group) {
            let Some(resource) = root.get_mut(group).and_then(|group| group.get_mut(&name)) else { continue };
            for field in OF_RESOURCES {
                resource.get_mut(field).into_iter().for_each(write);
            }
        }
    }
}

fn write_below(node: &mut DocumentNode, path: &str) {
    if let Some(items) = node.items_mut() {
        return items.iter_mut().for_each(|item| write_below(item, path));
    }
    let names: Vec<String> = node.fields().map(|field| field.name.to_owned()).collect();
    for name in names {
        let any = format!("{path}.*");
        let inner = match OF_SERVICES.iter().any(|field| field.starts_with(&format!("{any}."))) {
            true => any,
            false => format!("{path}.{name}"),
        };
        let Some(value) = node.get_mut(&name) else { continue };
        if OF_SERVICES.contains(&inner.as_str()) {
            write(value);
        } else if OF_SERVICES.iter().any(|field| field.starts_with(&format!("{inner}."))) {
            write_below(value, &inner);
        }
    }
}

fn write(node: &mut DocumentNode) {
    let Some(text) = node.scalar().map(|text| text.to_ascii_lowercase()) else { return };
    let written = match text.as_str() {
        "true" | "false" => &text,
        text if TRUE.contains(&text) => "true",
        text if FALSE.contains(&text) => "false",
        _ => return,
    };
    *node = node.with_text(written).unquoted();
}

/// As Compose writes it in a map of texts: an unquoted `0644` is the number 420.
pub(crate) fn as_text(node: &DocumentNode) -> Option<String> {
    let text = node.scalar()?;
    if !node.is_plain() {
        return Some(text.into_owned());
    }
    Some(match &*text {
        "True" | "TRUE" => "true".to_owned(),
        "False" | "FALSE" => "false".to_owned(),
        text => number(text).unwrap_or_else(|| text.to_owned()),
    })
}

fn number(text: &str) -> Option<String> {
    let (is_negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let digits = digits.replace('_', "");
    let is_in_range = |whole: &u64| !is_negative || *whole <= i64::MIN.unsigned_abs();
    if let Some(whole) = whole_number(&digits).filter(is_in_range) {
        let sign = if is_negative && whole != 0 { "-" } else { "" };
        return Some(format!("{sign}{whole}"));
    }
    let is_decimal = digits.chars().all(|c| c.is_ascii_digit() || ".eE+-".contains(c));
    let begins = digits.starts_with(|c: char| c.is_ascii_digit())
        || digits.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let float: f64 = digits.parse().ok().filter(|float: &f64| is_decimal && begins && float.is_finite())?;
    Some(float_text(if is_negative { -float } else { float }))
}

fn whole_number(digits: &str) -> Option<u64> {
    for (prefix, base) in [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2), ("0o", 8), ("0O", 8)] {
        if let Some(rest) = digits.strip_prefix(prefix) {
            return u64::from_str_radix(rest, base).ok();
        }
    }
    if !digits.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // YAML 1.1: a leading zero makes it octal, if possible.
    if digits.len() > 1 && digits.starts_with('0') {
        return u64::from_str_radix(digits, 8).ok();
    }
    digits.parse().ok()
}

/// Like Go: with an exponent of at least two digits if the number is small or at least a million.
fn float_text(float: f64) -> String {
    let scientific = format!("{float:e}");
    let parts =
        scientific.split_once('e').and_then(|(mantissa, exponent)| Some((mantissa, exponent.parse().ok()?)));
    match parts {
        Some((mantissa, exponent @ (i32::MIN..-4 | 6..))) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => float.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{service_of, shown};

    #[test]
    fn numbers_are_written_as_compose_does() {
        for (written, text) in [
            ("TRUE", "true"),
            ("False", "false"),
            ("yes", "yes"),
            ("'TRUE'", "TRUE"),
            ("'0644'", "0644"),
            ("0644", "420"),
            ("08", "8"),
            ("-010", "-8"),
            ("0o17", "15"),
            ("0x10", "16"),
            ("-0x1F", "-31"),
            ("0b11", "3"),
            ("1_000", "1000"),
            ("+5", "5"),
            ("-0", "0"),
            ("-0.0", "-0"),
            ("00.5", "0.5"),
            ("1.10", "1.1"),
            ("1.0", "1"),
            ("1.", "1"),
            (".5", "0.5"),
            ("1e3", "1000"),
            ("1E+05", "100000"),
            ("1e6", "1e+06"),
            ("123456789.123", "1.23456789123e+08"),
            ("123456.5", "123456.5"),
            ("0.00001", "1e-05"),
            ("1.5e-7", "1.5e-07"),
            ("0.0001", "0.0001"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("-9223372036854775809", "-9.223372036854776e+18"),
            ("0x", "0x"),
            ("0b2", "0b2"),
            ("0o8", "0o8"),
            ("1.2.3", "1.2.3"),
            ("1-2", "1-2"),
            (".e5", ".e5"),
            ("1e", "1e"),
            ("1:30", "1:30"),
            ("_1", "_1"),
            ("inf", "inf"),
            ("nan", "nan"),
            (".", "."),
            ("-", "'-'"),
        ] {
            let written = if written == "-" { "'-'" } else { written };
            let text = text.trim_matches('\'');
            assert_eq!(as_text(&service_of(written)).as_deref(), Some(text), "{written}");
        }
    }

    #[test]
    fn booleans_of_fields_may_be_written_in_words() {
        let mut root = service_of(
            "services: {a: {init: Yes, read_only: 'on', tty: OFF, user: yes, healthcheck: {disable: n}, \
             volumes: [{read_only: TRUE}], depends_on: {b: {required: no}}, env_file: [{required: False}, x]}}\n\
             networks: {n: {internal: y}}\nsecrets: {s: {external: True}}\n",
        );
        write_booleans(&mut root);
        let expected = "{services: {a: {init: true, read_only: true, tty: false, user: yes, healthcheck: {disable: false}, \
                        volumes: [{read_only: true}], depends_on: {b: {required: false}}, \
                        env_file: [{required: false}, x]}}, networks: {n: {internal: true}}, \
                        secrets: {s: {external: true}}}";
        assert_eq!(shown(&root), expected);
    }
}
