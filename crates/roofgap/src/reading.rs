//! Inputs: a bar for the bytes read of large ones, and outputs that are as private as they are.

use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_report::size;
use roofgap_runs::open::{Exporter, Opened, Overrides, open_inputs};
use roofgap_runs::run_dir::locate::is_run;
use rustix::fs::Mode;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Inputs of this size get a bar, bytes.
const LARGE: u64 = 32_000_000;

/// Time between two drawings.
const INTERVAL: Duration = Duration::from_millis(100);

/// Width of the bar, characters.
const BAR: usize = 20;

/// Opens inputs and warns of what is not readable. What is written from now on is as private as they are.
pub fn open(
    inputs: &[PathBuf],
    overrides: &Overrides,
    exporter: &Exporter,
    printer: &Printer,
) -> Result<Opened, Error> {
    keep_private(inputs);
    let opened = with_bar(inputs, printer, || open_inputs(inputs, overrides, exporter))?;
    printer.warnings(&opened.unreadable);
    Ok(opened)
}

/// Loads inputs while a bar on the terminal shows the bytes read; without a terminal, or for small inputs, nothing is shown.
fn with_bar<T>(inputs: &[PathBuf], printer: &Printer, open: impl FnOnce() -> T) -> T {
    let total: u64 = inputs.iter().map(|path| bytes_of(path)).sum();
    let before = bytes_read().filter(|_| printer.is_live() && total >= LARGE);
    let Some(before) = before else {
        return open();
    };
    // However fast the reading is, the bar is seen.
    printer.status_line(&bar(0, total));
    std::thread::scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            loop {
                let read = bytes_read().unwrap_or(before).saturating_sub(before);
                printer.status_line(&bar(read, total));
                if !matches!(wait.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout)) {
                    printer.status_line("");
                    return;
                }
            }
        });
        let opened = open();
        drop(done);
        opened
    })
}

/// Draws the bar. Past the size of the inputs, their unpacked copies are read and analysed.
fn bar(read: u64, total: u64) -> String {
    if read >= total {
        return format!("{} read, analysing ...", size(total));
    }
    let share = read as f64 / total as f64;
    let full = (share * BAR as f64) as usize;
    format!(
        "reading [{}{}] {:.0} % of {}",
        "#".repeat(full),
        ".".repeat(BAR - full),
        100.0 * share,
        size(total)
    )
}

/// Lets only the owner read the files that this process writes from now on, if that holds for an input or for the run that it is in.
fn keep_private(inputs: &[PathBuf]) {
    let is_private = |path: &Path| {
        path.metadata().is_ok_and(|facts| facts.permissions().mode() & (Mode::RWXG | Mode::RWXO).bits() == 0)
    };
    let of_owner = |input: &PathBuf| {
        let full = std::path::absolute(input).unwrap_or_default();
        is_private(&full) || full.ancestors().any(|folder| is_run(folder) && is_private(folder))
    };
    if inputs.iter().any(of_owner) {
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
    }
}

/// Returns the size of a file, or of the files in a folder, bytes.
fn bytes_of(path: &Path) -> u64 {
    let Ok(found) = path.metadata() else { return 0 };
    if !found.is_dir() {
        return found.len();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files.filter(|file| file.is_file()).map(|file| file.len()).sum()
}

/// Returns the bytes that this process has read from files, by the account of the kernel.
fn bytes_read() -> Option<u64> {
    let account = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = account.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 40_000_000), "reading [....................] 0 % of 40.0 MB");
        assert_eq!(bar(20_000_000, 40_000_000), "reading [##########..........] 50 % of 40.0 MB");
        assert_eq!(bar(50_000_000, 40_000_000), "40.0 MB read, analysing ...");
    }
}
