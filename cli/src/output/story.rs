//! The layout of `describe`: labelled lines in sections.

use std::fmt::Write;

use super::words::printable;

/// A text that grows line by line.
#[derive(Default)]
pub(crate) struct Story {
    text: String,
}

/// Where values begin.
const INDENT: usize = 14;

impl Story {
    /// A labelled line; nothing when there is nothing to say. Further lines of the value are indented.
    pub(crate) fn line(&mut self, label: &str, value: impl AsRef<str>) -> &mut Self {
        let value = printable(value.as_ref());
        if value.is_empty() {
            return self;
        }
        let label = if label.is_empty() { String::new() } else { format!("{label}:") };
        let value = value.trim_end().replace('\n', &format!("\n{:INDENT$}", ""));
        writeln!(self.text, "{label:INDENT$}{value}").expect("writing to a String");
        self
    }

    /// Labelled lines under one label.
    pub(crate) fn lines(&mut self, label: &str, values: impl IntoIterator<Item = String>) -> &mut Self {
        let all: Vec<String> = values.into_iter().collect();
        self.line(label, all.join("\n"))
    }

    /// A heading with free lines below; nothing when there are none.
    pub(crate) fn section(&mut self, heading: &str, lines: impl IntoIterator<Item = String>) -> &mut Self {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_some() {
            writeln!(self.text, "\n{heading}").expect("writing to a String");
            for line in lines {
                writeln!(self.text, "  {}", printable(&line)).expect("writing to a String");
            }
        }
        self
    }

    /// The whole.
    pub(crate) fn tell(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_things_are_not_mentioned() {
        let mut story = Story::default();
        story.line("Name", "web").line("Node", "").lines("Labels", ["a=b".to_owned(), "c=d".to_owned()]);
        story.section("Events", []).section("See also", ["redis-cli LLEN sq".to_owned()]);
        assert_eq!(
            story.tell(),
            "Name:         web\nLabels:       a=b\n              c=d\n\nSee also\n  redis-cli LLEN sq\n"
        );
    }
}
