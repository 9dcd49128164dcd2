//! `session.json`: what a session did, phase by phase, rewritten whole as it goes.
//!
//! - [`session`]: the document and its parts;
//! - [`ledger`]: keeping it on disk while the session runs.

pub mod ledger;
pub mod session;

pub use ledger::Ledger;
pub use session::{
    CommandRecord, OutputFile, PhaseName, PhaseRecord, PhaseStatus, SessionRecord, SessionState,
};
