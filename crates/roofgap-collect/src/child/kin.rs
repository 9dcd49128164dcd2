//! What a child leaves behind: found by process group, by descent and by a mark in the environment, then ended.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::outcome::Leftover;
use super::stop::StopPlan;
use crate::process::{self, Process};

/// The variable that marks every descendant of a child, however far it has run from its group.
const MARK: &str = "ROOFGAP_CHILD";

/// The children running now. An orphan handed to this process belongs to none of them by name, so it is only taken
/// for one's own where there is just one.
static RUNNING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of the mark of one child: no other on this machine has the same.
fn mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let me = process::of(own_pid()).map_or(0, |process| process.start);
    format!("{}-{me}-{count}", own_pid())
}

/// Orphans of children come to this process instead of init, so that they can be seen and reaped.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        // Where the kernel refuses, group and mark still find nearly everything.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// The family of one child.
pub(super) struct Kin {
    lead: i32,
    since: u64,
    mark: String,
}

impl Kin {
    /// Starts a child, which must lead a group of its own, and its family with it.
    pub(super) fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        let mark = mark();
        // Held while starting, or another thread could take the new child for an orphan.
        let mut leads = running();
        let child = spawn(command.env(MARK, &mark))?;
        let lead = i32::try_from(child.id()).map_err(io::Error::other)?;
        leads.push(lead);
        let since = process::of(lead).map_or(0, |process| process.start);
        Ok((
            child,
            Kin {
                lead,
                since,
                mark: format!("{MARK}={mark}"),
            },
        ))
    }

    /// The id of its head.
    pub(super) fn lead(&self) -> i32 {
        self.lead
    }

    /// Signals the group, as a terminal does. A profiler has helpers in sessions of their own, which it ends itself once
    /// it has what it needs of them; signalling those would cost the report.
    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.lead) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Signals the group and whoever of the family has left it.
    pub(super) fn signal_all(&self, signal: Signal) {
        self.signal_group(signal);
        for process in self.alive().iter().filter(|process| process.group != self.lead) {
            send(process, signal);
        }
    }

    /// Signals the program behind a profiler, and neither the profiler nor its helpers; each process once.
    pub(super) fn signal_program(&self, signal: Signal, told: &mut HashSet<i32>) {
        for process in self.alive().iter().filter(|process| !is_profiler(process.pid)) {
            if told.insert(process.pid) {
                send(process, signal);
            }
        }
    }

    /// Ends what is still there after the child itself has gone, and tells what it was.
    pub(super) fn end_leftovers(&self, settle: Duration, plan: &StopPlan) -> Vec<Leftover> {
        if self.wait_until_gone(settle) {
            return Vec::new();
        }
        let left: Vec<Leftover> = self
            .alive()
            .into_iter()
            .map(|process| Leftover {
                pid: process.pid,
                name: process.name,
            })
            .collect();
        self.signal_all(Signal::TERM);
        if !self.wait_until_gone(plan.terminate) {
            // What is killed may have started another meanwhile, and a loaded machine takes its time to end it.
            for _ in 0..100 {
                self.signal_all(Signal::KILL);
                if self.wait_until_gone(Duration::from_millis(100)) {
                    break;
                }
            }
        }
        left
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

    /// The living members of the family, without its head. The dead ones that were handed to us are reaped.
    fn alive(&self) -> Vec<Process> {
        let me = own_pid();
        let own_group = rustix::process::getpgrp().as_raw_nonzero().get();
        let leads = running();
        // Nobody in the family is older than its head.
        let young: Vec<Process> = process::all()
            .into_iter()
            .filter(|process| {
                process.start >= self.since && process.pid != me && !leads.contains(&process.pid)
            })
            .collect();
        let only_child = leads.len() == 1;
        drop(leads);
        let mut family: HashSet<i32> = HashSet::from([self.lead]);
        for process in &young {
            let orphan = only_child && process.parent == me && process.group != own_group;
            if process.group == self.lead || orphan || process::has_variable(process.pid, &self.mark) {
                family.insert(process.pid);
            }
        }
        loop {
            let before = family.len();
            for process in &young {
                if family.contains(&process.parent) {
                    family.insert(process.pid);
                }
            }
            if family.len() == before {
                break;
            }
        }
        let mut alive = Vec::new();
        for process in young.into_iter().filter(|process| family.contains(&process.pid)) {
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

impl Drop for Kin {
    fn drop(&mut self) {
        running().retain(|lead| *lead != self.lead);
    }
}

/// Starts a program. One that was written a moment ago may still be open in a process that another thread has just
/// forked, which passes by itself.
fn spawn(command: &mut Command) -> io::Result<Child> {
    for _ in 0..50 {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
    command.spawn()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether a process is a part of Nsight Systems or Nsight Compute, by the file it runs.
fn is_profiler(pid: i32) -> bool {
    let Ok(file) = std::fs::read_link(format!("/proc/{pid}/exe")) else {
        return false;
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let folder = file
        .parent()
        .unwrap_or(&file)
        .to_string_lossy()
        .to_ascii_lowercase();
    ["ncu", "nsys", "TreeLauncher"]
        .iter()
        .any(|part| name.starts_with(part))
        || ["nsight-compute", "nsightcompute", "nsight-systems"]
            .iter()
            .any(|part| folder.contains(part))
}

/// Signals exactly this process: the id is pinned first, then its start time compared, so that an id taken over by
/// another process is never hit.
fn send(target: &Process, signal: Signal) {
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
