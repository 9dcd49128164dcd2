//! Child processes: started in their own process group, with bounded logs and budgets, and stopped completely.
//!
//! - `run`: a command with its limits on time and disk space, and running it
//! - `output`: exit status, resource usage and output of a child
//! - `shutdown`: cancellation and the interrupt, terminate, kill sequence
//! - `process_tree`: finding and signalling all descendants
//! - `guardian`: a process that kills the children when this one dies

mod guardian;
mod output;
mod process_tree;
mod run;
mod shutdown;

pub use guardian::{Guardian, guard};
pub use output::{CapturedOutput, EndReason, Outcome, OutputTarget, ProcessName, Usage};
pub use run::{
    Budget, ChildError, ChildSpec, DiskBudget, ProbeOutput, Progress, Watch, Watcher, cancel_probes_with,
    free_bytes, probe, run,
};
pub use shutdown::{Cancel, StopPlan};
