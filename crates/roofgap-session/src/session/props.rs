//! What a session is given, and what it tells while it runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_collect::command::CommandLine;
use roofgap_collect::rundir::RunDirError;

use crate::config::Composed;
use crate::exit::Exit;
use crate::record::{PhaseName, PhaseStatus, SessionRecord};

/// What a session is given.
#[derive(Debug, Clone)]
pub struct ProfileProps {
    /// The configuration.
    pub composed: Composed,
    /// The command line as the user typed it, program name first.
    pub command_line: Vec<String>,
    /// This binary: the embedded model is run through it.
    pub executable: PathBuf,
    /// Version of this binary.
    pub version: String,
    /// Where programs are looked for: the `PATH`.
    pub search_path: Vec<PathBuf>,
    /// The native collector, or why there is none.
    pub native: Result<NativeLibrary, String>,
}

/// The native collector as it lies in the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeLibrary {
    /// The shared library.
    pub bytes: &'static [u8],
    /// Its SHA-256 in hexadecimal, known when the binary was built.
    pub sha256: &'static str,
}

/// What a session tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run directory is there.
    Started {
        /// Name of the run.
        run_id: &'a str,
        /// Its directory.
        path: &'a Path,
    },
    /// A phase begins.
    PhaseBegins(PhaseName),
    /// A command of the phase begins.
    CommandBegins {
        /// The phase.
        phase: PhaseName,
        /// The command.
        line: &'a CommandLine,
    },
    /// The command is still running; several times a second.
    Tick {
        /// The phase.
        phase: PhaseName,
        /// Since the command began.
        elapsed: Duration,
        /// It has been asked to end.
        stopping: bool,
    },
    /// Something a user should know now.
    Warning(&'a str),
    /// A phase ended.
    PhaseEnds {
        /// The phase.
        phase: PhaseName,
        /// What came of it.
        status: &'a PhaseStatus,
    },
}

/// What came of a session.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The run directory.
    pub run_dir: PathBuf,
    /// How to end.
    pub exit: Exit,
    /// The record as it is on disk.
    pub record: SessionRecord,
}

/// Why a session could not even begin, or a bundle not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The run directory could not be made.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The record of a run could not be read.
    #[error(transparent)]
    Record(#[from] crate::record::session::RecordError),
    /// The configuration of a run could not be read.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
}

impl SessionError {
    /// How to end.
    pub fn exit(&self) -> Exit {
        Exit::Usage
    }
}
