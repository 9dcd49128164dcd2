//! Samples energy, power, clocks and the like of all devices by NVML, from a process of our own, while other programs run.
//!
//! The output is a file of JSON lines: the devices first, then values as they are read, each line with its own time. `docs/formats.md`
//! names the fields.

use super::SampleError;
use super::nvml::{CELSIUS, CLOCKS, ENERGY, Gpm, Gpu, GpuProcess, LIMITS, Nvml, Quantity};
use crate::collector::now;
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after a change of the energy counter before it is read again, and the time between two readings from then on. The counter of an
/// H200 changes every 100 ms, and a reading takes 5 ms.
const QUIET: Duration = Duration::from_millis(85);
const POLL: Duration = Duration::from_millis(5);

/// Interval of clocks and power, and of the slow values.
const FAST: Duration = Duration::from_millis(50);
const SLOW: Duration = Duration::from_secs(1);

/// Interval of utilisations: NVML asks for 100 ms at least.
const ACTIVITY: Duration = Duration::from_millis(105);

/// A file of samples that the threads of the devices share, with the number of its lines or why they cannot be written.
struct Sink(Mutex<(BufWriter<File>, io::Result<u64>)>);

impl Sink {
    /// Writes a line, together with those before it once a second.
    fn put(&self, line: &str) {
        let Ok(mut sink) = self.0.lock() else { return };
        let (file, lines) = &mut *sink;
        if let Ok(count) = *lines {
            let mut written = writeln!(file, "{line}");
            if count.is_multiple_of(16) {
                written = written.and_then(|()| file.flush());
            }
            *lines = written.map(|()| count + 1);
        }
    }

    fn has_failed(&self) -> bool {
        self.0.lock().is_ok_and(|sink| sink.1.is_err())
    }
}

/// A line with the time and the device; values follow.
struct Line(String);

impl Line {
    fn at(at: u64, device: usize) -> Self {
        Self(format!("{{\"at\":{at},\"device\":{device}"))
    }

    /// Adds a value, where there is one.
    fn with(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            let _ = write!(self.0, ",\"{name}\":{value}");
        }
        self
    }

    /// Reads values of a device and adds them.
    fn read(self, nvml: &Nvml, gpu: Gpu, quantities: &[Quantity]) -> Self {
        quantities.iter().fold(self, |line, quantity| line.with(quantity.field, nvml.value(gpu, quantity)))
    }

    fn end(self) -> String {
        self.0 + "}"
    }
}

/// Quotes a text for JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out + "\""
}

/// Samples into a new file until `is_over`; with `activity`, utilisations by NVML GPM too, which uses the hardware counters that profilers use.
/// Returns the number of lines.
///
/// # Errors
/// Fails when there is no NVML or no device, or the file cannot be written.
pub fn run(path: &Path, activity: bool, is_over: &(dyn Fn() -> bool + Sync)) -> Result<u64, SampleError> {
    let nvml = Nvml::open().map_err(SampleError::Refused)?;
    let gpus = nvml.gpus()?;
    let cannot = |error: io::Error| SampleError::Write(path.to_owned(), error);
    let file = BufWriter::new(File::create(path).map_err(cannot)?);
    let sink = Sink(Mutex::new((file, Ok(0))));
    sink.put(&head(&nvml, &gpus));
    std::thread::scope(|scope| {
        for (device, gpu) in gpus.iter().enumerate() {
            let (nvml, sink) = (&nvml, &sink);
            scope.spawn(move || {
                let gpm = activity.then(|| nvml.gpm(*gpu)).flatten();
                sample(nvml, *gpu, gpm, device, sink, is_over);
            });
        }
    });
    let (mut file, lines) = sink.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    lines.and_then(|lines| file.flush().map(|()| lines)).map_err(cannot)
}

/// Says of how many devices vitals can be sampled here.
///
/// # Errors
/// Fails as [`run`] would.
pub fn probe() -> Result<String, SampleError> {
    let gpus = Nvml::open().map_err(SampleError::Refused)?.gpus()?.len();
    Ok(format!("energy, power and clocks of {gpus} GPUs by NVML, in each phase of a session"))
}

/// Describes the devices.
fn head(nvml: &Nvml, gpus: &[Gpu]) -> String {
    let device = |(at, gpu): (usize, &Gpu)| {
        Line(format!("{{\"device\":{at}"))
            .with("uuid", nvml.uuid(*gpu).as_deref().map(quoted))
            .with("name", nvml.name(*gpu).as_deref().map(quoted))
            .read(nvml, *gpu, &LIMITS)
            .with("mig", nvml.is_mig(*gpu).then_some(true))
            .end()
    };
    let devices: Vec<String> = gpus.iter().enumerate().map(device).collect();
    format!("{{\"schema\":\"roofgap.vitals/1\",\"devices\":[{}]}}", devices.join(","))
}

/// Samples one device. Each value is asked for at its own rate.
fn sample(
    nvml: &Nvml,
    gpu: Gpu,
    mut gpm: Option<Gpm>,
    device: usize,
    sink: &Sink,
    is_over: &(dyn Fn() -> bool + Sync),
) {
    let started = Instant::now();
    let (mut fast, mut slow, mut energy) = (started, started, started);
    let mut last_energy = None;
    let mut since_us = now() / 1_000;
    let (mut active, mut active_since) = (started + ACTIVITY, now());
    while !is_over() && !sink.has_failed() {
        let time = Instant::now();
        if time >= energy {
            let before = now();
            let value = nvml.value(gpu, &ENERGY);
            let changed = value != last_energy && value.is_some();
            if changed {
                // The time of the change is between the last reading and this one.
                sink.put(&Line::at(before, device).with(ENERGY.field, value).end());
                last_energy = value;
            }
            energy = Instant::now() + if changed || value.is_none() { QUIET } else { POLL };
        }
        if time >= fast {
            let [average, instant] = nvml.power_mw(gpu);
            let line = Line::at(now(), device).with("power_mw", average).with("instant_mw", instant);
            sink.put(&line.read(nvml, gpu, &CLOCKS).end());
            fast = time + FAST;
        }
        // What takes long waits until the energy counter has just changed.
        let is_quiet = energy.saturating_duration_since(Instant::now()) > QUIET / 2 || time >= slow + SLOW;
        if let Some(gpm) = gpm.as_mut().filter(|_| time >= active && is_quiet) {
            let at = now();
            if let Some(values) = nvml.gpm_pct(gpu, gpm) {
                let [sm, tensor, dram] = values.map(|pct| pct.map(|pct| format!("{pct:.2}")));
                let line = Line::at(at, device).with("since", Some(active_since)).with("sm_pct", sm);
                sink.put(&line.with("tensor_pct", tensor).with("dram_pct", dram).end());
                active_since = at;
            }
            active = time + ACTIVITY;
        }
        if time >= slow && is_quiet {
            let line = Line::at(now(), device).read(nvml, gpu, &[CELSIUS]);
            let processes = nvml.processes(gpu, since_us).map(|users| list(&users));
            since_us = now() / 1_000;
            sink.put(&line.with("processes", processes).end());
            slow = time + SLOW;
        }
        let done = Instant::now();
        let next = energy.min(fast).min(if gpm.is_some() && active > done { active } else { fast });
        std::thread::sleep(next.saturating_duration_since(done).min(FAST));
    }
    // The last part of the energy, and of the clocks.
    sink.put(&Line::at(now(), device).read(nvml, gpu, &[ENERGY]).end());
}

/// Lists processes.
fn list(users: &[GpuProcess]) -> String {
    let line = |process: &GpuProcess| {
        let who = name_and_origin(process.pid);
        Line(format!("{{\"pid\":{}", process.pid))
            .with("sm_pct", process.sm_pct)
            .with("name", who.as_ref().map(|(name, _)| quoted(name)))
            .with("own", who.map(|(_, is_ours)| is_ours))
            .end()
    };
    format!("[{}]", users.iter().map(line).collect::<Vec<_>>().join(","))
}

/// Returns the name of a process, and whether the parent of this process started it; `None` for one that cannot be seen from here, such
/// as one outside of a container, whose number may be that of another process here.
fn name_and_origin(pid: u32) -> Option<(String, bool)> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    if let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
        let mut open = open.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
        open.find(|file| file.to_string_lossy().starts_with("/dev/nvidia"))?;
    }
    let session = std::os::unix::process::parent_id();
    let mut ancestor = pid;
    while ancestor > 1 && ancestor != session {
        ancestor = parent(ancestor)?;
    }
    Some((name.trim().to_owned(), ancestor == session))
}

/// Returns the parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
