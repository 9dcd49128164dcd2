//! Samples the hardware counters of all devices from a process of our own, while other programs run.
//!
//! CUPTI takes longer to evaluate a sample than the device to take one, so samples come in bursts: the hardware fills its buffer, then
//! the buffer is evaluated. Steps of a model repeat, and their kernels are recorded all the time, so bursts are enough.

mod nvml;
pub mod vitals;

use crate::collector::output::Output;
use crate::collector::{gpu, now};
use crate::cupti::pm::{PmConfig, PmLibrary, PmRun};
use crate::cupti::{Failure, Surroundings};
use roofgap_wire::{
    ClockPair, CounterMetric, CounterSample, Cupti, End, FrameBuilder, Loss, Process, Record, Text,
};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Counters, most useful first. On an H200 all of them fit in one pass.
const METRICS: [&CStr; 6] = [
    c"dram__bytes_read.sum",
    c"dram__bytes_write.sum",
    c"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
    c"sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    c"lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
];

/// Samples of a burst, and the hardware buffer that holds them on the largest device, bytes.
const BURST: u64 = 2_000;
const BUFFER: u64 = 256 << 20;

/// Samples that can be decoded, with room for those while sampling stops. A sample takes 54 KB on an H200.
const IN_IMAGE: u32 = 3_000;

/// Longest frame before it is written, bytes.
const FRAME: usize = 1 << 20;

/// CUPTI's codes for missing permission.
const NO_PERMISSION: [u32; 2] = [35, 40];

/// CUPTI's code for a buffer that is full.
const OUT_OF_MEMORY: u32 = 8;

/// Why counters or vitals cannot be sampled.
#[derive(Debug)]
pub enum SampleError {
    /// None of these libraries of CUPTI can sample.
    NoCupti(Vec<(PathBuf, Failure)>),
    /// The library, or the driver below it, refuses.
    Refused(Failure),
    /// The driver finds no device.
    NoDevice,
    /// The samples cannot be written.
    Write(PathBuf, io::Error),
}

impl fmt::Display for SampleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCupti(tried) => {
                let mut reasons: Vec<String> = tried
                    .iter()
                    .map(|(path, failure)| match failure {
                        Failure::Lacks(_) => format!("{} is older than CUPTI 12.6", path.display()),
                        _ => format!("{}: {failure}", path.display()),
                    })
                    .collect();
                reasons.dedup();
                write!(out, "no CUPTI that can sample counters: {}", reasons.join("; "))
            }
            Self::Refused(failure @ Failure::Refused { code, .. }) if NO_PERMISSION.contains(code) => write!(
                out,
                "{failure}: GPU counters are closed to this user; run as root, or load the driver with \
                 NVreg_RestrictProfilingToAdminUsers=0"
            ),
            Self::Refused(Failure::Lacks(name)) => write!(out, "the library of the driver lacks {name}"),
            Self::Refused(failure) => write!(out, "{failure}"),
            Self::NoDevice => write!(out, "the driver finds no device"),
            Self::Write(path, error) => write!(out, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for SampleError {}

/// Samples into a new capture in `folder` until `is_over`. The file is there when sampling begins. CUPTI may also lie where process `near`
/// has its CUDA. Returns the number of samples.
///
/// # Errors
/// Fails when counters cannot be sampled, or the capture cannot be created.
pub fn run(
    folder: &Path,
    interval: Duration,
    near: Option<u32>,
    is_over: &dyn Fn() -> bool,
) -> Result<u64, SampleError> {
    let library = open(near)?;
    let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1_000);
    let mut configs = collectors(&library, interval_ns)?;
    let pid = std::process::id();
    let cannot = |error| SampleError::Write(folder.to_owned(), error);
    let output = Output::create(folder, pid, u64::MAX).map_err(cannot)?;
    let mut sampler =
        Sampler { library, output, frame: FrameBuilder::new(), clock_told: false, samples: 0, full: 0 };
    sampler.introduce(pid, &configs);
    while !is_over() {
        if let Err(error) = sampler.burst(&mut configs, interval_ns, is_over) {
            let error = SampleError::Refused(error);
            sampler.lose("sampling.failed", 1, &error.to_string());
            sampler.finish();
            return Err(error);
        }
    }
    configs.iter().for_each(|(_, run)| sampler.library.close(run));
    sampler.finish();
    Ok(sampler.samples)
}

/// Says with what counters can be sampled here.
///
/// # Errors
/// Fails as [`run`] would.
pub fn probe() -> Result<String, SampleError> {
    let library = open(None)?;
    let configs = collectors(&library, 10_000)?;
    configs.iter().for_each(|(_, run)| library.close(run));
    let counters = configs.iter().map(|(config, _)| config.metrics.len()).min().unwrap_or(0);
    let (gpus, all, path) = (configs.len(), library.devices(), library.path.display());
    Ok(format!("{counters} counters on {gpus} of {all} GPUs by CUPTI {}, {path}", library.version()))
}

/// Opens the first CUPTI that can sample.
fn open(near: Option<u32>) -> Result<PmLibrary, SampleError> {
    let mut around = Surroundings::here();
    let maps = near.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/maps")).ok());
    around.maps.push_str(&maps.unwrap_or_default());
    around.maps.push_str(&python_packages());
    let mut tried = Vec::new();
    for path in around.candidates() {
        match PmLibrary::open(&path) {
            Ok(library) => return Ok(library),
            Err(failure) => tried.push((path, failure)),
        }
    }
    Err(SampleError::NoCupti(tried))
}

/// Names the libraries of PyTorch beside each Python of the path as lines of a memory map: CUPTI is beside them.
fn python_packages() -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let roots = std::env::split_paths(&path).filter_map(|folder| Some(folder.parent()?.join("lib")));
    let site = |entry: std::fs::DirEntry| entry.path().join("site-packages/torch/lib/libtorch.so");
    let libraries = roots.flat_map(|lib| std::fs::read_dir(lib).into_iter().flatten().flatten().map(site));
    let torch: Vec<PathBuf> = libraries.filter(|library| library.exists()).collect();
    torch.iter().map(|library| format!("\n0-1 r-xp 0 0:0 0 {}\n", library.display())).collect()
}

/// Makes a collector of every device that can be sampled.
fn collectors(library: &PmLibrary, interval_ns: u64) -> Result<Vec<(PmConfig, PmRun)>, SampleError> {
    let mut collectors = Vec::new();
    let mut why = SampleError::NoDevice;
    for device in 0..library.devices() {
        let config = library.configure(device, &METRICS);
        let collector = config.and_then(|mut config| {
            let run = library.collector(&mut config, interval_ns, BUFFER, IN_IMAGE)?;
            Ok((config, run))
        });
        match collector {
            Ok(collector) => collectors.push(collector),
            Err(failure) => why = SampleError::Refused(failure),
        }
    }
    if collectors.is_empty() { Err(why) } else { Ok(collectors) }
}

/// A sampler and its capture.
struct Sampler {
    library: PmLibrary,
    output: Output,
    frame: FrameBuilder,
    clock_told: bool,
    samples: u64,
    /// Bursts that filled the hardware buffer.
    full: u64,
}

impl Sampler {
    /// Writes the process, the devices and the counters.
    fn introduce(&mut self, pid: u32, configs: &[(PmConfig, PmRun)]) {
        let name = Text(b"roofgap sampler");
        self.frame.put(&Record::Process(Process { pid, parent: 0, at: now(), name }));
        let version = self.library.version();
        let path = Text(self.library.path.as_os_str().as_bytes());
        self.frame.put(&Record::Cupti(Cupti { version, options: 0, path }));
        for (config, _) in configs {
            gpu::describe_device(config.device, |record| self.frame.put(&record));
            for (metric, place) in config.metrics.iter().zip(0..) {
                let name = Text(metric.to_bytes());
                self.frame.put(&Record::CounterMetric(CounterMetric { device: config.device, place, name }));
            }
        }
        self.output.write(&mut self.frame);
    }

    /// Samples all devices at the same time, then evaluates and writes the samples.
    fn burst(
        &mut self,
        configs: &mut [(PmConfig, PmRun)],
        interval_ns: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let before = now();
        for (config, run) in configs.iter_mut() {
            self.library.start(config, run)?;
        }
        let after = now();
        let end = Instant::now() + Duration::from_nanos(interval_ns.saturating_mul(BURST));
        while !is_over() && Instant::now() < end {
            std::thread::sleep(end.duration_since(Instant::now()).min(Duration::from_millis(20)));
        }
        for (_, run) in configs.iter() {
            self.library.stop(run)?;
        }
        for (config, run) in configs.iter_mut() {
            let (frame, output, device) = (&mut self.frame, &mut self.output, config.device);
            let (told, samples) = (&mut self.clock_told, &mut self.samples);
            let mut is_first = true;
            let full = self.library.decode(config, run, |sample| {
                if !std::mem::replace(told, true) {
                    // The first sample ends while sampling starts, or soon after.
                    let clocks = ClockPair { before, cupti: sample.end, after: after + 2 * interval_ns };
                    frame.put(&Record::ClockPair(clocks));
                }
                // The start of the first one is not set.
                if std::mem::replace(&mut is_first, false) || sample.start == 0 || sample.end <= sample.start
                {
                    return;
                }
                let values: Vec<u8> = sample.values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
                let (start, end, values) = (sample.start, sample.end, Text(&values));
                frame.put(&Record::CounterSample(CounterSample { device, start, end, values }));
                *samples += 1;
                if frame.len() > FRAME {
                    output.write(frame);
                }
            });
            // A full buffer may also end as an error.
            let is_full = |error: Failure| match error {
                Failure::Refused { code: OUT_OF_MEMORY, .. } => Ok(true),
                error => Err(error),
            };
            self.full += u64::from(full.or_else(is_full)?);
        }
        self.output.write(&mut self.frame);
        Ok(())
    }

    fn lose(&mut self, id: &'static str, count: u64, detail: &str) {
        let (id, detail) = (Text(id.as_bytes()), Text(detail.as_bytes()));
        self.frame.put(&Record::Loss(Loss { count, id, detail }));
    }

    fn finish(&mut self) {
        if self.full > 0 {
            self.lose("sampling.overflow", self.full, "the hardware buffer was full; samples are missing");
        }
        self.output.write(&mut self.frame);
        self.frame.put(&Record::End(End { how: 1, at: now() }));
        self.output.write(&mut self.frame);
        self.output.finish();
    }
}
