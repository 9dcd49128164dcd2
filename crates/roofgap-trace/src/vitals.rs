//! Vitals: energy, power, clocks and users of the GPUs, as the sampler of a session writes them, and the counters of GPUs over time in the
//! traces of PyTorch and Perfetto.

use crate::{
    Device, DeviceId, Format, LossKind, Losses, Ns, ReadError, SampledCounters, SampledMetric, Trace, input,
};
use roofgap_base::stats::median_f64;
use serde_json::Value;
use std::path::Path;

const SCHEMA: &str = "roofgap.vitals/1";
const NAME: &str = "vitals";

/// Size limit of a file, bytes: above that of a day.
const MOST_BYTES: u64 = 1 << 30;

pub(crate) const FORMAT: Format = Format {
    name: "vitals",
    endings: &[".jsonl"],
    detect: |head| head.bytes.starts_with(format!("{{\"schema\":\"{SCHEMA}\"").as_bytes()).into(),
    read: |file, input| {
        input.trace.vitals.extend(read(&file.path)?);
        Ok(())
    },
    ..Format::DEFAULT
};

/// The vitals of one GPU. Times are ns since the epoch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuVitals {
    /// Number of the GPU in NVML, which need not be that in CUDA.
    pub number: u32,
    /// UUID without its prefix `GPU-`.
    pub uuid: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Highest clock of the multiprocessors, MHz.
    pub max_sm_mhz: Option<f64>,
    /// Power limit in force, W.
    pub limit_w: Option<f64>,
    /// Default power limit, W.
    pub default_limit_w: Option<f64>,
    /// True if the GPU is divided into instances.
    pub is_mig: bool,
    /// True for counters in a trace, which say less than a file of vitals.
    pub is_of_trace: bool,
    /// Readings of the energy counter, J, each at a time when it changed.
    pub energy: Vec<(Ns, f64)>,
    /// Power and clocks.
    pub states: Vec<GpuState>,
    /// Activity.
    pub activity: Vec<GpuActivity>,
    /// Temperature, degrees Celsius.
    pub celsius: Vec<(Ns, f64)>,
    /// Processes that computed on the GPU.
    pub processes: Vec<(Ns, Vec<GpuUser>)>,
}

/// Power and clocks of a GPU at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuState {
    /// Time.
    pub at: Ns,
    /// Power now, W; where the driver does not give it, over the last second.
    pub watts: Option<f64>,
    /// Clock of the multiprocessors, MHz.
    pub sm_mhz: Option<f64>,
    /// Clock of the memory, MHz.
    pub memory_mhz: Option<f64>,
    /// Reasons of a lower clock, a bit each, as NVML has them.
    pub reasons: u64,
}

/// Utilisation of a GPU in a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuActivity {
    /// Start and end.
    pub span: (Ns, Ns),
    /// Active multiprocessors, active tensor pipes and bandwidth of the DRAM, %.
    pub pct: [Option<f64>; 3],
}

/// A process that has a context on a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuUser {
    /// Process id.
    pub pid: u32,
    /// Name, where the process can be seen.
    pub name: Option<String>,
    /// True if the session started it; `None` where it cannot be seen.
    pub of_session: Option<bool>,
    /// Share of the last second in which it used the multiprocessors, %.
    pub sm_pct: Option<u64>,
}

impl Trace {
    /// Returns the vitals of a device: those with its UUID, or where one is not known with its number. Those of a file of vitals go
    /// before counters in a trace.
    pub fn vitals_of(&self, device: &Device) -> Option<&GpuVitals> {
        let is_same = |vitals: &&GpuVitals| match (&device.uuid, &vitals.uuid) {
            (Some(one), Some(other)) => one.trim_start_matches("GPU-").eq_ignore_ascii_case(other),
            _ => vitals.number == device.number,
        };
        self.vitals.iter().filter(is_same).min_by_key(|vitals| vitals.is_of_trace)
    }
}

/// A counter in a trace of PyTorch or Perfetto.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Counter {
    Sampled(SampledMetric),
    Watts,
    Celsius,
    SmMhz,
    MemoryMhz,
    /// Not needed: it repeats what other events say, or says nothing about time on the GPU.
    Ignored,
}

impl Counter {
    /// Returns the counter of a name that a profiler of PyTorch writes, with its unit.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "Power (W)" => Self::Watts,
            "Temperature (C)" => Self::Celsius,
            "SM Clock (MHz)" => Self::SmMhz,
            "Memory Clock (MHz)" => Self::MemoryMhz,
            // The second is the time of a kernel times the clock.
            "Fan Speed (%)" | "Cycles (Current Kernel)" => Self::Ignored,
            name => Self::Sampled(SampledMetric::of_cupti(name)?),
        })
    }
}

/// Readings of the counters of GPUs in a trace: number of the GPU, time, counter and value.
#[derive(Debug, Default)]
pub(crate) struct Readings(Vec<(u32, Ns, Counter, f64)>);

impl Readings {
    /// Adds a reading. One of an unknown counter, GPU or value is a loss with the name of the counter.
    pub fn add(&mut self, gpu: Option<u32>, at: Ns, name: &str, value: Option<f64>, losses: &mut Losses) {
        let counter = Counter::named(name);
        // Counts of bytes in a window are the largest.
        let most = if matches!(counter, Some(Counter::Sampled(_))) { 1e15 } else { 1e9 };
        match (gpu, counter, value.filter(|value| (0.0..=most).contains(value))) {
            (_, Some(Counter::Ignored), _) => {}
            (Some(gpu), Some(counter), Some(value)) => self.0.push((gpu, at, counter, value)),
            _ => losses.add_message(LossKind::EventUnknown, &format!("counter {name}"), 1),
        }
    }

    /// Takes over the readings of a part of the trace.
    pub fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Puts the readings, whose times count from `base`, into a trace whose devices are known.
    pub fn settle(mut self, base: Ns, trace: &mut Trace) {
        self.0.sort_by_key(|reading| (reading.0, reading.1));
        for of_gpu in self.0.chunk_by(|a, b| a.0 == b.0) {
            let mut vitals = GpuVitals { number: of_gpu[0].0, is_of_trace: true, ..GpuVitals::default() };
            let mut samples = Vec::new();
            for of_time in of_gpu.chunk_by(|a, b| a.1 == b.1) {
                let Some(at) = of_time[0].1.checked_add(base).filter(|at| is_moment(*at)) else { continue };
                let utc = at + trace.utc_offset;
                let mut state = GpuState { at: utc, ..GpuState::default() };
                for &(_, _, counter, value) in of_time {
                    match counter {
                        Counter::Sampled(metric) => samples.push((at, metric, value as f32)),
                        Counter::Watts => _ = state.watts.get_or_insert(value),
                        Counter::SmMhz => _ = state.sm_mhz.get_or_insert(value),
                        Counter::MemoryMhz => _ = state.memory_mhz.get_or_insert(value),
                        Counter::Celsius => vitals.celsius.push((utc, value)),
                        Counter::Ignored => {}
                    }
                }
                if state.watts.or(state.sm_mhz).or(state.memory_mhz).is_some() {
                    vitals.states.push(state);
                }
            }
            if let Some(device) = trace.devices.iter().position(|device| device.number == vitals.number)
                && !samples.is_empty()
            {
                trace.sampled.push(SampledCounters::windows(DeviceId(device as u16), &samples));
            }
            trace.vitals.extend((!vitals.states.is_empty()).then_some(vitals));
        }
    }
}

/// Returns the median clock of the multiprocessors while a GPU worked, MHz.
pub fn busy_mhz<'a>(states: impl IntoIterator<Item = &'a GpuState>) -> Option<f64> {
    let busy = states.into_iter().filter(|state| !state.is_idle());
    median_f64(&mut busy.filter_map(|state| state.sm_mhz).collect::<Vec<f64>>())
}

impl GpuState {
    /// Tells whether the GPU is idle, which is the first reason of NVML.
    pub fn is_idle(&self) -> bool {
        self.reasons & 1 != 0
    }
}

/// Tells whether a time can be added to others.
fn is_moment(at: Ns) -> bool {
    (0..1 << 62).contains(&at)
}

/// Reads a file of vitals, which may be compressed with gzip. A line that is damaged, as the last one may be, is left out.
///
/// # Errors
/// Fails when the file is not readable, too large, or not of vitals.
pub fn read(path: &Path) -> Result<Vec<GpuVitals>, ReadError> {
    let bytes = input::load(path, NAME, MOST_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().map(serde_json::from_str::<Value>);
    let head = lines.next().and_then(Result::ok).filter(|head| head["schema"] == SCHEMA);
    let head = head.ok_or_else(|| ReadError::damaged(path, NAME, "its first line names no schema"))?;
    let mut gpus: Vec<GpuVitals> = head["devices"].as_array().into_iter().flatten().map(device).collect();
    for line in lines.filter_map(Result::ok) {
        let (Some(at), Some(number)) = (moment(&line, "at"), line["device"].as_u64()) else { continue };
        if let Some(gpu) = gpus.iter_mut().find(|gpu| u64::from(gpu.number) == number) {
            add(gpu, at, &line);
        }
    }
    for gpu in &mut gpus {
        gpu.energy.sort_by_key(|reading| reading.0);
        // Counters that go back are those of a clock that was set, or of a driver that was loaded again.
        gpu.energy.dedup_by(|next, last| next.0 <= last.0 || next.1 < last.1);
        gpu.states.sort_by_key(|state| state.at);
        gpu.states.dedup_by_key(|state| state.at);
        gpu.activity.sort_by_key(|activity| activity.span.1);
    }
    Ok(gpus)
}

/// Returns a time that can be added to others.
fn moment(line: &Value, name: &str) -> Option<Ns> {
    line[name].as_i64().filter(|at| is_moment(*at))
}

/// Returns a value, in units of which `in_one` are one of ours.
fn number(line: &Value, name: &str, in_one: f64) -> Option<f64> {
    line[name].as_f64().filter(|value| *value >= 0.0).map(|value| value / in_one)
}

fn text(line: &Value, name: &str) -> Option<String> {
    line[name].as_str().map(str::to_owned)
}

fn device(line: &Value) -> GpuVitals {
    GpuVitals {
        number: line["device"].as_u64().map_or(0, |number| number as u32),
        uuid: text(line, "uuid").map(|uuid| uuid.trim_start_matches("GPU-").to_owned()),
        name: text(line, "name"),
        max_sm_mhz: number(line, "max_sm_mhz", 1.0),
        limit_w: number(line, "limit_mw", 1e3),
        default_limit_w: number(line, "default_limit_mw", 1e3),
        is_mig: line["mig"] == true,
        ..GpuVitals::default()
    }
}

fn add(gpu: &mut GpuVitals, at: Ns, line: &Value) {
    gpu.energy.extend(number(line, "energy_mj", 1e3).map(|joules| (at, joules)));
    gpu.celsius.extend(number(line, "celsius", 1.0).map(|degrees| (at, degrees)));
    let state = GpuState {
        at,
        watts: number(line, "instant_mw", 1e3).or_else(|| number(line, "power_mw", 1e3)),
        sm_mhz: number(line, "sm_mhz", 1.0),
        memory_mhz: number(line, "memory_mhz", 1.0),
        reasons: line["reasons"].as_u64().unwrap_or(0),
    };
    if state.watts.or(state.sm_mhz).is_some() {
        gpu.states.push(state);
    }
    if let Some(since) = moment(line, "since").filter(|since| *since < at) {
        let pct = ["sm_pct", "tensor_pct", "dram_pct"].map(|name| number(line, name, 1.0));
        gpu.activity.push(GpuActivity { span: (since, at), pct });
    }
    if let Some(users) = line["processes"].as_array() {
        let user = |line: &Value| {
            Some(GpuUser {
                pid: line["pid"].as_u64()?.try_into().ok()?,
                name: text(line, "name"),
                of_session: line["own"].as_bool(),
                sm_pct: line["sm_pct"].as_u64(),
            })
        };
        gpu.processes.push((at, users.iter().filter_map(user).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"schema":"roofgap.vitals/1","devices":[{"device":0,"uuid":"GPU-07","max_sm_mhz":1980,"limit_mw":500000,"default_limit_mw":700000}]}"#;

    fn written(lines: &[&str]) -> tempfile::NamedTempFile {
        let file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
        std::fs::write(file.path(), [&[HEAD], lines].concat().join("\n")).unwrap();
        file
    }

    #[test]
    fn each_line_has_its_values_and_its_time() {
        let file = written(&[
            r#"{"at":5,"device":0,"energy_mj":2000}"#,
            r#"{"at":6,"device":0,"power_mw":1,"instant_mw":698000,"sm_mhz":1575,"memory_mhz":3201,"reasons":4}"#,
            r#"{"at":7,"device":0,"celsius":61,"processes":[{"pid":9,"sm_pct":42,"name":"python","own":false}]}"#,
            r#"{"at":8,"device":0,"energy_mj":1000}"#,
            r#"{"at":8,"device":0,"since":6,"sm_pct":90.25,"dram_pct":12.5}"#,
            r#"{"at":9,"device":3,"energy_mj":9000}"#,
            r#"{"at":10,"device":0,"energy_mj":3000}"#,
            r#"{"at":11,"device":0,"ener"#,
        ]);
        let input = crate::read(&[file.path().to_path_buf()]).unwrap();
        let [gpu] = input.trace.vitals.as_slice() else { panic!("{:?}", input.trace.vitals) };
        assert_eq!(
            (gpu.uuid.as_deref(), gpu.limit_w, gpu.default_limit_w),
            (Some("07"), Some(500.0), Some(700.0))
        );
        assert_eq!(gpu.energy, [(5, 2.0), (10, 3.0)], "a counter that goes back is left out");
        let state = GpuState {
            at: 6,
            watts: Some(698.0),
            sm_mhz: Some(1575.0),
            memory_mhz: Some(3201.0),
            reasons: 4,
        };
        assert_eq!((gpu.states.as_slice(), gpu.celsius.as_slice()), (&[state][..], &[(7, 61.0)][..]));
        assert_eq!(gpu.activity, [GpuActivity { span: (6, 8), pct: [Some(90.25), None, Some(12.5)] }]);
        let user = GpuUser { pid: 9, name: Some("python".into()), of_session: Some(false), sm_pct: Some(42) };
        assert_eq!(gpu.processes, [(7, vec![user])]);
    }

    #[test]
    fn impossible_values_of_counters_are_losses() {
        let (mut readings, mut losses) = (Readings::default(), Losses::default());
        for value in [1980.0, -1.0, 1e308, f64::INFINITY, f64::NAN] {
            readings.add(Some(0), 5, "SM Clock (MHz)", Some(value), &mut losses);
        }
        assert_eq!((readings.0.len(), losses.count(LossKind::EventUnknown)), (1, 4));
    }

    #[test]
    fn vitals_of_a_file_go_before_counters_of_a_trace() {
        let vitals_of = |is_of_trace| GpuVitals { is_of_trace, ..GpuVitals::default() };
        for vitals in [[true, false], [false, true]] {
            let trace = Trace { vitals: vitals.map(vitals_of).to_vec(), ..Trace::default() };
            assert!(trace.vitals_of(&Device::default()).is_some_and(|vitals| !vitals.is_of_trace));
        }
    }

    #[test]
    fn a_file_of_another_schema_is_an_error() {
        let file = written(&[]);
        std::fs::write(file.path(), "{\"schema\":\"other\"}\n").unwrap();
        assert!(read(file.path()).is_err());
    }
}
