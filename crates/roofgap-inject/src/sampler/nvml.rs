//! NVML, loaded at run time: the functions that vitals need. What a driver or a device lacks is `None`.

use super::SampleError;
use crate::cupti::{Failure, load};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

type Status = c_int;
type Handle = *mut c_void;
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

/// A number that NVML has of a device.
pub struct Quantity {
    /// Field of a line of vitals.
    pub field: &'static str,
    /// Function of NVML.
    function: &'static CStr,
    form: Form,
}

/// Parameter and value of a function.
enum Form {
    /// A 32-bit value.
    Short,
    /// A 32-bit value of this kind.
    ShortOf(c_uint),
    /// A 64-bit value.
    Long,
}

impl Quantity {
    const fn new(field: &'static str, function: &'static CStr, form: Form) -> Self {
        Self { field, function, form }
    }
}

/// Highest clock of the multiprocessors, power limit in force and default one.
pub const LIMITS: [Quantity; 3] = [
    Quantity::new("max_sm_mhz", c"nvmlDeviceGetMaxClockInfo", Form::ShortOf(1)),
    Quantity::new("limit_mw", c"nvmlDeviceGetEnforcedPowerLimit", Form::Short),
    Quantity::new("default_limit_mw", c"nvmlDeviceGetPowerManagementDefaultLimit", Form::Short),
];

/// Clocks, and the reasons why they are below the highest, a bit each.
pub const CLOCKS: [Quantity; 3] = [
    Quantity::new("sm_mhz", c"nvmlDeviceGetClockInfo", Form::ShortOf(1)),
    Quantity::new("memory_mhz", c"nvmlDeviceGetClockInfo", Form::ShortOf(2)),
    Quantity::new("reasons", c"nvmlDeviceGetCurrentClocksThrottleReasons", Form::Long),
];

/// Energy since the driver was loaded.
pub const ENERGY: Quantity = Quantity::new("energy_mj", c"nvmlDeviceGetTotalEnergyConsumption", Form::Long);

/// Temperature.
pub const CELSIUS: Quantity = Quantity::new("celsius", c"nvmlDeviceGetTemperature", Form::ShortOf(0));

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
        let mut gpus = Vec::new();
        for at in 0..count {
            let mut handle = ptr::null_mut();
            // SAFETY: writes one handle.
            if unsafe { by_index(at, &raw mut handle) } == SUCCESS {
                gpus.push(Gpu(handle));
            }
        }
        if gpus.is_empty() { Err(SampleError::NoDevice) } else { Ok(gpus) }
    }

    /// Returns a number of a device; `None` where this driver or device has none.
    pub fn value(&self, gpu: Gpu, quantity: &Quantity) -> Option<u64> {
        type Short = unsafe extern "C" fn(Handle, *mut c_uint) -> Status;
        type ShortOf = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status;
        type Long = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Status;
        let (mut short, mut long) = (0, 0);
        // SAFETY: the handle is open; each function has the type of its form, and writes one number of it.
        let status = unsafe {
            let function = libc::dlsym(self.library, quantity.function.as_ptr());
            if function.is_null() {
                return None;
            }
            match quantity.form {
                Form::Short => std::mem::transmute::<*mut c_void, Short>(function)(gpu.0, &raw mut short),
                Form::ShortOf(kind) => {
                    std::mem::transmute::<*mut c_void, ShortOf>(function)(gpu.0, kind, &raw mut short)
                }
                Form::Long => std::mem::transmute::<*mut c_void, Long>(function)(gpu.0, &raw mut long),
            }
        };
        // Only one of them was written.
        (status == SUCCESS).then_some(u64::from(short) | long)
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

    /// Returns true for a device that is divided into instances.
    pub fn is_mig(&self, gpu: Gpu) -> bool {
        type Mode = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> Status;
        let Some(ask) = symbol!(self.library, "nvmlDeviceGetMigMode", Mode) else { return false };
        let (mut current, mut pending) = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { ask(gpu.0, &raw mut current, &raw mut pending) == SUCCESS && current == 1 }
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
        let mut request =
            GpmRequest { version, count, samples: [ptr::null_mut(); 2], metrics: [none; GPM_ROOM] };
        request.metrics.iter_mut().zip(GPM_METRICS).for_each(|(metric, id)| metric.id = id);
        for sample in &mut request.samples {
            // SAFETY: writes one handle. The samples stay for the life of the process.
            if unsafe { alloc(sample) } != SUCCESS {
                return None;
            }
        }
        self.gpm_sample(gpu, request.samples[0]).then(|| Gpm(Box::new(request)))
    }

    fn gpm_sample(&self, gpu: Gpu, sample: Handle) -> bool {
        type Get = unsafe extern "C" fn(Handle, Handle) -> Status;
        let get = symbol!(self.library, "nvmlGpmSampleGet", Get);
        // SAFETY: a sample is a structure of one pointer, which was allocated for this.
        get.is_some_and(|get| unsafe { get(gpu.0, sample) } == SUCCESS)
    }

    /// Returns the utilisations since the last call, %: multiprocessors, tensor pipes, DRAM bandwidth.
    /// `None` where no sample could be taken.
    pub fn gpm_pct(&self, gpu: Gpu, Gpm(request): &mut Gpm) -> Option<[Option<f64>; 3]> {
        type Get = unsafe extern "C" fn(*mut GpmRequest) -> Status;
        let get = symbol!(self.library, "nvmlGpmMetricsGet", Get)
            .filter(|_| self.gpm_sample(gpu, request.samples[1]))?;
        // SAFETY: reads the samples, and writes `count` metrics, for which there is room.
        let asked = unsafe { get(&raw mut **request) };
        request.samples.swap(0, 1);
        let value = |at: usize| {
            let metric = &request.metrics[at];
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
        let mut infos = [ProcessInfo::default(); MOST_PROCESSES];
        let mut count = infos.len() as c_uint;
        let ask = symbol!(self.library, "nvmlDeviceGetComputeRunningProcesses_v3", List)?;
        // SAFETY: writes at most `count` rows.
        if unsafe { ask(gpu.0, &raw mut count, infos.as_mut_ptr()) } != SUCCESS {
            return None;
        }
        let mut used = [ProcessUse::default(); 4 * MOST_PROCESSES];
        let mut uses = used.len() as c_uint;
        let ask = symbol!(self.library, "nvmlDeviceGetProcessUtilization", Use);
        // SAFETY: writes at most `uses` rows.
        let asked = ask.map(|ask| unsafe { ask(gpu.0, used.as_mut_ptr(), &raw mut uses, since_us) });
        let used = used.get(..uses as usize).filter(|_| asked == Some(SUCCESS));
        let infos = infos.iter().take(count as usize).map(|process| GpuProcess {
            pid: process.pid,
            // The driver fills in what is newer, and leaves the rest of its ring as it was.
            sm_pct: used.map(|rows| {
                let of_process = rows.iter().filter(|row| row.pid == process.pid && row.at_us > since_us);
                of_process.map(|row| row.sm).max().unwrap_or(0)
            }),
        });
        Some(infos.collect())
    }
}
