//! Errors of the commands, and their exit statuses.

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
    /// The address is not that of a lake.
    #[error(
        "{address} is not a lake: it has no roofgap.lake.json; `roofgap lake add RUN --to {address}` creates one"
    )]
    NotALake { address: String },
    /// The schema of the lake is another one.
    #[error("{address} has the schema {found:?}, and this version of roofgap-lake reads roofgap.lake/1")]
    Schema { address: String, found: String },
    /// The address is of an unknown kind.
    #[error("{address}: give a folder{}", if cfg!(feature = "s3") { " or s3://BUCKET/PREFIX" } else {
        "; this roofgap-lake was built without the feature s3"
    })]
    Address { address: String },
    /// A value cannot be part of a path.
    #[error("{what} {value:?}: use letters, digits, `.`, `_` and `-`, and not only dots")]
    PartitionValue { what: &'static str, value: String },
    /// A date is malformed.
    #[error("{what} {value:?} is not a date; write YYYY-MM-DD")]
    Date { what: &'static str, value: String },
    /// A label is malformed.
    #[error("--label {value:?}: write KEY=VALUE, without a comma")]
    Label { value: String },
    /// Nothing to add was found.
    #[error("no run directory and no timeline in {paths}")]
    NothingFound { paths: String },
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
    /// There is no such saved query.
    #[error("no saved query {name:?}; `roofgap lake queries` lists them, and SQL has a space in it")]
    UnknownQuery { name: String },
    /// There is no such parameter.
    #[error("--param {name}: the query has {}", if known.is_empty() { "no parameters".to_owned() } else {
        format!("the parameters {}", known.join(", "))
    })]
    UnknownParameter { name: String, known: Vec<String> },
    /// A parameter has the wrong type.
    #[error("--param {name}={value}: not {expected}, which the default {default:?} is")]
    ParameterType { name: String, value: String, expected: &'static str, default: String },
    /// A parameter is malformed.
    #[error("--param {value:?}: write NAME=VALUE")]
    Parameter { value: String },
    /// A query has a parameter without an end.
    #[error("the query has {{{{ without }}}}, or a parameter that is not {{{{name:default}}}}: {near:?}")]
    ParameterSyntax { near: String },
    /// An answer cannot be drawn.
    #[error("a chart needs a column of numbers; the answer has {columns}")]
    NoChart { columns: String },
    /// There is no such metric.
    #[error("no metric {name:?}; the metrics are {}", known.join(", "))]
    UnknownMetric { name: String, known: Vec<&'static str> },
    /// A terminal cannot show the format.
    #[error("Parquet is not text: give a file with --output, or send the answer into a pipe")]
    Terminal,
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
    /// Creates the error of an access to the lake.
    pub(crate) fn store(
        action: &'static str,
        address: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
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
