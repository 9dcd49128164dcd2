//! Removes host names, user names, home paths and secrets from a run, and checks the result for them.
//!
//! - [`run`]: scrubs a whole run;
//! - [`host`]: variables, host name, user name and home of this machine;
//! - `private`: private data to remove, and the search for it;
//! - `variables`: environment variables whose values are secret;
//! - `shapes`: secrets recognised by their shape;
//! - `remembered`: salted hashes of the secrets of the machine that recorded a run;
//! - `encodings`: the encoded forms of a known secret;
//! - `sqlite`: rewrites an nsys export with the tables a report needs;
//! - `text`: cleans documents, logs and pages;
//! - `pack`: writes one archive of the clean files.

pub mod host;
pub mod run;

mod encodings;
mod pack;
mod private;
pub mod remembered;
mod shapes;
mod sqlite;
mod text;
mod variables;

pub use host::HostFacts;
pub use run::{Archive, CleanedFile, ScrubOutcome, ScrubProps, UncleanFile, scrub};

#[cfg(test)]
mod planted;
#[cfg(test)]
mod tests;
