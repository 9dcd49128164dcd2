//! Signals: Ctrl-C, SIGTERM and SIGHUP cancel what runs.

use super::bug;
use roofgap_base::error::Error;
use roofgap_collect::child::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Once;

/// Takes over the signals. The first cancels, the second kills the children, the third ends this program.
pub fn cancel_on_signal() -> Result<Cancel, Error> {
    let cancel = Cancel::new();
    request(&cancel).map_err(|error| bug(format!("cannot handle signals: {error}")))?;
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
