//! Columns of a kernel summary, and the times in them.

use crate::decimal::{MAX_NS, scaled};

/// A column of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeColumn {
    pub at: usize,
    pub unit: TimeUnit,
}

/// The columns of a kernel summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// Number of columns.
    pub count: usize,
    pub share: Option<usize>,
    pub total: TimeColumn,
    pub instances: usize,
    pub median: Option<TimeColumn>,
    pub min: Option<TimeColumn>,
    pub max: Option<TimeColumn>,
    pub name: usize,
}

impl Columns {
    /// Parses a header line; `None` if it is not the header of a kernel summary.
    pub fn of(line: &str) -> Option<Self> {
        let titles: Vec<&str> = line.trim().split(',').map(|title| title.trim().trim_matches('"')).collect();
        let parsed: Vec<(String, Option<TimeUnit>)> = titles.iter().map(|title| split_title(title)).collect();
        let find = |names: &[&str]| parsed.iter().position(|(name, _)| names.contains(&name.as_str()));
        if find(&["range", "style", "operation", "category"]).is_some() {
            return None;
        }
        let total = find(&["total time"])?;
        let unit = parsed.get(total)?.1?;
        // The oldest releases give the unit of the total only.
        let time = |names: &[&str]| {
            find(names).map(|at| TimeColumn { at, unit: parsed.get(at).and_then(|c| c.1).unwrap_or(unit) })
        };
        Some(Self {
            count: titles.len(),
            share: find(&["time"]),
            total: TimeColumn { at: total, unit },
            instances: find(&["instances"])?,
            median: time(&["med", "median"]),
            min: time(&["min", "minimum"]),
            max: time(&["max", "maximum"]),
            name: find(&["name"])?,
        })
    }
}

/// Splits a title into its name in lower case and the unit of time in parentheses.
fn split_title(title: &str) -> (String, Option<TimeUnit>) {
    let (name, rest) = title.split_once('(').unwrap_or((title, ""));
    (name.trim().to_lowercase(), TimeUnit::parse(rest.trim().trim_end_matches(')')))
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

impl TimeUnit {
    /// Parses the abbreviation in a column header.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ns" | "nsec" => Self::Nanoseconds,
            "us" | "usec" | "\u{3bc}s" | "\u{b5}s" => Self::Microseconds,
            "ms" | "msec" => Self::Milliseconds,
            "s" | "sec" => Self::Seconds,
            _ => return None,
        })
    }

    /// Returns the power of ten that converts to nanoseconds.
    fn power(self) -> i32 {
        match self {
            Self::Nanoseconds => 0,
            Self::Microseconds => 3,
            Self::Milliseconds => 6,
            Self::Seconds => 9,
        }
    }

    /// Parses a time, ns.
    pub fn ns(self, text: &str) -> Option<i64> {
        let ns = i64::try_from(scaled(number(text).as_bytes(), self.power())?).ok()?;
        (ns <= MAX_NS).then_some(ns)
    }

    /// Parses a time with one decimal, ns.
    pub fn tenths(self, text: &str) -> Option<f64> {
        let tenths = scaled(number(text).as_bytes(), self.power() + 1)?;
        (tenths <= i128::from(MAX_NS)).then_some(tenths as f64 / 10.0)
    }

    /// Returns true if a time is written with fewer digits than nanoseconds.
    pub fn is_rounded(self, text: &str) -> bool {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        !text.contains(['e', 'E']) && (decimals as i32) < self.power()
    }
}

/// Removes the commas between thousands.
pub fn number(text: &str) -> String {
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
    fn headers_of_several_releases() {
        for header in [
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
            "Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),GridXYZ,BlockXYZ,Name",
            "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\r\n",
            "\"Time(%)\",\"Total Time (ns)\",\"Instances\",\"Average\",\"Minimum\",\"Maximum\",\"Name\"",
        ] {
            let columns = Columns::of(header).expect(header);
            assert_eq!((columns.share, columns.total.at, columns.instances), (Some(0), 1, 2), "{header}");
            assert_eq!(columns.name, columns.count - 1);
            assert!(columns.min.is_some() && columns.max.is_some());
        }
    }

    #[test]
    fn other_summaries_are_not_kernel_summaries() {
        for header in [
            "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
            "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation",
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Category,Operation",
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range",
            "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name",
            "Time (%),Total Time,Instances,Name",
            "",
        ] {
            assert_eq!(Columns::of(header), None, "{header}");
        }
    }

    #[test]
    fn every_unit_is_exact() {
        assert_eq!(TimeUnit::Nanoseconds.ns("1373559"), Some(1_373_559));
        assert_eq!(TimeUnit::Nanoseconds.ns("1,373,559"), Some(1_373_559));
        assert_eq!(TimeUnit::Microseconds.ns("1373.559"), Some(1_373_559));
        assert_eq!(TimeUnit::Milliseconds.ns("1,373.5590"), Some(1_373_559_000));
        assert_eq!(TimeUnit::Seconds.ns("9007199.254740993"), Some(9_007_199_254_740_993));
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
