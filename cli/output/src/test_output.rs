//! An output whose text tests can read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::{Output, OutputFormat};

#[derive(Clone, Default)]
pub struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn captured_output(format: OutputFormat) -> (Output, Captured) {
    let captured = Captured::default();
    (Output { sink: Box::new(captured.clone()), ..Output::stdout(format) }, captured)
}
