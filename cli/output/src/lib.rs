//! Output of commands: tables for people; JSON, YAML and names for scripts. It knows no commands and reads no
//! input.
//!
//! Tests: tests, kubeleet::commands::tests

pub mod changed_rows;
pub mod describe_layout;
pub mod humanize;
pub mod line_diff;
pub mod log_lines;
pub mod objects;
mod output_format;
mod printer;
pub mod stderr;
pub mod table;
mod table_row;
#[cfg(any(test, feature = "testing"))]
pub mod test_output;
#[cfg(test)]
mod tests;

pub use output_format::{ListStyle, OutputFormat};
pub use printer::Output;
pub use table_row::{TableRow, Titles};
