//! Times and sizes as users write them: `5m`, `1h30m`, `2GB`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use roofgap_base::error::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time: seconds, or text such as `90s`, `5m`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span(pub Duration);

/// A size: bytes, or text such as `2GB`, `512MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

fn expected(expected: &str, found: &str) -> Error {
    Error::new(format!("expected {expected}, found {found:?}"))
}

/// Longest time: ten years. No sum of a few of them with a clock overflows.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

const TIME: &str = "a time of at most ten years, such as 90, 90s, 5m or 1h30m";
const SIZE: &str = "a size such as 1000000, 500MB or 2GiB";

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let duration = match text.trim().parse::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Err(_) => {
                text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok())
            }
        };
        duration.filter(|duration| *duration <= LONGEST).map(Span).ok_or_else(|| expected(TIME, text))
    }
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

impl FromStr for Size {
    type Err = Error;

    // By hand: `bytesize` neither refuses values above 2^53 nor is a dependency already.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || expected(SIZE, text);
        let text_trimmed = text.trim();
        let digits =
            text_trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text_trimmed.len());
        let (number, unit) = text_trimmed.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "t" | "tb" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(wrong()),
        };
        let bytes = number * factor;
        // The largest integer that a float represents exactly.
        if bytes <= 9_007_199_254_740_992.0 { Ok(Size(bytes as u64)) } else { Err(wrong()) }
    }
}

/// Visitor of a number or text.
struct Amount<T>(std::marker::PhantomData<T>, &'static str);

impl<T: FromStr<Err = Error>> de::Visitor<'_> for Amount<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        value.to_string().parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        value.to_string().parse().map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<T, E> {
        value.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Amount(std::marker::PhantomData, TIME))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Amount(std::marker::PhantomData, SIZE))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
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
