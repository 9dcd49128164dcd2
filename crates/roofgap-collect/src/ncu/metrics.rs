//! Metrics that exist for a chip.

use std::collections::BTreeSet;

/// Splits metrics into those the chip supports and the rest. One unknown name makes ncu measure nothing.
pub fn split_supported(wanted: Vec<String>, known: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    wanted.into_iter().partition(|metric| {
        // ncu expands `regex:`, `group:` and `breakdown:` to existing metrics.
        metric.contains(':') || metric.split('.').next().is_some_and(|base| known.contains(base))
    })
}

/// Returns the chip of a compute capability, as in `ncu --query-metrics --chips`.
pub fn chip_name(major: u32, minor: u32) -> Option<&'static str> {
    Some(match (major, minor) {
        (7, 0) => "gv100",
        (7, 5) => "tu102",
        (8, 0) => "ga100",
        (8, 6) => "ga102",
        (8, 7) => "ga10b",
        (8, 9) => "ad102",
        (9, 0) => "gh100",
        (10, 0) => "gb100",
        (10, 3) => "gb110",
        (12, 0) => "gb202",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_metrics_are_split_off() {
        let known = BTreeSet::from(["gpu__time_duration".to_owned(), "sm__throughput".to_owned()]);
        let wanted =
            ["gpu__time_duration.sum", "flop_count_hp", "breakdown:sm__throughput"].map(str::to_owned);
        let (have, lack) = split_supported(wanted.to_vec(), &known);
        assert_eq!(have, ["gpu__time_duration.sum", "breakdown:sm__throughput"]);
        assert_eq!(lack, ["flop_count_hp"]);
    }
}
