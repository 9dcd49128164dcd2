//! Starts the recording of a process, its threads and its control socket, and detaches forked children.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::control::{self, Control};
use super::options::Options;
use super::output::Output;
use super::session::{self, Counted, Session, finish_at_exit, set_current, spawn};
use super::{windows, writer};
use roofgap_wire::WindowCause;

static STATE: AtomicU8 = AtomicU8::new(IDLE);
const IDLE: u8 = 0;
const STARTING: u8 = 1;
const STARTED: u8 = 2;

/// True once the process-wide handlers are installed. A forked child inherits them.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// Returns the recording, and starts it if necessary; `None` when the environment requests none or no file can be created.
pub fn start() -> Option<&'static Session> {
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
                control::serve(control, &|command| answer(session, command));
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
        control::DISARM => {
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
