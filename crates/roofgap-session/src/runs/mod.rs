//! The runs that are there: listing, showing, comparing, making room, making fit to be shared.
//!
//! - [`place`]: which run is meant by an id, a prefix, a path or `latest`;
//! - [`summary`]: one run in a line, and in a page;
//! - [`artifacts`]: what files there are, with size and hash;
//! - [`side`]: a run or a capture as one side of a comparison;
//! - [`prune`]: older runs compressed, large ones cut to what cannot be made again;
//! - [`text`]: all of that for a terminal;
//! - [`scrub`]: what should not leave the machine taken out, and the rest in one archive.

pub mod artifacts;
pub mod error;
pub mod place;
pub mod prune;
pub mod scrub;
pub mod side;
pub mod summary;
pub mod text;

mod facts;

pub use artifacts::{Artifact, ArtifactList, artifacts};
pub use error::RunsError;
pub use place::{RunPlace, resolve};
pub use prune::{PruneOutcome, PrunePlan, PruneProps, carry_out, plan};
pub use scrub::{ScrubOutcome, ScrubProps, scrub};
pub use side::{LoadedSide, gate_exit, load_side};
pub use summary::{RunDetails, RunSummary, list, show};
