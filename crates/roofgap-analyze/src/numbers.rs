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
}
