//! Numbers for people.

pub(crate) use roofgap_analyze::findings::count;

/// Nanoseconds as milliseconds with three decimals.
pub(crate) fn ms(ns: i64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// The same, or a dash for what was not measured.
pub(crate) fn ms_or(ns: Option<i64>) -> String {
    ns.map_or_else(|| NONE.to_owned(), ms)
}

/// What stands for "not measured".
pub(crate) const NONE: &str = "–";

/// Nanoseconds in the unit that suits them.
pub(crate) fn time(ns: i64) -> String {
    let value = ns as f64;
    match ns.unsigned_abs() {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..10_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// A share of a whole in percent, one decimal; a dash where there is no whole.
pub(crate) fn percent(part: i64, whole: i64) -> String {
    if whole <= 0 {
        NONE.to_owned()
    } else {
        format!("{:.1}", 100.0 * part as f64 / whole as f64)
    }
}

/// A percentage, with more decimals where it is small.
pub(crate) fn share(percent: f64) -> String {
    match percent.abs() {
        p if p >= 10.0 => format!("{percent:.1}"),
        p if p >= 0.1 => format!("{percent:.2}"),
        _ => format!("{percent:.4}"),
    }
}

/// A count with what is counted.
pub(crate) fn plural(n: u64, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{} {what}s", count(n))
    }
}

/// A large number with a decimal prefix, such as `4.81 T`.
pub(crate) fn si(value: f64) -> String {
    const PREFIXES: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match PREFIXES.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, prefix)) => format!("{:.2} {prefix}", value / size),
        None => format!("{value:.2} "),
    }
}

/// A key of evidence as words, without the unit its value is shown with.
pub(crate) fn words(key: &str) -> String {
    let bare = ["_ns", "_pct"].iter().find_map(|unit| key.strip_suffix(unit));
    bare.unwrap_or(key).replace('_', " ")
}

/// A number of evidence in the unit its key names.
pub(crate) fn quantity(key: &str, number: &serde_json::Number) -> String {
    let real = number.as_f64().unwrap_or(0.0);
    if key.ends_with("_ns") {
        time(real.round() as i64)
    } else if key.ends_with("_pct") {
        format!("{real:.1} %")
    } else if key.ends_with("bytes") {
        format!("{}B", si(real))
    } else if let Some(whole) = number.as_u64() {
        count(whole)
    } else {
        format!("{real:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(ms(17_863_193), "17.863");
        assert_eq!(
            (plural(1, "kernel"), plural(2_000, "kernel")),
            ("1 kernel".into(), "2,000 kernels".into())
        );
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_500), "1.5 µs");
        assert_eq!(time(239_255_440), "239.3 ms");
        assert_eq!(time(61_000_000_000), "61.00 s");
        assert_eq!(percent(1, 8), "12.5");
        assert_eq!(percent(1, 0), NONE);
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123), "123");
        assert_eq!([47.604, 2.2, 0.00399].map(share), ["47.6", "2.20", "0.0040"]);
        assert_eq!(si(4.8143e12), "4.81 T");
        assert_eq!(si(12.0), "12.00 ");
    }
}
