//! What ncu says while it works, and what its errors mean.

/// A launch ncu has measured: `==PROF== Profiling "name" - 3: 0%....50%....100% - 9 passes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiled {
    /// The kernel, as ncu shows it.
    pub name: String,
    /// How often it was replayed, where the line says so.
    pub passes: Option<u32>,
}

impl Profiled {
    /// Reads a line; `None` where it says something else.
    pub fn read(line: &str) -> Option<Self> {
        let rest = line.trim_start().strip_prefix("==PROF== Profiling ")?;
        // Older versions write the count in brackets: `"name" - 0 (1/5): ...`.
        let (name, rest) = rest.strip_prefix('"')?.rsplit_once('"')?;
        // A line without an end yet counts too: progress is appended to it.
        let passes = rest
            .rsplit_once(" - ")
            .and_then(|(_, end)| end.split_once(" pass"))
            .and_then(|(count, _)| count.parse().ok());
        Some(Profiled {
            name: name.to_owned(),
            passes,
        })
    }
}

/// Why ncu measured nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// Counters are closed to this user.
    Permission,
    /// No launch fitted the filters.
    NothingProfiled,
    /// A section, set or metric does not exist.
    UnknownName(String),
    /// No driver, or one too old.
    Driver(String),
    /// Another tool holds the counters.
    Busy(String),
    /// Another error line.
    Other(String),
}

impl Complaint {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Complaint::Permission => {
                "run as root (sudo -E), or open the counters: put \"options nvidia NVreg_RestrictProfilingToAdminUsers=0\" \
                 into a file of /etc/modprobe.d and reload the driver; in a container add --cap-add=SYS_ADMIN"
            }
            Complaint::NothingProfiled => {
                "no launch fitted the plan: the program may take other kernels under ncu, or its NVTX ranges did not open"
            }
            Complaint::UnknownName(_) => {
                "look at ncu --list-sets, --list-sections and --query-metrics for what exists"
            }
            Complaint::Driver(_) => "install or update the NVIDIA driver; nvidia-smi must work",
            Complaint::Busy(_) => {
                "end other profilers on this GPU (DCGM: dcgmi profiling --pause), then try again"
            }
            Complaint::Other(_) => "see the log of ncu",
        }
    }
}

/// The complaint that explains an empty result, out of all that ncu printed.
pub fn complaint(output: &str) -> Option<Complaint> {
    let line_with = |needles: &[&str]| {
        output
            .lines()
            .map(str::trim)
            .find(|line| needles.iter().any(|needle| line.contains(needle)))
            .map(str::to_owned)
    };
    if line_with(&["ERR_NVGPUCTRPERM"]).is_some() {
        return Some(Complaint::Permission);
    }
    if let Some(line) = line_with(&[
        "did not match any section",
        "Failed to find metric",
        "Invalid metric",
        "Unknown metric",
        "section set",
    ]) && line.contains("==ERROR==")
    {
        return Some(Complaint::UnknownName(line));
    }
    if let Some(line) = line_with(&[
        "driver is not installed",
        "driver resource was unavailable",
        "Cuda driver is not compatible",
    ]) {
        let busy = line.contains("resource was unavailable");
        return Some(if busy {
            Complaint::Busy(line)
        } else {
            Complaint::Driver(line)
        });
    }
    if line_with(&["No kernels were profiled"]).is_some() {
        return Some(Complaint::NothingProfiled);
    }
    line_with(&["==ERROR=="]).map(Complaint::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_launch() {
        let line = "==PROF== Profiling \"void f<\"x\">(int)\" - 12: 0%....50%....100% - 9 passes";
        assert_eq!(
            Profiled::read(line),
            Some(Profiled {
                name: "void f<\"x\">(int)".to_owned(),
                passes: Some(9)
            })
        );
        let line = "==PROF== Profiling \"burn\" - 0 (1/6): 0%....50%....100% - 1 pass";
        assert_eq!(Profiled::read(line).unwrap().passes, Some(1));
        assert_eq!(
            Profiled::read("==PROF== Profiling \"burn\" - 0: 0%")
                .unwrap()
                .passes,
            None
        );
        assert_eq!(Profiled::read("==PROF== Connected to process 12"), None);
        assert_eq!(Profiled::read("burn"), None);
    }

    #[test]
    fn complaints_that_matter_come_before_their_consequences() {
        let text = "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access \
                    NVIDIA GPU Performance Counters on the target device 0.\n==WARNING== No kernels were profiled.\n";
        assert_eq!(complaint(text), Some(Complaint::Permission));
        assert_eq!(
            complaint("==WARNING== No kernels were profiled.\n"),
            Some(Complaint::NothingProfiled)
        );
        let section = "==ERROR== Option '--section .*SpeedOfLight.*' did not match any section.";
        assert_eq!(
            complaint(section),
            Some(Complaint::UnknownName(section.to_owned()))
        );
        assert!(matches!(
            complaint("==ERROR== The application returned an error code (1)."),
            Some(Complaint::Other(_))
        ));
        assert_eq!(complaint("==PROF== Disconnected from process 1"), None);
    }
}
