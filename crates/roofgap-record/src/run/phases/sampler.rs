//! Samples hardware counters, and the stacks of Python programs, while the native collector records a program.

use crate::run::context::PhaseContext;
use roofgap_base::error::Error;
use roofgap_collect::child::{self, Cancel, ChildSpec, OutputTarget};
use roofgap_collect::command::CommandLine;
use roofgap_runs::run_dir::PhaseName;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A sampler on a thread beside the program.
pub struct Sampler {
    what: &'static str,
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
        Self { what, cancel, thread: Some(std::thread::spawn(move || sample(own))) }
    }

    /// Starts a process that samples counters, with logs in `folder`.
    pub fn counters(line: CommandLine, folder: &Path) -> Self {
        Self::process("counters", line, &folder.join("sampler"))
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

    /// Ends the sampling, and notes why nothing was sampled.
    pub fn end(mut self, context: &mut PhaseContext<'_>) {
        if let Err(why) = self.join() {
            context.warn(format!("no {} were sampled: {why}", self.what));
        }
    }
}

/// Samples the vitals of the GPUs while a phase runs.
pub struct Vitals(Option<Sampler>);

impl Vitals {
    /// Starts a process of this `executable`; none where `run.vitals` is off.
    pub fn start(context: &PhaseContext<'_>, executable: &Path, phase: PhaseName) -> Self {
        let path = context.layout.vitals(phase);
        let is_wanted = context.config.run.vitals && context.run_dir.folder("vitals").is_ok();
        let line = || CommandLine::new(executable).arg("sample-vitals").arg(&path);
        Self(is_wanted.then(|| Sampler::process("vitals", line(), &path.with_extension(""))))
    }

    /// Ends the sampling and lists the file. Returns false if it failed, so that it is not tried again.
    pub fn end(self, context: &mut PhaseContext<'_>, phase: PhaseName) -> bool {
        let sampled = self.0.map_or(Ok(()), |mut sampler| sampler.join());
        context.output(&context.layout.vitals(phase));
        let is_sampled = sampled.is_ok();
        sampled.unwrap_or_else(|why| context.note(format!("no vitals were sampled: {why}")));
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
