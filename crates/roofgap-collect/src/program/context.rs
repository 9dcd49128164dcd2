//! Environment of every profiled program.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::command::CommandLine;

/// Phase of a session in which the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Without a profiler.
    Baseline,
    /// Under nsys or the native collector.
    Timeline,
    /// Under torch.profiler.
    Operators,
    /// Under ncu.
    Counters,
}

impl Phase {
    /// Returns the name in `ROOFGAP_PHASE` and `session.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Baseline => "baseline",
            Phase::Timeline => "timeline",
            Phase::Operators => "operators",
            Phase::Counters => "counters",
        }
    }
}

/// Environment of a profiled program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramContext {
    /// Run directory, absolute.
    pub run_dir: PathBuf,
    /// Phase of the session.
    pub phase: Phase,
    /// Path for the account the program may write.
    pub account: PathBuf,
    /// Working folder; the current one if `None`.
    pub cwd: Option<PathBuf>,
    /// Variables set by the user.
    pub env: Vec<(String, String)>,
}

impl ProgramContext {
    /// Adds the context to a command line. User variables override those of the program, but not the three `ROOFGAP_`
    /// variables.
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

/// Builds `EXE workload --account FILE ARG...`: this binary as the program to profile.
pub fn embedded_command(exe: &Path, args: &[String], context: &ProgramContext) -> CommandLine {
    let line = CommandLine::new(exe)
        .args(["workload", "--account"])
        .arg(&context.account)
        .args(args.iter().map(String::as_str));
    context.apply(line)
}

#[cfg(test)]
pub fn example() -> ProgramContext {
    ProgramContext {
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
    fn user_variables_never_replace_those_of_roofgap() {
        let mut context = example();
        context.cwd = Some("/data".into());
        context.env = [("A", "user"), ("ROOFGAP_PHASE", "user")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        let line = context.apply(CommandLine::new("p").env("A", "kind"));
        assert_eq!(
            line.to_string(),
            "cd /data && env A=user ROOFGAP_RUN_DIR=/runs/1 ROOFGAP_PHASE=baseline \
             ROOFGAP_WORKLOAD_JSON=/runs/1/baseline/workload.json p"
        );
    }

    #[test]
    fn this_binary_is_the_program() {
        let line = embedded_command(
            Path::new("/bin/roofgap"),
            &["--repeats".to_owned(), "3".to_owned()],
            &example(),
        );
        assert_eq!(
            line.argv(),
            ["/bin/roofgap", "workload", "--account", "/runs/1/baseline/workload.json", "--repeats", "3"]
        );
    }
}
