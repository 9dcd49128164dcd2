//! Units as ncu prints them, and quantities in base units.
//!
//! ncu's prefixes are decimal: the same report says 32768 `byte` with base units and 32.768 `Kbyte` with automatic ones.
//! Base units are byte, nanosecond, hertz and `/s`; everything else has no prefix to lose.

use std::fmt;

/// One side of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Base {
    /// A plain number.
    One,
    /// Bytes.
    Byte,
    /// A length of time; always nanoseconds.
    Nanosecond,
    /// Denominator of a rate.
    Second,
    /// Cycles in a second.
    Hertz,
    /// 0 to 100.
    Percent,
    /// Instructions.
    Instruction,
    /// Clock cycles.
    Cycle,
    /// Registers.
    Register,
    /// Threads.
    Thread,
    /// Warps.
    Warp,
    /// Thread blocks.
    Block,
    /// Clusters of blocks.
    Cluster,
    /// Streaming multiprocessors.
    Sm,
    /// Sectors of a cache line.
    Sector,
    /// Memory requests.
    Request,
    /// Replay passes.
    Pass,
    /// Operations of an arithmetic unit.
    Operation,
    /// Samples of the program counter.
    Sample,
    /// The tool stated no unit that is understood: the number must not be used as anything but itself.
    Unstated,
}

/// A unit: one base over another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Numerator.
    pub of: Base,
    /// Denominator; [`Base::One`] for none.
    pub per: Base,
}

impl Unit {
    /// A plain number.
    pub const ONE: Self = Self::of(Base::One);
    /// Bytes.
    pub const BYTE: Self = Self::of(Base::Byte);
    /// Bytes a second.
    pub const BYTE_PER_SECOND: Self = Self::per(Base::Byte, Base::Second);
    /// Nanoseconds.
    pub const NANOSECOND: Self = Self::of(Base::Nanosecond);
    /// Percent.
    pub const PERCENT: Self = Self::of(Base::Percent);
    /// Instructions.
    pub const INSTRUCTION: Self = Self::of(Base::Instruction);
    /// Hertz.
    pub const HERTZ: Self = Self::of(Base::Hertz);
    /// Cycles.
    pub const CYCLE: Self = Self::of(Base::Cycle);
    /// Not stated, or not understood.
    pub const UNSTATED: Self = Self::of(Base::Unstated);

    /// Creates a unit without a denominator.
    #[must_use]
    pub const fn of(of: Base) -> Self {
        Self { of, per: Base::One }
    }

    /// Creates a unit with a denominator.
    #[must_use]
    pub const fn per(of: Base, per: Base) -> Self {
        Self { of, per }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.of.symbol())?;
        if self.per == Base::One { Ok(()) } else { write!(f, "/{}", self.per.symbol()) }
    }
}

impl Base {
    /// Returns ncu's word for the base unit.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Byte => "byte",
            Self::Nanosecond => "ns",
            Self::Second => "s",
            Self::Hertz => "hz",
            Self::Percent => "%",
            Self::Instruction => "inst",
            Self::Cycle => "cycle",
            Self::Register => "register",
            Self::Thread => "thread",
            Self::Warp => "warp",
            Self::Block => "block",
            Self::Cluster => "cluster",
            Self::Sm => "SM",
            Self::Sector => "sector",
            Self::Request => "request",
            Self::Pass => "pass",
            Self::Operation => "op",
            Self::Sample => "sample",
            Self::Unstated => "?",
        }
    }
}

/// A number in the base unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// Unit.
    pub unit: Unit,
}

/// A unit as printed: the base unit, and the power of ten that brings a value to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The base unit.
    pub unit: Unit,
    /// `value * 10^exponent` is in the base unit.
    pub exponent: i8,
}

impl Scaled {
    /// Reads a unit cell; `None` where it is not understood.
    ///
    /// ```
    /// use roofgap_trace::ncu::unit::{Scaled, Unit};
    /// let kb = Scaled::parse("Kbyte").unwrap();
    /// assert_eq!(kb.unit, Unit::BYTE);
    /// assert_eq!(kb.apply(32.768), 32768.0);
    /// assert!(Scaled::parse("furlong").is_none());
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (top, bottom) = match text.split_once('/') {
            Some((top, bottom)) => (top.trim(), Some(bottom.trim())),
            None => (text, None),
        };
        let (of, top_exponent) = word(top)?;
        let Some(bottom) = bottom else {
            return Some(match of {
                Base::Second => Self { unit: Unit::NANOSECOND, exponent: top_exponent.checked_add(9)? },
                of => Self { unit: Unit::of(of), exponent: top_exponent },
            });
        };
        let (per, bottom_exponent) = word(bottom)?;
        let exponent = match per {
            Base::Second => top_exponent.checked_sub(bottom_exponent)?,
            // ncu scales the number, not the denominator: 2614 `%/byte` is printed as 2.614 `%/Kbyte`.
            _ => top_exponent.checked_add(bottom_exponent)?,
        };
        let (unit, exponent) = match (of, per) {
            (Base::Cycle, Base::Second) => (Unit::HERTZ, exponent),
            (Base::Second, Base::Second) => (Unit::ONE, exponent),
            (Base::Second, per) => (Unit::per(Base::Nanosecond, per), exponent.checked_add(9)?),
            (of, per) => (Unit::per(of, per), exponent),
        };
        Some(Self { unit, exponent })
    }

    /// Converts a value to the base unit.
    #[must_use]
    pub fn apply(self, value: f64) -> f64 {
        if self.exponent == 0 {
            return value;
        }
        // The printed decimal is what ncu wrote: shifting its point keeps 0.507 Kbyte at 507 bytes, multiplying does not.
        format!("{value}e{}", self.exponent).parse().unwrap_or(value)
    }
}

/// Parses a word with its prefix; time is [`Base::Second`] on either side.
fn word(text: &str) -> Option<(Base, i8)> {
    let plain = |text: &str| {
        Some(match text {
            "" => Base::One,
            "byte" | "bytes" | "B" => Base::Byte,
            "s" | "second" | "sec" => Base::Second,
            "hz" | "Hz" | "HZ" => Base::Hertz,
            "%" | "pct" => Base::Percent,
            "inst" | "instruction" | "instructions" => Base::Instruction,
            "cycle" | "cycles" => Base::Cycle,
            "register" | "registers" => Base::Register,
            "thread" | "threads" => Base::Thread,
            "warp" | "warps" => Base::Warp,
            "block" | "blocks" => Base::Block,
            "cluster" | "clusters" => Base::Cluster,
            "SM" => Base::Sm,
            "sector" | "sectors" => Base::Sector,
            "request" | "requests" => Base::Request,
            "pass" | "passes" => Base::Pass,
            "op" | "ops" => Base::Operation,
            "sample" | "samples" => Base::Sample,
            _ => return None,
        })
    };
    if let Some(base) = plain(text) {
        return Some((base, 0));
    }
    let mut characters = text.chars();
    let exponent = match characters.next()? {
        'n' => -9,
        'u' | 'µ' => -6,
        'm' => -3,
        'K' | 'k' => 3,
        'M' => 6,
        'G' => 9,
        'T' => 12,
        'P' => 15,
        _ => return None,
    };
    let base = plain(characters.as_str())?;
    // Small prefixes exist on time alone, large ones on everything but time, percent and nothing.
    match (base, exponent < 0) {
        (Base::Second, true) => Some((base, exponent)),
        (Base::Second | Base::One | Base::Percent, _) | (_, true) => None,
        _ => Some((base, exponent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str, value: f64) -> (f64, String) {
        let scaled = Scaled::parse(text).unwrap_or_else(|| panic!("{text} is a unit"));
        (scaled.apply(value), scaled.unit.to_string())
    }

    #[test]
    fn prefixes_are_decimal() {
        assert_eq!(base("Kbyte", 32.768), (32768.0, "byte".into()));
        assert_eq!(base("Mbyte", 11.796_48), (11_796_480.0, "byte".into()));
        assert_eq!(base("Tbyte/s", 4.8), (4.8e12, "byte/s".into()));
        assert_eq!(base("Gbyte/second", 345.14), (345.14e9, "byte/s".into()));
        assert_eq!(base("Kbyte/block", 1.024), (1024.0, "byte/block".into()));
        assert_eq!(base("Kbyte", 0.507), (507.0, "byte".into()));
    }

    #[test]
    fn time_is_nanoseconds_and_frequency_hertz() {
        assert_eq!(base("us", 10.496), (10496.0, "ns".into()));
        assert_eq!(base("nsecond", 7.0), (7.0, "ns".into()));
        assert_eq!(base("second", 2.0), (2e9, "ns".into()));
        assert_eq!(base("Ghz", 3.18), (3.18e9, "hz".into()));
        assert_eq!(base("cycle/nsecond", 1.95), (1.95e9, "hz".into()));
        assert_eq!(base("cycle/usecond", 1.5), (1.5e6, "hz".into()));
    }

    #[test]
    fn a_prefix_below_scales_the_number_as_ncu_does() {
        assert_eq!(base("%/Kbyte", 2.614), (2614.0, "%/byte".into()));
        assert_eq!(base("inst/cycle", 8.0), (8.0, "inst/cycle".into()));
        assert_eq!(base("register/thread", 16.0), (16.0, "register/thread".into()));
    }

    #[test]
    fn what_is_not_a_unit_is_none() {
        for text in ["furlong", "Kfurlong", "Gs", "m%", "byte/furlong", "Kus", "mbyte"] {
            assert_eq!(Scaled::parse(text), None, "{text}");
        }
    }
}
