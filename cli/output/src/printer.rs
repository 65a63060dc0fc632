//! Prints data on standard output.

use std::collections::HashMap;
use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;

use crate::changed_rows::ChangedRows;
use crate::output_format::{ListStyle, OutputFormat};
use crate::stderr;
use crate::table;
use crate::table_row::TableRow;

pub struct Output {
    pub format: OutputFormat,
    pub list_style: ListStyle,
    pub(crate) now: Timestamp,
    pub(crate) sink: Box<dyn Write + Send>,
}

impl Output {
    /// Unfiltered, because logs must be printed byte for byte.
    pub fn stdout(format: OutputFormat) -> Self {
        Self { format, list_style: ListStyle::default(), now: Timestamp::now(), sink: Box::new(io::stdout()) }
    }

    /// The time that ages refer to.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Instead of an empty table, prints `hint` on standard error.
    pub fn print_list<T: TableRow>(&mut self, items: &[T], hint: &str) -> io::Result<()> {
        if self.list_style.quiet {
            return items.iter().try_for_each(|item| writeln!(self.sink, "{}", item.id()));
        }
        match self.format {
            OutputFormat::Table | OutputFormat::Wide if items.is_empty() => {
                stderr::note(hint);
                Ok(())
            }
            OutputFormat::Table | OutputFormat::Wide => {
                let wide = self.format == OutputFormat::Wide;
                let rows = items.iter().map(|item| item.row(wide, self.now)).collect();
                self.print_text(&table::render(&self.titles::<T>(), rows))
            }
            OutputFormat::Json | OutputFormat::Yaml => self.print_data(&ItemList { items }),
            OutputFormat::Name => {
                unique_names(items).into_iter().try_for_each(|name| writeln!(self.sink, "{name}"))
            }
        }
    }

    pub fn print_changes<T: TableRow + PartialEq + Clone>(
        &mut self,
        items: &[T],
        rows_so_far: &mut ChangedRows<T>,
    ) -> io::Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        match self.format {
            OutputFormat::Table | OutputFormat::Wide if !self.list_style.quiet => {
                let (wide, now) = (self.format == OutputFormat::Wide, Timestamp::now());
                let rows = items.iter().map(|item| item.row(wide, now)).collect();
                let text = table::render_below(&self.titles::<T>(), rows, &mut rows_so_far.widths);
                self.list_style.no_headers = true;
                self.print_text(&text)?;
                self.sink.flush()
            }
            OutputFormat::Json | OutputFormat::Yaml if !self.list_style.quiet => {
                items.iter().try_for_each(|item| self.print_stream_item(item, String::new))
            }
            _ => {
                self.print_list(items, "")?;
                self.sink.flush()
            }
        }
    }

    fn titles<T: TableRow>(&self) -> Vec<&'static str> {
        if self.list_style.no_headers { Vec::new() } else { T::titles(self.format == OutputFormat::Wide) }
    }

    /// `service/web created`.
    pub fn print_result<T: TableRow>(&mut self, item: &T, result: &str) -> io::Result<()> {
        self.print_object(item, |_| format!("{} {result}", item.name()))
    }

    /// As [`Output::print_result`], for an object known only by name.
    pub fn print_result_of(&mut self, name: &str, result: &str) -> io::Result<()> {
        self.print_named_result(name, &format!("{name} {result}"), result)
    }

    /// `text` is the line for people.
    pub fn print_named_result(&mut self, name: &str, text: &str, result: &str) -> io::Result<()> {
        match self.format {
            OutputFormat::Table | OutputFormat::Wide => writeln!(self.sink, "{text}"),
            OutputFormat::Json | OutputFormat::Yaml => {
                self.print_data(&serde_json::json!({ "object": name, "result": result }))
            }
            OutputFormat::Name => writeln!(self.sink, "{name}"),
        }
    }

    /// `description` is for people; scripts get the data.
    pub fn print_object<T: TableRow>(
        &mut self,
        item: &T,
        description: impl FnOnce(Timestamp) -> String,
    ) -> io::Result<()> {
        match self.format {
            OutputFormat::Table | OutputFormat::Wide => self.print_text(&description(self.now)),
            OutputFormat::Json | OutputFormat::Yaml => self.print_data(item),
            OutputFormat::Name => writeln!(self.sink, "{}", item.name()),
        }
    }

    pub fn print_document<T: Serialize>(
        &mut self,
        data: &T,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        match self.format {
            OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => self.print_text(&text()),
            OutputFormat::Json | OutputFormat::Yaml => self.print_data(data),
        }
    }

    /// Scripts get a line of JSON or a YAML document.
    pub fn print_stream_item<T: Serialize>(
        &mut self,
        item: &T,
        line: impl FnOnce() -> String,
    ) -> io::Result<()> {
        match self.format {
            OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => {
                writeln!(self.sink, "{}", line())?
            }
            OutputFormat::Json => writeln!(self.sink, "{}", serde_json::to_string(item)?)?,
            OutputFormat::Yaml => write!(self.sink, "---\n{}", yaml(item)?)?,
        }
        self.sink.flush()
    }

    pub fn print_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes)?;
        self.sink.flush()
    }

    fn print_text(&mut self, text: &str) -> io::Result<()> {
        self.sink.write_all(text.as_bytes())?;
        if text.ends_with('\n') { Ok(()) } else { writeln!(self.sink) }
    }

    fn print_data<T: Serialize>(&mut self, data: &T) -> io::Result<()> {
        if self.format == OutputFormat::Yaml {
            return write!(self.sink, "{}", yaml(data)?);
        }
        writeln!(self.sink, "{}", serde_json::to_string_pretty(data)?)
    }
}

/// Unique ones where several items share a name.
fn unique_names<T: TableRow>(items: &[T]) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for item in items {
        *counts.entry(item.name()).or_default() += 1;
    }
    let name = |item: &T| if counts[&item.name()] > 1 { item.unique_name() } else { item.name() };
    items.iter().map(name).collect()
}

fn yaml<T: Serialize>(data: &T) -> io::Result<String> {
    serde_saphyr::to_string(data).map_err(io::Error::other)
}

#[derive(Serialize)]
struct ItemList<'a, T> {
    items: &'a [T],
}
