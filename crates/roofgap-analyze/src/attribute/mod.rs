//! Which range a GPU operation belongs to: by its launch call, never by when it ran.

mod contexts;
mod launches;

pub use contexts::{Contexts, NO_CONTEXT};
pub use launches::{Launches, NO_CALL};
