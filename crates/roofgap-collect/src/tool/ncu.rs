//! The ncu on this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::help::Help;
use super::nsys::{answer, not_like};
use super::search::{Candidate, Found, Place, Rejected, Search};
use super::version::Version;

/// An ncu that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ncu {
    /// The program.
    pub path: PathBuf,
    /// How it was come by.
    pub place: Place,
    /// Its version, where it told one.
    pub version: Option<Version>,
    /// Its options.
    pub help: Help,
    /// The section sets it has.
    pub sets: Vec<String>,
    /// The sections it has.
    pub sections: Vec<String>,
}

impl Ncu {
    /// The first ncu that answers.
    pub fn find(search: &Search) -> Found<Ncu> {
        let mut rejected = Vec::new();
        for candidate in search.ncu() {
            let path = candidate.path.clone();
            match Ncu::ask(candidate) {
                Ok(ncu) => {
                    return Found {
                        tool: Some(ncu),
                        rejected,
                    };
                }
                Err(why) => rejected.push(Rejected { path, why }),
            }
        }
        Found { tool: None, rejected }
    }

    fn ask(candidate: Candidate) -> Result<Ncu, String> {
        let Candidate { path, place } = candidate;
        let answered = answer(&path, &["--version"])?;
        let said = answered.text();
        if !said.contains("Nsight Compute") {
            return Err(not_like("ncu", &answered));
        }
        let version = version(&said);
        let help = Help::read(&answer(&path, &["--help"])?.text());
        let sets = identifiers(&answer(&path, &["--list-sets"])?.text());
        let sections = identifiers(&answer(&path, &["--list-sections"])?.text());
        Ok(Ncu {
            path,
            place,
            version,
            help,
            sets,
            sections,
        })
    }

    /// The metrics this ncu knows for a chip such as `gh100`; asked without a GPU. It takes a few seconds.
    pub fn metrics_of(&self, chip: &str) -> Result<BTreeSet<String>, String> {
        let answer = answer(&self.path, &["--query-metrics", "--chips", chip])?;
        let known = metric_names(&answer.text());
        if known.is_empty() {
            Err(format!(
                "ncu lists no metric for the chip {chip}: it {}, {}",
                answer.how,
                answer.gist()
            ))
        } else {
            Ok(known)
        }
    }
}

/// The line with the version, below the one with the name: the copyright has years in it too, and a banner before them may
/// speak of other versions.
fn version(said: &str) -> Option<Version> {
    said.lines()
        .skip_while(|line| !line.contains("Nsight Compute"))
        .filter(|line| line.contains("Version"))
        .find_map(Version::find)
}

/// The first column of the tables of `--list-sets` and `--list-sections`. A long cell goes on in rows that start with a space.
pub(crate) fn identifiers(table: &str) -> Vec<String> {
    table
        .lines()
        .skip_while(|line| !line.starts_with("Identifier"))
        .skip(1)
        .filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// The first column of `--query-metrics`: a name with two underscores in it.
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
