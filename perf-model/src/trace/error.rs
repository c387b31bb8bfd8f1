//! Why a trace is refused, and where in its file.

use std::fmt;
use std::io;

/// Where in a trace's file something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A byte of the text, from 0, and its line, from 1. Of a compressed file: of what is in it.
    Byte {
        /// Offset in bytes.
        byte: u64,
        /// Line of that byte.
        line: u64,
    },
    /// A line of a table of text, from 1, and the column's name.
    Cell {
        /// Line of the file.
        line: u64,
        /// Name of the column in the table's first line.
        column: String,
    },
    /// A row of a database's table, by its row ID.
    Row {
        /// Name of the table.
        table: String,
        /// The row's `rowid`.
        row: i64,
    },
    /// The file as a whole.
    File,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Byte { byte, line } => write!(f, "at byte {byte} (line {line})"),
            Place::Cell { line, column } => write!(f, "in line {line}, column {column}"),
            Place::Row { table, row } => write!(f, "in table {table}, row {row}"),
            Place::File => write!(f, "in the whole file"),
        }
    }
}

/// Why a trace is refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot be read")]
    Io(#[from] io::Error),
    /// Nothing that is known begins like this, and the name does not say what it is.
    #[error(
        "is neither a Chrome trace (.json, .json.gz) nor an Nsight Systems SQLite export nor CSV: \
         name it so, or say which with --format"
    )]
    UnknownFormat,
    /// Nsight's own report, not its export.
    #[error(
        "is a report of Nsight Systems in its own format: export it first, with \
         `nsys export --type sqlite`"
    )]
    NsysReport,
    /// The file ends before what it holds does.
    #[error(
        "ends {place}, in the middle of the trace: it was cut off; with --salvage the whole \
         events before that are taken"
    )]
    Truncated {
        /// Where it ends.
        place: Place,
    },
    /// Something in it is wrong.
    #[error("{place}: {reason}")]
    Wrong {
        /// Where.
        place: Place,
        /// What is wrong there.
        reason: String,
    },
    /// The database engine cannot read it.
    #[error("is no whole database that SQLite can read ({0}): export it again")]
    Database(String),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> ReadError {
        ReadError::Database(error.to_string())
    }
}

impl ReadError {
    /// Something wrong at a place.
    pub(super) fn wrong(place: Place, reason: impl Into<String>) -> ReadError {
        ReadError::Wrong { place, reason: reason.into() }
    }
}
