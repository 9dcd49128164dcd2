//! Overhead of the collector in a server: windows with it armed and dormant in turn, under one steady load.
//!
//! Noise between processes and slow changes of the machine are the same in both windows of a pair, whose order alternates.

use super::PairProps;
use super::client::{Client, Prompt};
use roofgap_base::error::Error;
use roofgap_base::stats::PairedRatio;
use roofgap_collect::child::Cancel;
use roofgap_collect::entries;
use roofgap_collect::watch::{ControlError, ask, status};
use roofgap_wire::account::PairedOverhead;
use roofgap_wire::older_segment;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Fewest pairs with a confidence interval worth stating.
const FEWEST_PAIRS: u32 = 3;

/// Fewest times between tokens in a window.
const FEWEST_GAPS: usize = 10;

/// Part of a window after which switching has no effect any more.
const SETTLE: f64 = 0.2;

/// Longest sleep between two checks for cancellation.
const TICK: Duration = Duration::from_millis(50);

impl PairProps {
    /// Creates the private folder of the control sockets.
    ///
    /// # Errors
    /// Fails when the folder cannot be created.
    pub fn create_folder(&self) -> std::io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(&self.control)
    }

    /// Removes the folder of the control sockets.
    pub fn remove_folder(&self) {
        // What the processes left in it is theirs and of no use any more.
        let _ = std::fs::remove_dir_all(&self.control);
    }

    /// Measures the overhead with `in_flight` requests at a time. What was recorded before stays a capture of its own, named
    /// `NAME.main.rgcap`; the windows are in the one that follows.
    pub fn measure(
        &self,
        client: &Client,
        prompts: &[Prompt],
        in_flight: u32,
        load: Duration,
        cancel: &Cancel,
    ) -> Result<PairedOverhead, Error> {
        if load < self.after {
            let (lasted, least) = (load.as_secs_f64(), self.after.as_secs_f64());
            return Err(Error::new(format!("the load lasted {lasted:.1} s, less than {least:.1} s")));
        }
        if self.pairs < FEWEST_PAIRS {
            return Err(Error::new(format!("fewer than {FEWEST_PAIRS} pairs were asked for")));
        }
        let sockets = sockets(&self.control);
        if sockets.is_empty() || prompts.is_empty() {
            return Err(Error::new("no process of the server has the native collector"));
        }
        sockets.iter().try_for_each(|socket| keep_main(socket)).map_err(Error::of)?;
        let (stop, next) = (AtomicBool::new(false), AtomicU64::new(0));
        let answers: Mutex<Vec<Vec<Duration>>> = Mutex::new(Vec::new());
        let origin = Instant::now();
        let work = || {
            while !stop.load(Ordering::SeqCst) {
                let at = next.fetch_add(1, Ordering::SeqCst) as usize;
                let Some(prompt) = prompts.get(at % prompts.len()) else {
                    return;
                };
                let outcome = client.send(0, prompt, origin.elapsed(), origin);
                let failed = outcome.error.is_some();
                answers.lock().unwrap_or_else(PoisonError::into_inner).push(outcome.parts);
                if failed {
                    // A server that refuses requests is not asked in a busy loop.
                    thread::sleep(TICK);
                }
            }
        };
        let windows = thread::scope(|scope| {
            for _ in 0..in_flight.max(1) {
                scope.spawn(work);
            }
            let windows = self.windows(&sockets, origin, cancel);
            stop.store(true, Ordering::SeqCst);
            windows
        });
        for socket in &sockets {
            // The server ends soon, whether or not it is armed.
            let _ = ask(socket, "disarm");
        }
        let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        let few = || {
            Error::new(format!(
                "a window has fewer than {FEWEST_GAPS} times between tokens; windows must be longer, or answers longer"
            ))
        };
        overhead(&windows?, &answers, self.window).ok_or_else(few)
    }

    /// Switches the collector on and off and returns the settled part of each window.
    fn windows(&self, sockets: &[PathBuf], origin: Instant, cancel: &Cancel) -> Result<Vec<Window>, Error> {
        pause(self.window, cancel)?;
        let mut windows = Vec::new();
        for pair in 0..self.pairs {
            for armed in [pair % 2 == 0, pair % 2 != 0] {
                let command = if armed { "arm" } else { "disarm" };
                for socket in sockets {
                    ask(socket, command).map_err(Error::of)?;
                }
                pause(self.window.mul_f64(SETTLE), cancel)?;
                let from = origin.elapsed();
                pause(self.window.mul_f64(1.0 - SETTLE), cancel)?;
                windows.push(Window { armed, from, to: origin.elapsed() });
            }
        }
        Ok(windows)
    }
}

/// A window with the collector in one state; two that follow one another are a pair.
#[derive(Debug, Clone, Copy)]
struct Window {
    armed: bool,
    from: Duration,
    to: Duration,
}

fn pause(time: Duration, cancel: &Cancel) -> Result<(), Error> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if cancel.is_requested() {
            return Err(Error::new("interrupted"));
        }
        thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    // A process that has ended leaves its socket.
    let answers = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock") && status(path).is_ok();
    entries(folder).into_iter().filter(answers).collect()
}

/// Ends the capture of a process and gives it a name of its own.
fn keep_main(socket: &Path) -> Result<(), ControlError> {
    ask(socket, "flush")?;
    ask(socket, "cut")?;
    let file = status(socket)?.file;
    std::fs::rename(older_segment(&file), file.with_extension("main.rgcap"))
        .map_err(|source| ControlError::Io { socket: socket.to_owned(), source })
}

/// Computes the ratio of the times between tokens with its confidence interval; `None` where a window has too few tokens.
fn overhead(windows: &[Window], answers: &[Vec<Duration>], length: Duration) -> Option<PairedOverhead> {
    let mean = |window: &Window| {
        let gaps = answers.iter().flat_map(|parts| parts.windows(2));
        let gaps = gaps.filter_map(|pair| match pair {
            [a, b] if *a >= window.from && *b <= window.to => Some(b.saturating_sub(*a).as_nanos() as f64),
            _ => None,
        });
        let gaps: Vec<f64> = gaps.collect();
        (gaps.len() >= FEWEST_GAPS).then(|| gaps.iter().sum::<f64>() / gaps.len() as f64)
    };
    let mut pairs = Vec::new();
    for pair in windows.chunks_exact(2) {
        let of = |armed: bool| pair.iter().find(|window| window.armed == armed).and_then(mean);
        pairs.push((of(true)?, of(false)?));
    }
    let ratio = PairedRatio::of(&pairs)?;
    let count = pairs.len() as f64;
    let average = |of: fn(&(f64, f64)) -> f64| (pairs.iter().map(of).sum::<f64>() / count).round() as i64;
    Some(PairedOverhead {
        pairs: pairs.len() as u64,
        window_ns: roofgap_base::clock::ns(length),
        armed_itl_ns: average(|pair| pair.0),
        dormant_itl_ns: average(|pair| pair.1),
        ratio: ratio.ratio,
        low: ratio.low,
        high: ratio.high,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Pairs of windows of a second, in which tokens come at these intervals, ms, armed and dormant.
    fn answers(pairs: &[(u64, u64)]) -> (Vec<Window>, Vec<Vec<Duration>>) {
        let (mut windows, mut parts, mut at) = (Vec::new(), Vec::new(), 0);
        for (number, (armed, dormant)) in pairs.iter().enumerate() {
            let mut pair = [(true, armed), (false, dormant)];
            if number % 2 == 1 {
                pair.reverse();
            }
            for (armed, gap) in pair {
                let end = at + 1_000;
                windows.push(Window {
                    armed,
                    from: ms(at + 200),
                    // The token at its end is the first of the next window.
                    to: ms(end - 1),
                });
                while at < end {
                    parts.push(ms(at));
                    at += gap;
                }
                at = end;
            }
        }
        (windows, vec![parts])
    }

    #[test]
    fn the_ratio_is_that_of_the_pairs_with_its_interval() {
        let (windows, parts) = answers(&[(11, 10), (11, 10), (11, 10), (11, 10)]);
        let found = overhead(&windows, &parts, ms(1_000)).unwrap();
        assert_eq!((found.pairs, found.armed_itl_ns, found.dormant_itl_ns), (4, 11_000_000, 10_000_000));
        assert!((found.ratio - 1.1).abs() < 1e-9 && (found.high - found.low) < 1e-9, "{found:?}");
        // The machine gets slower all the time: the ratio does not.
        let (windows, parts) = answers(&[(10, 10), (12, 12), (16, 16), (22, 20)]);
        let found = overhead(&windows, &parts, ms(1_000)).unwrap();
        assert!(found.low < 1.0 && found.high > 1.02, "{found:?}");
        assert!((found.ratio - 1.1f64.powf(0.25)).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_window_without_tokens_has_no_ratio() {
        let (windows, parts) = answers(&[(11, 10), (300, 10), (11, 10)]);
        assert_eq!(overhead(&windows, &parts, ms(1_000)), None);
        assert_eq!(overhead(&[], &parts, ms(1_000)), None);
    }
}
