//! Where the console goes.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// The sink of what the card's UART sends.
pub(crate) struct Console {
    sink: Option<Box<dyn Write>>,
    name: String,
}

impl Console {
    /// Without a path it goes nowhere; `-` is the standard output.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let name = path.map(|path| path.display().to_string()).unwrap_or_default();
        let sink: Option<Box<dyn Write>> = match path {
            None => None,
            Some(path) if path == Path::new("-") => Some(Box::new(io::stdout())),
            Some(path) => Some(Box::new(File::create(path).with_context(|| {
                format!("cannot write the console to {name}; is its folder there?")
            })?)),
        };
        Ok(Self { sink, name })
    }

    /// Writes, and at once.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.sink {
            Some(sink) if !bytes.is_empty() => sink
                .write_all(bytes)
                .and_then(|()| sink.flush())
                .with_context(|| format!("cannot write the console to {}", self.name)),
            _ => Ok(()),
        }
    }
}
