//! Signals: Ctrl-C, SIGTERM and SIGHUP cancel what runs.

use super::bug;
use roofgap_base::error::Error;
use roofgap_collect::child::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Takes over the signals. The first cancels, the second kills the children, the third ends this program.
pub fn cancel_on_signal() -> Result<Cancel, Error> {
    let cancel = Cancel::new();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| bug(format!("cannot handle signals: {error}")))?;
    let shared = cancel.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if shared.is_forced() {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            shared.request();
        }
    });
    Ok(cancel)
}
