//! Tables of kernels, operators and counters.

use super::numbers::{NONE, decimal, or_none, percent, si, us};
use super::roof;
use super::stages::joined;
use super::table::{Table, capitalized};
use roofgap_analyze::{About, Analysis, CounterRow, Kernel, Operator, ShortNames};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The stages in which each kernel ran.
pub struct KernelStages<'a>(BTreeMap<&'a str, Vec<(usize, &'a Kernel)>>);

impl<'a> KernelStages<'a> {
    /// Finds the stages of every kernel.
    pub fn of(analysis: &'a Analysis) -> Self {
        let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (at, stage) in analysis.stages.iter().enumerate() {
            for kernel in &stage.kernels {
                rows.entry(kernel.name.as_str()).or_default().push((at, kernel));
            }
        }
        Self(rows)
    }

    /// Returns the positions of the stages of a kernel on the given devices, the one with most of its time first.
    pub fn positions(&self, name: &str, on: impl Fn(Option<u32>) -> bool) -> Vec<usize> {
        let mut times: BTreeMap<usize, i64> = BTreeMap::new();
        for (at, kernel) in self.0.get(name).into_iter().flatten().filter(|(_, k)| on(k.device)) {
            *times.entry(*at).or_default() += kernel.total_ns;
        }
        let mut positions: Vec<usize> = times.keys().copied().collect();
        positions.sort_by_key(|at| Reverse(times.get(at)));
        positions
    }
}

/// Builds the table of some kernels; a share is of `whole_ns`. A report picks its columns.
pub fn table(analysis: &Analysis, kernels: &[Kernel], whole_ns: i64) -> Table {
    let stages = KernelStages::of(analysis);
    let names = |kernel: &Kernel| {
        let positions = stages.positions(&kernel.name, |device| device == kernel.device);
        let names: Vec<&str> =
            positions.iter().filter_map(|at| Some(analysis.stages.get(*at)?.name.as_str())).collect();
        joined(&names)
    };
    Table::of(kernels)
        .text("kernel", |k: &Kernel| k.short_name.clone())
        .text("device", |k| or_none(k.device, |d| d.to_string()))
        .ms("total", |k| k.total_ns)
        .count("calls", |k| k.calls)
        .number("mean ms", |k| decimal(k.mean_ns as f64 / 1e6, 6))
        .number("share %", |k| percent(k.total_ns, whole_ns))
        .text("stage", names)
        .text("family", |k| k.family.to_string())
        .text("bound", |k| bound(k.counters.as_ref()))
        .number("mean µs", |k| us(k.mean_ns))
        .number("median µs", |k| or_none(k.median_ns, us))
        .number("min µs", |k| or_none(k.min_ns, us))
        .number("max µs", |k| or_none(k.max_ns, us))
        .number(roof::COLUMNS[0], roof::pct_of)
        .number(roof::COLUMNS[1], |k| roof::above(&k.roof))
        .build()
}

/// Tells whether kernels ran on more than one device, so that a row needs its device.
pub fn on_several_devices(analysis: &Analysis) -> bool {
    let mut devices = analysis.kernels.iter().filter_map(|kernel| kernel.device);
    let first = devices.next();
    devices.any(|device| Some(device) != first)
}

/// Returns the columns of a table of kernels in Markdown.
pub fn markdown_columns(kernels: &[Kernel]) -> Vec<&'static str> {
    roof::columns(&MARKDOWN, &roof::of_kernels(kernels))
}

const MARKDOWN: [&str; 9] =
    ["kernel", "device", "total ms", "calls", "mean ms", "share %", "stage", "family", "bound"];

/// The columns of the kernel table of the page; the device only where there are several.
pub const PAGE: [&str; 12] = [
    "kernel",
    "family",
    "stage",
    "device",
    "total ms",
    "share %",
    "calls",
    "mean µs",
    "median µs",
    "min µs",
    "max µs",
    "bound",
];

fn bound(row: Option<&CounterRow>) -> String {
    row.and_then(|row| row.bound.clone()).unwrap_or_else(|| NONE.into())
}

/// Sums the time of each kernel over all stages, or over the whole capture if it has no stages. Returns the kernels by time
/// and the total, ns.
pub fn by_time(analysis: &Analysis) -> (Vec<(&str, i64)>, i64) {
    let mut kernels: Vec<&Kernel> = analysis.stages.iter().flat_map(|s| &s.kernels).collect();
    if kernels.is_empty() {
        kernels.extend(&analysis.kernels);
    }
    let mut sums: Vec<(&str, i64)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for kernel in kernels {
        let at = *known.entry(&kernel.short_name).or_insert_with(|| {
            sums.push((&kernel.short_name, 0));
            sums.len() - 1
        });
        if let Some((_, ns)) = sums.get_mut(at) {
            *ns += kernel.total_ns;
        }
    }
    sums.sort_by_key(|(_, ns)| Reverse(*ns));
    let whole = sums.iter().map(|(_, ns)| ns).sum();
    (sums, whole)
}

/// States what the operators are, if they are not those of a framework, and that calls outside the stages count.
pub fn operator_scope(analysis: &Analysis) -> String {
    let what = analysis.reason(&About::Operators);
    let what = what.map_or_else(String::new, |what| format!("{what}; "));
    let scope = "all recorded calls count, also those outside the stages, such as warm-up";
    capitalized(&format!("{what}{scope}"))
}

/// Builds the table of the first operators.
pub fn operators(analysis: &Analysis, most: usize) -> Table {
    Table::of(&analysis.operators[..analysis.operators.len().min(most)])
        .text("operator", |o: &Operator| o.name.clone())
        .count("calls", |o| o.calls)
        .ms("self CPU", |o| o.self_cpu_ns)
        .ms("total CPU", |o| o.total_cpu_ns)
        .ms("self GPU", |o| o.self_gpu_ns)
        .ms("total GPU", |o| o.total_gpu_ns)
        .ms("mean CPU", |o| o.total_cpu_ns / (o.calls.max(1) as i64))
        .build()
}

/// Builds the table of the first counter rows. A report picks its columns.
pub fn counters(analysis: &Analysis, most: usize) -> Table {
    let dims = |d: [u32; 3]| format!("{}x{}x{}", d[0], d[1], d[2]);
    let short_names = ShortNames::of(analysis);
    Table::of(&analysis.counters[..analysis.counters.len().min(most)])
        .text("kernel", |r: &CounterRow| short_names.get(&r.kernel))
        .text("stage", |r| r.stage.clone().unwrap_or_else(|| NONE.into()))
        .text("grid", move |r| dims(r.grid))
        .text("block", move |r| dims(r.block))
        .number("µs", |r| or_none(r.duration_ns, us))
        .number("× timeline", |r| or_none(r.timeline_ratio, |r| format!("{r:.2}")))
        .decimal("SM %", |r| r.sm_pct)
        .decimal("memory %", |r| r.memory_pct)
        .decimal("DRAM %", |r| r.dram_pct)
        .decimal("L2 %", |r| r.l2_pct)
        .decimal("L1 %", |r| r.l1_pct)
        .decimal("occupancy %", |r| r.occupancy_pct)
        .decimal("FLOP/B", |r| r.intensity)
        .number("FLOP/s", |r| or_none(r.achieved_flops_per_s, si))
        .text("bound", |r| bound(Some(r)))
        .text("reason", |r| r.reason.clone())
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_name_are_added_up() {
        let kernel = |name: String, total_ns| Kernel { short_name: name, total_ns, ..Kernel::default() };
        // With so many names, a search through all of them for each would take minutes.
        let names = (0..300_000).map(|at| kernel(format!("kernel {at}"), 1));
        let mut analysis = Analysis::default();
        analysis.kernels.extend(names);
        analysis.kernels.push(kernel("kernel 7".to_owned(), 5));
        let (kernels, whole) = by_time(&analysis);
        assert_eq!((kernels.len(), whole), (300_000, 300_005));
        assert_eq!(kernels.first(), Some(&("kernel 7", 6)));
    }
}
