//! Samples hardware counters, and the stacks of Python programs, while the native collector records a program.

use crate::run::context::PhaseContext;
use roofgap_base::error::Error;
use roofgap_collect::child::{self, Cancel, ChildSpec, OutputTarget};
use roofgap_collect::command::CommandLine;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A sampler on a thread beside the program.
pub struct Sampler {
    what: &'static str,
    cancel: Cancel,
    thread: JoinHandle<Result<(), String>>,
}

impl Sampler {
    fn start(what: &'static str, sample: impl FnOnce(Cancel) -> Result<(), String> + Send + 'static) -> Self {
        let cancel = Cancel::new();
        let own = cancel.clone();
        Self { what, cancel, thread: std::thread::spawn(move || sample(own)) }
    }

    /// Starts a process that samples counters, with logs in `folder`.
    pub fn counters(line: CommandLine, folder: &Path) -> Self {
        let log = |stream: &str| OutputTarget::file(folder.join(format!("sampler.{stream}.log")));
        let (out, err) = (log("out"), log("err"));
        Self::start("counters", move |cancel| {
            let spec = ChildSpec { cancel, ..ChildSpec::new(&line, out, err) };
            let outcome = child::run(spec, &mut |_| {}).map_err(|error| error.to_string())?;
            match outcome.output_tail().lines().last().unwrap_or_default().trim() {
                _ if outcome.code == Some(0) => Ok(()),
                "" => Err(format!("the sampler {}", outcome.describe())),
                said => Err(said.to_owned()),
            }
        })
    }

    /// Samples the stacks of the processes of `ancestor`, itself included, into a capture in `folder`. A thread of this process may read
    /// the memory of what it started.
    pub fn stacks(folder: PathBuf, ancestor: u32, hz: NonZeroU32) -> Self {
        Self::start("stacks", move |cancel| {
            match sample(&folder, ancestor, hz.get(), &|| cancel.is_requested()) {
                Ok(0) => Err("no Python process of the program used CUDA".to_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    /// Ends the sampling, and notes why nothing was sampled.
    pub fn end(self, context: &mut PhaseContext<'_>) {
        self.cancel.request();
        let why = match self.thread.join() {
            Ok(Ok(())) => return,
            Ok(Err(why)) => why,
            Err(_) => "the sampler panicked".to_owned(),
        };
        context.warn(format!("no {} were sampled: {why}", self.what));
    }
}

#[cfg(all(feature = "stacks", target_os = "linux"))]
fn sample(folder: &Path, ancestor: u32, hz: u32, is_over: &dyn Fn() -> bool) -> Result<u64, Error> {
    roofgap_stacks::run(folder, ancestor, hz, is_over).map_err(Error::of)
}

#[cfg(not(all(feature = "stacks", target_os = "linux")))]
fn sample(_: &Path, _: u32, _: u32, _: &dyn Fn() -> bool) -> Result<u64, Error> {
    Err(Error::new(
        "this roofgap was built without the feature stacks; the programs of a release for Linux have it",
    ))
}
