//! The counters of one launch by meaning instead of by metric.

use crate::gpu::{Arch, SCALAR, WorkKind, scalar_metric};
use crate::result::{CacheRates, CounterRow};
use roofgap_trace::ncu::{Base, CounterSet, LaunchCounters, Unit};
use std::fmt;

/// Duration of a launch.
pub const DURATION: &str = "gpu__time_duration.sum";
const SM: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
/// The same without the instructions that move data, where the whole was not collected.
const SM_INSTRUCTIONS: &str = "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed";
const MEMORY: &str = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed";
const DRAM: &str = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
const L2: &str = "lts__throughput.avg.pct_of_peak_sustained_elapsed";
const L1: &str = "l1tex__throughput.avg.pct_of_peak_sustained_active";
const OCCUPANCY: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";
const DRAM_READ: &str = "dram__bytes_read.sum";
const DRAM_WRITTEN: &str = "dram__bytes_write.sum";
const SECTORS: &str = "memory_l2_theoretical_sectors_global";
const EXCESSIVE_SECTORS: &str = "derived__memory_l2_theoretical_sectors_global_excessive";
const SECTOR_BYTES: f64 = 32.0;
const TENSOR_INSTRUCTIONS: &str = "sm__inst_executed_pipe_tensor.sum";

/// Metrics that a session requests on every device: time, share of each roof, occupancy and DRAM traffic.
const COMMON: [&str; 11] = [
    DURATION,
    SM,
    MEMORY,
    DRAM,
    L2,
    L1,
    OCCUPANCY,
    DRAM_READ,
    DRAM_WRITTEN,
    "lts__t_bytes.sum",
    TENSOR_INSTRUCTIONS,
];

/// Returns the metrics for verdicts and a roofline, by compute capability: few, so that a launch needs few passes. Double precision does
/// not occur in models. On a device that is not known the tensor operations are left out.
pub fn light_metrics(compute_capability: Option<(u8, u8)>) -> Vec<String> {
    let mut metrics: Vec<String> = COMMON.map(str::to_owned).into();
    // Packed instructions and double precision would cost passes.
    metrics.extend(SCALAR.iter().take(6).map(|(operation, ..)| format!("{}.sum", scalar_metric(operation))));
    if let Some(arch) = compute_capability.and_then(Arch::with_capability) {
        let counters =
            Arch::tensor_counters(Some(arch)).filter(|counter| counter.kind != WorkKind::TensorFp64);
        metrics.extend(counters.map(|counter| format!("{}.sum", counter.metric)));
    }
    metrics
}

/// A part of the multiprocessors that can be their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipe {
    /// Arithmetic in double precision.
    Fp64,
    /// Slots from which warps issue instructions of any kind.
    Issue,
    /// Instructions that load, store or shuffle.
    Loads,
    /// Integer and logic instructions, comparisons.
    Integer,
    /// Special functions and conversions.
    Special,
    /// Other arithmetic.
    Others,
}

/// Metrics of the parts of the multiprocessors, without their ending.
const PIPES: [(Pipe, &str); 14] = [
    (Pipe::Fp64, "sm__pipe_fp64_cycles_active"),
    (Pipe::Fp64, "sm__inst_executed_pipe_fp64"),
    (Pipe::Issue, "sm__issue_active"),
    (Pipe::Issue, "sm__inst_executed"),
    (Pipe::Issue, "sm__inst_issued"),
    (Pipe::Loads, "sm__inst_executed_pipe_lsu"),
    (Pipe::Integer, "sm__pipe_alu_cycles_active"),
    (Pipe::Special, "sm__inst_executed_pipe_xu"),
    (Pipe::Others, "sm__pipe_fma_cycles_active"),
    (Pipe::Others, "sm__pipe_fmaheavy_cycles_active"),
    (Pipe::Others, "sm__pipe_tensor_cycles_active"),
    (Pipe::Others, "sm__pipe_tensor_op_hmma_cycles_active"),
    (Pipe::Others, "sm__inst_executed_pipe_adu"),
    (Pipe::Others, "sm__inst_executed_pipe_uniform"),
];

/// The busiest part of the multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusiestPipe {
    /// Part.
    pub pipe: Pipe,
    /// Its use, % of its peak.
    pub pct: f64,
    /// Most use of another part that does work of its own, %.
    pub next_pct: f64,
    /// Use of double precision, %.
    pub fp64_pct: f64,
}

/// Most of a peak that a launch can reach, with rounding, %.
const MOST_PCT: f64 = 100.5;

/// The counters of a launch, or the mean of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// Nanoseconds under ncu.
    pub duration_ns: Option<f64>,
    /// Compute throughput, % of peak.
    pub sm_pct: Option<f64>,
    /// Memory throughput, % of peak.
    pub memory_pct: Option<f64>,
    /// DRAM, % of peak.
    pub dram_pct: Option<f64>,
    /// L2, % of peak.
    pub l2_pct: Option<f64>,
    /// L1, % of peak of the cycles in which it was active.
    pub l1_pct: Option<f64>,
    /// Achieved occupancy, %.
    pub occupancy_pct: Option<f64>,
    /// Bytes to and from DRAM.
    pub dram_bytes: Option<f64>,
    /// Bytes of global memory that warps ask for, in as few sectors as would do.
    pub needed_bytes: Option<f64>,
    /// Multiprocessors.
    pub sms: Option<f64>,
    /// Parts of the multiprocessors, % of peak, in the order of their metrics.
    pub pipes_pct: [Option<f64>; PIPES.len()],
    /// The arithmetic.
    pub work: Option<Work>,
    /// Rates of the caches.
    pub caches: Option<CacheRates>,
    /// Time at the roof, % of the duration, where samples tell it without counting operations.
    pub roof_pct: Option<f64>,
}

impl Readings {
    /// Reads one launch.
    pub fn from_launch(set: &CounterSet, launch: &LaunchCounters) -> Self {
        // In a very short kernel the counters of two passes do not fit together, and ncu states more than the peak: no measurement.
        let percent = |name: &str| set.value(launch, name, Unit::PERCENT).filter(|pct| *pct <= MOST_PCT);
        let bytes = |name: &str| set.value(launch, name, Unit::BYTE);
        let duration_ns = set.value(launch, DURATION, Unit::NANOSECOND);
        let read_and_written = || Some(bytes(DRAM_READ)? + bytes(DRAM_WRITTEN)?);
        let from_rate = || {
            let rate = set.value(launch, "dram__bytes.sum.per_second", Unit::BYTE_PER_SECOND)?;
            Some(rate * duration_ns? * 1e-9)
        };
        let sectors = |name: &str| set.quantity(launch, name).map(|quantity| quantity.value);
        let needed = || Some(sectors(SECTORS)? - sectors(EXCESSIVE_SECTORS)?);
        let sms = set
            .value(launch, "launch__sm_count", Unit::of(Base::Sm))
            .or_else(|| set.value(launch, "device__attribute_multiprocessor_count", Unit::ONE));
        Self {
            duration_ns,
            sm_pct: percent(SM).or_else(|| percent(SM_INSTRUCTIONS)),
            memory_pct: percent(MEMORY),
            dram_pct: percent(DRAM).or_else(|| percent("dram__throughput.avg.pct_of_peak_sustained_elapsed")),
            l2_pct: percent(L2),
            l1_pct: percent(L1),
            occupancy_pct: percent(OCCUPANCY),
            dram_bytes: bytes("dram__bytes.sum").or_else(read_and_written).or_else(from_rate),
            needed_bytes: needed().map(|sectors| SECTOR_BYTES * sectors),
            sms,
            pipes_pct: PIPES
                .map(|(_, metric)| percent(&format!("{metric}.avg.pct_of_peak_sustained_elapsed"))),
            work: Work::from_launch(set, launch),
            caches: cache_rates(set, launch),
            roof_pct: None,
        }
    }

    /// Returns its numbers, so that all are treated alike.
    fn numbers(&mut self) -> Vec<&mut Option<f64>> {
        let mut numbers = vec![
            &mut self.duration_ns,
            &mut self.sm_pct,
            &mut self.memory_pct,
            &mut self.dram_pct,
            &mut self.l2_pct,
            &mut self.l1_pct,
            &mut self.occupancy_pct,
            &mut self.dram_bytes,
            &mut self.needed_bytes,
            &mut self.sms,
        ];
        numbers.extend(&mut self.pipes_pct);
        numbers
    }

    /// Returns them with another use of a part of the multiprocessors, %.
    #[cfg(test)]
    pub fn with_pipe(mut self, pipe: Pipe, pct: f64) -> Self {
        for (value, _) in self.pipes_pct.iter_mut().zip(PIPES).filter(|(_, (listed, _))| *listed == pipe) {
            *value = Some(pct);
        }
        self
    }

    /// Returns the part of the multiprocessors that their use is that of; `None` where it is not known.
    pub fn busiest_pipe(&self) -> Option<BusiestPipe> {
        let used = || PIPES.iter().zip(self.pipes_pct).filter_map(|((pipe, _), pct)| Some((*pipe, pct?)));
        let (pipe, pct) = used()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, pct)| self.sm_pct.is_some_and(|whole| (whole - pct).abs() < SAME_PCT))?;
        // An instruction is issued and then done by a pipe.
        let most = |counts: &dyn Fn(Pipe) -> bool| {
            used().filter(|(other, _)| counts(*other)).map(|(_, pct)| pct).fold(0.0, f64::max)
        };
        let next_pct = most(&|other| other != pipe && other != Pipe::Issue);
        Some(BusiestPipe { pipe, pct, next_pct, fp64_pct: most(&|other| other == Pipe::Fp64) })
    }

    /// Tells whether instructions that load, store or shuffle are the limit of L1, and the data that they move are not more.
    pub fn waits_for_load_instructions(&self) -> bool {
        let loads = self.busiest_pipe().filter(|busiest| busiest.pipe == Pipe::Loads);
        loads.zip(self.memory_pct).is_some_and(|(loads, memory)| memory < loads.pct + SAME_PCT)
    }

    /// The mean of several launches of one kernel and shape; what only some have is the mean of those.
    pub fn mean(mut all: Vec<Self>) -> Self {
        let caches: Vec<CacheRates> = all.iter().filter_map(|readings| readings.caches).collect();
        let cache = |get: fn(&CacheRates) -> Option<f64>| mean(caches.iter().filter_map(get));
        let mut readings = Self {
            work: Work::mean(&all),
            caches: (!caches.is_empty()).then(|| CacheRates {
                l1_bytes_per_s: cache(|rates| rates.l1_bytes_per_s),
                l1_peak_bytes_per_s: cache(|rates| rates.l1_peak_bytes_per_s),
                l2_bytes_per_s: cache(|rates| rates.l2_bytes_per_s),
                l2_peak_bytes_per_s: cache(|rates| rates.l2_peak_bytes_per_s),
            }),
            ..Self::default()
        };
        for (at, number) in readings.numbers().into_iter().enumerate() {
            *number = mean(all.iter_mut().filter_map(|readings| *readings.numbers()[at]));
        }
        readings
    }

    /// Floating-point operations.
    pub fn flops(&self) -> Option<f64> {
        self.work.as_ref().and_then(Work::flops)
    }

    /// Returns a row with these numbers.
    pub fn row(&self) -> CounterRow {
        let flops = self.flops();
        let flops_per = |part: Option<f64>| Some(flops? / part.filter(|part| *part > 0.0)?);
        CounterRow {
            duration_ns: self.duration_ns.map(|ns| ns.round() as i64),
            sm_pct: self.sm_pct,
            memory_pct: self.memory_pct,
            dram_pct: self.dram_pct,
            l2_pct: self.l2_pct,
            l1_pct: self.l1_pct,
            occupancy_pct: self.occupancy_pct,
            dram_bytes: self.dram_bytes.map(|bytes| bytes.round() as u64),
            flops: flops.map(|flops| flops.round() as u64),
            intensity: flops_per(self.dram_bytes),
            achieved_flops_per_s: flops_per(self.duration_ns.map(|ns| ns * 1e-9)),
            caches: self.caches,
            ..CounterRow::default()
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Reads the rates of the caches that ncu's hierarchical roofline charts collect; `None` where none were collected.
fn cache_rates(set: &CounterSet, launch: &LaunchCounters) -> Option<CacheRates> {
    // Metric of the traffic and unit whose cycles its peak is given by.
    let l1 = ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum", "l1tex");
    let l2 = ("derived__lts__lts2xbar_bytes.sum", "lts");
    // ncu states these metrics in bytes, in bytes per cycle or second, or without a unit.
    let units =
        [Unit::BYTE, Unit::BYTE_PER_SECOND, Unit::per(Base::Byte, Base::Cycle), Unit::ONE, Unit::UNSTATED];
    let bytes = |name: &str| {
        let value = units.iter().find_map(|unit| set.value(launch, name, *unit));
        value.filter(|value| value.is_finite() && *value > 0.0)
    };
    let rate = |(metric, _): (&str, &str)| bytes(&format!("{metric}.per_second"));
    let peak = |(metric, unit): (&str, &str)| {
        let clock = format!("{unit}__cycles_elapsed.avg.per_second");
        let clock = set.value(launch, &clock, Unit::HERTZ).filter(|hertz| *hertz > 0.0)?;
        Some(bytes(&format!("{metric}.peak_sustained"))? * clock)
    };
    let rates = CacheRates {
        l1_bytes_per_s: rate(l1),
        l1_peak_bytes_per_s: peak(l1),
        l2_bytes_per_s: rate(l2),
        l2_peak_bytes_per_s: peak(l2),
    };
    (rates != CacheRates::default()).then_some(rates)
}

/// The arithmetic of a launch, from the counters that were collected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Operations by kind, for the kinds that were counted.
    pub by_kind: Vec<(WorkKind, f64)>,
    /// Tensor instructions ran, and no counter of what they did was collected: the sum would be far too small.
    pub tensor_uncounted: bool,
}

impl Work {
    /// Reads the work of a launch; `None` where no counter of work was collected.
    pub fn from_launch(set: &CounterSet, launch: &LaunchCounters) -> Option<Self> {
        let mut work = Self::default();
        let mut half_instructions = 0.0;
        for (operation, kind, factor) in SCALAR {
            if let Some(count) = count(set, launch, &scalar_metric(operation)) {
                work.add(kind, count * factor);
                if operation == "hfma" {
                    half_instructions = count;
                }
            }
        }
        let arch = launch.compute_capability.and_then(Arch::with_capability);
        let counted = Arch::tensor_counters(arch).filter_map(|counter| {
            Some((counter.metric, counter.kind, tensor_count(set, launch, counter.metric)?))
        });
        let counted: Vec<(&str, WorkKind, f64)> = counted.collect();
        for (metric, kind, count) in &counted {
            // `src_fp8_dst_fp32` is a part of `src_fp8` where a device has both.
            let is_part = |whole: &str| metric.strip_prefix(whole).is_some_and(|rest| rest.starts_with('_'));
            if !counted.iter().any(|(other, ..)| is_part(other)) {
                work.add(*kind, *count);
            }
        }
        let ran = set.value(launch, TENSOR_INSTRUCTIONS, Unit::INSTRUCTION).unwrap_or(0.0);
        // From Ampere on, half-precision instructions run in the tensor pipe; 32 threads make one of its instructions.
        work.tensor_uncounted = counted.is_empty() && ran > half_instructions / 32.0 + 0.5;
        (!work.by_kind.is_empty()).then_some(work)
    }

    /// The mean of several launches, for the kinds of the first.
    fn mean(all: &[Readings]) -> Option<Self> {
        let works: Vec<&Self> = all.iter().filter_map(|readings| readings.work.as_ref()).collect();
        let of = |work: &Self, kind: WorkKind| {
            work.by_kind.iter().find(|(listed, _)| *listed == kind).map_or(0.0, |(_, flops)| *flops)
        };
        let kinds = works.first()?.by_kind.iter().map(|(kind, _)| *kind);
        let mean = |kind| works.iter().map(|work| of(work, kind)).sum::<f64>() / works.len() as f64;
        Some(Self {
            by_kind: kinds.map(|kind| (kind, mean(kind))).collect(),
            tensor_uncounted: works.iter().any(|work| work.tensor_uncounted),
        })
    }

    /// Floating-point operations in all; `None` where the tensor cores' part is missing.
    pub fn flops(&self) -> Option<f64> {
        (!self.tensor_uncounted).then(|| self.by_kind.iter().map(|(_, flops)| flops).sum())
    }

    /// Operations of the tensor cores.
    pub fn tensor_flops(&self) -> f64 {
        self.by_kind.iter().filter(|(kind, _)| kind.is_tensor()).map(|(_, flops)| flops).sum()
    }

    /// The kind with the most operations.
    pub fn main_kind(&self) -> Option<WorkKind> {
        let most = self.by_kind.iter().filter(|(_, flops)| *flops > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
        most.map(|(kind, _)| *kind)
    }

    fn add(&mut self, kind: WorkKind, flops: f64) {
        match self.by_kind.iter_mut().find(|(listed, _)| *listed == kind) {
            Some((_, sum)) => *sum += flops,
            None => self.by_kind.push((kind, flops)),
        }
    }
}

/// Instructions of the tensor cores whose operations are also counted by themselves: those of a warp, and on Blackwell those of a thread for
/// its multiprocessor.
const TENSOR_OPERATIONS: [&str; 3] = ["hmma", "utchmma", "utcqmma"];

/// The whole, or its parts where only those were collected: dense and sparse, of all instructions or of each.
fn tensor_count(set: &CounterSet, launch: &LaunchCounters, metric: &str) -> Option<f64> {
    let dense_and_sparse = |metric: &str| {
        let parts = ["off", "on"].map(|part| count(set, launch, &format!("{metric}_sparsity_{part}")));
        parts.into_iter().flatten().reduce(|sum, part| sum + part)
    };
    let of_each = || {
        let parts = TENSOR_OPERATIONS
            .map(|operation| metric.replacen("tensor", &format!("tensor_op_{operation}"), 1));
        parts.iter().filter_map(|metric| dense_and_sparse(metric)).reduce(|sum, part| sum + part)
    };
    count(set, launch, metric).or_else(|| dense_and_sparse(metric)).or_else(of_each)
}

/// A count over the whole launch: as such, or from its rate and the time or cycles.
fn count(set: &CounterSet, launch: &LaunchCounters, metric: &str) -> Option<f64> {
    let get = |name: &str, rollup: &str| {
        let quantity = set.quantity(launch, &format!("{name}.sum{rollup}"))?;
        matches!(quantity.unit.of, Base::One | Base::Instruction | Base::Operation).then_some(quantity.value)
    };
    let quarter = metric.replacen("sm__", "smsp__", 1);
    if let Some(sum) = get(metric, "").or_else(|| get(&quarter, "")) {
        return Some(sum);
    }
    if let Some(rate) = get(metric, ".per_second") {
        return Some(rate * set.value(launch, DURATION, Unit::NANOSECOND)? * 1e-9);
    }
    let rate = get(&quarter, ".per_cycle_elapsed").or_else(|| get(metric, ".per_cycle_elapsed"))?;
    let cycles = ["smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max"];
    Some(rate * cycles.iter().find_map(|name| set.value(launch, name, Unit::CYCLE))?)
}

/// Difference, in points, below which two shares are of one unit.
pub const SAME_PCT: f64 = 1.0;

/// Share of its peak, in %, from which on a unit is near its roof.
pub const NEAR_ROOF_PCT: f64 = 60.0;

/// Memory levels this close to the busiest one share its load.
pub const SHARED_PCT: f64 = 10.0;

/// The limit of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The multiprocessors.
    Compute,
    /// Device memory.
    Dram,
    /// The second-level cache.
    L2,
    /// The first-level cache.
    L1,
    /// Nothing is near its roof.
    Latency,
    /// Fewer blocks than multiprocessors.
    TooSmall,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute-bound",
            Self::Dram => "memory-bound (DRAM)",
            Self::L2 => "memory-bound (L2)",
            Self::L1 => "memory-bound (L1)",
            Self::Latency => "latency-bound",
            Self::TooSmall => "too small",
        })
    }
}

/// The answer of the rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Limit; `None` where the inputs do not tell it.
    pub bound: Option<Bound>,
    /// The share of the peak that was reached there.
    pub reached_pct: Option<f64>,
    /// The rule as it was applied, in words.
    pub reason: String,
}

/// Most difference between the use of L1 and twice that of all memory, in %, where the one is the other.
const HALF_PCT: f64 = 1.0;

/// Least use of such an L1 that is a limit, %.
const FULL_PCT: f64 = 90.0;

/// Applies the rule to the counters of a launch, its blocks and the multiprocessors of the device.
pub fn verdict(readings: &Readings, blocks: Option<u64>, sms: Option<u64>) -> Verdict {
    let none = |reason: String| Verdict { bound: None, reached_pct: None, reason };
    // ncu counts L1 with half of its use in that of all memory on some GPUs (Turing). A few blocks do not fill all of them.
    let fills = blocks.zip(sms).is_some_and(|(blocks, sms)| blocks >= 4 * sms);
    let is_half = |part: f64, whole: f64| fills && part >= FULL_PCT && (part - 2.0 * whole).abs() < HALF_PCT;
    let least = |part: f64, whole: f64| if is_half(part, whole) { part } else { part.min(whole) };
    let l1 = readings.l1_pct.map(|part| readings.memory_pct.map_or(part, |whole| least(part, whole)));
    let levels = [(Bound::Dram, readings.dram_pct), (Bound::L2, readings.l2_pct), (Bound::L1, l1)];
    let known: Vec<(Bound, f64)> = levels.iter().filter_map(|(bound, pct)| Some((*bound, (*pct)?))).collect();
    let busiest = known.iter().map(|(_, pct)| *pct).fold(f64::NEG_INFINITY, f64::max);
    let memory = known
        .iter()
        .find(|(_, pct)| *pct >= busiest - SHARED_PCT && *pct >= NEAR_ROOF_PCT.min(busiest))
        .copied();
    let compute = readings.sm_pct.map(|pct| (Bound::Compute, pct));
    // The pipe of loads and stores counts as compute, too.
    let of_l1 = memory.filter(|(bound, _)| *bound == Bound::L1 && readings.waits_for_load_instructions());
    let top = of_l1.or_else(|| [compute, memory].into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1)));
    let Some((bound, reached)) = top else {
        return none("no throughput of the multiprocessors or of memory was collected".to_owned());
    };
    let seen = shares(readings);
    // L1 may show more than what the verdict says of everything, while it is active.
    let overall = match readings.l1_pct.is_some_and(|pct| pct >= NEAR_ROOF_PCT) {
        true => " over the whole kernel",
        false => "",
    };
    let (bound, reason) = if reached >= NEAR_ROOF_PCT {
        let unit = match bound {
            Bound::Dram => "DRAM",
            Bound::L2 => "L2",
            Bound::L1 => "L1",
            _ => "compute",
        };
        (bound, format!("{unit} is at {NEAR_ROOF_PCT} % of its peak or more"))
    } else if compute.is_none() || memory.is_none() {
        let missing = if compute.is_none() { "the multiprocessors" } else { "memory" };
        return none(format!("{seen}: not near a roof, and the throughput of {missing} was not collected"));
    } else if let Some((blocks, sms)) = blocks.zip(sms).filter(|(blocks, sms)| blocks < sms) {
        let plural = if blocks == 1 { "" } else { "s" };
        (
            Bound::TooSmall,
            format!(
                "nothing at {NEAR_ROOF_PCT} % of its peak{overall}, and {blocks} block{plural} for {sms} multiprocessors"
            ),
        )
    } else {
        (Bound::Latency, format!("nothing at {NEAR_ROOF_PCT} % of its peak{overall}"))
    };
    Verdict { bound: Some(bound), reached_pct: Some(reached), reason: format!("{seen}: {reason}") }
}

fn shares(readings: &Readings) -> String {
    let whole_is_low = readings.memory_pct.is_some_and(|whole| whole < NEAR_ROOF_PCT);
    let shares = [
        ("compute", readings.sm_pct),
        ("DRAM", readings.dram_pct),
        ("L2", readings.l2_pct),
        ("L1", readings.l1_pct),
    ];
    let text = |(name, pct): (&str, Option<f64>)| match pct {
        None => format!("{name} not collected"),
        Some(pct) if name == "L1" && whole_is_low && pct >= NEAR_ROOF_PCT => {
            format!("{name} {pct:.1} % while active")
        }
        Some(pct) => format!("{name} {pct:.1} %"),
    };
    shares.map(text).join(", ")
}

#[cfg(test)]
mod tests {
    use crate::{Options, analyze};

    #[test]
    fn needed_bytes_are_those_of_the_fewest_sectors() {
        let page = r#""ID","Process ID","Kernel Name","Block Size","Grid Size","memory_l2_theoretical_sectors_global","derived__memory_l2_theoretical_sectors_global_excessive"
"","","","","","",""
"0","7","add","(128, 1, 1)","(4096, 1, 1)","100","75"
"#;
        let set = roofgap_trace::ncu::raw::read(page.as_bytes()).unwrap();
        assert_eq!(super::Readings::from_launch(&set, &set.launches[0]).needed_bytes, Some(25.0 * 32.0));
    }

    #[test]
    fn a_hierarchical_roofline_has_the_peaks_of_both_caches() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ncu/llama2_roofline_raw.csv.gz");
        let input = roofgap_trace::read(&[path.into()]).unwrap();
        let options = Options { counters: input.counters, ..Options::default() };
        let analysis = analyze(&input.trace, &options).analysis;
        let rates = analysis.counters.iter().find_map(|row| row.caches).unwrap();
        // An H200: 132 x 128 bytes per cycle of L1 and 6,016 of L2, at clocks of 1.5 to 2 GHz.
        let (l1, l2) = (rates.l1_peak_bytes_per_s.unwrap(), rates.l2_peak_bytes_per_s.unwrap());
        assert!((25e12..34e12).contains(&l1) && (8e12..13e12).contains(&l2), "{l1} {l2}");
        assert!(rates.l1_bytes_per_s.unwrap() < l1 && rates.l2_bytes_per_s.unwrap() < l2);
    }
}

#[cfg(test)]
mod bound_tests {
    use super::*;

    fn inputs(sm: f64, dram: f64, l2: f64, l1: f64) -> Readings {
        Readings {
            sm_pct: Some(sm),
            memory_pct: Some(dram.max(l2)),
            dram_pct: Some(dram),
            l2_pct: Some(l2),
            l1_pct: Some(l1),
            ..Readings::default()
        }
    }

    /// Applies the rule on a device of 132 multiprocessors.
    fn with_blocks(blocks: u64, readings: Readings) -> Verdict {
        verdict(&readings, Some(blocks), Some(132))
    }

    #[test]
    fn each_verdict() {
        let bound = |readings| with_blocks(4096, readings).bound;
        assert_eq!(bound(inputs(90.0, 20.0, 30.0, 40.0)), Some(Bound::Compute));
        assert_eq!(bound(inputs(9.0, 76.0, 78.9, 17.0)), Some(Bound::Dram));
        assert_eq!(bound(inputs(9.0, 20.0, 78.9, 17.0)), Some(Bound::L2));
        assert_eq!(
            bound(Readings { memory_pct: Some(85.0), ..inputs(9.0, 20.0, 40.0, 88.0) }),
            Some(Bound::L1)
        );
        assert_eq!(bound(inputs(9.0, 20.0, 40.0, 3.0)), Some(Bound::Latency));
        assert_eq!(with_blocks(4, inputs(9.0, 20.0, 40.0, 3.0)).bound, Some(Bound::TooSmall));
    }

    #[test]
    fn a_small_grid_at_the_roof_is_not_too_small() {
        assert_eq!(with_blocks(126, inputs(5.2, 76.0, 78.9, 17.5)).bound, Some(Bound::Dram));
    }

    #[test]
    fn l1_that_counts_half_is_a_roof() {
        let turing = |memory| Readings { memory_pct: Some(memory), ..inputs(16.0, 2.0, 5.0, 99.3) };
        assert_eq!(with_blocks(4096, turing(49.7)).bound, Some(Bound::L1));
        assert_eq!(with_blocks(4096, turing(45.0)).bound, Some(Bound::Latency));
    }

    #[test]
    fn l1_of_a_kernel_that_hardly_ran_is_no_roof() {
        // 4 blocks: L1 at 57 % of the few cycles it was active in, memory as a whole at 1 %.
        let tiny = Readings { memory_pct: Some(1.0), ..inputs(0.0, 0.1, 1.0, 97.0) };
        assert_eq!(with_blocks(4, tiny).bound, Some(Bound::TooSmall));
    }

    #[test]
    fn the_busiest_pipe_is_the_one_that_the_whole_is_made_of() {
        let own = inputs(84.0, 0.0, 7.0, 84.0).with_pipe(Pipe::Issue, 58.0).with_pipe(Pipe::Integer, 46.0);
        assert_eq!(own.busiest_pipe(), None, "nothing is at 84 %");
        let shuffles = Readings { memory_pct: Some(84.0), ..own.with_pipe(Pipe::Loads, 83.9) };
        let busiest = shuffles.busiest_pipe().unwrap();
        assert_eq!((busiest.pipe, busiest.next_pct), (Pipe::Loads, 46.0));
        assert!(shuffles.waits_for_load_instructions());
        let just_below = Readings { memory_pct: Some(83.9), l1_pct: Some(83.9), ..shuffles.clone() };
        assert_eq!(with_blocks(4096, just_below).bound, Some(Bound::L1));
        assert!(!Readings { memory_pct: Some(97.0), ..shuffles }.waits_for_load_instructions());
    }

    #[test]
    fn half_the_counters_give_no_guess() {
        let only_sm = |pct| verdict(&Readings { sm_pct: Some(pct), ..Readings::default() }, None, None);
        assert_eq!(only_sm(12.0).bound, None);
        assert!(only_sm(12.0).reason.contains("memory was not collected"));
        assert_eq!(only_sm(92.0).bound, Some(Bound::Compute));
        assert_eq!(verdict(&Readings::default(), None, None).bound, None);
    }

    #[test]
    fn a_busy_l1_is_said_to_be_busy_while_active() {
        let verdict =
            with_blocks(4096, Readings { memory_pct: Some(40.6), ..inputs(40.2, 40.2, 39.7, 81.1) });
        assert_eq!(verdict.bound, Some(Bound::Latency));
        assert_eq!(
            verdict.reason,
            "compute 40.2 %, DRAM 40.2 %, L2 39.7 %, L1 81.1 % while active: \
             nothing at 60 % of its peak over the whole kernel"
        );
    }

    #[test]
    fn the_inputs_stand_in_the_reason() {
        let reason = with_blocks(4096, inputs(5.2, 76.0, 78.9, 17.5)).reason;
        assert_eq!(
            reason,
            "compute 5.2 %, DRAM 76.0 %, L2 78.9 %, L1 17.5 %: DRAM is at 60 % of its peak or more"
        );
    }
}
