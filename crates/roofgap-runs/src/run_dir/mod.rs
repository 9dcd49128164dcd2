//! The directory of a run.
//!
//! - [`folder`]: its name, and the marker while the run is in progress;
//! - [`locate`]: finds a run by id, prefix, path or `latest`;
//! - [`layout`]: paths of its files;
//! - [`record`]: the document `session.json`;
//! - [`writer`]: keeps that document on disk while a session runs;
//! - [`environment`]: reads `env.json`; [`trials`]: reads `try.json`.

pub mod environment;
pub mod folder;
pub mod layout;
pub mod locate;
pub mod record;
pub mod trials;
pub mod writer;

pub use layout::Layout;
pub use locate::{LocateError, RunRef, resolve};
pub use record::{
    CommandRecord, OutputFile, PhaseName, PhaseRecord, PhaseStatus, SessionRecord, SessionState,
};
pub use writer::RecordWriter;
