//! The exit statuses of the program, all of them.

use serde::{Deserialize, Serialize};

/// Result of a command, as handed to the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: a bug.
    Bug,
    /// 2: wrong usage, configuration or input.
    Usage,
    /// 3: partial; something requested was unavailable and is named.
    Partial,
    /// 4: the profiled program failed.
    ProgramFailed,
    /// 5: a comparison exceeded its gate.
    GateBroken,
    /// 130: interrupted; collected data is kept and marked.
    Interrupted,
}

impl Exit {
    /// Returns the number handed to the shell.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Bug => 1,
            Exit::Usage => 2,
            Exit::Partial => 3,
            Exit::ProgramFailed => 4,
            Exit::GateBroken => 5,
            Exit::Interrupted => 130,
        }
    }
}
