//! Marks of descendants, their descent, and signals to exactly one of them.

use std::collections::HashSet;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::process::{self, Process};

/// Environment variable that marks every descendant of a child, even outside its process group.
pub const MARK: &str = "ROOFGAP_CHILD";

/// Returns the beginning of all marks of the process `pid`, which started at `start`.
pub fn mark_prefix(pid: i32, start: u64) -> String {
    format!("{pid}-{start}-")
}

/// Adds the descendants of the processes in `tree`.
pub fn add_descendants(tree: &mut HashSet<i32>, processes: &[Process]) {
    loop {
        let before = tree.len();
        for process in processes {
            if tree.contains(&process.parent) {
                tree.insert(process.pid);
            }
        }
        if tree.len() == before {
            return;
        }
    }
}

/// Returns the id of this process.
pub fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Signals exactly this process: opens a pidfd and compares start times, so that a reused process id is never hit.
pub fn send(target: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(target.pid) else {
        return;
    };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => {
            if process::of(target.pid).is_some_and(|now| now.start == target.start) {
                let _ = rustix::process::pidfd_send_signal(&handle, signal);
            }
        }
        Err(rustix::io::Errno::NOSYS) => {
            let _ = rustix::process::kill_process(pid, signal);
        }
        Err(_) => {}
    }
}
