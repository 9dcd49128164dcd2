//! Making a run fit to be shared: what belongs to the machine and its people is taken out, and the result is searched for it.
//!
//! - [`surroundings`]: what this machine would not want to be known for: variables, host, user, home;
//! - `private`: things to be taken out, found in the run and in the surroundings, and the search for them;
//! - `sqlite`: a timeline of nsys written anew with what a report needs, and nothing else;
//! - `text`: documents, logs and pages;
//! - [`run`]: a whole run;
//! - `pack`: one archive of what is clean.

pub mod run;
pub mod surroundings;

mod pack;
mod private;
mod sqlite;
mod text;

pub use run::{Kept, ScrubOutcome, ScrubProps, scrub};
pub use surroundings::Surroundings;

#[cfg(test)]
mod tests;
