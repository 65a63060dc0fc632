//! Interpolates variables: `$V`, `${V}`, `${V:-default}`, `${V:?message}`, `${V:+other}` and, for unset
//! variables only, the same without the colon. They may be nested. `$$` is a dollar sign.

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Interpolated {
    pub(crate) text: String,
    /// Variables without a value or default.
    pub(crate) unset: Vec<String>,
}

/// Each level uses stack.
const MAX_DEPTH: usize = 32;

/// Variables made of variables can double a text repeatedly.
const MAX_BYTES: usize = 1 << 20;

pub(crate) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(crate) fn interpolate(text: &str, lookup: VariableLookup<'_>) -> Result<Interpolated, String> {
    interpolate_part(text, lookup, 0)
}

fn interpolate_part(text: &str, lookup: VariableLookup<'_>, depth: usize) -> Result<Interpolated, String> {
    if depth > MAX_DEPTH {
        return Err(format!("more than {MAX_DEPTH} variables are inside each other"));
    }
    let mut done = Interpolated::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        done.text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(after) = after.strip_prefix('$') {
            done.text.push('$');
            after
        } else if let Some(after) = after.strip_prefix('{') {
            let end = end_of_braces(after).ok_or_else(|| malformed(text))?;
            done.append(expand(&after[..end], lookup, depth)?);
            &after[end + 1..]
        } else {
            let name = name_at_start(after);
            match name {
                // Not a variable, such as `$1` or `$(date)`.
                "" => done.text.push('$'),
                name => done.append(plain(name, lookup)),
            }
            &after[name.len()..]
        };
        if done.text.len() > MAX_BYTES {
            return Err(format!("variables make a text longer than {} MiB", MAX_BYTES >> 20));
        }
    }
    done.text.push_str(rest);
    Ok(done)
}

impl Interpolated {
    fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.unset.extend(other.unset);
    }
}

fn malformed(text: &str) -> String {
    format!("{text:?} has a variable that is not closed or has no name; write $$ for a dollar sign")
}

fn end_of_braces(text: &str) -> Option<usize> {
    let (mut depth, mut previous) = (0_usize, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '{' if previous == '$' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
        previous = c;
    }
    None
}

fn name_at_start(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &text[..end] }
}

fn plain(name: &str, lookup: VariableLookup<'_>) -> Interpolated {
    match lookup(name) {
        Some(text) => Interpolated { text, unset: Vec::new() },
        None => Interpolated { text: String::new(), unset: vec![name.to_owned()] },
    }
}

fn expand(inner: &str, lookup: VariableLookup<'_>, depth: usize) -> Result<Interpolated, String> {
    let name = name_at_start(inner);
    if name.is_empty() {
        return Err(malformed(&format!("${{{inner}}}")));
    }
    let operator = &inner[name.len()..];
    let value = lookup(name);
    let (is_set, operator) = match operator.strip_prefix(':') {
        Some(operator) => (value.as_ref().is_some_and(|value| !value.is_empty()), operator),
        None => (value.is_some(), operator),
    };
    match (operator.split_at_checked(1), is_set) {
        (Some(("-" | "?", _)), true) => Ok(plain(name, lookup)),
        (Some(("-", default)), false) | (Some(("+", default)), true) => {
            interpolate_part(default, lookup, depth + 1)
        }
        (Some(("+", _)), false) => Ok(Interpolated::default()),
        (Some(("?", message)), false) => {
            let message = interpolate_part(message, lookup, depth + 1)?.text;
            let reason = if message.is_empty() { "it must have a value" } else { &message };
            Err(format!("variable {name} is not set: {reason}"))
        }
        (None, _) if inner.len() == name.len() => Ok(plain(name, lookup)),
        _ => Err(malformed(&format!("${{{inner}}}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "V" => Some("v".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_as_compose_does() {
        for (text, expected) in [
            ("no variable", "no variable"),
            ("$V ${V} a${V}b", "v v avb"),
            ("$$V $${V}", "$V ${V}"),
            ("${V:-d} ${V-d} ${EMPTY:-d} ${EMPTY-d} ${NO:-d} ${NO-d}", "v v d  d d"),
            ("${V:+a} ${V+a} ${EMPTY:+a} ${EMPTY+a} ${NO:+a} ${NO+a}", "a a  a  "),
            ("${V:?m} ${V?m} ${EMPTY?m}", "v v "),
            ("${NO:-${V}} ${NO:-${EMPTY:-deep}} ${NO:-a}b}", "v deep ab}"),
            ("${NO:-http://x:80/?a=b}", "http://x:80/?a=b"),
            ("${NO:-}", ""),
            ("cost: 5$ $1 $(date) $", "cost: 5$ $1 $(date) $"),
            ("{{.Node}} ${V}", "{{.Node}} v"),
            ("${NO:-{}}", "{}"),
            ("ü$V", "üv"),
        ] {
            let done = interpolate(text, &lookup).unwrap();
            assert_eq!((done.text.as_str(), done.unset), (expected, vec![]), "{text}");
        }
    }

    #[test]
    fn an_unset_variable_is_replaced_by_nothing_and_named() {
        let done = interpolate("a$NO/${ALSO}b", &lookup).unwrap();
        assert_eq!((done.text.as_str(), done.unset), ("a/b", vec!["NO".to_owned(), "ALSO".to_owned()]));
    }

    #[test]
    fn a_required_variable_and_a_malformed_text_are_refused() {
        for (text, part) in [
            ("${NO:?say which}", "variable NO is not set: say which"),
            ("${EMPTY:?}", "variable EMPTY is not set: it must have a value"),
            ("${NO?${V}!}", "variable NO is not set: v!"),
            ("${V", "not closed"),
            ("${}", "no name"),
            ("${V/a/b}", "not closed or has no name"),
            (
                &format!("{}{}", "${NO:-".repeat(60_000), "}".repeat(60_000)),
                "more than 32 variables are inside",
            ),
        ] {
            let error = interpolate(text, &lookup).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
