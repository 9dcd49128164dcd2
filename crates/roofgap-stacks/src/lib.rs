//! Samples the Python stacks of running programs into a native capture, from outside of them.
//!
//! The programs are never stopped: their memory is read while they run. A read that met a change is left out.

mod targets;

use roofgap_wire::{End, FrameBuilder, Header, Loss, Process, Record, StackFrame, StackSample, Text};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use targets::{Targets, parents};

/// Reason why no stacks were sampled.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum StacksError {
    /// The capture cannot be written.
    #[error("cannot write a capture in {}: {source}", folder.display())]
    Capture { folder: PathBuf, source: io::Error },
    /// A permission is missing.
    #[error(
        "the memory of process {pid} may not be read; run as root, set kernel.yama.ptrace_scope=0, or give the container \
         --cap-add SYS_PTRACE"
    )]
    Denied { pid: u32 },
    /// The interpreter of a process is not understood, or changed meanwhile.
    #[error("the stacks of process {pid} cannot be read: {why}")]
    Unreadable { pid: u32, why: String },
}

/// Interval between looks for new processes.
const LOOK: Duration = Duration::from_millis(200);

/// Samples the Python processes that use CUDA, of `ancestor` and all below it, into a new capture in `folder` until `is_over`. The file
/// is there when sampling begins. Returns the number of samples.
///
/// # Errors
/// Fails when no stack could be read, or the capture cannot be written.
pub fn run(folder: &Path, ancestor: u32, hz: u32, is_over: &dyn Fn() -> bool) -> Result<u64, StacksError> {
    let no_capture = |source| StacksError::Capture { folder: folder.to_owned(), source };
    let interval = Duration::from_secs(1) / hz.clamp(1, 10_000);
    let mut targets = Targets::below(ancestor);
    targets.open_new(&parents());
    let mut capture = Capture::create(folder).map_err(no_capture)?;
    let (mut next, mut look) = (Instant::now(), Instant::now() + LOOK);
    while !is_over() {
        if Instant::now() >= look {
            targets.look(&mut capture);
            look = Instant::now() + LOOK;
        }
        for target in targets.list() {
            target.read(&mut capture);
        }
        next += interval;
        // A sample that took too long is not made up for.
        next = next.max(Instant::now());
        std::thread::sleep(next.duration_since(Instant::now()).min(LOOK));
    }
    targets.list().iter_mut().for_each(|target| target.write(u64::MAX, &mut capture));
    let samples = capture.finish(targets.failed_reads()).map_err(no_capture)?;
    targets.into_refusal().filter(|_| samples == 0).map_or(Ok(samples), Err)
}

/// The stack of a thread: process, thread, and its functions, innermost first.
pub type ThreadStack = (u32, u32, Vec<Function>);

/// Reads the stacks of all threads of the same processes once.
pub fn snapshot(ancestor: u32) -> Vec<ThreadStack> {
    let mut targets = Targets::below(ancestor);
    targets.open_new(&parents());
    targets.list().iter_mut().flat_map(targets::Target::threads).collect()
}

/// Longest frame before it is written, bytes.
const FRAME: usize = 1 << 18;

/// A function: its name, file and line.
pub type Function = (String, String, u32);

/// A capture being written.
pub struct Capture {
    path: PathBuf,
    file: File,
    frame: FrameBuilder,
    functions: HashMap<Function, u32>,
    samples: u64,
    /// First write that failed.
    failed: Option<io::Error>,
}

impl Capture {
    /// Creates `stacks-<pid>.rgcap` in `folder`.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let path = folder.join(format!("stacks-{pid}.rgcap"));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&Header::new(pid, now(), 0).encode())?;
        let mut frame = FrameBuilder::new();
        let name = Text(b"roofgap stacks");
        frame.put(&Record::Process(Process { pid, parent: 0, at: now(), name }));
        Ok(Self { path, file, frame, functions: HashMap::new(), samples: 0, failed: None })
    }

    /// Adds the stack of a thread, innermost function first.
    pub fn add(&mut self, pid: u32, tid: u32, handle: u32, at: u64, stack: impl Iterator<Item = Function>) {
        let ids: Vec<u8> = stack.flat_map(|function| self.id(function).to_le_bytes()).collect();
        self.frame.put(&Record::StackSample(StackSample { pid, tid, handle, at, frames: Text(&ids) }));
        self.samples += 1;
        if self.frame.len() > FRAME {
            self.write();
        }
    }

    /// Returns the id of a function, and writes the function if it is new.
    fn id(&mut self, function: Function) -> u32 {
        let next = self.functions.len() as u32;
        if let Some(id) = self.functions.get(&function) {
            return *id;
        }
        let (name, file, line) = &function;
        let (name, file) = (Text(name.as_bytes()), Text(file.as_bytes()));
        self.frame.put(&Record::StackFrame(StackFrame { id: next, line: *line, function: name, file }));
        self.functions.insert(function, next);
        next
    }

    fn write(&mut self) {
        if let Err(error) = self.file.write_all(self.frame.close()) {
            self.failed.get_or_insert(error);
        }
    }

    /// Ends the capture. Returns the number of samples. Without any, no file is left.
    pub fn finish(mut self, failed_reads: u64) -> io::Result<u64> {
        if self.samples == 0 {
            return std::fs::remove_file(self.path).map(|()| 0);
        }
        if failed_reads > 0 {
            let id = Text(b"sampling.failed");
            let detail = Text(b"the memory of the program changed while a stack was read");
            self.frame.put(&Record::Loss(Loss { count: failed_reads, id, detail }));
        }
        self.write();
        self.frame.put(&Record::End(End { how: 1, at: now() }));
        self.write();
        self.failed.map_or(Ok(self.samples), Err)
    }
}

/// Returns the time on the clock of the native collector, ns since the epoch.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
