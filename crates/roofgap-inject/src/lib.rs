//! The library that records a timeline from inside the profiled program.
//!
//! The CUDA driver (`CUDA_INJECTION64_PATH`) or NVTX (`NVTX_INJECTION64_PATH`) loads it, or it is preloaded (`LD_PRELOAD`) and records calls
//! without CUPTI. It writes the timeline of the process to
//! a file in `ROOFGAP_NATIVE_DIR`, in the format of `roofgap_wire`, and does nothing when that variable is not set.
//! When the program closes the descriptor of that file, the recording ends with a note beside it (`<capture>.log`).
//!
//! The entry points for the CUDA driver, for NVTX and for the program itself are here; none lets a panic through. So are the start of
//! the recording of a process, its threads and its control socket, and the detachment of forked children.
//!
//! | module | content |
//! |---|---|
//! | [`emit`] | NVTX ranges of our own program |
//! | `cupti` | CUPTI, loaded at run time |
//! | `nvtx` | annotations of the program |
//! | [`launches`] | calls of the driver, where this library is preloaded |
//! | `collector` | the recording and its writer thread |
//! | [`sampler`] | hardware counters, and power, clocks and the like of all devices, sampled from a process of our own |
//!
//! Environment variables:
//!
//! | variable | meaning |
//! |---|---|
//! | `ROOFGAP_NATIVE_DIR` | existing folder for the captures, one file per process: `<pid>-<start>.rgcap` |
//! | `ROOFGAP_NATIVE_COPIES` | `0` leaves out copies and sets on the GPU (their calls stay) |
//! | `ROOFGAP_NATIVE_GRAPH` | `node` records each kernel of a graph, `graph` a launch as a whole |
//! | `ROOFGAP_NATIVE_NODES` | graph nodes are recorded as they are created, so that a kernel of a graph has the ranges of its capture: `always` from the moment CUPTI is loaded, `0` never; default: while GPU work is recorded |
//! | `ROOFGAP_NATIVE_FLUSH_MS` | interval of CUPTI flushes, ms; default 1000, 0 for none |
//! | `ROOFGAP_NATIVE_DORMANT` | records no GPU work until it is requested: `1` loads CUPTI at the start, `lazy` on the first request |
//! | `ROOFGAP_NATIVE_CONTROL` | private folder (mode 0700) for the control socket `<pid>.sock` |
//! | `ROOFGAP_NATIVE_DUTY` | N: records one of N steps, several in a row; without step ranges, one of N windows of time |
//! | `ROOFGAP_NATIVE_DUTY_MS` | length of these windows, ms; default 50 |
//! | `ROOFGAP_NATIVE_DUTY_STEPS` | number of steps in a row; default 8 |
//! | `ROOFGAP_NATIVE_DUTY_FIRST` | number of first steps that are all recorded; default 64 |
//! | `ROOFGAP_NATIVE_MAX_MB` | size limit of a file, MB; default 4096 |
//! | `ROOFGAP_NATIVE_MAX_S` | time limit of a window, s; then no GPU work is recorded until the next request |
//! | `ROOFGAP_NATIVE_LAST_MS` | keeps only the last events: at least this time, ms, and at most twice of it |
//! | `ROOFGAP_NATIVE_BUFFER_KB`, `ROOFGAP_NATIVE_BUFFERS` | length and number of buffers for records; default 2048 and 96 |
//! | `ROOFGAP_NATIVE_HARDWARE` | `1` has the GPU itself time kernels (Blackwell, CUPTI 12.8 or newer); written from NVIDIA's documentation, not seen on such a GPU |
//! | `CUPTI_LIBRARY` | path of CUPTI, instead of a search |
//!
//! A recording can be turned off and on while the program runs: by a line (`arm`, `disarm`, `status`, `flush`, `cut` or `hold`) on the control
//! socket, or by the functions `roofgap_arm`, `roofgap_disarm` and `roofgap_flush` of this library. The capture has the edges of
//! the recorded windows. Annotations are recorded outside of the windows too.
//!
//! This is the only crate with `unsafe`.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "C interfaces of CUPTI, NVTX and the system")]

#[macro_use]
mod cupti;

mod collector;
pub mod emit;
pub mod launches;
mod nvtx;
pub mod sampler;

use collector::control::{Control, DISARM, serve};
use collector::options::Options;
use collector::output::Output;
use collector::session::{self, Counted, Session, finish_at_exit, set_current, spawn};
use collector::{thread, windows, writer};
use nvtx::attach;
use roofgap_wire::WindowCause;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Starts the recording; called by the CUDA driver of a program with `CUDA_INJECTION64_PATH`. Always returns success, so
/// that the program continues.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        if let Some(session) = start()
            && session.gpu().is_none()
        {
            thread::register();
            windows::cuda_started(session);
        }
    });
    1
}

/// Attaches to an NVTX client of a program with `NVTX_INJECTION64_PATH`, on its first annotation. After the return value 0
/// the client runs without a tool.
///
/// # Safety
/// Only NVTX may call it, with the function that it documents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    get_table: Option<unsafe extern "C" fn(u32) -> *const std::ffi::c_void>,
) -> c_int {
    let attached = catch_unwind(AssertUnwindSafe(|| {
        let Some(get_table) = get_table else { return false };
        // SAFETY: as the caller promises.
        start().is_some() && unsafe { attach(get_table) }
    }));
    c_int::from(attached.unwrap_or(false))
}

/// Begins to record GPU work. Returns 0, or 1 if nothing is recorded in this process, or 2 if CUPTI or CUDA is not available.
/// A program calls it, as Python does through `ctypes`.
#[unsafe(no_mangle)]
pub extern "C" fn roofgap_arm() -> c_int {
    control(|session| if windows::request(session).is_ok() { 0 } else { 2 })
}

/// Stops recording GPU work. Returns 0, or 1 if nothing is recorded in this process.
#[unsafe(no_mangle)]
pub extern "C" fn roofgap_disarm() -> c_int {
    control(|session| {
        windows::withdraw(session, WindowCause::Request);
        0
    })
}

/// Writes the records of finished GPU work. Returns 0 once they are written, 1 if nothing is recorded in this process, or 2 if
/// that takes too long.
#[unsafe(no_mangle)]
pub extern "C" fn roofgap_flush() -> c_int {
    control(|session| if session.flush_now() { 0 } else { 2 })
}

fn control(run: impl FnOnce(&'static Session) -> c_int) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(|| session::current().map(run)));
    done.ok().flatten().unwrap_or(1)
}

static STATE: AtomicU8 = AtomicU8::new(IDLE);
const IDLE: u8 = 0;
const STARTING: u8 = 1;
const STARTED: u8 = 2;

/// True once the process-wide handlers are installed. A forked child inherits them.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// Returns the recording, and starts it if necessary; `None` when the environment requests none or no file can be created.
fn start() -> Option<&'static Session> {
    loop {
        match STATE.compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(STARTING) => std::thread::yield_now(),
            Err(_) => return session::current(),
        }
    }
    let session = begin();
    if session.is_some() {
        set_current(session);
    }
    STATE.store(STARTED, Ordering::Release);
    session
}

/// Returns true if this process is recorded, which begins with the first call of the driver.
fn is_recording() -> bool {
    session::current().is_some() || STATE.load(Ordering::Relaxed) == IDLE && start().is_some()
}

fn begin() -> Option<&'static Session> {
    // SAFETY: asks the kernel whether the process runs with more rights than its user, who then must not choose files.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let options = Options::read(|name| std::env::var_os(name))?;
    let pid = std::process::id();
    let output = Output::create(&options.folder, pid, options.limit).ok()?;
    let session = Session::new(options, pid, output.descriptor(), output.path().to_path_buf());
    let session: &'static Session = Box::leak(Box::new(session));
    stay_loaded();
    // A fault of ours must not print into the program's output. This library has a hook of its own.
    std::panic::set_hook(Box::new(|_| {}));
    let writer = spawn("roofgap-writer", move || writer::run(session, output)).ok()?;
    let _ = session.writer.set(writer);
    if !HANDLERS.swap(true, Ordering::AcqRel) {
        // SAFETY: the functions live as long as the library, which stays loaded.
        unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
    }
    start_control(session);
    finish_at_exit();
    Some(session)
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

extern "C" fn in_parent() {
    if let Some(session) = session::current() {
        session.count(Counted::Forked);
    }
}

/// Detaches a forked child: it has the memory of the recording but not its writer. It starts a recording of its own if it
/// starts CUDA. Closes the inherited output file, which only the parent writes.
extern "C" fn in_child() {
    if let Some(session) = session::owner_of_buffers() {
        // Where the writer replaces the file at this moment, the child keeps it open, which does no harm.
        if let Ok(descriptor) = session.descriptor.try_lock() {
            descriptor.close();
        }
        if let Some(control) = session.control.get() {
            control.descriptor.close();
        }
    }
    set_current(None);
    STATE.store(IDLE, Ordering::Release);
}

/// Starts the control socket, where one is requested.
fn start_control(session: &'static Session) {
    let Some(folder) = &session.options.control else {
        return;
    };
    let started = Control::create(folder, session.pid).and_then(|control| {
        let _ = session.control.set(control);
        spawn("roofgap-control", move || {
            if let Some(control) = session.control.get() {
                serve(control, &|command| answer(session, command));
            }
        })
    });
    if let Err(error) = started {
        let detail = format!("no control socket in {}: {error}", folder.display());
        session.note("control.refused", 1, &detail);
    }
}

/// Carries out a command of the control socket, and answers it.
fn answer(session: &'static Session, command: &str) -> String {
    match command {
        "arm" => match windows::request(session) {
            Ok(()) => "ok armed".into(),
            Err(refused) => format!("error {refused}"),
        },
        DISARM => {
            windows::withdraw(session, WindowCause::Request);
            "ok dormant".into()
        }
        "status" => format!(
            "ok {} windows={} steps={} cupti={} file={}",
            if session.is_requested() { "armed" } else { "dormant" },
            session.switch.windows(),
            session.steps.load(Ordering::Relaxed),
            if session.gpu().is_some() { "loaded" } else { "none" },
            session.file.display(),
        ),
        "steps" => format!("ok {}", session.step_log.answer()),
        "flush" if session.flush_now() => "ok flushed".into(),
        "cut" if session.cut_now() => "ok cut".into(),
        "flush" | "cut" => "error the writer did not answer".into(),
        _ => "error unknown command; use arm, disarm, status, steps, flush, cut or hold".into(),
    }
}
