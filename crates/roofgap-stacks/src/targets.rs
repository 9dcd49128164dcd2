//! The processes whose stacks are read.

use crate::capture::{Capture, Function, now};
use crate::system_call;
use py_spy::config::LockingStrategy;
use py_spy::{Config, Frame, PythonSpy};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Library that every process that uses a GPU has loaded.
const CUDA: &str = "/libcuda.so";

/// Most attempts to open one process: its interpreter may still start.
const TRIES: u32 = 50;

/// Python processes that use CUDA: another process and those below it, without this one.
pub struct Targets {
    ancestor: u32,
    open: Vec<Target>,
    /// Failed attempts to open a process.
    tries: HashMap<u32, u32>,
    refusal: Option<String>,
    ended_reads: u64,
}

/// A process whose stacks are read.
pub struct Target {
    pid: u32,
    spy: PythonSpy,
    failed: u64,
}

impl Targets {
    /// Looks for processes below `ancestor` from now on.
    pub fn below(ancestor: u32) -> Self {
        Self { ancestor, open: Vec::new(), tries: HashMap::new(), refusal: None, ended_reads: 0 }
    }

    /// Opens new processes, and closes those that have ended.
    pub fn look(&mut self) {
        let parents = parents();
        for ended in self.open.extract_if(.., |target| !parents.contains_key(&target.pid)) {
            self.ended_reads += ended.failed;
        }
        let known: HashSet<u32> = self.open.iter().map(|target| target.pid).collect();
        let own = std::process::id();
        for pid in parents.keys().copied().filter(|pid| *pid != own && !known.contains(pid)) {
            if !is_below(pid, self.ancestor, &parents) || !uses_cuda(pid) {
                continue;
            }
            let tries = self.tries.entry(pid).or_default();
            if *tries < TRIES {
                *tries += 1;
                match Target::open(pid) {
                    Ok(target) => self.open.push(target),
                    Err(why) => self.refusal = Some(why),
                }
            }
        }
    }

    /// Returns the open processes.
    pub fn list(&mut self) -> &mut [Target] {
        &mut self.open
    }

    /// Returns the number of reads that failed.
    pub fn failed_reads(&self) -> u64 {
        self.ended_reads + self.open.iter().map(|target| target.failed).sum::<u64>()
    }

    /// Returns why the last process that could not be opened was not.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.clone()
    }
}

impl Target {
    fn open(pid: u32) -> Result<Self, String> {
        let config = Config {
            blocking: LockingStrategy::NonBlocking,
            collect_thread_names: false,
            ..Config::default()
        };
        // The library that reads stacks may panic on memory that changes while it is read.
        let opened = catch_unwind(|| {
            let mut spy = PythonSpy::new(pid as i32, &config).map_err(|error| describe(pid, &error))?;
            spy.get_stack_traces().map_err(|error| describe(pid, &error))?;
            Ok(spy)
        });
        let spy = opened
            .unwrap_or_else(|_| Err(format!("the memory of process {pid} changed while it was read")))?;
        Ok(Self { pid, spy, failed: 0 })
    }

    /// Reads the stacks of all threads into a capture.
    pub fn read(&mut self, capture: &mut Capture) {
        let at = now();
        let read = catch_unwind(AssertUnwindSafe(|| self.spy.get_stack_traces()));
        let Ok(Ok(threads)) = read else {
            self.failed += 1;
            return;
        };
        for thread in threads.iter().filter(|thread| !thread.frames.is_empty()) {
            let tid = thread.os_thread_id.and_then(|tid| u32::try_from(tid).ok()).unwrap_or(0);
            let call = if thread.active || tid == 0 { None } else { system_call::of(self.pid, tid) };
            let inner = call.map(|name| (name, String::new(), 0));
            let stack = inner.into_iter().chain(thread.frames.iter().map(function));
            capture.add(self.pid, tid, thread.thread_id as u32, at, stack);
        }
    }
}

/// Returns name, file and line of a function. Of files outside of packages, the last folder is kept: longer paths may be private.
fn function(frame: &Frame) -> Function {
    let file = frame.short_filename.as_deref().unwrap_or(&frame.filename);
    let parts = file.rsplit('/').take(2).map(str::len).sum::<usize>() + 1;
    let short = if file.starts_with('/') { file.get(file.len().saturating_sub(parts)..) } else { None };
    (frame.name.clone(), short.unwrap_or(file).to_owned(), u32::try_from(frame.line).unwrap_or(0))
}

/// Says why the stacks of a process cannot be read, and what to do where a permission is missing.
fn describe(pid: u32, error: &impl std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    if text.contains("Permission denied") || text.contains("Operation not permitted") {
        return format!(
            "the memory of process {pid} may not be read; run as root, set kernel.yama.ptrace_scope=0, or give the container \
             --cap-add SYS_PTRACE"
        );
    }
    format!("the stacks of process {pid} cannot be read: {}", text.lines().next().unwrap_or_default())
}

/// Returns the parent of every process.
fn parents() -> HashMap<u32, u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// Returns the parent in the content of `/proc/PID/stat`; the name before it may have any characters.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Tells whether a process is another one or below it.
fn is_below(pid: u32, ancestor: u32, parents: &HashMap<u32, u32>) -> bool {
    // A process that ended may have left a circle of numbers.
    std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).take(64).any(|pid| pid == ancestor)
}

fn uses_cuda(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(CUDA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_below_their_ancestor() {
        assert_eq!(parent("12 (a) b (c) S 7 12 12"), Some(7));
        let parents = HashMap::from([(5, 4), (4, 3), (3, 1), (9, 9)]);
        assert!(is_below(5, 3, &parents) && is_below(4, 3, &parents));
        assert!(is_below(3, 3, &parents) && !is_below(1, 3, &parents) && !is_below(9, 3, &parents));
    }

    #[test]
    fn files_keep_no_private_folders() {
        let frame = |filename: &str, short: Option<&str>| Frame {
            name: "f".to_owned(),
            filename: filename.to_owned(),
            module: None,
            short_filename: short.map(str::to_owned),
            line: 7,
            locals: None,
            is_entry: false,
            is_shim_entry: false,
        };
        let file = |filename, short| function(&frame(filename, short)).1;
        assert_eq!(file("/home/me/work/app.py", None), "work/app.py");
        assert_eq!(file("/usr/lib/torch/nn/x.py", Some("torch/nn/x.py")), "torch/nn/x.py");
        assert_eq!(file("<string>", None), "<string>");
    }
}
