//! Data on standard output: tables for people; JSON, YAML and names for scripts.

pub(crate) mod changed_rows;
pub(crate) mod describe_layout;
pub(crate) mod humanize;
pub(crate) mod line_diff;
pub(crate) mod log_lines;
pub(crate) mod objects;
mod output_format;
mod printer;
pub(crate) mod table;
mod table_row;
#[cfg(test)]
pub(crate) mod test_output;
#[cfg(test)]
mod tests;

pub(crate) use output_format::{ListStyle, OutputFormat};
pub(crate) use printer::Output;
pub(crate) use table_row::TableRow;
