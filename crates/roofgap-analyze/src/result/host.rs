//! Work of the CPU in the idle time of a stage.

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$meaning:meta])* $kind:ident, $name:literal;)*) => {
        /// Kind of work that keeps a launching thread from launching.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum HostKind {
            $($(#[$meaning])* $kind,)*
        }

        impl HostKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// Returns the name in the JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// A value is read back from the device: `.item()`, `.cpu()`, `.tolist()`, `nonzero`.
    HiddenSync, "hidden_sync";
    /// Text becomes tokens, or tokens become text.
    Tokenizer, "tokenizer";
    /// Requests are scheduled, and their cache is managed.
    Scheduler, "scheduler";
    /// Python calls operators, and PyTorch dispatches and launches them.
    Dispatch, "dispatch";
    /// Python collects garbage.
    GarbageCollection, "garbage_collection";
    /// The thread waits for a lock, for Python's global lock, or for another thread.
    Lock, "lock";
    /// The thread sleeps or polls.
    Sleep, "sleep";
    /// Messages are logged or printed.
    Logging, "logging";
    /// Files are read or written.
    FileAccess, "file_access";
    /// Messages go to another process, or come from one.
    Messages, "messages";
    /// The system does not run the thread: others have the core.
    Descheduled, "descheduled";
    /// Other Python code.
    Python, "python";
    /// Other native code.
    Native, "native";
}

/// Idle time of a stage in a function of its launching thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostFunction {
    /// Function, with its class where the capture names it.
    pub function: String,
    /// File, or library of a native function; null where unknown.
    pub file: Option<String>,
    /// Line; PyTorch names the one at which the function begins. Null where unknown.
    pub line: Option<u32>,
    /// Part of a serving engine that the function belongs to; null for other code.
    pub part: Option<String>,
    /// Kind of work.
    pub kind: HostKind,
    /// Idle time in the function itself and in functions without a line that it calls, ns.
    pub self_ns: i64,
    /// Idle time in the function and in all that it calls, ns.
    pub idle_ns: i64,
    /// Part of `self_ns` in which the thread waited for the device or was in a copy call, ns.
    pub device_wait_ns: i64,
    /// Samples behind `self_ns`; null where its time is exact.
    pub samples: Option<u64>,
    /// Limits of the 95 % confidence interval of `self_ns`, ns; null where its time is exact.
    pub interval_ns: Option<[i64; 2]>,
    /// Function without a line that it calls and that has most of `self_ns`; null without any.
    pub mostly: Option<HostCall>,
}

impl HostFunction {
    /// Returns the function with its file and line, as in `Sampler.forward (sampler.py:118)`.
    pub fn spoken(&self) -> String {
        let file = self.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
        match (file, self.line) {
            (Some(file), Some(line)) => format!("{} ({file}:{line})", self.function),
            (Some(file), None) => format!("{} ({file})", self.function),
            _ => self.function.clone(),
        }
    }
}

/// A function without a line, such as one of C.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostCall {
    /// Function.
    pub function: String,
    /// Idle time in it, ns.
    pub ns: i64,
}

/// Idle time of a stage that its launching threads are responsible for, and how much of it stacks explain. `self_ns` of the functions,
/// `others_ns` and `unknown_ns` add up to `idle_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostIdle {
    /// All of it, ns: launch, sync and copy of `idle`, and `between_ns` of engine steps or `before.idle_ns` of other stages.
    pub idle_ns: i64,
    /// Part in functions that are not listed, ns.
    pub others_ns: i64,
    /// Part without a frame or a sample of the launching thread, ns.
    pub unknown_ns: i64,
    /// Samples in it; null where all times are exact.
    pub samples: Option<u64>,
    /// Part in which the system did not run the thread, ns; null where the capture does not tell.
    pub not_running_ns: Option<i64>,
}
