//! Commands on finished runs.
//!
//! - [`summary`]: `runs list` and `runs show`;
//! - `artifacts`: `runs artifacts`, the files with size and hash;
//! - [`merge`](mod@merge): `runs merge`, runs of several nodes as one;
//! - [`prune`]: `runs prune`, compresses old runs and drops files that can be regenerated;
//! - [`scrub`](mod@scrub): `runs scrub`, packs what can be shared without private data;
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
pub use scrub::{ScrubOutcome, host_variables, scrub};
pub use summary::{RunDetails, RunSummary, list, show};
