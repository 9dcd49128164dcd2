//! Samples the Python stacks of running programs into a native capture, from outside of them.
//!
//! The programs are never stopped: their memory is read while they run. A read that met a change is left out.

mod capture;
mod system_call;
mod targets;

use capture::Capture;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};
use targets::Targets;

/// Interval between looks for new processes.
const LOOK: Duration = Duration::from_millis(200);

/// Samples the Python processes that use CUDA, of `ancestor` and all below it, into a new capture in `folder` until `is_over`. Returns
/// the number of samples.
///
/// # Errors
/// Fails with a reason for people when no stack could be read, or the capture cannot be written.
pub fn run(folder: &Path, ancestor: u32, hz: u32, is_over: &dyn Fn() -> bool) -> Result<u64, String> {
    let no_capture = |error: &dyn Display| format!("cannot write a capture in {}: {error}", folder.display());
    let mut capture = Capture::create(folder).map_err(|error| no_capture(&error))?;
    let interval = Duration::from_secs(1) / hz.clamp(1, 10_000);
    let mut targets = Targets::below(ancestor);
    let (mut next, mut look) = (Instant::now(), Instant::now());
    while !is_over() {
        if Instant::now() >= look {
            targets.look();
            look = Instant::now() + LOOK;
        }
        for target in targets.list() {
            target.read(&mut capture);
        }
        next += interval;
        // A sample that took too long is not made up for.
        next = next.max(Instant::now());
        std::thread::sleep(next.duration_since(Instant::now()).min(LOOK));
    }
    let samples = capture.finish(targets.failed_reads()).map_err(|error| no_capture(&error))?;
    match targets.refusal().filter(|_| samples == 0) {
        Some(why) => Err(why),
        None => Ok(samples),
    }
}
