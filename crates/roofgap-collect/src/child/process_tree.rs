//! The processes of a child: found by process group, by descent and by a mark in the environment.
//!
//! Written by hand: no crate finds descendants that left the group, the session and their parent.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::guardian;
use super::output::ProcessName;
use crate::process;
use crate::process::Process;

/// Leaders of the running trees. A reparented orphan names no tree, so a tree claims it only while it is the only one.
static RUNNING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a mark that is unique on this machine.
fn mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let start = process::find(own_pid()).map_or(0, |process| process.start);
    format!("{}{count}-", mark_prefix(own_pid(), start))
}

/// Makes orphaned descendants children of this process instead of init, so that they can be seen and reaped.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        // If the kernel refuses, group and mark still find nearly everything.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// A child and all its descendants.
pub struct ProcessTree {
    leader: i32,
    /// Start time of the leader, clock ticks since boot.
    since: u64,
    mark: String,
}

impl ProcessTree {
    /// Starts a child, which must lead its own process group.
    pub fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        let mark = mark();
        guardian::ensure();
        // Locked while spawning, or another thread could take the new child for an orphan.
        let mut leaders = running();
        let child = spawn(command.env(MARK, &mark))?;
        let leader = i32::try_from(child.id()).map_err(io::Error::other)?;
        leaders.push(leader);
        let since = process::find(leader).map_or(0, |process| process.start);
        Ok((child, Self { leader, since, mark: format!("{MARK}={mark}") }))
    }

    /// Returns the process id of the child.
    pub fn leader(&self) -> i32 {
        self.leader
    }

    /// Signals the process group, as a terminal does. A profiler ends its helpers in other sessions itself; signalling
    /// them would lose the report.
    pub fn signal_group(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.leader) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Signals the process group and all descendants outside it.
    pub fn signal_all(&self, signal: Signal) {
        self.signal_group(signal);
        for process in self.alive().iter().filter(|process| process.group != self.leader) {
            send(process, signal);
        }
    }

    /// Signals each process of the program behind a profiler once; skips the profiler and its helpers.
    pub fn signal_program(&self, signal: Signal, signalled: &mut HashSet<i32>) {
        for process in self.alive().iter().filter(|process| !is_profiler(process.pid)) {
            if signalled.insert(process.pid) {
                send(process, signal);
            }
        }
    }

    /// Lists the processes of the program: the child and its descendants, without a profiler and its helpers.
    pub fn program(&self) -> Vec<Process> {
        let mut processes = self.alive();
        processes.extend(process::find(self.leader));
        processes.retain(|process| !is_profiler(process.pid));
        processes
    }

    /// Ends the processes that outlive the child, and returns them.
    pub fn end_leftovers(&self, settle: Duration, terminate: Duration) -> Vec<ProcessName> {
        if self.wait_until_gone(settle) {
            return Vec::new();
        }
        let alive = self.alive().into_iter();
        let leftovers = alive.map(|process| ProcessName { pid: process.pid, name: process.name }).collect();
        self.signal_all(Signal::TERM);
        if !self.wait_until_gone(terminate) {
            // Repeated: a process may fork before it is killed, and a loaded machine is slow to end it.
            for _ in 0..100 {
                self.signal_all(Signal::KILL);
                if self.wait_until_gone(Duration::from_millis(100)) {
                    break;
                }
            }
        }
        leftovers
    }

    fn wait_until_gone(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if self.alive().is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the living descendants, without the child itself. Reaps dead orphans.
    fn alive(&self) -> Vec<Process> {
        let me = own_pid();
        let own_group = rustix::process::getpgrp().as_raw_nonzero().get();
        let guardian = guardian::pid();
        let leaders = running();
        // No descendant is older than the child.
        let younger: Vec<Process> = process::all()
            .into_iter()
            .filter(|process| {
                process.start >= self.since
                    && process.pid != me
                    && Some(process.pid) != guardian
                    && !leaders.contains(&process.pid)
            })
            .collect();
        let only_tree = leaders.len() == 1;
        drop(leaders);
        let mut tree: HashSet<i32> = HashSet::from([self.leader]);
        for process in &younger {
            let orphan = only_tree && process.parent == me && process.group != own_group;
            if process.group == self.leader || orphan || process::has_variable(process.pid, &self.mark) {
                tree.insert(process.pid);
            }
        }
        process::add_descendants(&mut tree, &younger);
        let mut alive = Vec::new();
        for process in younger.into_iter().filter(|process| tree.contains(&process.pid)) {
            if !process.is_zombie() {
                alive.push(process);
            } else if process.parent == me
                && let Some(pid) = Pid::from_raw(process.pid)
            {
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
        alive
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        running().retain(|leader| *leader != self.leader);
    }
}

/// Starts a program. Retries on ETXTBSY: a file written a moment ago may be open in a process that another thread just
/// forked.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// Returns true when a process belongs to Nsight Systems or Nsight Compute, by its executable.
fn is_profiler(pid: i32) -> bool {
    let Ok(file) = std::fs::read_link(format!("/proc/{pid}/exe")) else {
        return false;
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let folder = file.parent().unwrap_or(&file).to_string_lossy().to_ascii_lowercase();
    ["ncu", "nsys", "TreeLauncher"].iter().any(|part| name.starts_with(part))
        || ["nsight-compute", "nsightcompute", "nsight-systems", "target-linux-", "host-linux-"]
            .iter()
            .any(|part| folder.contains(part))
}

/// Environment variable that marks every descendant of a child, even outside its process group.
pub const MARK: &str = "ROOFGAP_CHILD";

/// Returns the beginning of all marks of the process `pid`, which started at `start`.
pub fn mark_prefix(pid: i32, start: u64) -> String {
    format!("{pid}-{start}-")
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
            if process::find(target.pid).is_some_and(|now| now.start == target.start) {
                let _ = rustix::process::pidfd_send_signal(&handle, signal);
            }
        }
        Err(rustix::io::Errno::NOSYS) => {
            let _ = rustix::process::kill_process(pid, signal);
        }
        Err(_) => {}
    }
}
