//! Cells and units of reports, over the numbers of `roofgap_analyze::numbers`.

pub use roofgap_analyze::numbers::{count, size, time, times};
pub use roofgap_analyze::numbers::{counted, decimal, significant};

/// Stands for a value that was not measured.
pub const NONE: &str = "–";

/// Formats a value, or a dash for one that was not measured.
pub fn or_none<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), format)
}

/// Formats nanoseconds as milliseconds with three decimals, for a column of `ms`.
pub fn ms(ns: i64) -> String {
    decimal(ns as f64 / 1e6, 3)
}

/// Formats nanoseconds as microseconds with two decimals, for a column of `µs`.
pub fn us(ns: i64) -> String {
    decimal(ns as f64 / 1e3, 2)
}

/// Formats a share of a total in percent with one decimal, or a dash for an empty total.
pub fn percent(part: i64, whole: i64) -> String {
    let share = (whole > 0).then(|| 100.0 * part as f64 / whole as f64);
    or_none(share, |pct| format!("{pct:.1}"))
}

/// Formats a percentage, with more decimals for a small one.
pub fn share(percent: f64) -> String {
    match percent.abs() {
        p if p >= 10.0 => format!("{percent:.1}"),
        p if p >= 0.1 => format!("{percent:.2}"),
        _ => format!("{percent:.4}"),
    }
}

/// Formats a count with its noun.
pub fn plural(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count(n)) }
}

/// Formats a large number with a decimal prefix, such as `4.81 T`.
pub fn si(value: f64) -> String {
    const PREFIXES: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match PREFIXES.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, prefix)) => format!("{:.2} {prefix}", value / size),
        None => format!("{value:.2} "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers() {
        assert_eq!(ms(7_039_815_000), "7,039.815");
        assert_eq!(us(1_234_567), "1,234.57");
        assert_eq!(
            (plural(1, "kernel"), plural(2_000, "kernel")),
            ("1 kernel".into(), "2,000 kernels".into())
        );
        assert_eq!(percent(1, 8), "12.5");
        assert_eq!(percent(1, 0), NONE);
        assert_eq!([47.604, 2.2, 0.00399].map(share), ["47.6", "2.20", "0.0040"]);
        assert_eq!(si(4.8143e12), "4.81 T");
        assert_eq!(si(12.0), "12.00 ");
    }
}
