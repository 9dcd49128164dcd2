//! Numbers from their decimal text, exactly: times go beyond what a floating-point number holds to the nanosecond.

use crate::Ns;

/// Times beyond this (146 years) are no times; below it the sum of two cannot overflow.
pub const MAX_NS: Ns = Ns::MAX / 2;

/// Microseconds with any number of decimals as nanoseconds, rounded half away from zero beyond the third decimal.
#[inline]
pub fn micros_to_ns(text: &[u8]) -> Option<Ns> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let ns = match digits {
        // Nearly all are written with three decimals.
        [whole @ .., b'.', a, b, c] if (1..=15).contains(&whole.len()) => {
            let tail = [*a, *b, *c];
            match (small(whole), small(&tail)) {
                (Some(whole), Some(tail)) => (whole * 1000 + tail) as i128,
                _ => scaled(digits, 3)?,
            }
        }
        _ => scaled(digits, 3)?,
    };
    let ns = Ns::try_from(if negative { -ns } else { ns }).ok()?;
    (-MAX_NS..=MAX_NS).contains(&ns).then_some(ns)
}

/// Parses at most 15 digits and nothing else.
#[inline(always)]
fn small(digits: &[u8]) -> Option<u64> {
    let mut value = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Removes the commas between thousands. Groups must have three digits, so that a decimal comma is not misread.
pub fn ungrouped(text: &str) -> String {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut groups = whole.split(',');
    let leading = groups.next().map_or(0, str::len);
    match (1..=3).contains(&leading) && groups.all(|group| group.len() == 3) && !fraction.contains(',') {
        true => text.replace(',', ""),
        false => text.to_owned(),
    }
}

/// Parses an unsigned number in any decimal notation, multiplied by a power of ten and rounded half up.
pub fn scaled(text: &[u8], power: i32) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Digits beyond these are below a nanosecond for any time.
    let fraction = fraction.get(..fraction.len().min(18))?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let shift = exponent.checked_add(power)?.checked_sub(fraction.len() as i32)?;
    if digits == 0 {
        return Some(0);
    }
    let scale = 10i128.checked_pow(shift.unsigned_abs());
    match (shift >= 0, scale) {
        (true, scale) => digits.checked_mul(scale?),
        (false, Some(scale)) => Some(digits / scale + i128::from(digits % scale >= scale - scale / 2)),
        (false, None) => Some(0),
    }
}

/// Parses an unsigned integer.
#[inline]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    match text.len() {
        1..=15 => small(text),
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// Parses an unsigned integer, possibly after words, as in `stream 7`.
#[inline]
pub fn trailing(text: &[u8]) -> Option<u32> {
    let value = unsigned(text).or_else(|| {
        let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let start = text.len() - digits;
        let before = start.checked_sub(1).and_then(|i| text.get(i));
        text.get(start..).filter(|_| before != Some(&b'-')).and_then(unsigned)
    })?;
    u32::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_notation_is_exact() {
        let cases: [(&str, Option<Ns>); 20] = [
            ("3846679752709.379", Some(3_846_679_752_709_379)),
            ("1790857026000000.001", Some(1_790_857_026_000_000_001)),
            ("0.864", Some(864)),
            ("12", Some(12_000)),
            ("12.5", Some(12_500)),
            ("-1.250", Some(-1_250)),
            ("1.2345", Some(1_235)),
            ("1.2344999", Some(1_234)),
            ("1.5e3", Some(1_500_000)),
            ("15E-1", Some(1_500)),
            ("1e-400", Some(0)),
            ("0", Some(0)),
            ("", None),
            (".5", None),
            ("abc", None),
            ("1.2.3", None),
            ("1e40", None),
            ("99999999999999999999999", None),
            ("170141183460469231731687303715884105727e-1", None),
            ("170141183460469231731687303715884105727e-27", Some(170_141_183_460_469)),
        ];
        for (text, ns) in cases {
            assert_eq!(micros_to_ns(text.as_bytes()), ns, "{text}");
        }
    }

    #[test]
    fn numbers_after_words() {
        assert_eq!(trailing(b"7"), Some(7));
        assert_eq!(trailing(b"stream 17"), Some(17));
        assert_eq!(trailing(b"-1"), None);
        assert_eq!(trailing(b"stream"), None);
        assert_eq!(trailing(b"4294967296"), None);
    }

    proptest! {
        #[test]
        fn three_decimals_come_back(ns in 0..MAX_NS) {
            let text = format!("{}.{:03}", ns / 1000, ns % 1000);
            prop_assert_eq!(micros_to_ns(text.as_bytes()), Some(ns));
        }

        #[test]
        fn any_text_is_answered(text in "-?[0-9.]{0,45}(e-?[0-9]{1,3})?") {
            let _ = micros_to_ns(text.as_bytes());
            let _ = unsigned(text.as_bytes());
        }
    }
}
