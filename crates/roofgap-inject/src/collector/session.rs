//! The recording of one process: what its threads share, and how it ends.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use std::{io, ptr};

use super::control::Control;
use super::duty::{Cycle, StepLog};
use super::options::{Launcher, Options};
use super::output::Descriptor;
use super::ring::{Pool, Rings};
use super::waits::SyncArguments;
use super::{lock, now};
use crate::cupti::{Api, Subscriber};
use roofgap_wire::{ClockPair, Window, WindowCause};

/// Current recording; null before the first, in a forked child, and after the end.
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());

/// Time limit for the writer when the program exits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Losses that the program's threads count.
#[derive(Clone, Copy)]
pub enum Counted {
    RingFull,
    Reentered,
    NoRing,
    NoBuffer,
    FlushRefused,
    ForeignBuffer,
    Forked,
}

/// Id and explanation of each [`Counted`] loss.
const COUNTED: [(&str, &str); 7] = [
    ("nvtx.ring_full", "annotations came faster than they could be written"),
    ("nvtx.reentered", "annotations made inside a signal handler"),
    ("nvtx.too_many_threads", "annotations of threads beyond 1024 at one time"),
    ("cupti.no_buffer", "times every buffer was full, so that CUPTI dropped records"),
    ("cupti.flush_refused", "times CUPTI would not deliver its buffers"),
    ("cupti.foreign_buffer", "buffers of another user of CUPTI, which takes our records while it records"),
    ("process.forked", "children made by fork, which are not recorded in this file"),
];

/// CUPTI as this recording uses it.
pub struct Gpu {
    pub api: Api,
    pub subscriber: Subscriber,
    pub pool: Pool,
    /// Flags of the `Cupti` record: [`CALLS_CHOSEN`] and the following.
    pub options: u32,
    /// Clocks at the start.
    pub clocks: Option<ClockPair>,
    /// Kinds of activity to record beside kernels, with their names.
    pub kinds: Vec<(u32, &'static str)>,
    /// Calls to record: domain, number and name; empty where CUPTI records all or none.
    pub selected: Vec<(u32, u32, &'static [u8])>,
    /// Those of them that record an event or wait, where their streams can be told apart.
    pub waits: Vec<(u32, u32, SyncArguments)>,
    /// True once CUPTI has described the devices.
    pub devices_told: AtomicBool,
    pub callbacks: Callbacks,
}

/// Callbacks of calls. CUPTI loses track of a thread whose call began while they were on and returns when they are off, so a call that
/// returns turns them off, when no other thread is inside of one.
#[derive(Default)]
pub struct Callbacks {
    /// True while they are on.
    pub on: Mutex<bool>,
    /// True from the end of a window until they are off.
    pub leaving: AtomicBool,
    /// Calls that have been entered and have not returned.
    pub inside: AtomicI32,
}

/// Only selected calls are recorded.
pub const CALLS_CHOSEN: u32 = 1;
/// Copies and sets are recorded.
pub const COPIES: u32 = 2;
/// A graph launch is recorded as a whole.
pub const WHOLE_GRAPHS: u32 = 4;
/// Calls are recorded through callbacks.
pub const CALLBACKS: u32 = 8;

/// Reads CUPTI's clock between two readings of the capture's clock.
pub fn clocks(api: &Api) -> Option<ClockPair> {
    let before = now();
    let cupti = api.timestamp()?;
    Some(ClockPair { before, cupti, after: now() })
}

/// A loss that is known when it happens.
pub struct Note {
    pub id: &'static str,
    pub count: u64,
    pub detail: String,
}

/// A recording.
pub struct Session {
    pub options: Options,
    pub pid: u32,
    /// Place of the process in a distributed job.
    pub launcher: Launcher,
    /// Descriptor of the output file, which a forked child inherits.
    pub descriptor: Mutex<Descriptor>,
    /// Path of the capture.
    pub file: PathBuf,
    pub switch: Switch,
    /// The duty cycle.
    pub cycle: Option<Cycle>,
    pub control: OnceLock<Control>,
    /// Rounds of the writer.
    pub rounds: AtomicU64,
    /// True until the writer has begun a new file on request.
    pub cut: AtomicBool,
    /// Steps that ended, for a client that looks for slow ones.
    pub step_log: StepLog,
    /// Steps that began in recorded windows; counted only where there is a control socket.
    pub steps: AtomicU64,
    pub rings: Rings,
    pub gpu: OnceLock<Gpu>,
    counted: [AtomicU64; COUNTED.len()],
    notes: Mutex<Vec<Note>>,
    pub writer: OnceLock<Thread>,
    pub flusher: OnceLock<Thread>,
    /// True once the program ends; new events are dropped.
    pub stopping: AtomicBool,
    /// True once CUPTI has delivered its last buffer, or CUPTI is not in use.
    pub flushed: AtomicBool,
    /// True once the file is complete.
    pub done: AtomicBool,
}

/// Returns the recording that takes new events.
pub fn current() -> Option<&'static Session> {
    owner_of_buffers().filter(|session| !session.stopping.load(Ordering::Relaxed))
}

/// Returns the recording that owns CUPTI's buffers, also while the program ends.
pub fn owner_of_buffers() -> Option<&'static Session> {
    // SAFETY: null, or a session, and sessions are never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Makes this the current recording, or none.
pub fn set_current(session: Option<&'static Session>) {
    CURRENT.store(
        session.map_or(ptr::null_mut(), |session| ptr::from_ref(session).cast_mut()),
        Ordering::Release,
    );
}

/// Ends the recording at exit. Exit handlers run in reverse order, so this is called again once CUPTI is loaded: the last flush
/// must precede CUPTI's own exit handler.
pub fn finish_at_exit() {
    extern "C" fn at_exit() {
        let _ = std::panic::catch_unwind(finish);
    }
    // SAFETY: the function lives as long as the library, which stays loaded.
    unsafe { libc::atexit(at_exit) };
}

/// Ends the recording: writes the last buffers and the last frame.
fn finish() {
    let Some(session) = owner_of_buffers() else { return };
    // A child made without `fork`'s handlers shares nothing but the memory.
    if session.pid != std::process::id() || session.stopping.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Some(control) = session.control.get() {
        control.remove();
    }
    wake(&session.flusher);
    session.wake_writer();
    let deadline = Instant::now() + PATIENCE;
    while !session.done.load(Ordering::Acquire) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(500));
    }
}

impl Session {
    /// Creates the recording of this process into a file.
    pub fn new(options: Options, pid: u32, descriptor: Descriptor, file: PathBuf) -> Self {
        Self {
            pid,
            launcher: Launcher::read(|name| std::env::var_os(name)),
            descriptor: Mutex::new(descriptor),
            file,
            switch: Switch::new(options.dormant.is_none() && options.duty.is_none()),
            cycle: options.duty.map(|duty| Cycle::new(duty, options.dormant.is_none())),
            control: OnceLock::new(),
            rounds: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            step_log: StepLog::new(),
            steps: AtomicU64::new(0),
            options,
            rings: Rings::new(),
            gpu: OnceLock::new(),
            counted: [const { AtomicU64::new(0) }; COUNTED.len()],
            notes: Mutex::new(Vec::new()),
            writer: OnceLock::new(),
            flusher: OnceLock::new(),
            stopping: AtomicBool::new(false),
            flushed: AtomicBool::new(true),
            done: AtomicBool::new(false),
        }
    }

    /// Returns true while GPU work is recorded, all of it or by the duty cycle.
    pub fn is_requested(&self) -> bool {
        self.switch.is_armed() || self.cycle.as_ref().is_some_and(Cycle::is_active)
    }

    /// Returns true while a recording that starts dormant waits for a request.
    pub fn is_dormant(&self) -> bool {
        self.options.dormant.is_some() && !self.is_requested()
    }

    /// Returns the time since recording began, with the gaps of the duty cycle.
    pub fn requested_for(&self) -> Option<Duration> {
        match &self.cycle {
            Some(cycle) => cycle.active_for(),
            None => self.switch.lock().since.map(|(since, _)| since.elapsed()),
        }
    }

    /// Returns CUPTI, once it is set up.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.get()
    }

    /// Has CUPTI deliver the records of work: what is finished, or all of it.
    pub fn flush(&self, gpu: &Gpu, all: bool) {
        if gpu.api.flush(all).is_err() {
            self.count(Counted::FlushRefused);
        }
    }

    /// Has CUPTI deliver the records of finished work, and waits until they are written; false after 5 s.
    pub fn flush_now(&self) -> bool {
        if let Some(gpu) = self.gpu() {
            self.flush(gpu, false);
        }
        // The round that runs now may have begun before the flush.
        let enough = self.rounds.load(Ordering::Acquire) + 2;
        self.await_writer(|| self.rounds.load(Ordering::Acquire) >= enough)
    }

    /// Has the writer end the file, which becomes the older segment, and go on in a new one; false after 5 s.
    pub fn cut_now(&self) -> bool {
        self.cut.store(true, Ordering::Release);
        self.await_writer(|| !self.cut.load(Ordering::Acquire))
    }

    /// Waits until the writer has done something; false after 5 s.
    fn await_writer(&self, is_done: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !is_done() {
            if Instant::now() > deadline {
                return false;
            }
            self.wake_writer();
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    }

    /// Wakes the writer.
    pub fn wake_writer(&self) {
        wake(&self.writer);
    }

    /// Counts a loss.
    pub fn count(&self, loss: Counted) {
        if let Some(counter) = self.counted.get(loss as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lists the counted losses so far: count, id and explanation.
    pub fn losses(&self) -> impl Iterator<Item = (u64, &'static str, &'static str)> {
        self.counted
            .iter()
            .zip(COUNTED)
            .map(|(count, (id, detail))| (count.load(Ordering::Relaxed), id, detail))
    }

    /// Notes a loss. Takes a lock, so it is called only at start and end.
    pub fn note(&self, id: &'static str, count: u64, detail: &str) {
        lock(&self.notes).push(Note { id, count, detail: detail.to_owned() });
        self.wake_writer();
    }

    /// Returns the notes since the last call.
    pub fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut *lock(&self.notes))
    }
}

/// Wakes a thread, once it has been started.
pub fn wake(thread: &OnceLock<Thread>) {
    if let Some(thread) = thread.get() {
        thread.unpark();
    }
}

/// Starts a thread with all signals blocked.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    // SAFETY: the mask of this thread is set and put back around the start of the new one, which inherits it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        started.map(|handle| handle.thread().clone())
    }
}

/// Flushes after a window, until the work that was launched in it has ended.
const FLUSHES_AFTER: u32 = 3;

/// Longest wait for another thread that turns the recording on or off.
const LOCK_PATIENCE: Duration = Duration::from_millis(20);

/// Whether GPU work is recorded, and the edges of the recorded windows.
#[derive(Default)]
pub struct Switch {
    state: Mutex<SwitchState>,
    armed: AtomicBool,
    /// True once the capture takes no more records.
    ended: AtomicBool,
    flushes_due: AtomicU32,
    windows: AtomicU32,
    edges: Mutex<Vec<Window>>,
}

/// State that changes with a lock.
#[derive(Default)]
pub struct SwitchState {
    /// True if GPU work is to be recorded as soon as there is CUDA.
    pub wanted: bool,
    /// True once the program has started CUDA.
    pub cuda: bool,
    /// Begin of the current window.
    pub since: Option<(Instant, u64)>,
    /// True once an edge was written; until then the capture is one window.
    pub has_edges: bool,
}

impl Switch {
    /// Creates the switch of a recording that begins with GPU work or without.
    fn new(armed: bool) -> Self {
        let switch = Self::default();
        *switch.lock() = SwitchState { wanted: armed, has_edges: !armed, ..SwitchState::default() };
        if !armed {
            switch.edge(false, WindowCause::Begin, now());
        }
        switch
    }

    /// Waits for another thread that turns the recording on or off.
    pub fn lock(&self) -> MutexGuard<'_, SwitchState> {
        lock(&self.state)
    }

    /// Waits for another thread that turns the recording on or off, but not for ever: a signal handler may have interrupted it.
    pub fn lock_soon(&self) -> Option<MutexGuard<'_, SwitchState>> {
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    /// Adds the edge of a window.
    pub fn edge(&self, on: bool, cause: WindowCause, at: u64) {
        self.windows.fetch_add(u32::from(on), Ordering::Relaxed);
        lock(&self.edges).push(Window { on: u8::from(on), cause: cause.to_u8(), at });
    }

    /// Returns the edges since the last call.
    pub fn take_edges(&self) -> Vec<Window> {
        std::mem::take(&mut *lock(&self.edges))
    }

    /// Returns true while GPU work is recorded.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Returns the number of windows that began.
    pub fn windows(&self) -> u32 {
        self.windows.load(Ordering::Relaxed)
    }

    /// Notes that GPU work is recorded from now on, or not.
    pub fn set_armed(&self, armed: bool) {
        self.armed.store(armed, Ordering::Relaxed);
        if !armed {
            self.flushes_due.store(FLUSHES_AFTER, Ordering::Relaxed);
        }
    }

    /// Returns true once the capture takes no more records.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Refuses all further requests.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns true if work of the last window may still have to be delivered.
    pub fn awaits_flush(&self) -> bool {
        self.flushes_due.load(Ordering::Relaxed) > 0
    }

    /// Returns true if CUPTI may have records to deliver.
    pub fn take_flush(&self) -> bool {
        if self.is_armed() {
            return true;
        }
        let due = self.flushes_due.load(Ordering::Relaxed);
        self.flushes_due.store(due.saturating_sub(1), Ordering::Relaxed);
        due > 0
    }
}
