//! The guardian: a process that kills all children when this program dies without ending them, as after SIGKILL.
//!
//! The program starts itself again as its guardian, with a pipe as standard input. Only this process holds the other end of
//! the pipe, so that the guardian reads its end of file however this process died. Children are started as before: nothing
//! stands between them and this process.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::process_tree::{MARK, mark_prefix, own_pid, send};
use crate::command::CommandLine;
use crate::process::{self, Process};

/// Interval between looks at the children of the guarded process. A process that left its parent, its group and its
/// environment is found only if it was seen before.
const LOOK_NS: i64 = 200_000_000;
/// Interval between rounds of killing.
const ROUND: Duration = Duration::from_millis(40);
/// Rounds in a row that find nothing, before the guardian ends: a child may be about to start.
const QUIET_ROUNDS: u32 = 4;
/// Most rounds. A process in uninterruptible sleep survives SIGKILL.
const MOST_ROUNDS: u32 = 750;

/// Command line and process of the guardian.
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    command: CommandLine,
    started: Option<Child>,
}

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard of all children of this process. Dropping it ends the guardian, which has nothing left to do then.
#[derive(Debug)]
#[must_use = "children are guarded while it lives"]
pub struct Guardian(());

impl Guardian {
    /// Installs the guardian: `command`, with the process id and start time of this process as last arguments, calls
    /// [`guard`]. It is started before the first child.
    pub fn install(command: CommandLine) -> Self {
        *state() = Some(State { command, started: None });
        Guardian(())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let started = state().take().and_then(|state| state.started);
        if let Some(mut guardian) = started {
            let _ = guardian.kill();
            let _ = guardian.wait();
        }
    }
}

/// Starts the guardian if it is installed and not running yet. Returns its process id.
///
/// A guardian that cannot start is no reason not to profile.
pub fn ensure() -> Option<i32> {
    let mut state = state();
    let state = state.as_mut()?;
    if state.started.is_none() {
        let me = process::find(own_pid())?;
        let mut command = state.command.to_command();
        command
            .arg0("roofgap")
            .args([me.pid.to_string(), me.start.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // Neither Ctrl-C nor a kill of the process group reaches it.
            .process_group(0);
        state.started = command.spawn().ok();
    }
    i32::try_from(state.started.as_ref()?.id()).ok()
}

/// Returns the process id of the guardian, if it runs.
pub fn pid() -> Option<i32> {
    i32::try_from(state().as_ref()?.started.as_ref()?.id()).ok()
}

/// Waits for the end of the process `pid`, which started at `start` and holds the other end of `input`; then kills all its
/// descendants.
pub fn guard(pid: i32, start: u64, input: &impl AsFd) {
    let mut seen = HashMap::new();
    loop {
        look(pid, &mut seen);
        let mut fds = [PollFd::new(input, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        match rustix::event::poll(&mut fds, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // Nobody writes into the pipe: this is its end.
            Ok(_) | Err(_) => break,
        }
    }
    look(pid, &mut seen);
    let mut quiet = 0;
    for _ in 0..MOST_ROUNDS {
        let alive = family(pid, start, &seen);
        quiet = if alive.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET_ROUNDS {
            return;
        }
        for process in alive {
            send(&process, Signal::KILL);
            seen.insert(process.pid, process.start);
        }
        std::thread::sleep(ROUND);
    }
}

/// Adds the children of a process, among them the orphans it adopted, with their start times.
fn look(pid: i32, seen: &mut HashMap<i32, u64>) {
    seen.retain(|pid, start| process::find(*pid).is_some_and(|now| now.start == *start));
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_ascii_whitespace();
        let children = children.filter_map(|child| process::find(child.parse().ok()?));
        seen.extend(children.map(|child| (child.pid, child.start)));
    }
    seen.remove(&own_pid());
}

/// Returns the living processes that were seen or carry a mark of the process, those of their groups, and all descendants.
fn family(pid: i32, start: u64, seen: &HashMap<i32, u64>) -> Vec<Process> {
    let mark = format!("{MARK}={}", mark_prefix(pid, start));
    // A child from before the guardian was not started by roofgap, but by a shell that became roofgap.
    let since = process::find(own_pid()).map_or(start, |guardian| guardian.start);
    let younger: Vec<Process> = process::all()
        .into_iter()
        .filter(|process| process.start >= since && process.pid != pid && process.pid != own_pid())
        .collect();
    let is_seen = |process: &Process| seen.get(&process.pid) == Some(&process.start);
    let leads = |process: &&Process| process.group == process.pid && is_seen(process);
    let groups: HashSet<i32> = younger.iter().filter(leads).map(|process| process.group).collect();
    let mut family: HashSet<i32> = younger
        .iter()
        .filter(|process| {
            is_seen(process) || groups.contains(&process.group) || process::has_variable(process.pid, &mark)
        })
        .map(|process| process.pid)
        .collect();
    process::add_descendants(&mut family, &younger);
    younger.into_iter().filter(|process| family.contains(&process.pid) && !process.is_zombie()).collect()
}
