//! Programs that run with a dormant collector, and the sockets that control it.
//!
//! - `folder`: private folders for sockets and captures
//! - `registry`: the programs that are watched, one folder each
//! - `control`: commands to the collector inside a process

mod control;
mod folder;
mod registry;

pub use control::{ControlError, Status, ask, status};
pub use folder::FolderError;
pub use registry::{Registration, Registry, WatchError, Watched, WatchedProcess};
