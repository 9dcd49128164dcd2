//! The directory of a run.
//!
//! - [`folder`]: its name, and the marker while the run is in progress;
//! - [`locate`]: finds a run by id, prefix, path or `latest`;
//! - [`layout`]: paths of its files;
//! - [`phases`]: the phases of a session and the files that they leave;
//! - [`record`]: the document `session.json`, and keeping it on disk while a session runs; reads `try.json`;
//! - [`environment`]: reads `env.json`.

pub mod environment;
pub mod folder;
pub mod layout;
pub mod locate;
pub mod phases;
pub mod record;

pub use layout::Layout;
pub use locate::{DEFAULT_BASE, LocateError, RunRef, resolve};
pub use phases::PhaseName;
pub use record::{
    CommandRecord, OutputFile, PhaseRecord, PhaseStatus, RecordWriter, SessionRecord, SessionState,
    read_trial,
};
