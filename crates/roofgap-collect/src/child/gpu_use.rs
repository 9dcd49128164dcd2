//! Processes of a child that load the CUDA driver, for the check that a recording holds all of them.

use std::time::{Duration, Instant};

use super::outcome::GpuProcess;
use super::process_tree::ProcessTree;

/// Time from the start to the first look.
const FIRST: Duration = Duration::from_millis(300);
/// Longest time between two looks. Each reads the list of all processes.
const LONGEST: Duration = Duration::from_secs(2);

/// Processes of a child with the driver, looked for at growing intervals.
pub struct GpuUse {
    start: Instant,
    due: Instant,
    found: Vec<GpuProcess>,
}

impl GpuUse {
    pub fn new(start: Instant) -> Self {
        GpuUse { start, due: start + FIRST, found: Vec::new() }
    }

    /// Adds the processes that loaded the driver since the last look, if it is time for one.
    pub fn observe(&mut self, tree: &ProcessTree, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now + now.duration_since(self.start).clamp(FIRST, LONGEST);
        for process in tree.program() {
            let known = self.found.iter().any(|found| found.pid == process.pid);
            if !known && loads_driver(process.pid) {
                self.found.push(GpuProcess { pid: process.pid, name: process.name });
            }
        }
    }

    pub fn into_found(self) -> Vec<GpuProcess> {
        self.found
    }
}

/// Returns true when `libcuda.so` is mapped into a process.
fn loads_driver(pid: i32) -> bool {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&maps).contains("/libcuda.so")
}
