//! Child processes: started in their own process group, with bounded logs and budgets, and stopped completely.
//!
//! - `run`: a command with its limits, and running it
//! - `outcome`: exit status, resource usage and output of a finished child
//! - `output`: draining stdout and stderr into files of bounded size
//! - `budget`: limits on time and disk space
//! - `gpu_use`: processes that load the CUDA driver
//! - `shutdown`: cancellation and the interrupt, terminate, kill sequence
//! - `process_tree`: finding and signalling all descendants
//! - `descent`: marks of descendants and signals to one of them
//! - `guardian`: a process that kills the children when this one dies
//! - `probe`: a short query to a tool, answered in memory

mod budget;
mod descent;
mod gpu_use;
mod guardian;
mod outcome;
mod output;
mod probe;
mod process_tree;
mod run;
mod shutdown;

pub use budget::{Budget, DiskBudget, free_bytes};
pub use guardian::{Guardian, guard};
pub use outcome::{CapturedOutput, EndReason, GpuProcess, Leftover, Outcome, Usage};
pub use output::OutputTarget;
pub use probe::{ProbeOutput, cancel_probes_with, probe};
pub use run::{ChildError, ChildSpec, Progress, Watch, Watcher, run};
pub use shutdown::{Cancel, StopPlan};
