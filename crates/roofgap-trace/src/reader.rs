//! The interface of a reader: detection from content, and reading into an [`Input`].

use crate::ncu::model::CounterSet;
use crate::{ReadError, SourceFormat, Trace};
use roofgap_wire::account::Account;
use std::path::Path;

/// Contents of all inputs of one command.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Input {
    /// Timeline; empty if no input is one.
    pub trace: Trace,
    /// Counters, one set per file.
    pub counters: Vec<CounterSet>,
    /// Workload account of the program.
    pub account: Option<Account>,
}

/// First bytes of a file, unpacked.
pub struct Head {
    pub(crate) bytes: Vec<u8>,
    /// True if these are all bytes of the file.
    pub(crate) whole: bool,
    /// True if the file is compressed with gzip.
    pub(crate) packed: bool,
}

/// Result of detecting a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detected {
    /// The file has this format.
    Yes(SourceFormat),
    /// The file has another format.
    No,
    /// More bytes are needed to decide.
    NeedMore,
}

impl Detected {
    /// Converts the answer of a reader that knows one format.
    pub(crate) fn when(found: bool, format: SourceFormat) -> Self {
        if found { Self::Yes(format) } else { Self::No }
    }
}

/// A reader of one kind of input.
pub struct Reader {
    pub(crate) detect: fn(&Head) -> Detected,
    /// True if `read` takes gzip files; otherwise they are unpacked to a temporary file.
    pub(crate) takes_gzip: bool,
    pub(crate) read: fn(&Path, SourceFormat, &mut Input) -> Result<(), ReadError>,
}
