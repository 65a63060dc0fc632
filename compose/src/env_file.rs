//! Reads `.env`, and the `env_file` of services.

use crate::interpolate::{VariableLookup, interpolate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvFileFormat {
    /// With quotation marks, comments and variables.
    Compose,
    /// Everything after `=` is the value.
    Raw,
}

/// A variable without a value takes it from the environment.
pub(crate) type Variable = (String, Option<String>);

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvFile {
    pub(crate) variables: Vec<Variable>,
    /// Each with its line number.
    pub(crate) unset: Vec<(u64, String)>,
}

type LineProblem = (u64, String);

/// A value may use variables defined above it.
///
/// # Errors
/// The line number and the problem.
pub(crate) fn parse(
    text: &str,
    format: EnvFileFormat,
    lookup: VariableLookup<'_>,
) -> Result<EnvFile, LineProblem> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    match format {
        EnvFileFormat::Raw => parse_raw(&text),
        EnvFileFormat::Compose => {
            let mut reader = EnvReader { rest: &text, line: 1, file: EnvFile::default() };
            while let Some((line, name, has_value)) = reader.next_name()? {
                let value = if has_value { Some(reader.value(line, name, lookup)?) } else { None };
                reader.file.variables.push((name.to_owned(), value));
            }
            Ok(reader.file)
        }
    }
}

fn parse_raw(text: &str) -> Result<EnvFile, LineProblem> {
    let mut file = EnvFile::default();
    for (line, number) in text.lines().zip(1u64..) {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (line, None),
        };
        file.variables.push((checked(name, number)?.to_owned(), value));
    }
    Ok(file)
}

fn checked(name: &str, line: u64) -> Result<&str, LineProblem> {
    let is_valid = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    if is_valid { Ok(name) } else { Err(no_name(name, line)) }
}

fn no_name(name: &str, line: u64) -> LineProblem {
    (line, format!("{name:?} is not the name of a variable: write KEY=value"))
}

/// Another variable may follow a quoted value on the same line.
struct EnvReader<'a> {
    rest: &'a str,
    line: u64,
    file: EnvFile,
}

impl<'a> EnvReader<'a> {
    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.rest.split_at(bytes);
        self.line += skipped.matches('\n').count() as u64;
        self.rest = rest;
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(is_space);
    }

    /// Returns the line, the name, and whether a value follows.
    fn next_name(&mut self) -> Result<Option<(u64, &'a str, bool)>, LineProblem> {
        loop {
            self.skip(self.rest.len() - self.rest.trim_start().len());
            match self.rest.starts_with('#') {
                true => self.skip(self.end_of_line()),
                false if self.rest.is_empty() => return Ok(None),
                false => break,
            }
        }
        if let Some(after) = self.rest.strip_prefix("export").filter(|after| after.starts_with(is_space)) {
            self.rest = after;
            self.skip_spaces();
        }
        let line = self.line;
        let end = self.rest.find(['=', ':', '\n']).unwrap_or(self.rest.len());
        let name = self.rest[..end].trim_end();
        let is_part = |c: char| c.is_alphanumeric() || is_space(c) || "_.-[]".contains(c);
        if !name.chars().all(is_part) {
            return Err(no_name(&self.rest[..self.end_of_line()], line));
        }
        let name = checked(name, line)?;
        let has_value = matches!(self.rest[end..].chars().next(), Some('=' | ':'));
        self.skip((end + 1).min(self.rest.len()));
        Ok(Some((line, name, has_value)))
    }

    fn end_of_line(&self) -> usize {
        self.rest.find('\n').unwrap_or(self.rest.len())
    }

    fn value(&mut self, line: u64, name: &str, lookup: VariableLookup<'_>) -> Result<String, LineProblem> {
        self.skip_spaces();
        let template = match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let Some(quoted) = self.quoted(quote) else {
                    return Err((line, format!("the quotation mark of {name} is not closed")));
                };
                if quote == '\'' {
                    return Ok(quoted);
                }
                unescaped(&quoted)
            }
            _ => self.unquoted().to_owned(),
        };
        let variables = &self.file.variables;
        let own = |wanted: &str| {
            let above = || variables.iter().rev().find(|(name, _)| name == wanted);
            lookup(wanted).or_else(|| above()?.1.clone())
        };
        let done = interpolate(&template, &own).map_err(|problem| (line, problem))?;
        self.file.unset.extend(done.unset.into_iter().map(|name| (line, name)));
        Ok(done.text)
    }

    fn unquoted(&mut self) -> &'a str {
        let end = self.end_of_line();
        let value = &self.rest[..end];
        self.skip(end);
        let is_comment = |(at, _): &(usize, &str)| value[..*at].ends_with(is_space);
        let comment = value.match_indices('#').find(is_comment);
        value[..comment.map_or(value.len(), |(at, _)| at)].trim_end()
    }

    /// Unescapes only the mark. `None` if the closing mark is missing.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let (mut value, mut is_escaped) = (String::new(), false);
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                c if c == quote && is_escaped => {
                    value.push(c);
                    is_escaped = false;
                }
                c if c == quote => {
                    self.skip(at + 1);
                    return Some(value);
                }
                '\\' if !is_escaped => is_escaped = true,
                c => {
                    if is_escaped {
                        value.push('\\');
                    }
                    value.push(c);
                    is_escaped = false;
                }
            }
        }
        None
    }
}

fn is_space(c: char) -> bool {
    c.is_whitespace() && c != '\n'
}

/// An escaped dollar sign becomes `$$`, which means one.
fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\u{b}'),
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
        parse(text, format, &|name| (name == "HOME").then(|| "/home/a".to_owned())).unwrap().variables
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
            // docker/compose#9938
            ("A='a\\'b'", "a'b"),
            ("A='\\a\\\\b'", "\\a\\\\b"),
            ("A=\"\\x\\v\"", "\\x\u{b}"),
            ("A: b: c", "b: c"),
            ("export\tA = b\t#c", "b"),
            ("A=# no comment", "# no comment"),
            ("B='x'A=\"y\" # c", "y"),
            ("B=1\r\nA=$B\r\n", "1"),
            ("A=$$x", "$x"),
            ("exportA=1\nA=$exportA", "1"),
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
        let error = parse("export A=1", EnvFileFormat::Raw, &|_| None).unwrap_err();
        assert!(error.1.starts_with("\"export A\" is not the name"), "{error:?}");
    }

    #[test]
    fn variables_that_are_not_set_are_named_with_their_lines() {
        let text = "A=\"pa$word\"\n\nB=${NOPE}/y\nC='$quoted'\nD=${NO:-d}$A\n";
        let unset = parse(text, EnvFileFormat::Compose, &|_| None).unwrap().unset;
        assert_eq!(unset, [(1, "word".to_owned()), (3, "NOPE".to_owned())]);
    }

    #[test]
    fn a_mistake_has_its_line() {
        let error = |text: &str| parse(text, EnvFileFormat::Compose, &|_| None).unwrap_err();
        assert_eq!(error("A=1\nB C=2\n").0, 2);
        assert_eq!(error("\nA=\"x\nB=2\n").0, 2);
        assert_eq!(error("A=\"1\n2\"\nB!=2\n").0, 3);
        assert!(error("=x").1.contains("KEY=value"));
        assert!(error("A=${B:?no B}").1.contains("no B"));
    }
}
