//! The ncu on this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::help::Help;
use super::query::{ToolError, query, query_version};
use super::search::{Candidate, RejectedCandidate, Search, SearchResult, ToolLocation};
use super::version::Version;

/// A working ncu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ncu {
    /// Path of the program.
    pub path: PathBuf,
    /// Location of the program.
    pub location: ToolLocation,
    /// Version, if known.
    pub version: Option<Version>,
    /// Options.
    pub help: Help,
    /// Section sets.
    pub sets: Vec<String>,
    /// Sections.
    pub sections: Vec<String>,
}

impl Ncu {
    /// Finds the first ncu that works.
    pub fn find(search: &Search) -> SearchResult<Ncu> {
        let mut rejected = Vec::new();
        for candidate in search.ncu() {
            let path = candidate.path.clone();
            match Ncu::query(candidate) {
                Ok(ncu) => {
                    let tool = Some(ncu);
                    return SearchResult { tool, rejected };
                }
                Err(why) => rejected.push(RejectedCandidate { path, why }),
            }
        }
        SearchResult { tool: None, rejected }
    }

    fn query(candidate: Candidate) -> Result<Ncu, ToolError> {
        let Candidate { path, location } = candidate;
        let text = query_version(&path, "ncu", |text| text.contains("Nsight Compute"))?;
        Ok(Ncu {
            version: version(&text),
            help: Help::parse(&query(&path, &["--help"])?.text()),
            sets: identifiers(&query(&path, &["--list-sets"])?.text()),
            sections: identifiers(&query(&path, &["--list-sections"])?.text()),
            path,
            location,
        })
    }

    /// Lists the metrics for a chip such as `gh100`. Needs no GPU; takes a few seconds.
    pub fn metrics_of(&self, chip: &str) -> Result<BTreeSet<String>, ToolError> {
        let output = query(&self.path, &["--query-metrics", "--chips", chip])?;
        let known = metric_names(&output.text());
        if known.is_empty() {
            Err(ToolError::NoMetrics { chip: chip.to_owned(), output: output.summary(), ended: output.ended })
        } else {
            Ok(known)
        }
    }
}

/// Finds the version below the product name: the copyright line and banners contain other numbers.
fn version(output: &str) -> Option<Version> {
    output
        .lines()
        .skip_while(|line| !line.contains("Nsight Compute"))
        .filter(|line| line.contains("Version"))
        .find_map(Version::find)
}

/// Extracts the first column of `--list-sets` and `--list-sections`. Continuation rows start with a space.
fn identifiers(table: &str) -> Vec<String> {
    table
        .lines()
        .skip_while(|line| !line.starts_with("Identifier"))
        .skip(1)
        .filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// Extracts the first column of `--query-metrics`: names with two underscores.
fn metric_names(table: &str) -> BTreeSet<String> {
    table
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| word.contains("__"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETS: &str = "\
---------- ----------------------------------- ------- -----------------
Identifier Sections                            Enabled Estimated Metrics
---------- ----------------------------------- ------- -----------------
basic      LaunchStats, Occupancy, SpeedOfLigh yes     213
           t, WorkloadDistribution
roofline   SpeedOfLight                        no      6649
";

    #[test]
    fn sets_and_their_folded_rows() {
        assert_eq!(identifiers(SETS), ["basic", "roofline"]);
        assert!(identifiers("==ERROR== something\n").is_empty());
    }

    #[test]
    fn names_of_metrics() {
        let text = "Device gh100\n------ --- ----\nMetric Name   Metric Type Metric Unit\n\
                    dram__bytes_read    Counter    byte  # of bytes\nsm__throughput  Throughput  %  ...\n";
        let names: Vec<_> = metric_names(text).into_iter().collect();
        assert_eq!(names, ["dram__bytes_read", "sm__throughput"]);
    }
}
