//! PM sampling of CUPTI, from version 12.6 on: hardware counters of a whole device while programs run.
//!
//! Every function takes one struct of eight-byte words: its size, a null pointer, and the parameters, which are also the results. An
//! array of words is that struct; the comment at each call names the words. Layouts are those of CUPTI 12.6 to 13.4.

use super::{Failure, load, load_path, sys, words};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};

type Call = unsafe extern "C" fn(*mut u64) -> u32;

/// Kind of profiler in `cuptiProfilerHostInitialize`.
const PM_SAMPLING: u64 = 1;
/// Samples are triggered by GPU time.
const BY_GPU_TIME: u64 = 1;
/// `cuptiPmSamplingDecodeData` stopped because the image is full.
const IMAGE_FULL: u64 = 1;

/// CUPTI with PM sampling.
pub struct PmLibrary {
    /// Path of the library.
    pub path: PathBuf,
    handle: *mut c_void,
    driver: *mut c_void,
    result_string: Option<sys::GetResultString>,
}

/// Counters that fit in one pass on a device, and how to collect them.
pub struct PmConfig {
    /// Device number.
    pub device: u32,
    /// Names of the counters.
    pub metrics: Vec<CString>,
    image: Vec<u8>,
    /// Object that evaluates samples.
    host: u64,
    /// Decoded samples; empty until the first burst.
    samples: Vec<u8>,
}

/// A collector.
pub struct PmRun(u64);

/// One sample.
pub struct PmSample<'a> {
    /// Start, ns.
    pub start: u64,
    /// End, ns.
    pub end: u64,
    /// Values in the order of the counters.
    pub values: &'a [f64],
}

impl PmLibrary {
    /// Opens the CUPTI at `path` and the driver.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let (driver, handle) = (load(c"libcuda.so.1")?, load_path(path)?);
        let result_string = symbol!(handle, "cuptiGetResultString", sys::GetResultString);
        let library = Self { path: path.to_owned(), handle, driver, result_string };
        library.find("cuptiPmSamplingStart\0")?;
        let start = symbol!(driver, "cuInit", unsafe extern "C" fn(u32) -> u32);
        // SAFETY: takes a number.
        match start.map(|start| unsafe { start(0) }) {
            Some(0) => {}
            code => return Err(Failure::Open(format!("the driver does not start (cuInit: {code:?})"))),
        }
        // Versions before 13 need it; newer ones have it without effect.
        let _ = library.call("cuptiProfilerInitialize\0", &mut [16, 0]);
        Ok(library)
    }

    /// Finds a function; its name ends in NUL.
    fn find(&self, name: &'static str) -> Result<Call, Failure> {
        // SAFETY: the handle is open; every function of this interface takes one pointer to its struct.
        unsafe {
            let function = libc::dlsym(self.handle, name.as_ptr().cast::<c_char>());
            if function.is_null() {
                return Err(Failure::Lacks(name.trim_end_matches('\0')));
            }
            Ok(std::mem::transmute::<*mut c_void, Call>(function))
        }
    }

    /// Calls a function; its size word is already set.
    fn call(&self, name: &'static str, params: &mut [u64]) -> Result<(), Failure> {
        let function = self.find(name)?;
        // SAFETY: the struct has the size in its first word, and what its pointers lead to lives across the call.
        let code = unsafe { function(params.as_mut_ptr()) };
        if code == sys::SUCCESS {
            return Ok(());
        }
        let call = name.trim_end_matches('\0');
        Err(Failure::Refused { call, code, text: words(self.result_string, code) })
    }

    /// Returns the version of CUPTI, 0 where it does not say.
    pub fn version(&self) -> u32 {
        let mut version = 0;
        if let Some(ask) = symbol!(self.handle, "cuptiGetVersion", sys::GetVersion) {
            // SAFETY: writes one number.
            unsafe { ask(&raw mut version) };
        }
        version
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> u32 {
        type Count = unsafe extern "C" fn(*mut i32) -> u32;
        let mut count = 0;
        if let Some(ask) = symbol!(self.driver, "cuDeviceGetCount", Count) {
            // SAFETY: writes one number.
            unsafe { ask(&raw mut count) };
        }
        count.max(0) as u32
    }

    /// Chooses the counters of a device: each of `wanted` that still fits in one pass with those before it.
    pub fn configure(&self, device: u32, wanted: &[&CStr]) -> Result<PmConfig, Failure> {
        // size, null, device, name
        let mut chip = [32, 0, u64::from(device), 0];
        self.call("cuptiDeviceGetChipName\0", &mut chip)?;
        // size, null, device, length, image
        let mut ask = [40, 0, u64::from(device), 0, 0];
        self.call("cuptiPmSamplingGetCounterAvailability\0", &mut ask)?;
        let mut available = vec![0u8; ask[3] as usize];
        ask[4] = available.as_mut_ptr() as u64;
        self.call("cuptiPmSamplingGetCounterAvailability\0", &mut ask)?;
        let mut best = None;
        let mut metrics: Vec<CString> = Vec::new();
        let mut refused = None;
        for metric in wanted {
            metrics.push((*metric).to_owned());
            match self.one_pass(chip[3], &available, &metrics) {
                Ok(Some(configured)) => best = Some(configured),
                Ok(None) => drop(metrics.pop()),
                Err(error) => {
                    metrics.pop();
                    refused = Some(error);
                }
            }
        }
        match best {
            Some((host, image)) => Ok(PmConfig { device, metrics, image, host, samples: Vec::new() }),
            None => Err(refused.unwrap_or(Failure::Lacks("a counter of this device"))),
        }
    }

    /// Builds the configuration of counters; `None` where they need several passes.
    fn one_pass(
        &self,
        chip: u64,
        available: &[u8],
        metrics: &[CString],
    ) -> Result<Option<(u64, Vec<u8>)>, Failure> {
        // size, null, kind, chip, available counters, object, set of counters (from 13.1 on)
        let mut start = [56, 0, PM_SAMPLING, chip, available.as_ptr() as u64, 0, 0];
        if self.call("cuptiProfilerHostInitialize\0", &mut start).is_err() {
            start[0] = 48;
            self.call("cuptiProfilerHostInitialize\0", &mut start)?;
        }
        let host = start[5];
        let names: Vec<*const c_char> = metrics.iter().map(|name| name.as_ptr()).collect();
        // size, null, object, names, number
        let mut add = [40, 0, host, names.as_ptr() as u64, names.len() as u64];
        self.call("cuptiProfilerHostConfigAddMetrics\0", &mut add)?;
        // size, null, object, length
        let mut length = [32, 0, host, 0];
        self.call("cuptiProfilerHostGetConfigImageSize\0", &mut length)?;
        let mut image = vec![0u8; length[3] as usize];
        // size, null, object, length, image
        let mut get = [40, 0, host, length[3], image.as_mut_ptr() as u64];
        self.call("cuptiProfilerHostGetConfigImage\0", &mut get)?;
        // size, null, length, image, passes
        let mut passes = [40, 0, length[3], image.as_mut_ptr() as u64, 0];
        self.call("cuptiProfilerHostGetNumOfPasses\0", &mut passes)?;
        if passes[4] == 1 {
            return Ok(Some((host, image)));
        }
        let _ = self.call("cuptiProfilerHostDeinitialize\0", &mut [24, 0, host]);
        Ok(None)
    }

    /// Makes a collector of a device, whose hardware buffer holds a burst of samples and whose image `in_image` of them.
    pub fn collector(
        &self,
        config: &mut PmConfig,
        interval_ns: u64,
        buffer: u64,
        in_image: u32,
    ) -> Result<PmRun, Failure> {
        // size, null, device, object
        let mut enable = [32, 0, u64::from(config.device), 0];
        self.call("cuptiPmSamplingEnable\0", &mut enable)?;
        let run = PmRun(enable[3]);
        // size, null, object, length, configuration, buffer, interval, trigger and, in the upper half, what a full buffer keeps: the oldest
        let image = config.image.as_ptr() as u64;
        let mut set = [64, 0, run.0, config.image.len() as u64, image, buffer, interval_ns, BY_GPU_TIME];
        self.call("cuptiPmSamplingSetConfig\0", &mut set)?;
        let names: Vec<*const c_char> = config.metrics.iter().map(|name| name.as_ptr()).collect();
        // size, null, object, names, number, samples, length
        let mut ask = [56, 0, run.0, names.as_ptr() as u64, names.len() as u64, u64::from(in_image), 0];
        self.call("cuptiPmSamplingGetCounterDataSize\0", &mut ask)?;
        config.samples = vec![0; ask[6] as usize];
        Ok(run)
    }

    /// Starts a burst. The image belongs to one collector: CUPTI refuses it for another.
    pub fn start(&self, config: &mut PmConfig, run: &PmRun) -> Result<(), Failure> {
        // size, null, object, length, image
        let mut clear = [40, 0, run.0, config.samples.len() as u64, config.samples.as_mut_ptr() as u64];
        self.call("cuptiPmSamplingCounterDataImageInitialize\0", &mut clear)?;
        self.call("cuptiPmSamplingStart\0", &mut [24, 0, run.0])
    }

    /// Ends a burst.
    pub fn stop(&self, run: &PmRun) -> Result<(), Failure> {
        self.call("cuptiPmSamplingStop\0", &mut [24, 0, run.0])
    }

    /// Frees a collector.
    pub fn close(&self, run: &PmRun) {
        let _ = self.call("cuptiPmSamplingDisable\0", &mut [24, 0, run.0]);
    }

    /// Passes the samples of a stopped burst to `take`. Returns true if a buffer was full and
    /// samples are missing.
    pub fn decode(
        &self,
        config: &mut PmConfig,
        run: &PmRun,
        mut take: impl FnMut(PmSample<'_>),
    ) -> Result<bool, Failure> {
        let mut values = vec![0.0; config.metrics.len()];
        let names: Vec<*const c_char> = config.metrics.iter().map(|name| name.as_ptr()).collect();
        let (image, length) = (config.samples.as_mut_ptr() as u64, config.samples.len() as u64);
        // size (up to the byte of the overflow), null, object, image, length, reason and, in the upper half, overflow
        let mut decode = [45, 0, run.0, image, length, 0];
        self.call("cuptiPmSamplingDecodeData\0", &mut decode)?;
        // size, null, image, length, all samples, filled ones, complete ones
        let mut info = [56, 0, image, length, 0, 0, 0];
        self.call("cuptiPmSamplingGetCounterDataInfo\0", &mut info)?;
        for at in 0..info[6] {
            // size, null, object, image, length, position, start, end
            let mut sample = [64, 0, run.0, image, length, at, 0, 0];
            self.call("cuptiPmSamplingCounterDataGetSampleInfo\0", &mut sample)?;
            // size, null, object, image, length, position, names, number, values
            let (names, count) = (names.as_ptr() as u64, names.len() as u64);
            let out = values.as_mut_ptr() as u64;
            let mut evaluate = [72, 0, config.host, image, length, at, names, count, out];
            self.call("cuptiProfilerHostEvaluateToGpuValues\0", &mut evaluate)?;
            take(PmSample { start: sample[6], end: sample[7], values: &values });
        }
        Ok(decode[5] & 0xffff_ffff == IMAGE_FULL || decode[5] >> 32 & 0xff != 0)
    }
}
