//! Samples hardware counters, vitals of the GPUs, and the stacks of Python programs, while a program runs.

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
    /// False if nobody asked for it.
    is_asked: bool,
    cancel: Cancel,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // Why nothing was sampled does not matter any more.
        let _ = self.join();
    }
}

impl Sampler {
    fn start(what: &'static str, sample: impl FnOnce(Cancel) -> Result<(), Error> + Send + 'static) -> Self {
        let cancel = Cancel::new();
        let own = cancel.clone();
        Self { what, is_asked: true, cancel, thread: Some(std::thread::spawn(move || sample(own))) }
    }

    /// Makes its failure a note.
    pub fn optional(mut self) -> Self {
        self.is_asked = false;
        self
    }

    /// Starts a process that samples counters, with logs in `folder`.
    pub fn counters(line: CommandLine, folder: &Path) -> Self {
        Self::process("counters", line, &folder.join("sampler"))
    }

    /// Starts a process of this `executable` that samples the vitals of the GPUs into a file, and their activity unless something else counts.
    pub fn vitals(executable: &Path, file: &Path, is_counted: bool) -> Self {
        let line = CommandLine::new(executable).arg("sample-vitals").arg(file);
        let line = line.args((!is_counted).then_some("--activity"));
        Self::process("vitals", line, &file.with_extension("")).optional()
    }

    /// Starts a process that samples `what`, with logs whose paths begin with `log`.
    fn process(what: &'static str, line: CommandLine, log: &Path) -> Self {
        let log = |stream: &str| OutputTarget::file(log.with_added_extension(format!("{stream}.log")));
        let (out, err) = (log("out"), log("err"));
        Self::start(what, move |cancel| {
            let spec = ChildSpec { cancel, ..ChildSpec::new(&line, out, err) };
            let outcome = child::run(spec, &mut |_| {}).map_err(Error::of)?;
            match outcome.output_tail().lines().last().unwrap_or_default().trim() {
                _ if outcome.code == Some(0) => Ok(()),
                "" => Err(Error::new(format!("the sampler {}", outcome.describe()))),
                said => Err(Error::new(said)),
            }
        })
    }

    /// Samples the stacks of the processes of `ancestor`, itself included, into a capture in `folder`. A thread of this process may read
    /// the memory of what it started.
    pub fn stacks(folder: PathBuf, ancestor: u32, hz: NonZeroU32) -> Self {
        Self::start("stacks", move |cancel| {
            match sample(&folder, ancestor, hz.get(), &|| cancel.is_requested()) {
                Ok(0) => Err(Error::new("no Python process of the program used CUDA")),
                sampled => sampled.map(|_| ()),
            }
        })
    }

    /// Tells whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<(), Error> {
        self.cancel.request();
        let joined = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        joined.unwrap_or_else(|_| Err(Error::new("the sampler panicked")))
    }

    /// Ends the sampling. Returns why nothing was sampled.
    pub fn finish(mut self) -> Option<String> {
        self.join().err().map(|why| format!("no {} were sampled: {why}", self.what))
    }

    /// Ends the sampling, and notes why nothing was sampled. Returns false if it failed.
    pub fn end(self, context: &mut PhaseContext<'_>) -> bool {
        let is_asked = self.is_asked;
        let failed = self.finish();
        let is_sampled = failed.is_none();
        if let Some(text) = failed {
            if is_asked { context.warn(text) } else { context.note(text) }
        }
        is_sampled
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

/// Reads the stacks of all threads of the Python processes of `ancestor` that use CUDA: process, thread and functions, innermost first.
#[cfg(all(feature = "stacks", target_os = "linux"))]
pub fn stacks_now(ancestor: u32) -> Vec<(u32, u32, Vec<String>)> {
    let spoken = |(name, file, line): (String, String, u32)| match line {
        0 => name,
        line => format!("{name} ({file}:{line})"),
    };
    let each = roofgap_stacks::snapshot(ancestor).into_iter();
    each.map(|(pid, tid, stack)| (pid, tid, stack.into_iter().map(spoken).collect())).collect()
}

/// Reads nothing: this program was built without the feature stacks.
#[cfg(not(all(feature = "stacks", target_os = "linux")))]
pub fn stacks_now(_: u32) -> Vec<(u32, u32, Vec<String>)> {
    Vec::new()
}
