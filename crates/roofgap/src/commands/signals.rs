//! Signals: Ctrl-C, SIGTERM and SIGHUP cancel what runs.

use super::bug;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::text::status_mask;
use roofgap_collect::child::Cancel;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

/// Makes the end of a child known, which a parent that ignores SIGCHLD would hide, and a write beyond the limit of the file size an error
/// instead of the end of this program. Programs that it starts have the defaults of the system.
pub fn take_defaults() -> Result<(), Error> {
    // Where it is not ignored, the end of a child interrupts nothing.
    let signals = [SIGXFSZ].into_iter().chain(is_ignored(SIGCHLD).then_some(SIGCHLD));
    for signal in signals {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(not_handled)?;
    }
    Ok(())
}

fn not_handled(error: std::io::Error) -> Error {
    bug(format!("cannot handle signals: {error}"))
}

/// Returns true if the parent of this program ignored a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status_mask(&status, "SigIgn").is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Takes over the signals. The first cancels, the second kills the children, the third ends this program.
pub fn cancel_on_signal() -> Result<Cancel, Error> {
    let cancel = Cancel::new();
    request(&cancel).map_err(not_handled)?;
    Ok(cancel)
}

/// Takes over the signals once, in a program that could do without: if that fails, a signal ends it at once.
pub fn request_on_signal(cancel: &Cancel) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| _ = request(cancel));
}

fn request(cancel: &Cancel) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let shared = cancel.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if shared.is_forced() {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            shared.request();
        }
    });
    Ok(())
}

/// Signals of a program that this one started and waits for: they go to the program, and SIGUSR1 is noted.
pub struct Forwarded(Arc<AtomicBool>);

impl Forwarded {
    /// Takes over the signals. A terminal sends Ctrl-C to the program itself.
    pub fn take(pid: u32) -> Result<Self, Error> {
        let noted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&noted)).map_err(not_handled)?;
        let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]).map_err(not_handled)?;
        let by_terminal = std::io::stdin().is_terminal();
        std::thread::spawn(move || {
            for signal in signals.forever().filter(|signal| !by_terminal || *signal == SIGTERM) {
                roofgap_collect::process::send(pid, signal);
            }
        });
        Ok(Self(noted))
    }

    /// Tells whether SIGUSR1 has come since the last question.
    pub fn take_signal(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Ends this program as another one has ended.
pub fn end_like(status: ExitStatus) -> Result<Exit, Error> {
    if let Some(signal) = status.signal() {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    match status.code() {
        Some(0) => Ok(Exit::Done),
        #[expect(clippy::exit, reason = "the exit status of the program can be any")]
        Some(code) => std::process::exit(code),
        None => Ok(Exit::ProgramFailed),
    }
}
