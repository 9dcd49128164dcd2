//! The unit of a metric by its name: a report holds numbers and names, the unit is a convention of ncu.
//!
//! A hardware metric is `unit__counter.rollup[.submetric]`; the counter says what is counted, the submetric whether it
//! is a share, a rate or a count.

use super::unit::{Base, Scaled, Unit};
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// Returns the base unit of a metric, as ncu prints it; `None` if its name follows no known rule.
///
/// ```
/// use roofgap_trace::ncu::{unit_of, Unit};
/// assert_eq!(unit_of("dram__bytes.sum.per_second"), Some(Unit::BYTE_PER_SECOND));
/// assert_eq!(unit_of("gpu__time_duration.sum"), Some(Unit::NANOSECOND));
/// ```
pub fn unit_of(name: &str) -> Option<Unit> {
    if let Some(unit) = fixed(name) {
        return Some(unit);
    }
    let (counter, rollup) = match name.split_once('.') {
        Some((counter, rollup)) => (counter, rollup),
        None => return count(name),
    };
    if rollup.contains("pct") {
        return Some(Unit::PERCENT);
    }
    // ncu gives what it derives by itself the unit of its factor, never a rate.
    if counter.starts_with("derived__") {
        return match counter {
            "derived__lts__lts2xbar_bytes" => Some(Unit::BYTE),
            _ => Some(Unit::ONE),
        };
    }
    if matches!(rollup, "ratio" | "max_rate") {
        return ratio(counter);
    }
    let unit = count(counter)?;
    let rate = rollup.split_once('.').map_or("", |(_, rate)| rate);
    let per_second = rate.ends_with("per_second");
    let per_cycle = !per_second
        && (rate.starts_with("peak_sustained")
            || rate.starts_with("per_cycle")
            || rate.starts_with("max_rate"));
    Some(match unit.of {
        Base::One => Unit::ONE,
        // Warps are counted anew in every cycle, so their number a cycle is a number of warps.
        Base::Warp if per_cycle => unit,
        Base::Cycle if per_cycle => Unit::ONE,
        Base::Cycle if per_second => Unit::HERTZ,
        of if per_cycle => Unit::per(of, Base::Cycle),
        of if per_second => Unit::per(of, Base::Second),
        _ => unit,
    })
}

/// Units of metrics of the launch, the device and the profiler, which are no counters: a name, where `*` stands for any text, and a unit as
/// ncu prints it. The first line that matches counts; `-` stands for a counter after all.
const UNITS: &str = include_str!("units.tsv");

fn fixed(name: &str) -> Option<Unit> {
    let mut lines = UNITS.lines().filter_map(|line| line.split_once('\t'));
    let (_, unit) = lines.find(|(pattern, _)| matches(pattern, name))?;
    Scaled::parse(unit).map(|unit| unit.unit)
}

/// Tells whether a name is a pattern with any text for each `*`.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((beginning, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(beginning) else { return false };
    name.char_indices().any(|(at, _)| matches(rest, &name[at..])) || matches(rest, "")
}

/// Returns the unit of a counter by the first of its words that implies one.
fn count(counter: &str) -> Option<Unit> {
    let (group, event) = counter.rsplit_once("__")?;
    let of = |base| Some(Unit::of(base));
    if event.starts_with("time_") || event.ends_with("_duration") {
        return of(Base::Nanosecond);
    }
    if event.starts_with("ops_path_") || event.ends_with("throughput") || event.contains("throughput_") {
        return Some(Unit::ONE);
    }
    for word in event.split('_') {
        match word {
            "bytes" => return of(Base::Byte),
            "cycles" => return of(Base::Cycle),
            "sectors" | "sector" => return of(Base::Sector),
            "requests" => return of(Base::Request),
            "warps" => return of(Base::Warp),
            "ctas" => return of(Base::Block),
            "threads" => return of(Base::Thread),
            "inst" => return of(Base::Instruction),
            "active" if group.ends_with("l1tex") || group.ends_with("sm") || group.ends_with("smsp") => {
                return of(Base::Cycle);
            }
            "wavefronts" | "tags" | "ops" => return Some(Unit::ONE),
            _ => {}
        }
    }
    None
}

fn ratio(counter: &str) -> Option<Unit> {
    let per = |of, per| Some(Unit::per(of, per));
    if counter.contains("thread_inst_executed") && counter.contains("per_inst_executed") {
        return Some(Unit::ONE);
    }
    if counter.contains("sectors_per_request")
        || counter.contains("average_t_sector") && counter.contains("per_request")
    {
        return per(Base::Sector, Base::Request);
    }
    if counter.contains("compression_achieved_rate") {
        return Some(Unit::ONE);
    }
    None
}

/// Metrics by section and label.
static METRICS: LazyLock<FxHashMap<(&str, &str), &str>> = LazyLock::new(|| {
    let mut section = "";
    let mut metrics = FxHashMap::default();
    for line in include_str!("labels.tsv").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if let Some((label, metric)) = line.split_once('\t') {
            metrics.insert((section, label), metric);
        }
    }
    metrics
});

/// Returns the metric of a label.
pub fn metric_of_label(section: &str, label: &str) -> Option<&'static str> {
    let section = match section {
        // Before 2021.3 the section had the shorter name.
        "GPU Speed Of Light" => "GPU Speed Of Light Throughput",
        section => section,
    };
    METRICS.get(&(section, label)).copied()
}

/// Returns true if a label is the name of the metric, as for metrics requested with `--metrics`.
pub fn is_name(section: &str, label: &str) -> bool {
    section.is_empty() || section == "Command line profiler metrics" || label.contains("__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_means_what_its_section_says() {
        assert_eq!(
            metric_of_label("GPU Speed Of Light Throughput", "Memory Throughput"),
            Some("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")
        );
        assert_eq!(
            metric_of_label("Memory Workload Analysis", "Memory Throughput"),
            Some("dram__bytes.sum.per_second")
        );
        assert_eq!(metric_of_label("Some Section", "Memory Throughput"), None);
    }
}
