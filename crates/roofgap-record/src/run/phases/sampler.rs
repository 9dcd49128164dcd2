//! Samples hardware counters in a process of its own while the native collector records the program.

use std::path::Path;
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
