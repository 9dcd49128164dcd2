//! Units as ncu prints them, and quantities in base units.
//!
//! ncu's prefixes are decimal: the same report says 32768 `byte` with base units and 32.768 `Kbyte` with automatic ones.
//! Base units are byte, nanosecond, hertz and `/s`; everything else has no prefix to lose.

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
    pub const fn of(of: Base) -> Self {
        Self { of, per: Base::One }
    }

    /// Creates a unit with a denominator.
    pub const fn per(of: Base, per: Base) -> Self {
        Self { of, per }
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
    pub fn parse(text: &str) -> Option<Self> {
        let (top, bottom) = text.split_once('/').unwrap_or((text, ""));
        let ((of, top), (per, bottom)) = (word(top.trim())?, word(bottom.trim())?);
        // ncu scales the number, not the denominator: 2614 `%/byte` is printed as 2.614 `%/Kbyte`.
        let exponent = if per == Base::Second { top - bottom } else { top + bottom };
        let (unit, exponent) = match (of, per) {
            (Base::Cycle, Base::Second) => (Unit::HERTZ, exponent),
            (Base::Second, Base::Second) => (Unit::ONE, exponent),
            (Base::Second, per) => (Unit::per(Base::Nanosecond, per), exponent + 9),
            (of, per) => (Unit::per(of, per), exponent),
        };
        Some(Self { unit, exponent })
    }

    /// Converts a value to the base unit.
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

    fn base(text: &str, value: f64) -> (f64, Unit) {
        let scaled = Scaled::parse(text).unwrap_or_else(|| panic!("{text} is a unit"));
        (scaled.apply(value), scaled.unit)
    }

    #[test]
    fn prefixes_are_decimal() {
        assert_eq!(base("Kbyte", 32.768), (32768.0, Unit::BYTE));
        assert_eq!(base("Mbyte", 11.796_48), (11_796_480.0, Unit::BYTE));
        assert_eq!(base("Tbyte/s", 4.8), (4.8e12, Unit::BYTE_PER_SECOND));
        assert_eq!(base("Gbyte/second", 345.14), (345.14e9, Unit::BYTE_PER_SECOND));
        assert_eq!(base("Kbyte/block", 1.024), (1024.0, Unit::per(Base::Byte, Base::Block)));
        assert_eq!(base("Kbyte", 0.507), (507.0, Unit::BYTE));
    }

    #[test]
    fn time_is_nanoseconds_and_frequency_hertz() {
        assert_eq!(base("us", 10.496), (10496.0, Unit::NANOSECOND));
        assert_eq!(base("nsecond", 7.0), (7.0, Unit::NANOSECOND));
        assert_eq!(base("second", 2.0), (2e9, Unit::NANOSECOND));
        assert_eq!(base("Ghz", 3.18), (3.18e9, Unit::HERTZ));
        assert_eq!(base("cycle/nsecond", 1.95), (1.95e9, Unit::HERTZ));
        assert_eq!(base("cycle/usecond", 1.5), (1.5e6, Unit::HERTZ));
    }

    #[test]
    fn a_prefix_below_scales_the_number_as_ncu_does() {
        assert_eq!(base("%/Kbyte", 2.614), (2614.0, Unit::per(Base::Percent, Base::Byte)));
        assert_eq!(base("inst/cycle", 8.0), (8.0, Unit::per(Base::Instruction, Base::Cycle)));
        assert_eq!(base("register/thread", 16.0), (16.0, Unit::per(Base::Register, Base::Thread)));
    }

    #[test]
    fn what_is_not_a_unit_is_none() {
        for text in ["furlong", "Kfurlong", "Gs", "m%", "byte/furlong", "Kus", "mbyte"] {
            assert_eq!(Scaled::parse(text), None, "{text}");
        }
    }
}
