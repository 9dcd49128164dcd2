//! The unit of a column of times, and the times in it.

use crate::decimal::{MAX_NS, scaled};

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

impl TimeUnit {
    /// By the abbreviation in a column's header.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ns" | "nsec" => Self::Nanoseconds,
            "us" | "usec" | "\u{3bc}s" | "\u{b5}s" => Self::Microseconds,
            "ms" | "msec" => Self::Milliseconds,
            "s" | "sec" => Self::Seconds,
            _ => return None,
        })
    }

    /// The power of ten that makes nanoseconds of it.
    fn power(self) -> i32 {
        match self {
            Self::Nanoseconds => 0,
            Self::Microseconds => 3,
            Self::Milliseconds => 6,
            Self::Seconds => 9,
        }
    }

    /// A time in nanoseconds.
    pub(super) fn ns(self, text: &str) -> Option<i64> {
        let ns = i64::try_from(scaled(number(text).as_bytes(), self.power())?).ok()?;
        (ns <= MAX_NS).then_some(ns)
    }

    /// A time in nanoseconds with one decimal.
    pub(super) fn tenths(self, text: &str) -> Option<f64> {
        let tenths = scaled(number(text).as_bytes(), self.power() + 1)?;
        (tenths <= i128::from(MAX_NS)).then_some(tenths as f64 / 10.0)
    }

    /// Returns true if a time is written with fewer digits than nanoseconds.
    pub(super) fn is_rounded(self, text: &str) -> bool {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        !text.contains(['e', 'E']) && (decimals as i32) < self.power()
    }
}

/// A number without the commas between its thousands.
pub(super) fn number(text: &str) -> String {
    let text = text.trim();
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let mut groups = whole.split(',');
    let leading = groups.next().map_or(0, str::len);
    match (1..=3).contains(&leading) && groups.all(|group| group.len() == 3) {
        true => text.replace(',', ""),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_exact() {
        assert_eq!(TimeUnit::Nanoseconds.ns("1373559"), Some(1_373_559));
        assert_eq!(TimeUnit::Nanoseconds.ns("1,373,559"), Some(1_373_559));
        assert_eq!(TimeUnit::Microseconds.ns("1373.559"), Some(1_373_559));
        assert_eq!(TimeUnit::Milliseconds.ns("1,373.5590"), Some(1_373_559_000));
        assert_eq!(
            TimeUnit::Seconds.ns("9007199.254740993"),
            Some(9_007_199_254_740_993)
        );
        assert_eq!(TimeUnit::Seconds.ns("1e-9"), Some(1));
        assert_eq!(TimeUnit::Microseconds.tenths("10.6885"), Some(10_688.5));
        for text in ["", "x", "-1", "1,37", "1,3733,559", "1e30", "n/a"] {
            assert_eq!(TimeUnit::Nanoseconds.ns(text), None, "{text}");
        }
    }

    #[test]
    fn missing_digits_are_noticed() {
        assert!(TimeUnit::Seconds.is_rounded("0.0014"));
        assert!(TimeUnit::Milliseconds.is_rounded("1.3736"));
        assert!(!TimeUnit::Microseconds.is_rounded("1373.559"));
        assert!(!TimeUnit::Nanoseconds.is_rounded("1373559"));
    }
}
