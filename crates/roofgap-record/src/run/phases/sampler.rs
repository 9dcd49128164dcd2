//! Samples the stacks of Python programs while the native collector records them.

use crate::run::context::PhaseContext;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Samples the stacks of Python programs from a thread of this process: it may read the memory of what it started.
pub struct StackSampler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, String>>,
}

impl StackSampler {
    /// Starts sampling the processes of `ancestor`, itself included, into a capture in `folder`.
    pub fn start(folder: PathBuf, ancestor: u32, hz: NonZeroU32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread =
            std::thread::spawn(move || sample(&folder, ancestor, hz.get(), &|| over.load(Ordering::Relaxed)));
        Self { is_over, thread }
    }

    /// Ends the sampling, and notes why nothing was sampled.
    pub fn end(self, context: &mut PhaseContext<'_>) {
        self.is_over.store(true, Ordering::Relaxed);
        let why = match self.thread.join() {
            Ok(Ok(1..)) => return,
            Ok(Ok(0)) => "no Python process of the program used CUDA".to_owned(),
            Ok(Err(why)) => why,
            Err(_) => "the sampler panicked".to_owned(),
        };
        context.warn(format!("no stacks were sampled: {why}"));
    }
}

#[cfg(all(feature = "stacks", target_os = "linux"))]
use roofgap_stacks::run as sample;

#[cfg(not(all(feature = "stacks", target_os = "linux")))]
fn sample(_: &std::path::Path, _: u32, _: u32, _: &dyn Fn() -> bool) -> Result<u64, String> {
    Err("this roofgap was built without the feature stacks; the programs of a release for Linux have it"
        .to_owned())
}
