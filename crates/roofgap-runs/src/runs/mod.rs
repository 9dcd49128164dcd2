//! Commands on finished runs.
//!
//! - [`summary`]: `runs list` and `runs show`;
//! - `artifacts`: `runs artifacts`, the files with size and hash;
//! - [`merge`](mod@merge): `runs merge`, runs of several nodes as one;
//! - [`prune`]: `runs prune`, compresses old runs and drops files that can be regenerated;
//! - [`scrub`](mod@scrub): `runs scrub`, removes private data from the documents and packs what can be shared;
//! - [`text`]: the answers as text.

pub mod artifacts;
pub mod merge;
pub mod prune;
pub mod scrub;
pub mod summary;
pub mod text;

#[cfg(test)]
mod killed;

pub use crate::run_dir::{RunRef, resolve};
pub use artifacts::{Artifact, ArtifactList, artifacts, list_artifacts};
pub use merge::{MergeOutcome, merge};
pub use prune::{PruneOutcome, PrunePlan, PruneProps, execute, plan};
pub use scrub::{ScrubOutcome, ScrubProps, host_variables, scrub};
pub use summary::{RunDetails, RunSummary, list, show};
