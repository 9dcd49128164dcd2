//! NVML, loaded at run time: the functions that vitals need. What a driver or a device lacks is `None`.

use super::SampleError;
use crate::cupti::{Failure, load};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

type Status = c_int;
type Handle = *mut c_void;
type GetNumber = unsafe extern "C" fn(Handle, *mut c_uint) -> Status;
type GetNumberOf = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status;
type GetLong = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Status;
type GetText = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> Status;

const SUCCESS: Status = 0;

/// Fields of `nvmlDeviceGetFieldValues`: power over the last second, and now.
const POWER_FIELDS: [u32; 2] = [185, 186];

/// Metrics of GPM: active multiprocessors, active tensor pipes, DRAM bandwidth.
const GPM_METRICS: [u32; 3] = [2, 5, 10];

/// Room for metrics of GPM: above that of any header.
const GPM_ROOM: usize = 512;

/// Most processes of a device that are listed.
const MOST_PROCESSES: usize = 64;

/// An opened NVML.
pub struct Nvml {
    library: *mut c_void,
}

// SAFETY: a handle of the loader; NVML may be called from any thread.
unsafe impl Send for Nvml {}
// SAFETY: as above.
unsafe impl Sync for Nvml {}

/// A device.
#[derive(Clone, Copy)]
pub struct Gpu(Handle);

// SAFETY: a handle of NVML, which takes it from any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FieldValue {
    field: u32,
    scope: u32,
    /// Time, us since the epoch.
    at_us: i64,
    latency_us: i64,
    value_type: u32,
    status: Status,
    value: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: u32,
    bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessUse {
    pid: u32,
    at_us: u64,
    sm: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct GpmMetric {
    id: u32,
    status: Status,
    value: f64,
    /// Short name, long name and unit.
    names: [*const c_char; 3],
}

#[repr(C)]
struct GpmRequest {
    version: u32,
    count: u32,
    samples: [Handle; 2],
    metrics: [GpmMetric; GPM_ROOM],
}

/// Two samples of the counters of a device, between which NVML computes utilisations.
pub struct Gpm(Box<GpmRequest>);

/// A process that has a context on a device.
pub struct GpuProcess {
    pub pid: u32,
    /// Memory, bytes; `None` where the driver hides it.
    pub bytes: Option<u64>,
    /// Highest share of the time in which it used the multiprocessors since the last question, %.
    pub sm_pct: Option<u32>,
}

impl Nvml {
    /// Opens and starts the NVML of the driver.
    pub fn open() -> Result<Self, Failure> {
        let library = load(c"libnvidia-ml.so.1")?;
        let call = "nvmlInit_v2";
        let start = symbol!(library, "nvmlInit_v2", unsafe extern "C" fn() -> Status);
        // SAFETY: takes nothing.
        match start.map(|start| unsafe { start() }) {
            Some(SUCCESS) => Ok(Self { library }),
            Some(code) => Err(Failure::Refused {
                call,
                code: code.unsigned_abs(),
                text: "NVML does not start".to_owned(),
            }),
            None => Err(Failure::Lacks(call)),
        }
    }

    /// Lists the devices.
    pub fn gpus(&self) -> Result<Vec<Gpu>, SampleError> {
        type Count = unsafe extern "C" fn(*mut c_uint) -> Status;
        type ByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> Status;
        let mut count = 0;
        let (Some(number), Some(by_index)) = (
            symbol!(self.library, "nvmlDeviceGetCount_v2", Count),
            symbol!(self.library, "nvmlDeviceGetHandleByIndex_v2", ByIndex),
        ) else {
            return Err(SampleError::Refused(Failure::Lacks("nvmlDeviceGetHandleByIndex_v2")));
        };
        // SAFETY: writes one number.
        unsafe { number(&raw mut count) };
        let mut found = Vec::new();
        for at in 0..count {
            let mut handle = ptr::null_mut();
            // SAFETY: writes one handle.
            if unsafe { by_index(at, &raw mut handle) } == SUCCESS {
                found.push(Gpu(handle));
            }
        }
        if found.is_empty() { Err(SampleError::NoDevice) } else { Ok(found) }
    }

    fn number(&self, ask: Option<GetNumber>, gpu: Gpu) -> Option<u32> {
        let mut value = 0;
        // SAFETY: writes one number.
        (unsafe { ask?(gpu.0, &raw mut value) } == SUCCESS).then_some(value)
    }

    fn number_of(&self, ask: Option<GetNumberOf>, gpu: Gpu, what: u32) -> Option<u32> {
        let mut value = 0;
        // SAFETY: writes one number.
        (unsafe { ask?(gpu.0, what, &raw mut value) } == SUCCESS).then_some(value)
    }

    fn long(&self, ask: Option<GetLong>, gpu: Gpu) -> Option<u64> {
        let mut value = 0;
        // SAFETY: writes one number.
        (unsafe { ask?(gpu.0, &raw mut value) } == SUCCESS).then_some(value)
    }

    fn text(&self, ask: Option<GetText>, gpu: Gpu) -> Option<String> {
        let mut text: [c_char; 96] = [0; 96];
        // SAFETY: writes at most the given number of characters, with a NUL at the end.
        let status = unsafe { ask?(gpu.0, text.as_mut_ptr(), text.len() as c_uint - 1) };
        // SAFETY: the last character is 0 in any case.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        (status == SUCCESS).then(|| text.to_string_lossy().into_owned())
    }

    /// Returns the name of a device.
    pub fn name(&self, gpu: Gpu) -> Option<String> {
        self.text(symbol!(self.library, "nvmlDeviceGetName", GetText), gpu)
    }

    /// Returns the UUID of a device, as in `GPU-6b1e...`.
    pub fn uuid(&self, gpu: Gpu) -> Option<String> {
        self.text(symbol!(self.library, "nvmlDeviceGetUUID", GetText), gpu)
    }

    /// Returns the highest clock of the multiprocessors, MHz.
    pub fn max_sm_mhz(&self, gpu: Gpu) -> Option<u32> {
        self.number_of(symbol!(self.library, "nvmlDeviceGetMaxClockInfo", GetNumberOf), gpu, 1)
    }

    /// Returns the power limit in force and the default one, mW.
    pub fn limits_mw(&self, gpu: Gpu) -> (Option<u32>, Option<u32>) {
        let enforced = symbol!(self.library, "nvmlDeviceGetEnforcedPowerLimit", GetNumber);
        let default = symbol!(self.library, "nvmlDeviceGetPowerManagementDefaultLimit", GetNumber);
        (self.number(enforced, gpu), self.number(default, gpu))
    }

    /// Returns true for a device that is divided into instances.
    pub fn is_mig(&self, gpu: Gpu) -> bool {
        type Mode = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> Status;
        let Some(ask) = symbol!(self.library, "nvmlDeviceGetMigMode", Mode) else { return false };
        let (mut current, mut pending) = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { ask(gpu.0, &raw mut current, &raw mut pending) == SUCCESS && current == 1 }
    }

    /// Returns the energy since the driver was loaded, mJ.
    pub fn energy_mj(&self, gpu: Gpu) -> Option<u64> {
        self.long(symbol!(self.library, "nvmlDeviceGetTotalEnergyConsumption", GetLong), gpu)
    }

    /// Returns the clock of the multiprocessors and that of the memory, MHz.
    pub fn clocks_mhz(&self, gpu: Gpu) -> (Option<u32>, Option<u32>) {
        let ask = symbol!(self.library, "nvmlDeviceGetClockInfo", GetNumberOf);
        (self.number_of(ask, gpu, 1), self.number_of(ask, gpu, 2))
    }

    /// Returns the reasons why the clock is below the highest, a bit each.
    pub fn reasons(&self, gpu: Gpu) -> Option<u64> {
        self.long(symbol!(self.library, "nvmlDeviceGetCurrentClocksThrottleReasons", GetLong), gpu)
    }

    /// Returns the power over the last second and now, mW.
    pub fn power_mw(&self, gpu: Gpu) -> [Option<u64>; 2] {
        type Ask = unsafe extern "C" fn(Handle, c_int, *mut FieldValue) -> Status;
        let mut fields = POWER_FIELDS.map(|field| FieldValue { field, ..FieldValue::default() });
        let ask = symbol!(self.library, "nvmlDeviceGetFieldValues", Ask);
        // SAFETY: fills in the given number of fields.
        match ask.map(|ask| unsafe { ask(gpu.0, fields.len() as c_int, fields.as_mut_ptr()) }) {
            // A 32-bit value is in the lower half.
            Some(SUCCESS) => {
                fields.map(|field| (field.status == SUCCESS).then_some(field.value & 0xffff_ffff))
            }
            _ => [None; 2],
        }
    }

    /// Returns the temperature, degrees Celsius.
    pub fn celsius(&self, gpu: Gpu) -> Option<u32> {
        self.number_of(symbol!(self.library, "nvmlDeviceGetTemperature", GetNumberOf), gpu, 0)
    }

    /// Returns the share of the last time in which a kernel ran, %.
    pub fn utilisation_pct(&self, gpu: Gpu) -> Option<u32> {
        type Ask = unsafe extern "C" fn(Handle, *mut [u32; 2]) -> Status;
        let mut rates = [0; 2];
        let ask = symbol!(self.library, "nvmlDeviceGetUtilizationRates", Ask)?;
        // SAFETY: writes two numbers.
        (unsafe { ask(gpu.0, &raw mut rates) } == SUCCESS).then_some(rates[0])
    }

    /// Returns the memory in use, bytes.
    pub fn used_bytes(&self, gpu: Gpu) -> Option<u64> {
        type Ask = unsafe extern "C" fn(Handle, *mut [u64; 3]) -> Status;
        let mut memory = [0; 3];
        let ask = symbol!(self.library, "nvmlDeviceGetMemoryInfo", Ask)?;
        // SAFETY: writes three numbers: total, free, used.
        (unsafe { ask(gpu.0, &raw mut memory) } == SUCCESS).then_some(memory[2])
    }

    /// Takes the first sample of the counters of a device; `None` where it has none: before Hopper, and in parts (MIG).
    pub fn gpm(&self, gpu: Gpu) -> Option<Gpm> {
        type Support = unsafe extern "C" fn(Handle, *mut [u32; 2]) -> Status;
        type Alloc = unsafe extern "C" fn(*mut Handle) -> Status;
        // The version of the question, and the answer.
        let mut support = [1, 0];
        let ask = symbol!(self.library, "nvmlGpmQueryDeviceSupport", Support)?;
        // SAFETY: reads and writes two numbers.
        let status = unsafe { ask(gpu.0, &raw mut support) };
        if status != SUCCESS || support[1] != 1 || self.is_mig(gpu) {
            return None;
        }
        let alloc = symbol!(self.library, "nvmlGpmSampleAlloc", Alloc)?;
        let none = GpmMetric { id: 0, status: SUCCESS, value: 0.0, names: [ptr::null(); 3] };
        let (version, count) = (1, GPM_METRICS.len() as u32);
        let mut own = GpmRequest { version, count, samples: [ptr::null_mut(); 2], metrics: [none; GPM_ROOM] };
        own.metrics.iter_mut().zip(GPM_METRICS).for_each(|(metric, id)| metric.id = id);
        for sample in &mut own.samples {
            // SAFETY: writes one handle. The samples stay for the life of the process.
            if unsafe { alloc(sample) } != SUCCESS {
                return None;
            }
        }
        self.gpm_sample(gpu, own.samples[0]).then(|| Gpm(Box::new(own)))
    }

    fn gpm_sample(&self, gpu: Gpu, sample: Handle) -> bool {
        type Get = unsafe extern "C" fn(Handle, Handle) -> Status;
        let get = symbol!(self.library, "nvmlGpmSampleGet", Get);
        // SAFETY: a sample is a structure of one pointer, which was allocated for this.
        get.is_some_and(|get| unsafe { get(gpu.0, sample) } == SUCCESS)
    }

    /// Returns the utilisations since the last call, %: multiprocessors, tensor pipes, DRAM bandwidth.
    /// `None` where no sample could be taken.
    pub fn gpm_pct(&self, gpu: Gpu, Gpm(own): &mut Gpm) -> Option<[Option<f64>; 3]> {
        type Get = unsafe extern "C" fn(*mut GpmRequest) -> Status;
        let get = symbol!(self.library, "nvmlGpmMetricsGet", Get)
            .filter(|_| self.gpm_sample(gpu, own.samples[1]))?;
        // SAFETY: reads the samples, and writes `count` metrics, for which there is room.
        let asked = unsafe { get(&raw mut **own) };
        own.samples.swap(0, 1);
        let value = |at: usize| {
            let metric = &own.metrics[at];
            // A sample that came too soon has no number.
            let value = (asked == SUCCESS && metric.status == SUCCESS).then_some(metric.value);
            value.filter(|value| value.is_finite())
        };
        Some([value(0), value(1), value(2)])
    }

    /// Lists the processes that compute on a device, with their use of it since `since_us`.
    pub fn processes(&self, gpu: Gpu, since_us: u64) -> Option<Vec<GpuProcess>> {
        type List = unsafe extern "C" fn(Handle, *mut c_uint, *mut ProcessInfo) -> Status;
        type Use = unsafe extern "C" fn(Handle, *mut ProcessUse, *mut c_uint, c_ulonglong) -> Status;
        let mut found = [ProcessInfo::default(); MOST_PROCESSES];
        let mut count = found.len() as c_uint;
        let ask = symbol!(self.library, "nvmlDeviceGetComputeRunningProcesses_v3", List)?;
        // SAFETY: writes at most `count` rows.
        if unsafe { ask(gpu.0, &raw mut count, found.as_mut_ptr()) } != SUCCESS {
            return None;
        }
        let mut used = [ProcessUse::default(); 4 * MOST_PROCESSES];
        let mut uses = used.len() as c_uint;
        let ask = symbol!(self.library, "nvmlDeviceGetProcessUtilization", Use);
        // SAFETY: writes at most `uses` rows.
        let asked = ask.map(|ask| unsafe { ask(gpu.0, used.as_mut_ptr(), &raw mut uses, since_us) });
        let used = used.get(..uses as usize).filter(|_| asked == Some(SUCCESS));
        let found = found.iter().take(count as usize).map(|process| GpuProcess {
            pid: process.pid,
            bytes: Some(process.bytes).filter(|bytes| *bytes != u64::MAX),
            // The driver fills in what is newer, and leaves the rest of its ring as it was.
            sm_pct: used.map(|rows| {
                let own = rows.iter().filter(|row| row.pid == process.pid && row.at_us > since_us);
                own.map(|row| row.sm).max().unwrap_or(0)
            }),
        });
        Some(found.collect())
    }
}
