//! A report as ncu writes it, read without ncu.
//!
//! The container is the letters `NVR`, a zero byte, and messages each behind a 32-bit length: a file header, then
//! blocks. A block is a header, which says how many bytes of messages follow, of which kinds, and adds to the table of
//! names; a session is spread over several headers. Modules of code fill most of a file and are passed over.
//! Only the fields that are used are described here, by their numbers.

mod container;
mod launch;
mod nvtx;
mod report;
mod rules;

pub(super) use container::MAGIC;
pub use report::read;
