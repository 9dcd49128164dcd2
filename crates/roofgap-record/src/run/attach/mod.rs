//! Recording a part of a program that runs: [`watch()`] starts it with a dormant collector, [`capture()`] records a window, and
//! [`add_requests`] joins it with the load that a server had meanwhile.

mod capture;
mod error;
mod requests;
mod watch;

pub use capture::{CaptureProps, LONGEST_WINDOW, WindowLength, capture};
pub use error::AttachError;
pub use requests::add_requests;
pub use watch::{WatchPlan, watch};
