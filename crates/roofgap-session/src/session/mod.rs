//! A whole session: its phases in order, each ending ok, skipped or failed, and the bundle they leave.
//!
//! - [`props`]: what a session is given, and what it tells while it runs;
//! - [`layout`]: the files of a run directory;
//! - `desk`: what every phase works with, and running a child in a phase;
//! - `preflight`, `baseline`, `timeline`, `operators`, `select`, `counters`, `bundle`: the phases;
//! - [`mod@profile`]: their order and the exit status;
//! - [`mod@dry_run`]: what a session would do;
//! - [`render`]: a run read again, and its reports once more.

mod baseline;
pub(crate) mod bundle;
mod counters;
mod desk;
pub mod dry_run;
mod environment;
pub mod layout;
mod model;
mod operators;
mod preflight;
pub mod profile;
mod program;
pub mod props;
pub mod render;
mod request;
mod returned;
mod select;
mod stage1;
mod timeline;
mod tools;

pub use dry_run::{DryRun, dry_run};
pub use profile::profile;
pub use props::{Event, NativeLibrary, Outcome, ProfileProps, SessionError};
pub use render::{Loaded, Rendered, load, report};
