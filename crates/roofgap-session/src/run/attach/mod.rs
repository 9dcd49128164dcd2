//! Recording a part of a program that runs: [`watch`] starts it with a dormant collector, [`capture()`] records a window.

mod capture;
mod error;
mod watch;

pub use capture::{CaptureProps, LONGEST_WINDOW, WindowLength, capture};
pub use error::AttachError;
pub use watch::{WatchPlan, watch};
