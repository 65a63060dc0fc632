//! Data on standard output: tables for people, JSON, YAML and names for scripts.

pub(crate) mod events;
pub(crate) mod nodes;
#[cfg(test)]
pub(crate) mod paper;
pub(crate) mod pods;
pub(crate) mod queues;
pub(crate) mod services;
pub(crate) mod status;
pub(crate) mod story;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;

/// What `-o` may say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// The API's own JSON.
    Json,
    /// The same as YAML.
    Yaml,
    /// `service/web`, `pod/<uuid>`.
    Name,
}

/// A kind of object that is shown in tables.
pub(crate) trait Listed: Serialize {
    /// Column titles; those of `wide` stand after those that are always there.
    fn titles(wide: bool) -> Vec<&'static str>;
    /// The cells below them.
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String>;
    /// `kind/identity`.
    fn name(&self) -> String;
}

/// Where data goes, and in which form.
pub(crate) struct Output {
    /// The form.
    pub(crate) format: Format,
    now: Timestamp,
    sink: Box<dyn Write + Send>,
}

impl Output {
    /// Standard output, byte for byte: what a container wrote is not ours to change.
    pub(crate) fn stdout(format: Format) -> Self {
        Self { format, now: Timestamp::now(), sink: Box::new(io::stdout()) }
    }

    /// What ages are counted from.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// A collection. `none` is said on standard error when a table would be empty.
    pub(crate) fn list<T: Listed>(&mut self, items: &[T], none: &str) -> io::Result<()> {
        match self.format {
            Format::Table | Format::Wide if items.is_empty() => {
                crate::exit::note(none);
                Ok(())
            }
            Format::Table | Format::Wide => {
                let wide = self.format == Format::Wide;
                let rows = items.iter().map(|item| item.cells(wide, self.now)).collect();
                self.text(&table::render(&T::titles(wide), rows))
            }
            Format::Json | Format::Yaml => self.data(&Items { items }),
            Format::Name => items.iter().try_for_each(|item| writeln!(self.sink, "{}", item.name())),
        }
    }

    /// One object after something was done to it: `service/web created`.
    pub(crate) fn done<T: Listed>(&mut self, item: &T, what: &str) -> io::Result<()> {
        match self.format {
            Format::Table | Format::Wide => writeln!(self.sink, "{} {what}", item.name()),
            Format::Json | Format::Yaml => self.data(item),
            Format::Name => writeln!(self.sink, "{}", item.name()),
        }
    }

    /// The same where only the name is known.
    pub(crate) fn done_by_name(&mut self, name: &str, what: &str) -> io::Result<()> {
        match self.format {
            Format::Table | Format::Wide => writeln!(self.sink, "{name} {what}"),
            Format::Json | Format::Yaml => self.data(&serde_json::json!({ "object": name, "result": what })),
            Format::Name => writeln!(self.sink, "{name}"),
        }
    }

    /// One object: its whole story for people, its data for scripts.
    pub(crate) fn one<T: Listed>(&mut self, item: &T, story: impl FnOnce() -> String) -> io::Result<()> {
        match self.format {
            Format::Table | Format::Wide => self.text(&story()),
            Format::Json | Format::Yaml => self.data(item),
            Format::Name => writeln!(self.sink, "{}", item.name()),
        }
    }

    /// Something without a name of its own: text for people, data for scripts.
    pub(crate) fn whole<T: Serialize>(&mut self, item: &T, text: impl FnOnce() -> String) -> io::Result<()> {
        match self.format {
            Format::Table | Format::Wide | Format::Name => self.text(&text()),
            Format::Json | Format::Yaml => self.data(item),
        }
    }

    /// One of many that come one after the other: a line for people, a line of JSON or a YAML document for scripts.
    pub(crate) fn next<T: Serialize>(&mut self, item: &T, line: impl FnOnce() -> String) -> io::Result<()> {
        match self.format {
            Format::Table | Format::Wide | Format::Name => writeln!(self.sink, "{}", line())?,
            Format::Json => writeln!(self.sink, "{}", serde_json::to_string(item)?)?,
            Format::Yaml => write!(self.sink, "---\n{}", yaml(item)?)?,
        }
        self.sink.flush()
    }

    /// Bytes as they are: logs.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes)?;
        self.sink.flush()
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.sink.write_all(text.as_bytes())?;
        if text.ends_with('\n') { Ok(()) } else { writeln!(self.sink) }
    }

    fn data<T: Serialize>(&mut self, item: &T) -> io::Result<()> {
        if self.format == Format::Yaml {
            return write!(self.sink, "{}", yaml(item)?);
        }
        writeln!(self.sink, "{}", serde_json::to_string_pretty(item)?)
    }
}

fn yaml<T: Serialize>(item: &T) -> io::Result<String> {
    serde_saphyr::to_string(item).map_err(io::Error::other)
}

/// The shape of a collection in the API, whole.
#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}
