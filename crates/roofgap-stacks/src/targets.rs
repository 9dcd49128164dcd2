//! The processes whose stacks are read, and the system calls in which their threads wait.

use crate::{Capture, Function, StacksError, ThreadStack, now};
use py_spy::config::LockingStrategy;
use py_spy::{Config, Frame, PythonSpy};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Library that every process that uses a GPU has loaded.
const CUDA: &str = "/libcuda.so";

/// Most attempts to open one process: its interpreter may still start.
const TRIES: u32 = 50;

/// Most reads for a sample. Of a program that calls many functions, one of five meets a change.
const READS: u32 = 3;

/// Python processes that use CUDA: another process and those below it, without this one.
pub struct Targets {
    ancestor: u32,
    open: Vec<Target>,
    /// Failed attempts to open a process.
    tries: HashMap<u32, u32>,
    refusal: Option<StacksError>,
    ended_reads: u64,
}

/// A process whose stacks are read.
pub struct Target {
    pid: u32,
    spy: PythonSpy,
    failed: u64,
    held: Held,
    source: Source,
}

/// Samples that wait until it is known whether their threads ran, and the time that each thread has waited for a core, ns.
#[derive(Default)]
struct Held {
    samples: VecDeque<Sample>,
    waited: HashMap<u32, u64>,
}

/// The stack of a thread.
struct Sample {
    tid: u32,
    handle: u32,
    at: u64,
    stack: Vec<Function>,
}

/// Time for which samples are held, ns: the system says that a thread waited for a core when it runs again.
const HOLD_NS: u64 = 100_000_000;

/// Function of a thread that could run, but had no core.
const NOT_RUNNING: &str = "(not_running)";

impl Held {
    /// Notes at `now` how long a thread has waited for a core in all, and marks its last samples for the part that is new.
    fn waited(&mut self, tid: u32, now: u64, all_ns: u64) {
        let new_ns = all_ns.saturating_sub(self.waited.insert(tid, all_ns).unwrap_or(all_ns));
        let mut of_thread = self.samples.iter_mut().rev().filter(|sample| sample.tid == tid).peekable();
        // It got its core between its last sample and now.
        let from = of_thread.peek().map_or(0, |last| last.at.midpoint(now)).saturating_sub(new_ns);
        for sample in of_thread.take_while(|sample| sample.at > from) {
            sample.stack.insert(0, (NOT_RUNNING.to_owned(), String::new(), 0));
        }
    }

    /// Writes the samples before `end`.
    fn write(&mut self, end: u64, pid: u32, capture: &mut Capture) {
        while let Some(sample) = self.samples.pop_front_if(|sample| sample.at < end) {
            capture.add(pid, sample.tid, sample.handle, sample.at, sample.stack.into_iter());
        }
    }
}

impl Targets {
    /// Looks for processes below `ancestor` from now on.
    pub fn below(ancestor: u32) -> Self {
        Self { ancestor, open: Vec::new(), tries: HashMap::new(), refusal: None, ended_reads: 0 }
    }

    /// Opens new processes, and closes those that have ended.
    pub fn look(&mut self, capture: &mut Capture) {
        let parents = parents();
        for mut ended in self.open.extract_if(.., |target| !parents.contains_key(&target.pid)) {
            self.ended_reads += ended.failed;
            ended.write(u64::MAX, capture);
        }
        self.open_new(&parents);
    }

    /// Opens the processes that are not open yet.
    pub fn open_new(&mut self, parents: &HashMap<u32, u32>) {
        let known: HashSet<u32> = self.open.iter().map(|target| target.pid).collect();
        let this = std::process::id();
        for pid in parents.keys().copied().filter(|pid| *pid != this && !known.contains(pid)) {
            if !is_below(pid, self.ancestor, parents) || !uses_cuda(pid) {
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
    pub fn into_refusal(self) -> Option<StacksError> {
        self.refusal
    }
}

impl Target {
    fn open(pid: u32) -> Result<Self, StacksError> {
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
        let changed = || "its memory changed while it was read".to_owned();
        let spy = opened.unwrap_or_else(|_| Err(StacksError::Unreadable { pid, why: changed() }))?;
        Ok(Self { pid, spy, failed: 0, held: Held::default(), source: Source::default() })
    }

    /// Reads the stacks of all threads into a capture.
    pub fn read(&mut self, capture: &mut Capture) {
        let read = self.samples();
        let at = read.first().map_or_else(now, |sample| sample.at);
        for sample in read {
            if let Some(all_ns) = waited_ns(self.pid, sample.tid) {
                self.held.waited(sample.tid, at, all_ns);
            }
            self.held.samples.push_back(sample);
        }
        self.write(at.saturating_sub(HOLD_NS), capture);
    }

    /// Reads the stacks of all threads once.
    pub fn threads(&mut self) -> Vec<ThreadStack> {
        let pid = self.pid;
        self.samples().into_iter().map(|sample| (pid, sample.tid, sample.stack)).collect()
    }

    fn samples(&mut self) -> Vec<Sample> {
        let mut traces = || catch_unwind(AssertUnwindSafe(|| self.spy.get_stack_traces())).ok()?.ok();
        let read = (0..READS).find_map(|_| traces());
        // The states of all threads are read before their frames, and the first thread comes last.
        let at = now();
        let Some(threads) = read else {
            self.failed += 1;
            return Vec::new();
        };
        let mut samples = Vec::new();
        for thread in threads.iter().filter(|thread| !thread.frames.is_empty()) {
            let tid = thread.os_thread_id.and_then(|tid| u32::try_from(tid).ok()).unwrap_or(0);
            let away = !thread.active && tid != 0;
            let call = match away {
                true if is_stopped(self.pid, tid) => Some(NOT_RUNNING.to_owned()),
                true => waits_in(self.pid, tid),
                false => None,
            };
            let inner = call.or_else(|| self.source.call(self.pid, thread.frames.first()?));
            let inner = inner.map(|name| (name, String::new(), 0));
            let stack = inner.into_iter().chain(thread.frames.iter().map(function)).collect();
            samples.push(Sample { tid, handle: thread.thread_id as u32, at, stack });
        }
        samples
    }

    /// Writes the samples before `end`.
    pub fn write(&mut self, end: u64, capture: &mut Capture) {
        self.held.write(end, self.pid, capture);
    }
}

/// What lines of the program call, by file and line.
#[derive(Default)]
struct Source(HashMap<(String, i32), Option<String>>);

/// Most lines that are looked at, and most bytes of a file.
const MOST_LINES: usize = 20_000;
const MOST_BYTES: u64 = 4 << 20;

impl Source {
    /// Returns the function of C that runs in the line of the innermost Python function, where the line is nothing but one call.
    fn call(&mut self, pid: u32, frame: &Frame) -> Option<String> {
        let is_module = frame.filename.starts_with('/') && frame.filename.ends_with(".py");
        if !is_module || self.0.len() >= MOST_LINES {
            return None;
        }
        let at = (frame.filename.clone(), frame.line);
        let read = |(file, line): &(String, i32)| {
            let path = format!("/proc/{pid}/root{file}");
            let file = std::fs::metadata(&path)
                .is_ok_and(|data| data.is_file())
                .then(|| File::open(path).ok())??;
            let at = usize::try_from(*line).ok()?.checked_sub(1)?;
            let text = BufReader::new(file.take(MOST_BYTES)).lines().nth(at)?.ok()?;
            only_call(&text).map(str::to_owned)
        };
        self.0.entry(at).or_insert_with_key(read).clone()
    }
}

/// Returns the function that a line calls, with the name before its last dot, if the line does nothing else: `gc.collect()`,
/// `n = x.item()`, `return f(a, b)`.
fn only_call(line: &str) -> Option<&str> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let line = line.split(" #").next()?.trim();
    let line = line.strip_prefix("return ").or_else(|| Some(line.split_once(" = ")?.1)).unwrap_or(line);
    let (called, rest) = line.split_once('(')?;
    let arguments = rest.strip_suffix(')')?;
    let plain = arguments.chars().all(|c| word(c) || " ,='\"-".contains(c));
    let names = plain && !called.is_empty() && !called.ends_with('.') && called.chars().all(word);
    let from = called.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    called.get(from..).filter(|_| names)
}

/// Returns name, file and line of a function. Of files outside of packages, the last folder is kept: longer paths may be private.
fn function(frame: &Frame) -> Function {
    let file = frame.short_filename.as_deref().unwrap_or(&frame.filename);
    let parts = file.rsplit('/').take(2).map(str::len).sum::<usize>() + 1;
    let short = if file.starts_with('/') { file.get(file.len().saturating_sub(parts)..) } else { None };
    (frame.name.clone(), short.unwrap_or(file).to_owned(), u32::try_from(frame.line).unwrap_or(0))
}

/// Says why the stacks of a process cannot be read.
fn describe(pid: u32, error: &impl std::fmt::Debug) -> StacksError {
    let text = format!("{error:?}");
    if text.contains("Permission denied") || text.contains("Operation not permitted") {
        return StacksError::Denied { pid };
    }
    StacksError::Unreadable { pid, why: text.lines().next().unwrap_or_default().to_owned() }
}

/// Returns the parent of every process.
pub fn parents() -> HashMap<u32, u32> {
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

/// Numbers of the calls in which threads wait, as the functions of C call them.
#[cfg(target_arch = "x86_64")]
const CALLS: [(u64, &str); 24] = [
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (23, "select"),
    (24, "sched_yield"),
    (35, "nanosleep"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (74, "fsync"),
    (202, "futex"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (247, "waitid"),
    (257, "openat"),
    (262, "stat"),
    (270, "select"),
    (271, "ppoll"),
    (281, "epoll_wait"),
];

/// Numbers of the calls in which threads wait, as the functions of C call them.
#[cfg(not(target_arch = "x86_64"))]
const CALLS: [(u64, &str); 18] = [
    (22, "epoll_wait"),
    (29, "ioctl"),
    (56, "openat"),
    (63, "read"),
    (64, "write"),
    (67, "pread64"),
    (68, "pwrite64"),
    (72, "select"),
    (73, "ppoll"),
    (82, "fsync"),
    (98, "futex"),
    (101, "nanosleep"),
    (115, "clock_nanosleep"),
    (124, "sched_yield"),
    (206, "sendto"),
    (207, "recvfrom"),
    (211, "sendmsg"),
    (212, "recvmsg"),
];

/// Returns the system call in which a thread is, from its `/proc/PID/task/TID/syscall`; `None` while it runs.
fn named(content: &str) -> Option<String> {
    let number = content.split(' ').next()?.parse::<u64>().ok()?;
    let known = CALLS.iter().find(|(known, _)| *known == number);
    Some(known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned()))
}

/// Returns the system call in which a thread waits; `None` if it runs, or if this cannot be read.
fn waits_in(pid: u32, tid: u32) -> Option<String> {
    named(&std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

/// Tells whether a signal or a debugger has stopped a thread.
fn is_stopped(pid: u32, tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// Returns how long a thread has waited for a core until it last got one, ns.
fn waited_ns(pid: u32, tid: u32) -> Option<u64> {
    let content = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    content.split(' ').nth(1)?.parse().ok()
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

    #[test]
    fn samples_of_a_thread_without_a_core_are_marked() {
        let mut held = Held::default();
        let sample = |tid, at| Sample { tid, handle: 0, at, stack: vec![("f".to_owned(), String::new(), 1)] };
        held.waited(1, 0, 50);
        // The thread waits from 25 to 45; the other one never does.
        for at in [10, 20, 30, 40] {
            held.samples.extend([sample(1, at), sample(2, at)]);
            held.waited(1, at + 1, 50);
        }
        held.waited(1, 50, 70);
        held.waited(2, 50, 0);
        let marked = held.samples.iter().filter(|sample| sample.stack[0].0 == NOT_RUNNING);
        assert_eq!(marked.map(|sample| (sample.tid, sample.at)).collect::<Vec<_>>(), [(1, 30), (1, 40)]);
    }

    #[test]
    fn a_line_that_is_one_call_names_what_runs_in_it() {
        for (line, called) in [
            ("    gc.collect()  # between requests", Some("gc.collect")),
            ("n = hidden.sum.item()", Some("sum.item")),
            ("    return tok.encode(text, add_special_tokens=True)", Some("tok.encode")),
            ("print(total)", Some("print")),
            ("for i in range(9): total += i", None),
            ("x = torch.relu(a + b)", None),
            ("x = f(g(y))", None),
            ("x, = f(y).tolist()", None),
            ("total += 1", None),
            ("()", None),
        ] {
            assert_eq!(only_call(line), called, "{line}");
        }
    }

    #[test]
    fn a_running_thread_is_in_no_call() {
        assert_eq!(named("running\n"), None);
        assert_eq!(named("-1 0x7ffd 0x7f00\n"), None);
        assert_eq!(named("9999 0x0\n").as_deref(), Some("system call 9999"));
        let futex = CALLS.iter().find(|(_, name)| *name == "futex").unwrap().0;
        assert_eq!(named(&format!("{futex} 0x1 0x80\n")).as_deref(), Some("futex"));
    }
}
