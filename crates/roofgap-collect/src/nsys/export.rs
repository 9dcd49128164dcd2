//! `nsys export` and `nsys stats`: from an nsys report to SQLite and CSV.

use std::path::{Path, PathBuf};

use crate::command::{CommandLine, with_suffix};
use crate::tool::Nsys;

/// Builds `nsys export` of a report to SQLite.
pub fn export(nsys: &Nsys, report: &Path, sqlite: &Path) -> CommandLine {
    let mut line = CommandLine::new(&nsys.path).args(["export", "--type=sqlite", "--force-overwrite=true"]);
    if nsys.export.has("--quiet") {
        line = line.arg("--quiet=true");
    }
    line.option("--output", sqlite).arg(report)
}

/// Builds `nsys stats` of a report or its SQLite export; each summary goes to `BASE_<report>.csv`.
///
/// nsys exits with status 0 even when it writes nothing, so check the files.
pub fn stats(nsys: &Nsys, input: &Path, reports: &[&str], base: &Path) -> CommandLine {
    CommandLine::new(&nsys.path)
        .args(["stats", "--force-overwrite=true", "--format", "csv", "--report"])
        .arg(reports.join(","))
        .arg("--output")
        .arg(base)
        .arg(input)
}

/// The kernel summary of `nsys stats`, whose name depends on the version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSummary {
    /// Name of the summary.
    pub report: &'static str,
    /// Path of the CSV file.
    pub file: PathBuf,
}

/// Returns the kernel summary of this nsys; `None` if it has none.
pub fn kernel_summary(nsys: &Nsys, base: &Path) -> Option<KernelSummary> {
    let lists = |name: &str| nsys.reports.iter().any(|report| report == name);
    let report = match () {
        () if lists("cuda_gpu_kern_sum") || nsys.reports.is_empty() => "cuda_gpu_kern_sum",
        () if lists("gpukernsum") => "gpukernsum",
        () => return None,
    };
    Some(KernelSummary { report, file: with_suffix(base, &format!("_{report}.csv")) })
}

#[cfg(test)]
mod tests {
    use super::super::profile::test_nsys;
    use super::*;

    #[test]
    fn export_and_stats() {
        let tool = test_nsys("2023.4.4", "", &["cuda_gpu_kern_sum"]);
        assert_eq!(
            export(&tool, Path::new("a b.nsys-rep"), Path::new("run.sqlite")).to_string(),
            "/opt/nsys export --type=sqlite --force-overwrite=true --quiet=true --output=run.sqlite 'a b.nsys-rep'"
        );
        assert_eq!(
            stats(
                &tool,
                Path::new("run.sqlite"),
                &["cuda_gpu_kern_sum", "cuda_api_sum"],
                Path::new("summary")
            )
            .to_string(),
            "/opt/nsys stats --force-overwrite=true --format csv --report cuda_gpu_kern_sum,cuda_api_sum \
             --output summary run.sqlite"
        );
    }

    #[test]
    fn the_name_of_the_kernel_summary_follows_the_tool() {
        let summary =
            |reports: &[&str]| kernel_summary(&test_nsys("2022.4.2", "", reports), Path::new("x/summary"));
        let new = summary(&["cuda_api_sum", "cuda_gpu_kern_sum"]).unwrap();
        assert_eq!(
            (new.report, new.file.as_path()),
            ("cuda_gpu_kern_sum", Path::new("x/summary_cuda_gpu_kern_sum.csv"))
        );
        assert_eq!(summary(&["gpukernsum"]).unwrap().file, Path::new("x/summary_gpukernsum.csv"));
        assert_eq!(summary(&["something"]), None);
        assert_eq!(summary(&[]).unwrap().report, "cuda_gpu_kern_sum");
    }
}
