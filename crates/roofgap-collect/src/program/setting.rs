//! What every profiled program is told through its environment.

use std::path::PathBuf;

use serde::Serialize;

use crate::command::CommandLine;

/// The phase a program runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Unwatched.
    Baseline,
    /// Under nsys or the native collector.
    Timeline,
    /// Under the program's own operator profiler.
    Operators,
    /// Under ncu.
    Counters,
}

impl Phase {
    /// Its name, as in `ROOFGAP_PHASE` and `session.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Baseline => "baseline",
            Phase::Timeline => "timeline",
            Phase::Operators => "operators",
            Phase::Counters => "counters",
        }
    }
}

/// Where a program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The run directory, absolute.
    pub run_dir: PathBuf,
    /// The phase.
    pub phase: Phase,
    /// Where the program may leave an account of itself.
    pub account: PathBuf,
    /// Where it runs; the current folder where not said.
    pub cwd: Option<PathBuf>,
    /// Variables the user sets for it.
    pub env: Vec<(String, String)>,
}

impl Setting {
    /// Puts a program into this setting. What the user sets wins over what the program's kind sets, but not over the
    /// three variables by which it finds its way back.
    pub fn apply(&self, program: CommandLine) -> CommandLine {
        let mut program = program;
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        program = program
            .env("ROOFGAP_RUN_DIR", &self.run_dir)
            .env("ROOFGAP_PHASE", self.phase.as_str())
            .env("ROOFGAP_WORKLOAD_JSON", &self.account);
        match &self.cwd {
            Some(folder) => program.cwd(folder),
            None => program,
        }
    }
}

#[cfg(test)]
pub(super) fn example() -> Setting {
    Setting {
        run_dir: "/runs/1".into(),
        phase: Phase::Baseline,
        account: "/runs/1/baseline/workload.json".into(),
        cwd: None,
        env: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_finds_its_way_back() {
        let mut setting = example();
        setting.cwd = Some("/data".into());
        setting.env = [("A", "user"), ("ROOFGAP_PHASE", "user")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        let line = setting.apply(CommandLine::new("p").env("A", "kind"));
        assert_eq!(
            line.to_string(),
            "cd /data && env A=user ROOFGAP_RUN_DIR=/runs/1 ROOFGAP_PHASE=baseline \
             ROOFGAP_WORKLOAD_JSON=/runs/1/baseline/workload.json p"
        );
    }
}
