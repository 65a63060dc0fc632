//! Layout of `describe`: labelled fields, then sections.

use std::fmt::Write;

use crate::humanize::printable;

#[derive(Default)]
pub struct DescribeLayout {
    text: String,
}

const VALUE_COLUMN: usize = 16;

impl DescribeLayout {
    /// Indents further lines of the value; skips an empty value.
    pub fn field(&mut self, label: &str, value: impl AsRef<str>) -> &mut Self {
        let value = printable(value.as_ref());
        if value.is_empty() {
            return self;
        }
        let label = if label.is_empty() { String::new() } else { format!("{label}:") };
        let value = value.trim_end().replace('\n', &format!("\n{:VALUE_COLUMN$}", ""));
        writeln!(self.text, "{label:VALUE_COLUMN$}{value}").expect("writing to a String");
        self
    }

    pub fn fields(&mut self, label: &str, values: impl IntoIterator<Item = String>) -> &mut Self {
        let values: Vec<String> = values.into_iter().collect();
        self.field(label, values.join("\n"))
    }

    /// Adds nothing without lines.
    pub fn section(&mut self, heading: &str, lines: impl IntoIterator<Item = String>) -> &mut Self {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_some() {
            writeln!(self.text, "\n{heading}").expect("writing to a String");
            for line in lines {
                writeln!(self.text, "  {}", printable(&line)).expect("writing to a String");
            }
        }
        self
    }

    /// Also empties the layout.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_and_sections_are_left_out() {
        let mut layout = DescribeLayout::default();
        layout.field("Name", "web").field("Node", "").fields("Labels", ["a=b".to_owned(), "c=d".to_owned()]);
        layout.section("Events", []).section("See also", ["redis-cli LLEN sq".to_owned()]);
        assert_eq!(
            layout.finish(),
            "Name:           web\nLabels:         a=b\n                c=d\n\n\
             See also\n  redis-cli LLEN sq\n"
        );
    }
}
