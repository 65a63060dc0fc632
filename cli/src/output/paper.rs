//! Output that tests can read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use super::{Format, Output};

/// What was written.
#[derive(Clone, Default)]
pub(crate) struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    /// All of it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output, and where to read what it was given.
pub(crate) fn on_paper(format: Format) -> (Output, Paper) {
    let paper = Paper::default();
    (Output { sink: Box::new(paper.clone()), ..Output::stdout(format) }, paper)
}
