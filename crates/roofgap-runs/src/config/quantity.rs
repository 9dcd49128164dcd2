//! Times, sizes and numbers of parameters as users write them: `5m`, `1h30m`, `2GB`, `3B`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use roofgap_base::error::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

/// A time: seconds, or text such as `90s`, `5m`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span(pub Duration);

/// A size: bytes, or text such as `2GB`, `512MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Size(pub u64);

/// A number of parameters: a number, or text such as `3B` and `570M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Parameters(pub u64);

/// Longest time: ten years. No sum of a few of them with a clock overflows.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

const TIME: &str = "a time of at most ten years, such as 90, 90s, 5m or 1h30m";
const SIZE: &str = "a size such as 1000000, 500MB or 2GiB";
const PARAMETERS: &str = "a number of parameters, such as 3000000000 or 3B";

/// Reads a number with a decimal or binary prefix in any case. `None` for an unknown one, and for a number below 0 or beyond the integers
/// that a float represents exactly.
fn scaled(text: &str, unit: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, prefix) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let factor = match prefix.strip_suffix(unit).unwrap_or(prefix) {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" | "b" => 1e9,
        "t" => 1e12,
        "ki" => 1024.0,
        "mi" => 1024_f64.powi(2),
        "gi" => 1024_f64.powi(3),
        "ti" => 1024_f64.powi(4),
        _ => return None,
    };
    let value = number.trim().parse::<f64>().ok()? * factor;
    (0.0..=9_007_199_254_740_992.0).contains(&value).then(|| value.round() as u64)
}

/// Lets users write a quantity as text, and in a configuration as a number, too.
macro_rules! quantities {
    ($($name:ident, $expected:ident, $read:expr;)*) => {$(
        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let read: fn(&str) -> Option<_> = $read;
                let wrong = || Error::new(format!("expected {}, found {text:?}", $expected));
                read(text).map(Self).ok_or_else(wrong)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text: String = text_of(Value::deserialize(deserializer)?, $expected)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

quantities! {
    Span, TIME, |text| {
        let duration = match text.trim().parse::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Err(_) => text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok()),
        };
        duration.filter(|duration| *duration <= LONGEST)
    };
    Size, SIZE, |text| scaled(text, "b");
    Parameters, PARAMETERS, |text| scaled(text, "").filter(|count| *count > 0);
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds >= 60.0 && seconds % 60.0 == 0.0 {
            write!(f, "{}m", seconds / 60.0)
        } else {
            write!(f, "{seconds}s")
        }
    }
}

/// Returns text, a number or a boolean as text.
pub fn text_of<E: de::Error>(value: Value, expected: &str) -> Result<String, E> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        other => Err(E::custom(format_args!("expected {expected}, found {other}"))),
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        for (text, seconds) in
            [("90", 90.0), ("90s", 90.0), ("5m", 300.0), ("1h30m", 5400.0), ("0.5", 0.5), ("250ms", 0.25)]
        {
            assert_eq!(text.parse::<Span>().unwrap().0.as_secs_f64(), seconds, "{text}");
        }
        for text in ["", "m", "5x", "-1", "1e400", "1e19", "100000000h", "5 parsecs", "1.2.3"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert_eq!("90s".parse::<Span>().unwrap().to_string(), "90s");
        assert_eq!("300".parse::<Span>().unwrap().to_string(), "5m");
    }

    #[test]
    fn reads_sizes() {
        for (text, bytes) in [("0", 0), ("2GB", 2_000_000_000), ("1.5 MiB", 1_572_864), ("10k", 10_000)] {
            assert_eq!(text.parse::<Size>().unwrap().0, bytes, "{text}");
        }
        for text in ["", "GB", "1XB", "-1", "99999999TB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
