//! Formats log lines for people.

use std::io::IsTerminal;

use api_types::LogItemView;

use crate::humanize;

/// Readable on light and dark terminals.
const COLORS: [u8; 6] = [36, 33, 32, 35, 34, 31];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineStyle {
    pub names: bool,
    pub timestamps: bool,
    pub colors: bool,
    /// A pod could overwrite the lines of others.
    pub escapes: bool,
    pub json: bool,
}

pub fn allows_styling(stream: &impl IsTerminal) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

impl LineStyle {
    pub fn print(self, item: &LogItemView) -> String {
        if self.json {
            return serde_json::to_string(item).map(|json| json + "\n").unwrap_or_default();
        }
        let mut line = String::new();
        if self.names {
            let container = item.container.as_ref().map_or_else(String::new, |name| format!("/{name}"));
            let name = format!("{}{container}", humanize::printable(&item.pod));
            match self.colors {
                true => line.push_str(&format!("\x1b[{}m{name} |\x1b[0m ", color(&name))),
                false => line.push_str(&format!("{name} | ")),
            }
        }
        if self.timestamps {
            line.push_str(&format!("{} ", item.time));
        }
        match self.escapes && self.names {
            true => line.push_str(&escaped(&item.text)),
            false => line.push_str(&item.text),
        }
        line.push('\n');
        line
    }
}

/// Makes control characters visible, `\r` as `^M`. Colours stay, and end with the line.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_colored = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(color) = color_code(rest) {
            escaped.push_str(color);
            is_colored = true;
            rest = &rest[color.len()..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\t' => escaped.push(c),
            '\0'..='\u{1f}' => escaped.extend(['^', char::from(c as u8 + b'@')]),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    // Programs end each line with this on a terminal.
    let mut line = escaped.strip_suffix("^M").unwrap_or(&escaped).to_owned();
    if is_colored {
        line.push_str("\x1b[0m");
    }
    line
}

/// Only if it changes colours: `ESC [ 1 ; 31 m`.
fn color_code(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
    parameters[end..].starts_with('m').then(|| &text[..text.len() - parameters.len() + end + 1])
}

fn color(name: &str) -> u8 {
    let sum = name.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    COLORS[sum % COLORS.len()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::ContainerName;

    use super::*;

    #[test]
    fn a_line_has_what_was_asked_for_before_it() {
        let item = LogItemView {
            time: "2026-01-31T12:00:00.5Z".to_owned(),
            pod: "web-0".to_owned(),
            text: "hello".to_owned(),
            ..LogItemView::default()
        };
        let of_two = LogItemView { container: Some(ContainerName::new("cache").unwrap()), ..item.clone() };
        let plain = LineStyle::default();
        let names = LineStyle { names: true, ..plain };
        assert_eq!(plain.print(&item), "hello\n");
        assert_eq!(names.print(&item), "web-0 | hello\n");
        assert_eq!(names.print(&of_two), "web-0/cache | hello\n");
        let both = LineStyle { timestamps: true, ..names };
        assert_eq!(both.print(&item), "web-0 | 2026-01-31T12:00:00.5Z hello\n");
        let colored = LineStyle { colors: true, ..names }.print(&item);
        assert!(colored.starts_with("\x1b[3") && colored.ends_with("mweb-0 |\x1b[0m hello\n"), "{colored:?}");
        let forged = LogItemView { text: "x\r\x1b[2Kweb-1 | y\x1b]0;t\x07".to_owned(), ..item.clone() };
        let escaping = LineStyle { escapes: true, ..names };
        assert_eq!(escaping.print(&forged), "web-0 | x^M^[[2Kweb-1 | y^[]0;t^G\n");
        let red = LogItemView { text: "\x1b[1;31mred\x1b[39m\tx\r".to_owned(), ..item.clone() };
        assert_eq!(escaping.print(&red), "web-0 | \x1b[1;31mred\x1b[39m\tx\x1b[0m\n");
        let of_one = LineStyle { escapes: true, ..plain };
        assert_eq!(of_one.print(&forged), format!("{}\n", forged.text), "no other pod's line is there");
        let json = LineStyle { json: true, ..names }.print(&item);
        assert_eq!(serde_json::from_str::<LogItemView>(&json).unwrap(), item);
    }
}
