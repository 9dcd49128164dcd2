//! The recording of one process: start, `fork` and end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};
use std::{io, ptr};

use super::control::{self, Control};
use super::duty::{Cycle, StepLog};
use super::options::{Launcher, Options};
use super::output::{Output, SharedDescriptor};
use super::ring::{Pool, Rings};
use super::switch::{self, Switch};
use super::{lock, now, writer};
use crate::cupti::{Api, Subscriber};
use roofgap_wire::ClockPair;

/// Current recording; null before the first, in a forked child, and after the end.
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());

static STATE: AtomicU8 = AtomicU8::new(IDLE);
const IDLE: u8 = 0;
const STARTING: u8 = 1;
const STARTED: u8 = 2;

/// True once the process-wide handlers are installed. A forked child inherits them.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// Time limit for the writer when the program exits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counters of the program's threads.
#[derive(Default)]
pub struct Counters {
    /// Annotations dropped because the ring was full.
    pub ring_full: AtomicU64,
    /// Annotations of a signal handler that interrupted another annotation.
    pub reentered: AtomicU64,
    /// Annotations of threads without a ring.
    pub no_ring: AtomicU64,
    /// Requests of CUPTI without a free buffer.
    pub no_buffer: AtomicU64,
    /// Failed flushes.
    pub flush_refused: AtomicU64,
    /// Buffers that CUPTI returned to us and another user of CUPTI gave out.
    pub foreign_buffer: AtomicU64,
    /// Forked children; they are recorded only if they start CUDA or another program.
    pub forks: AtomicU64,
}

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
    pub descriptor: SharedDescriptor,
    /// Path of the capture.
    pub file: PathBuf,
    pub switch: Switch,
    /// The duty cycle.
    pub cycle: Option<Cycle>,
    control: OnceLock<Control>,
    /// Rounds of the writer.
    pub rounds: AtomicU64,
    /// True until the writer has begun a new file on request.
    pub cut: AtomicBool,
    /// Steps that ended, for a client that looks for slow ones.
    pub step_log: StepLog,
    /// Steps that began in recorded windows; counted only where there is a control socket.
    pub steps: AtomicU64,
    pub rings: Rings,
    pub counters: Counters,
    gpu: OnceLock<Gpu>,
    notes: Mutex<Vec<Note>>,
    writer: OnceLock<Thread>,
    flusher: OnceLock<Thread>,
    /// True once the program ends; new events are dropped.
    pub stopping: AtomicBool,
    /// True once CUPTI has delivered its last buffer, or CUPTI is not in use.
    pub flushed: AtomicBool,
    /// True once the file is complete.
    pub done: AtomicBool,
}

/// Returns the recording that takes new events.
pub fn current() -> Option<&'static Session> {
    let session = CURRENT.load(Ordering::Acquire);
    // SAFETY: null, or a session, and sessions are never freed.
    let session = unsafe { session.as_ref() }?;
    (!session.stopping.load(Ordering::Relaxed)).then_some(session)
}

/// Returns the recording that owns CUPTI's buffers, also while the program ends.
pub fn owner_of_buffers() -> Option<&'static Session> {
    // SAFETY: as above.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Returns the recording, and starts it if necessary; `None` when the environment requests none or no file can be created.
pub fn start() -> Option<&'static Session> {
    loop {
        match STATE.compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(STARTING) => std::thread::yield_now(),
            Err(_) => return current(),
        }
    }
    let session = begin();
    if let Some(session) = session {
        CURRENT.store(ptr::from_ref(session).cast_mut(), Ordering::Release);
    }
    STATE.store(STARTED, Ordering::Release);
    session
}

fn begin() -> Option<&'static Session> {
    // SAFETY: asks the kernel whether the process runs with more rights than its user, who then must not choose files.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let options = Options::read(|name| std::env::var_os(name))?;
    let pid = std::process::id();
    let output = Output::create(&options.folder, pid, options.limit).ok()?;
    let session: &'static Session = Box::leak(Box::new(Session {
        pid,
        launcher: Launcher::read(|name| std::env::var_os(name)),
        descriptor: SharedDescriptor::new(output.descriptor()),
        file: output.path().to_path_buf(),
        switch: Switch::new(options.dormant.is_none() && options.duty.is_none()),
        cycle: options.duty.map(|duty| Cycle::new(duty, options.dormant.is_none())),
        control: OnceLock::new(),
        rounds: AtomicU64::new(0),
        cut: AtomicBool::new(false),
        step_log: StepLog::new(),
        steps: AtomicU64::new(0),
        options,
        rings: Rings::new(),
        counters: Counters::default(),
        gpu: OnceLock::new(),
        notes: Mutex::new(Vec::new()),
        writer: OnceLock::new(),
        flusher: OnceLock::new(),
        stopping: AtomicBool::new(false),
        flushed: AtomicBool::new(true),
        done: AtomicBool::new(false),
    }));
    stay_loaded();
    // A fault of ours must not print into the program's output. This library has a hook of its own.
    std::panic::set_hook(Box::new(|_| {}));
    let writer = spawn("roofgap-writer", move || writer::run(session, output)).ok()?;
    let _ = session.writer.set(writer);
    if !HANDLERS.swap(true, Ordering::AcqRel) {
        // SAFETY: the functions live as long as the library, which stays loaded.
        unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
    }
    session.start_control();
    finish_at_exit();
    Some(session)
}

/// Runs [`finish`] at exit. Exit handlers run in reverse order, so this is called again once CUPTI is loaded: the last flush
/// must precede CUPTI's own exit handler.
fn finish_at_exit() {
    // SAFETY: as above.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(finish);
}

extern "C" fn in_parent() {
    if let Some(session) = current() {
        session.counters.forks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Detaches a forked child: it has the memory of the recording but not its writer. It starts a recording of its own if it
/// starts CUDA. Closes the inherited output file, which only the parent writes.
extern "C" fn in_child() {
    if let Some(session) = owner_of_buffers() {
        session.descriptor.get().close();
        if let Some(control) = session.control.get() {
            control.descriptor.close();
        }
    }
    CURRENT.store(ptr::null_mut(), Ordering::Release);
    STATE.store(IDLE, Ordering::Release);
}

/// Ends the recording: writes the last buffers and the last frame.
pub fn finish() {
    let Some(session) = owner_of_buffers() else { return };
    // A child made without `fork`'s handlers shares nothing but the memory.
    if session.pid != std::process::id() || session.stopping.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Some(control) = session.control.get() {
        control.remove();
    }
    session.wake_flusher();
    session.wake();
    let deadline = Instant::now() + PATIENCE;
    while !session.done.load(Ordering::Acquire) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(500));
    }
}

impl Session {
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
            None => self.switch.armed_for(),
        }
    }

    /// Returns CUPTI, once it is set up.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.get()
    }

    /// Attaches CUPTI and starts the flush thread.
    pub fn begin_gpu(&'static self, gpu: Gpu) -> Result<&'static Gpu, ()> {
        self.gpu.set(gpu).map_err(|_| ())?;
        self.flushed.store(false, Ordering::Release);
        match spawn("roofgap-flush", move || switch::run_flusher(self)) {
            Ok(flusher) => {
                let _ = self.flusher.set(flusher);
            }
            Err(error) => {
                self.flushed.store(true, Ordering::Release);
                self.note("cupti.no_flush", 1, &error.to_string());
            }
        }
        finish_at_exit();
        self.wake();
        self.gpu.get().ok_or(())
    }

    /// Starts the control socket, where one is requested.
    fn start_control(&'static self) {
        let Some(folder) = &self.options.control else {
            return;
        };
        let started = Control::create(folder, self.pid).and_then(|control| {
            let _ = self.control.set(control);
            spawn("roofgap-control", move || {
                if let Some(control) = self.control.get() {
                    control::serve(self, control);
                }
            })
        });
        if let Err(error) = started {
            let detail = format!("no control socket in {}: {error}", folder.display());
            self.note("control.refused", 1, &detail);
        }
    }

    /// Has CUPTI deliver the records of finished work, and waits until they are written; false after 5 s.
    pub fn flush_now(&self) -> bool {
        if let Some(gpu) = self.gpu()
            && gpu.api.flush(false).is_err()
        {
            self.counters.flush_refused.fetch_add(1, Ordering::Relaxed);
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
            self.wake();
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    }

    /// Wakes the flush thread.
    pub fn wake_flusher(&self) {
        if let Some(flusher) = self.flusher.get() {
            flusher.unpark();
        }
    }

    /// Wakes the writer.
    pub fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Notes a loss. Takes a lock, so it is called only at start and end.
    pub fn note(&self, id: &'static str, count: u64, detail: &str) {
        let note = Note { id, count, detail: detail.to_owned() };
        lock(&self.notes).push(note);
        self.wake();
    }

    /// Returns the notes since the last call.
    pub fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut *lock(&self.notes))
    }
}

/// Starts a thread with all signals blocked.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
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

/// Keeps this library loaded for its threads and handlers.
fn stay_loaded() {
    // SAFETY: dladdr names the file this function lives in; opening it again with NODELETE pins it.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(stay_loaded as *const libc::c_void, &raw mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}
