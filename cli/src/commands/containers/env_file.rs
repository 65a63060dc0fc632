//! Environment variables as `docker run` reads them.

use crate::commands::error::{CommandError, CommandResult};

/// `KEY` alone takes the value in this command's environment.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    variable_from(text, |key| std::env::var(key).ok())
}

fn variable_from(text: &str, get: impl Fn(&str) -> Option<String>) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        None if !text.is_empty() => match get(text) {
            Some(value) => Ok((text.to_owned(), value)),
            None => Err(format!("{text:?} is not KEY=value, and no variable of that name is set here")),
        },
        _ => Err(format!("{text:?} is not KEY=value")),
    }
}

/// One variable per line, `#` begins a comment line.
pub(crate) fn read(path: &str) -> CommandResult<Vec<(String, String)>> {
    let text = std::fs::read_to_string(path).map_err(|error| CommandError::unreadable(path, &error))?;
    parse(&text, variable).map_err(|(line, problem)| CommandError::Usage(format!("{path}:{line}: {problem}")))
}

fn parse(
    text: &str,
    variable: impl Fn(&str) -> Result<(String, String), String>,
) -> Result<Vec<(String, String)>, (usize, String)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_start()));
    let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    entries.map(|(number, line)| variable(line).map_err(|problem| (number, problem))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn from_home(text: &str) -> Result<(String, String), String> {
        variable_from(text, |key| (key == "HOME").then(|| "/home/a".to_owned()))
    }

    #[test]
    fn a_name_alone_has_the_value_of_this_environment() {
        for (text, key, value) in [("A=b=c", "A", "b=c"), ("A=", "A", ""), ("HOME", "HOME", "/home/a")] {
            assert_eq!(from_home(text).unwrap(), (key.to_owned(), value.to_owned()), "{text}");
        }
        for bad in ["", "=x", "UNSET"] {
            assert!(from_home(bad).unwrap_err().contains("KEY=value"), "{bad}");
        }
    }

    #[test]
    fn a_file_has_a_variable_per_line() {
        let text = "# comment\nA=1\r\n\n  B=x # y\nHOME\n";
        let variables = parse(text, from_home).unwrap();
        let expected = [("A", "1"), ("B", "x # y"), ("HOME", "/home/a")];
        assert_eq!(variables, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(parse("A=1\n\nUNSET\n", from_home).unwrap_err().0, 3);
    }
}
