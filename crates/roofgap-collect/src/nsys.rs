//! Command lines of nsys, as values: recording a program, and exporting the report to SQLite and CSV.

use std::path::{Path, PathBuf};

use crate::command::{CommandLine, NvtxRange, PlannedCommand, escape_percent, option_values, with_suffix};
use crate::tool::Nsys;

option_values! {
    /// Granularity of CUDA graph records.
    GraphTrace {
        /// One record per kernel, as stage attribution needs.
        #[default]
        Node = "node",
        /// One record per graph launch: less overhead.
        Graph = "graph",
    }
    /// Action at the end of a capture range.
    CaptureEnd {
        /// Stop recording; the program continues.
        #[default]
        Stop = "stop",
        /// Stop recording and end the program (status 143).
        StopShutdown = "stop-shutdown",
    }
}

/// Restricts recording to one NVTX range. Work still queued on the GPU at its end is lost, so this is opt-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureRange {
    /// Range, spelled exactly as in the program.
    pub range: NvtxRange,
    /// Action at the end of the range.
    pub end: CaptureEnd,
}

/// Options of `nsys profile`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NsysProfile {
    /// Path of the report without the suffix `.nsys-rep`.
    pub output: PathBuf,
    /// APIs to trace, in the words of nsys: `cuda`, `nvtx`, `osrt` (often the most overhead), ...
    pub trace: Vec<String>,
    /// CPU sampling scope: `none`, `process-tree` or `system-wide`.
    pub sample: String,
    /// Context switch scope, in the same words.
    pub cpuctxsw: String,
    /// Granularity of CUDA graph records.
    pub graph: GraphTrace,
    /// Record only inside this range.
    pub capture_range: Option<CaptureRange>,
    /// User arguments, placed before the program.
    pub extra: Vec<String>,
}

impl NsysProfile {
    /// Creates the default: CUDA and NVTX of the whole program.
    pub fn new(output: impl Into<PathBuf>) -> Self {
        Self {
            output: output.into(),
            trace: vec!["cuda".to_owned(), "nvtx".to_owned()],
            sample: "none".to_owned(),
            cpuctxsw: "none".to_owned(),
            ..Self::default()
        }
    }

    /// Returns the path of the report. Only its existence proves that nsys recorded something.
    pub fn report(&self) -> PathBuf {
        with_suffix(&self.output, ".nsys-rep")
    }

    /// Returns the path of the raw recording that remains when the import failed.
    pub fn unimported(&self) -> PathBuf {
        with_suffix(&self.output, ".qdstrm")
    }

    /// Builds `nsys profile ... PROGRAM ...` from the options this nsys supports.
    pub fn command(&self, nsys: &Nsys, program: &CommandLine) -> PlannedCommand {
        let mut left_out = Vec::new();
        let help = &nsys.profile;
        let mut line = CommandLine::new(&nsys.path).arg("profile");
        line = line.option("--trace", self.apis(nsys, &mut left_out).join(","));
        // Neither defaults to none, and both add overhead.
        line = line.option("--sample", &self.sample).option("--cpuctxsw", &self.cpuctxsw);
        // `--cuda-event-trace` is left on, because waits find their events by it: 389 records beside 5,124 operations of vLLM, and the same
        // time within the scatter of an eager decode (1.61 times the unprofiled one with it, 1.71 without).
        for (option, value) in [
            ("--cuda-graph-trace", self.graph.as_str()),
            // Serving engines work in children made by fork without exec.
            ("--trace-fork-before-exec", "true"),
        ] {
            if help.has(option) {
                line = line.option(option, value);
            }
        }
        if let Some(capture) = &self.capture_range {
            line = line.option("--capture-range", "nvtx").option("--nvtx-capture", capture.range.for_nsys());
            line = line.option("--capture-range-end", capture.end.as_str());
            // Otherwise only registered strings open the range, and most programs register none.
            line = line.env("NSYS_NVTX_PROFILER_REGISTER_ONLY", "0");
        }
        line = line.option("--force-overwrite", "true").option("--output", escape_percent(&self.output));
        let command = line.args(self.extra.iter().map(String::as_str)).around(program);
        PlannedCommand { command, left_out }
    }

    /// Returns the APIs this nsys can trace. One unknown name would make nsys fail.
    fn apis(&self, nsys: &Nsys, left_out: &mut Vec<String>) -> Vec<&str> {
        let mut apis: Vec<&str> = Vec::new();
        for api in &self.trace {
            if !nsys.profile.has("--trace") || nsys.profile.offers("--trace", api) {
                apis.push(api);
            } else {
                left_out.push(format!("--trace={api}: not supported by this nsys"));
            }
        }
        if apis.is_empty() { vec!["none"] } else { apis }
    }
}

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
    let is_listed = |name: &&str| nsys.reports.is_empty() || nsys.reports.iter().any(|report| report == name);
    let report = ["cuda_gpu_kern_sum", "gpukernsum"].into_iter().find(is_listed)?;
    Some(KernelSummary { report, file: with_suffix(base, &format!("_{report}.csv")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{Help, ImporterState, Version};
    use std::ffi::{OsStr, OsString};
    use std::path::Path;

    const OLD: &str = "\t--cuda-graph-trace=\n\n\t-t, --trace=\n\n\t   'cuda', 'nvtx', 'cublas', 'osrt'\n";
    const NEW: &str = "\t--cuda-graph-trace=\n\n\t--cuda-event-trace=\n\n\t--trace-fork-before-exec=\n\n\t-t, --trace=\n\n\t   'cuda', 'cuda-hw', 'nvtx', 'osrt'\n";

    fn test_nsys(version: &str, options: &str, reports: &[&str]) -> Nsys {
        Nsys {
            path: "/opt/nsys".into(),
            version: Version::find(version),
            profile: Help::parse(options),
            export: Help::parse("\t-l, --lazy=\n\t-q, --quiet=\n"),
            reports: reports.iter().map(|&name| name.to_owned()).collect(),
            importer: ImporterState::Unknown { why: String::new() },
        }
    }

    fn program() -> CommandLine {
        CommandLine::new("python3").args(["run.py", "--n", "1"]).env("ROOFGAP_PHASE", "timeline")
    }

    #[test]
    fn the_default_records_the_whole_program() {
        let line = NsysProfile::new("/runs/1/nsys/run")
            .command(&test_nsys("2023.4.4", OLD, &[]), &program())
            .command;
        assert_eq!(
            line.to_string(),
            "env ROOFGAP_PHASE=timeline /opt/nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none \
             --cuda-graph-trace=node --force-overwrite=true --output=/runs/1/nsys/run python3 run.py --n 1"
        );
    }

    #[test]
    fn events_are_recorded() {
        let profile = NsysProfile {
            trace: ["cuda", "nvtx", "osrt"].map(str::to_owned).to_vec(),
            graph: GraphTrace::Graph,
            ..NsysProfile::new("r")
        };
        let line = profile.command(&test_nsys("2025.3.1", NEW, &[]), &program()).command.to_string();
        assert!(line.contains("--trace=cuda,nvtx,osrt "), "{line}");
        assert!(line.contains(" --trace-fork-before-exec=true "), "{line}");
        assert!(line.contains("--cuda-graph-trace=graph ") && !line.contains("--cuda-event-trace"), "{line}");
    }

    #[test]
    fn a_capture_range_has_the_order_of_nsys() {
        let capture = |end| Some(CaptureRange { range: NvtxRange::parse("LLM@decode_all").unwrap(), end });
        let profile = NsysProfile { capture_range: capture(CaptureEnd::Stop), ..NsysProfile::new("r") };
        let line = profile.command(&test_nsys("2025.3.1", NEW, &[]), &program()).command;
        let text = line.to_string();
        assert!(
            text.contains("--capture-range=nvtx --nvtx-capture=decode_all@LLM --capture-range-end=stop"),
            "{text}"
        );
        assert_eq!(line.env_value("NSYS_NVTX_PROFILER_REGISTER_ONLY"), Some(Some(OsStr::new("0"))));
        assert_eq!(profile.report(), Path::new("r.nsys-rep"));

        let profile =
            NsysProfile { capture_range: capture(CaptureEnd::StopShutdown), ..NsysProfile::new("r") };
        let line = profile.command(&test_nsys("2025.3.1", NEW, &[]), &program()).command;
        assert!(line.to_string().contains("=stop-shutdown"), "{line}");
    }

    #[test]
    fn a_percent_sign_in_a_path_is_not_a_pattern() {
        let line =
            NsysProfile::new("/a/100%p/run").command(&test_nsys("2023.4.4", OLD, &[]), &program()).command;
        assert!(line.args.contains(&OsString::from("--output=/a/100%%p/run")));
        assert_eq!(NsysProfile::new("/a/100%p/run").unimported(), Path::new("/a/100%p/run.qdstrm"));
    }

    #[test]
    fn an_api_this_version_does_not_list_is_left_out() {
        let profile = NsysProfile {
            trace: ["cuda", "nvtx", "cublas", "python-gil"].map(str::to_owned).to_vec(),
            ..NsysProfile::new("r")
        };
        let planned = profile.command(&test_nsys("2022.4.2", OLD, &[]), &program());
        assert!(planned.command.to_string().contains("--trace=cuda,nvtx,cublas "), "{}", planned.command);
        assert_eq!(planned.left_out, ["--trace=python-gil: not supported by this nsys"]);
    }

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
