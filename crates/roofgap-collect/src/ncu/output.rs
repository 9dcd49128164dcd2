//! Output of ncu: progress lines, failures, and report pages as CSV.

use std::path::Path;

use crate::command::CommandLine;
use crate::tool::Ncu;

/// A page of an ncu report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// One row per launch, one column per metric.
    Raw,
    /// One row per metric, with the results of ncu's rules.
    Details,
}

/// Builds `ncu --import REPORT --page ... --csv`, which prints CSV in base units.
pub fn import(ncu: &Ncu, report: &Path, page: Page) -> CommandLine {
    let page = match page {
        Page::Raw => "raw",
        Page::Details => "details",
    };
    let line = CommandLine::new(&ncu.path).arg("--import").arg(report);
    line.args(["--page", page, "--csv", "--print-units", "base"])
}

/// A measured launch, from a line `==PROF== Profiling "name" - 3: 0%....50%....100% - 9 passes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfiledLaunch {
    /// Kernel name in the spelling of ncu.
    pub name: String,
    /// Number of replay passes, if the line has it.
    pub passes: Option<u32>,
}

impl ProfiledLaunch {
    /// Parses a line; `None` for other lines.
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.trim_start().strip_prefix("==PROF== Profiling ")?;
        // Older versions write the count in brackets: `"name" - 0 (1/5): ...`.
        let (name, rest) = rest.strip_prefix('"')?.rsplit_once('"')?;
        // An incomplete line counts too: ncu appends progress to it.
        let passes = rest
            .rsplit_once(" - ")
            .and_then(|(_, end)| end.split_once(" pass"))
            .and_then(|(count, _)| count.parse().ok());
        Some(ProfiledLaunch { name: name.to_owned(), passes })
    }
}

/// Reason why ncu measured nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NcuFailure {
    /// The driver restricts performance counters to administrators.
    #[error("this user may not read performance counters (ERR_NVGPUCTRPERM)")]
    Permission,
    /// No launch matched the filters.
    #[error("no kernel was profiled")]
    NothingProfiled,
    /// A section, set or metric does not exist. Holds the message of ncu, like the variants below.
    #[error("{0}")]
    UnknownName(String),
    /// The driver is missing or too old.
    #[error("{0}")]
    Driver(String),
    /// Another tool uses the counters.
    #[error("{0}")]
    Busy(String),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

impl NcuFailure {
    /// Suggests a fix.
    pub fn remedy(&self) -> &'static str {
        match self {
            NcuFailure::Permission => {
                "run as root (sudo -E), or allow all users: put \"options nvidia NVreg_RestrictProfilingToAdminUsers=0\" \
                 into a file of /etc/modprobe.d and reload the driver; in a container add --cap-add=SYS_ADMIN"
            }
            NcuFailure::NothingProfiled => {
                "no launch matched the filters: the program may use other kernels under ncu, or its NVTX ranges did not open"
            }
            NcuFailure::UnknownName(_) => {
                "see ncu --list-sets, --list-sections and --query-metrics for the valid names"
            }
            NcuFailure::Driver(_) => "install or update the NVIDIA driver; nvidia-smi must work",
            NcuFailure::Busy(_) => {
                "stop other profilers on this GPU (DCGM: dcgmi profiling --pause), then try again"
            }
            NcuFailure::Other(_) => "see the log of ncu",
        }
    }

    /// Finds the failure that explains an empty result in the output of ncu; causes come before their consequences.
    pub fn find(output: &str) -> Option<NcuFailure> {
        let line_with =
            |needles: &[&str]| output.lines().find(|line| needles.iter().any(|needle| line.contains(needle)));
        let message = |line: &str| line.trim().trim_start_matches("==ERROR==").trim().to_owned();
        let unknown_name = [
            "did not match any section",
            "Failed to find metric",
            "Invalid metric",
            "Unknown metric",
            "section set",
        ];
        let driver = ["driver is not installed", "Cuda driver is not compatible"];
        if line_with(&["ERR_NVGPUCTRPERM"]).is_some() {
            Some(NcuFailure::Permission)
        } else if let Some(line) = line_with(&unknown_name).filter(|line| line.contains("==ERROR==")) {
            Some(NcuFailure::UnknownName(message(line)))
        } else if let Some(line) = line_with(&["driver resource was unavailable"]) {
            Some(NcuFailure::Busy(message(line)))
        } else if let Some(line) = line_with(&driver) {
            Some(NcuFailure::Driver(message(line)))
        } else if line_with(&["No kernels were profiled"]).is_some() {
            Some(NcuFailure::NothingProfiled)
        } else {
            line_with(&["==ERROR=="]).map(|line| NcuFailure::Other(message(line)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_launch() {
        let line = "==PROF== Profiling \"void f<\"x\">(int)\" - 12: 0%....50%....100% - 9 passes";
        assert_eq!(
            ProfiledLaunch::parse(line),
            Some(ProfiledLaunch { name: "void f<\"x\">(int)".to_owned(), passes: Some(9) })
        );
        let line = "==PROF== Profiling \"burn\" - 0 (1/6): 0%....50%....100% - 1 pass";
        assert_eq!(ProfiledLaunch::parse(line).unwrap().passes, Some(1));
        assert_eq!(ProfiledLaunch::parse("==PROF== Profiling \"burn\" - 0: 0%").unwrap().passes, None);
        assert_eq!(ProfiledLaunch::parse("==PROF== Connected to process 12"), None);
        assert_eq!(ProfiledLaunch::parse("burn"), None);
    }

    #[test]
    fn causes_come_before_their_consequences() {
        let text = "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access \
                    NVIDIA GPU Performance Counters on the target device 0.\n==WARNING== No kernels were profiled.\n";
        assert_eq!(NcuFailure::find(text), Some(NcuFailure::Permission));
        assert_eq!(
            NcuFailure::find("==WARNING== No kernels were profiled.\n"),
            Some(NcuFailure::NothingProfiled)
        );
        let section = "==ERROR== Option '--section .*SpeedOfLight.*' did not match any section.";
        assert_eq!(
            NcuFailure::find(section),
            Some(NcuFailure::UnknownName(section.trim_start_matches("==ERROR== ").to_owned()))
        );
        assert!(matches!(
            NcuFailure::find("==ERROR== The application returned an error code (1)."),
            Some(NcuFailure::Other(_))
        ));
        assert_eq!(NcuFailure::find("==PROF== Disconnected from process 1"), None);
    }
}
