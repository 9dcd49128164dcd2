//! Numbers formatted for people: three significant digits in sentences, fixed decimals in tables, commas between thousands.

/// Formats nanoseconds in a fitting unit with three significant digits: `999 ns`, `2.48 µs`, `38.9 ms`, `7.04 s`.
pub fn time(ns: i64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e3, "µs"), (1e6, "ms"), (1e9, "s")];
    if ns.unsigned_abs() < 1_000 {
        return format!("{ns} ns");
    }
    // Decided after rounding, so that 999.9 µs are 1.00 ms.
    let fits = |(unit, _): &&(f64, &str)| (ns as f64 / unit).abs() < 999.5;
    let (unit, name) = UNITS.iter().find(fits).unwrap_or(&UNITS[2]);
    format!("{} {name}", significant(ns as f64 / unit))
}

/// The most decimals of a small number.
const DECIMALS: i32 = 8;

/// Formats a number with three significant digits and at most eight decimals, or as a whole number from 100 on.
pub fn significant(value: f64) -> String {
    // The exponent after rounding, so that 9.996 is 10.0.
    let rounded = format!("{value:.2e}");
    let exponent = rounded.split_once('e').and_then(|(_, e)| e.parse::<i32>().ok());
    decimal(value, (2 - exponent.unwrap_or(0)).clamp(0, DECIMALS) as usize)
}

/// Formats a number with a fixed number of decimals and commas between thousands.
pub fn decimal(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let digits = text.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
    let end = text.find('.').unwrap_or(text.len());
    match (text.get(..digits), text.get(digits..end), text.get(end..)) {
        (Some(sign), Some(whole), Some(rest)) => format!("{sign}{}{rest}", grouped(whole)),
        _ => text,
    }
}

/// Formats a count with commas between thousands.
pub fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// Formats a number of things, with the noun in the plural where there is not one.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(n))
}

/// Formats the numbers of things that are there, each with its noun in the singular and in the plural: `1 copy and 3 memory sets`.
pub fn all_counted<const N: usize>(things: [(u64, &str, &str); N]) -> String {
    let there = things.into_iter().filter(|(n, ..)| *n > 0);
    let texts = there.map(|(n, one, many)| format!("{} {}", count(n), if n == 1 { one } else { many }));
    texts.collect::<Vec<_>>().join(" and ")
}

/// Formats a number of times.
pub fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", self::count(count)) }
}

/// Formats bytes in a fitting unit, in powers of 1000 as disks and size limits are stated.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", decimal(bytes as f64 / *unit as f64, 1)),
        None => format!("{bytes} B"),
    }
}

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

/// Formats a percentage with one decimal and its sign, for a sentence.
pub fn pct(percent: f64) -> String {
    format!("{percent:.1} %")
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

/// Formats a large number with a decimal prefix, such as `4.81 T`.
pub fn si(value: f64) -> String {
    const PREFIXES: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match PREFIXES.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, prefix)) => format!("{:.2} {prefix}", value / size),
        None => format!("{value:.2} "),
    }
}

/// Puts commas between the thousands of a row of digits.
fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_significant_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.50 µs"),
            (999_400, "999 µs"),
            (999_600, "1.00 ms"),
            (38_912_345, "38.9 ms"),
            (239_255_440, "239 ms"),
            (7_039_815_000, "7.04 s"),
            (61_000_000_000, "61.0 s"),
            (4_321_000_000_000, "4,321 s"),
            (-1_500, "-1.50 µs"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!([count(7), count(1_234_567)], ["7", "1,234,567"]);
        assert_eq!([times(1), times(7_656)], ["once", "7,656 times"]);
        let blocks = [0, 1, 1_056].map(|n| counted(n, "block"));
        assert_eq!(blocks, ["0 blocks", "1 block", "1,056 blocks"]);
        let decimals = [7_039.815, 999.9995, -1_234.5, 0.0].map(|value| decimal(value, 3));
        assert_eq!(decimals, ["7,039.815", "1,000.000", "-1,234.500", "0.000"]);
        assert_eq!([decimal(f64::NAN, 1), decimal(f64::INFINITY, 1)], ["NaN", "inf"]);
        let digits = [9.996, 17.04, 99.96, 1_234.0, f64::NAN].map(significant);
        assert_eq!(digits, ["10.0", "17.0", "100", "1,234", "NaN"]);
        let small = [0.0, 1e-9, 0.004, -0.0996, 0.099_96, 0.5].map(significant);
        assert_eq!(small, ["0.00", "0.00000000", "0.00400", "-0.0996", "0.100", "0.500"]);
    }

    #[test]
    fn sizes() {
        let sizes = [0, 999, 1_000, 2_000_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "2.0 GB"]);
    }

    #[test]
    fn cells() {
        assert_eq!([ms(7_039_815_000), us(1_234_567)], ["7,039.815", "1,234.57"]);
        assert_eq!([percent(1, 8), percent(1, 0), pct(12.34)], ["12.5", NONE, "12.3 %"]);
        assert_eq!([47.604, 2.2, 0.00399].map(share), ["47.6", "2.20", "0.0040"]);
        assert_eq!([si(4.8143e12), si(12.0)], ["4.81 T", "12.00 "]);
    }
}
