//! Samples hardware counters, in a process of its own, and stacks while the native collector records the program.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use roofgap_collect::child::{self, Cancel, ChildError, ChildSpec, Outcome, OutputTarget};
use roofgap_collect::command::CommandLine;

use crate::run::context::PhaseContext;

/// A sampler that runs beside the program.
pub struct Sampler {
    cancel: Cancel,
    thread: JoinHandle<Result<Outcome, ChildError>>,
}

impl Sampler {
    /// Starts a sampler, with logs in `folder`.
    pub fn start(line: CommandLine, folder: &Path) -> Self {
        let cancel = Cancel::new();
        let (own, log) =
            (cancel.clone(), |stream: &str| OutputTarget::file(folder.join(format!("sampler.{stream}.log"))));
        let (out, err) = (log("out"), log("err"));
        let thread = std::thread::spawn(move || {
            let spec = ChildSpec { cancel: own, ..ChildSpec::new(&line, out, err) };
            child::run(spec, &mut |_| {})
        });
        Self { cancel, thread }
    }

    /// Ends the sampler, and notes why it sampled nothing.
    pub fn end(self, context: &mut PhaseContext<'_>) {
        self.cancel.request();
        let why = match self.thread.join() {
            Ok(Ok(outcome)) if outcome.code == Some(0) => return,
            Ok(Ok(outcome)) => {
                let said = outcome.output_tail().lines().last().unwrap_or_default().trim().to_owned();
                if said.is_empty() { format!("the sampler {}", outcome.describe()) } else { said }
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the sampler panicked".to_owned(),
        };
        context.warn(format!("no counters were sampled: {why}"));
    }
}

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
fn sample(_: &Path, _: u32, _: u32, _: &dyn Fn() -> bool) -> Result<u64, String> {
    Err("this roofgap was built without the feature stacks; the programs of a release for Linux have it"
        .to_owned())
}
