//! The ranges of a capture in which no stage was found.

use super::table::{Table, cut};
use roofgap_analyze::{Analysis, RangeInfo};
use std::collections::HashMap;

/// So many names that differ only in numbers are one row.
const LEAST_NUMBERED: usize = 3;

/// Most characters of a name.
const NAME: usize = 100;

/// Lists the ranges, longest first. Names that differ only in numbers are one row, as the pattern that matches all of them.
pub fn rows(analysis: &Analysis) -> Vec<RangeInfo> {
    let mut of_pattern: HashMap<(&str, &str, String), Vec<&RangeInfo>> = HashMap::new();
    for range in &analysis.ranges {
        let key = (range.domain.as_str(), range.style.as_str(), pattern(&range.name));
        of_pattern.entry(key).or_default().push(range);
    }
    let mut rows: Vec<RangeInfo> = Vec::new();
    for ((_, _, name), ranges) in of_pattern {
        match ranges.as_slice() {
            [first, rest @ ..] if ranges.len() >= LEAST_NUMBERED => {
                let mut sum = RangeInfo { name, ..(*first).clone() };
                for range in rest {
                    sum.instances += range.instances;
                    sum.wall_ns += range.wall_ns;
                    sum.kernel_count += range.kernel_count;
                }
                rows.push(sum);
            }
            few => rows.extend(few.iter().map(|range| (*range).clone())),
        }
    }
    rows.sort_by(|a, b| {
        b.wall_ns
            .cmp(&a.wall_ns)
            .then_with(|| (&a.domain, &a.name, &a.style).cmp(&(&b.domain, &b.name, &b.style)))
    });
    rows
}

/// Builds the table of the first rows.
pub fn table(rows: &[RangeInfo], most: usize) -> Table {
    Table::of(&rows[..rows.len().min(most)])
        .text("domain", |r: &RangeInfo| r.domain.clone())
        .text("range", |r| cut(&r.name, NAME))
        .count("count", |r| r.instances)
        .ms("wall", |r| r.wall_ns)
        .count("kernels", |r| r.kernel_count)
        .build()
}

/// Replaces numbers in a name by `*`.
fn pattern(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if pattern.ends_with('*') => {}
            '0'..='9' => pattern.push('*'),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysis(names: &[(&str, i64)]) -> Analysis {
        let range = |(name, wall_ns): &(&str, i64)| RangeInfo {
            name: (*name).to_owned(),
            style: "push_pop".into(),
            instances: 2,
            wall_ns: *wall_ns,
            kernel_count: 5,
            ..RangeInfo::default()
        };
        let mut analysis = Analysis::default();
        analysis.ranges = names.iter().map(range).collect();
        analysis
    }

    #[test]
    fn names_that_differ_in_numbers_are_one_row() {
        let analysis = analysis(&[
            ("forward", 50),
            ("layer_10_forward", 30),
            ("layer_2_forward", 20),
            ("layer_1_forward", 10),
            ("batch 1", 3),
            ("batch 2", 2),
        ]);
        let rows = rows(&analysis);
        let seen: Vec<(&str, u64, i64, u64)> =
            rows.iter().map(|r| (r.name.as_str(), r.instances, r.wall_ns, r.kernel_count)).collect();
        assert_eq!(
            seen,
            [
                ("layer_*_forward", 6, 60, 15),
                ("forward", 2, 50, 5),
                ("batch 1", 2, 3, 5),
                ("batch 2", 2, 2, 5),
            ]
        );
    }

    #[test]
    fn ranges_of_another_style_are_rows_of_their_own() {
        let mut analysis = analysis(&[("batch 1", 4), ("batch 2", 3), ("batch 3", 2), ("batch 4", 1)]);
        analysis.ranges[3].style = "start_end".into();
        let rows = rows(&analysis);
        let seen: Vec<(&str, i64)> = rows.iter().map(|r| (r.name.as_str(), r.wall_ns)).collect();
        assert_eq!(seen, [("batch *", 9), ("batch 4", 1)]);
    }

    #[test]
    fn a_long_name_is_cut() {
        let long = "x".repeat(5000);
        let analysis = analysis(&[(&long, 1)]);
        assert!(table(&rows(&analysis), 20).markdown().len() < 1000);
    }
}
