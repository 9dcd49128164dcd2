//! The labels of the details page, and the metrics they stand for.
//!
//! A label means different metrics in different sections (`Memory Throughput` is a share of the peak in one and bytes per
//! second in another), so the section is part of the key. Labels that are not listed keep their name.

use rustc_hash::FxHashMap;
use std::sync::LazyLock;

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
pub fn metric(section: &str, label: &str) -> Option<&'static str> {
    let section = match section {
        // Before 2021.3 the section had the shorter name.
        "GPU Speed Of Light" => "GPU Speed Of Light Throughput",
        section => section,
    };
    METRICS.get(&(section, label)).copied()
}

/// Returns true if a label is the metric's own name, as for metrics requested with `--metrics`.
pub fn is_name(section: &str, label: &str) -> bool {
    section.is_empty() || section == "Command line profiler metrics" || label.contains("__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_means_what_its_section_says() {
        assert_eq!(
            metric("GPU Speed Of Light Throughput", "Memory Throughput"),
            Some("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")
        );
        assert_eq!(
            metric("Memory Workload Analysis", "Memory Throughput"),
            Some("dram__bytes.sum.per_second")
        );
        assert_eq!(metric("Some Section", "Memory Throughput"), None);
    }
}
