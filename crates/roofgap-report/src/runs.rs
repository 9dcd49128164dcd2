//! What lists of runs are set with: columns, sizes and times for people.

use crate::number;
use crate::table::Table;

/// Columns for a terminal; a column whose name ends in `>` is set to the right.
pub fn columns<const N: usize>(names: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new(&names);
    for row in rows {
        table.row(row);
    }
    table.text()
}

/// Nanoseconds in the unit that suits them.
pub fn time(ns: i64) -> String {
    number::time(ns)
}

/// Bytes in the unit that suits them, in powers of 1000 as disks are sold and caps are written.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (2_000_000_000, "2.0 GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn columns_line_up_and_control_characters_go() {
        let text = columns(
            ["name", "n>"],
            [
                ["a\u{1b}[2J".to_owned(), "1".to_owned()],
                ["bcd".into(), "22".into()],
            ],
        );
        assert_eq!(text, "name     n\na [2J    1\nbcd     22\n");
    }
}
