//! How a command ends, and the status that says so.

use serde::{Deserialize, Serialize};

/// The documented exit statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// 0: all that was asked for is done.
    Done,
    /// 1: a bug.
    Bug,
    /// 2: wrong usage, configuration or input.
    Usage,
    /// 3: done in part; what is missing is named.
    Partial,
    /// 4: the profiled program failed.
    ProgramFailed,
    /// 5: a comparison broke its gate.
    GateBroken,
    /// 130: interrupted; what was collected is kept and marked.
    Interrupted,
}

impl Exit {
    /// The number handed to the shell.
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
