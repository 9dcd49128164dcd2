//! Columns of a kernel summary.

use super::unit::TimeUnit;

/// A column of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeColumn {
    pub(super) at: usize,
    pub(super) unit: TimeUnit,
}

/// The columns of a kernel summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// Number of columns.
    pub(super) count: usize,
    pub(super) share: Option<usize>,
    pub(super) total: TimeColumn,
    pub(super) instances: usize,
    pub(super) median: Option<TimeColumn>,
    pub(super) min: Option<TimeColumn>,
    pub(super) max: Option<TimeColumn>,
    pub(super) name: usize,
}

impl Columns {
    /// The columns, if a line is the header of a kernel summary. Summaries of calls, copies and ranges have other columns.
    pub(super) fn of(line: &str) -> Option<Self> {
        let titles: Vec<&str> = line
            .trim()
            .split(',')
            .map(|title| title.trim().trim_matches('"'))
            .collect();
        let parsed: Vec<(String, Option<TimeUnit>)> = titles.iter().map(|title| split_title(title)).collect();
        let find = |names: &[&str]| parsed.iter().position(|(name, _)| names.contains(&name.as_str()));
        if find(&["range", "style", "operation", "category"]).is_some() {
            return None;
        }
        let total = find(&["total time"])?;
        let unit = parsed.get(total)?.1?;
        // The oldest name the unit of the total only.
        let time = |names: &[&str]| {
            find(names).map(|at| TimeColumn {
                at,
                unit: parsed.get(at).and_then(|c| c.1).unwrap_or(unit),
            })
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

/// A title in lower case without what stands in parentheses, and the unit of time if that is what stands there.
fn split_title(title: &str) -> (String, Option<TimeUnit>) {
    let (name, rest) = title.split_once('(').unwrap_or((title, ""));
    (
        name.trim().to_lowercase(),
        TimeUnit::parse(rest.trim().trim_end_matches(')')),
    )
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
            assert_eq!(
                (columns.share, columns.total.at, columns.instances),
                (Some(0), 1, 2),
                "{header}"
            );
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
}
