//! Launches that ncu measured without a timeline: the table by kernel, a verdict for each, and ncu's own rules.

use super::numbers::{NONE, count, counted, or_none, percent, time, us};
use super::roof;
use super::table::Table;
use roofgap_analyze::{Analysis, CounterRow, Kernel, KernelOrigin, NcuRule, ShortNames};

/// Tells whether the kernels of an analysis are launches that ncu measured.
pub fn alone(analysis: &Analysis) -> bool {
    analysis.totals.from == KernelOrigin::Counters
}

/// States the number of measured launches and kernels, and their time.
pub fn summary(analysis: &Analysis) -> String {
    let launches: u64 = analysis.counters.iter().map(|row| row.samples).sum();
    let launches = counted(launches, "launch").replace("launchs", "launches");
    if analysis.kernels.is_empty() {
        return format!("measured by ncu: {launches}, without their durations");
    }
    format!(
        "measured by ncu: {launches} of {}, {} in total under ncu",
        counted(analysis.kernels.len() as u64, "kernel"),
        time(analysis.totals.kernel_ns)
    )
}

/// Note on the percentages of [`table`].
pub const OF_LARGEST: &str =
    "Percentages of peak and bound are those of the launch shape with the most time of each kernel.";

/// Columns of the table of kernels.
const COLUMNS: [&str; 9] =
    ["kernel", "launches", "mean µs", "share %", "SM %", "memory %", "DRAM %", "occupancy %", "bound"];

/// Builds the table of the first kernels.
pub fn table(analysis: &Analysis, most: usize) -> Table {
    let whole = analysis.totals.kernel_ns;
    let counter = |get: fn(&CounterRow) -> Option<f64>| move |k: &Kernel| k.counters.as_ref().and_then(get);
    let shown = &analysis.kernels[..analysis.kernels.len().min(most)];
    let columns = roof::columns(&COLUMNS, &roof::of_kernels(shown));
    Table::of(shown)
        .text("kernel", |k: &Kernel| k.short_name.clone())
        .count("launches", |k| k.calls)
        .number("mean µs", |k| us(k.mean_ns))
        .number("share %", move |k| percent(k.total_ns, whole))
        .decimal("SM %", counter(|row| row.sm_pct))
        .decimal("memory %", counter(|row| row.memory_pct))
        .decimal("DRAM %", counter(|row| row.dram_pct))
        .decimal("occupancy %", counter(|row| row.occupancy_pct))
        .text("bound", |k| {
            let bound = k.counters.as_ref().and_then(|row| row.bound.clone());
            bound.unwrap_or_else(|| NONE.to_owned())
        })
        .number(roof::COLUMNS[0], roof::pct_of)
        .number(roof::COLUMNS[1], |k| roof::above(&k.roof))
        .build()
        .pick(&columns)
}

/// Lists the verdict of each of the first kernels, with its reason.
pub fn verdicts(analysis: &Analysis, most: usize) -> Vec<String> {
    let sentence = |kernel: &Kernel| {
        let row = kernel.counters.as_ref()?;
        let bound = row.bound.as_deref().unwrap_or("no verdict");
        Some(format!("{}: {bound}: {}", kernel.short_name, row.reason))
    };
    let shown = analysis.kernels.iter().take(most);
    shown.filter_map(sentence).collect()
}

/// Builds the table of the first results of ncu's own rules.
pub fn rules(analysis: &Analysis, most: usize) -> Table {
    let names = ShortNames::of(analysis);
    Table::of(&analysis.ncu_rules[..analysis.ncu_rules.len().min(most)])
        .text("kernel", |r: &NcuRule| names.get(&r.kernel))
        .count("launches", |r| r.launches)
        .text("rule", |r| r.rule.clone())
        .text("kind", |r| r.kind.clone())
        .text("estimated saving", |r| or_none(r.speedup_pct, |pct| saving(r, pct)))
        .text("text", |r| r.text.split_whitespace().collect::<Vec<_>>().join(" "))
        .build()
}

fn saving(rule: &NcuRule, pct: f64) -> String {
    let of = match rule.speedup_of.as_deref() {
        Some("kernel") => "of the kernel",
        _ => "of the part it is about",
    };
    format!("{pct:.1} % {of}")
}

/// States how many results of ncu's rules a report leaves out.
pub fn more_rules(analysis: &Analysis, shown: usize) -> Option<String> {
    let more = analysis.ncu_rules.len().saturating_sub(shown);
    (more > 0).then(|| format!("{} more are in metrics.json", count(more as u64)))
}
