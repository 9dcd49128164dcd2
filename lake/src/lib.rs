//! A lake: Parquet tables of many profiling runs, and questions about them.
//!
//! - [`tables`]: the tables, field by field, `roofgap.lake/1`;
//! - [`layout`]: names of the files; [`store`]: folders and object stores; [`listing`]: which files count;
//! - [`ingest`]: adds runs and captures;
//! - [`query`]: the query engine, saved queries and formats of answers;
//! - [`trend`]: metrics over commits, and regressions; [`page`]: HTML;
//! - [`compact`](mod@compact), [`check`](mod@check): care of the files;
//! - [`LakeError`]: errors and exit statuses.

pub mod check;
pub mod compact;
pub mod ingest;
pub mod layout;
pub mod listing;
pub mod page;
pub mod query;
pub mod store;
pub mod tables;
pub mod trend;

use std::io;

use datafusion::error::DataFusionError;
use roofgap_base::exit::Exit;

/// Error of a command.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The lake or a file of it cannot be used.
    #[error("cannot {action} {address}: {source}")]
    Store { action: &'static str, address: String, source: io::Error },
    /// Parquet cannot be written or read.
    #[error("{path}: {source}")]
    Parquet { path: String, source: parquet::errors::ParquetError },
    /// Rows do not form a table.
    #[error("cannot build the table {table}: {source}")]
    Rows { table: &'static str, source: arrow::error::ArrowError },
    /// A query failed.
    #[error("{0}")]
    Query(Box<DataFusionError>),
    /// An answer cannot be formatted.
    #[error("cannot format the answer: {0}")]
    Format(#[from] arrow::error::ArrowError),
    /// Wrong arguments, or a lake that cannot be used, with what to do.
    #[error("{0}")]
    Usage(String),
    /// A file that counted was removed while it was needed.
    #[error("`compact` changed the lake meanwhile; ask again")]
    Changed,
    /// The answer cannot be printed.
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),
    /// The runtime cannot start.
    #[error("cannot start threads: {0}")]
    Runtime(io::Error),
}

impl LakeError {
    /// Creates the error of an access to the lake or to a file.
    pub fn store(action: &'static str, address: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Store { action, address: address.into(), source: source.into() }
    }

    /// Tells whether a file is gone, as after a `compact`.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Store { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Rows { .. } | Self::Runtime(_) => Exit::Bug,
            Self::Stdout(_) => Exit::Partial,
            _ => Exit::Usage,
        }
    }
}

impl From<DataFusionError> for LakeError {
    fn from(error: DataFusionError) -> Self {
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(found) = cause {
            if let Some(object_store::Error::NotFound { .. }) = found.downcast_ref() {
                return Self::Changed;
            }
            cause = found.source();
        }
        Self::Query(Box::new(error))
    }
}
