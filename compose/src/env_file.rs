//! Files of variables: `.env`, and the `env_file` of services.

use crate::interpolate::{VariableLookup, interpolate};

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvFileFormat {
    /// With quotation marks, comments behind values, and variables.
    Compose,
    /// Everything after `=` is the value.
    Raw,
}

/// A variable without a value takes that of the environment.
pub(crate) type Variable = (String, Option<String>);

/// Reads the variables of a file. A value may use those above it.
///
/// # Errors
/// The number of the line, and what is wrong there.
pub(crate) fn parse(
    text: &str,
    format: EnvFileFormat,
    lookup: VariableLookup<'_>,
) -> Result<Vec<Variable>, (u64, String)> {
    let mut variables: Vec<Variable> = Vec::new();
    let mut lines = text.trim_start_matches('\u{feff}').lines().zip(1u64..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        let Some((name, value)) = line.split_once('=') else {
            variables.push((checked(line.trim_end(), number)?.to_owned(), None));
            continue;
        };
        let name = checked(name.trim_end(), number)?;
        let value = match format {
            EnvFileFormat::Raw => value.to_owned(),
            EnvFileFormat::Compose => {
                let mut whole = value.trim_start().to_owned();
                // A value in quotation marks may have several lines.
                while is_open(&whole) {
                    let Some((next, _)) = lines.next() else {
                        return Err((number, format!("the quotation mark of {name} is not closed")));
                    };
                    whole.push('\n');
                    whole.push_str(next);
                }
                let own = |wanted: &str| {
                    let above = || variables.iter().rev().find(|(name, _)| name == wanted);
                    lookup(wanted).or_else(|| above()?.1.clone())
                };
                value_of(&whole, &own).map_err(|problem| (number, problem))?
            }
        };
        variables.push((name.to_owned(), Some(value)));
    }
    Ok(variables)
}

fn checked(name: &str, line: u64) -> Result<&str, (u64, String)> {
    let is_valid = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    if is_valid {
        Ok(name)
    } else {
        Err((line, format!("{name:?} is not the name of a variable: write KEY=value")))
    }
}

/// Returns whether a value begins with a quotation mark that is not closed.
fn is_open(value: &str) -> bool {
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => end_of_quote(&value[1..], quote).is_none(),
        _ => false,
    }
}

fn end_of_quote(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped && quote == '"';
        ends.then_some(at)
    })
}

fn value_of(text: &str, lookup: VariableLookup<'_>) -> Result<String, String> {
    if let Some(rest) = text.strip_prefix('\'') {
        let end = end_of_quote(rest, '\'').unwrap_or(rest.len());
        return Ok(rest[..end].to_owned());
    }
    if let Some(rest) = text.strip_prefix('"') {
        let end = end_of_quote(rest, '"').unwrap_or(rest.len());
        return Ok(interpolate(&unescaped(&rest[..end]), lookup)?.text);
    }
    let without_comment = match text.find(" #").or_else(|| text.find("\t#")) {
        Some(at) => &text[..at],
        None => text,
    };
    Ok(interpolate(without_comment.trim_end(), lookup)?.text)
}

/// Replaces the escapes of a text in double quotation marks. An escaped dollar sign becomes two, which mean
/// one.
fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('$') => out.push_str("$$"),
            Some(c @ ('"' | '\\')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn read(text: &str, format: EnvFileFormat) -> Vec<(String, Option<String>)> {
        parse(text, format, &|name| (name == "HOME").then(|| "/home/a".to_owned())).unwrap()
    }

    #[test]
    fn values_have_quotes_comments_and_variables() {
        for (line, value) in [
            ("A=b", "b"),
            ("A = b c  ", "b c"),
            ("export A=b", "b"),
            ("A=b # comment", "b"),
            ("A=b#c", "b#c"),
            ("A='$HOME # \\n'", "$HOME # \\n"),
            ("A=\"$HOME\\n\\$x \\\"q\\\"\" # comment", "/home/a\n$x \"q\""),
            ("A=${HOME}/x", "/home/a/x"),
            ("A=${NO:-d}", "d"),
            ("A=", ""),
            ("A=\"two\nlines\"", "two\nlines"),
            ("# c\n\nB=1\nA=$B", "1"),
            ("A=a=b", "a=b"),
        ] {
            let found = read(line, EnvFileFormat::Compose);
            assert_eq!(found.last().unwrap(), &("A".to_owned(), Some(value.to_owned())), "{line}");
        }
        assert_eq!(read("A", EnvFileFormat::Compose), [("A".to_owned(), None)]);
    }

    #[test]
    fn a_raw_file_is_taken_literally() {
        let found = read("A=\"$HOME\" # x\n", EnvFileFormat::Raw);
        assert_eq!(found, [("A".to_owned(), Some("\"$HOME\" # x".to_owned()))]);
    }

    #[test]
    fn a_mistake_has_its_line() {
        let error = |text: &str| parse(text, EnvFileFormat::Compose, &|_| None).unwrap_err();
        assert_eq!(error("A=1\nB C=2\n").0, 2);
        assert_eq!(error("\nA=\"x\nB=2\n").0, 2);
        assert!(error("=x").1.contains("KEY=value"));
        assert!(error("A=${B:?no B}").1.contains("no B"));
    }
}
