//! The phases of a session and the files of a run, a row each: for recording, reading, listing and pruning.

use std::path::Path;

use roofgap_analyze::About;
use roofgap_collect::command::matches_wildcards;
use serde::{Deserialize, Serialize};

/// Files of a run with one purpose.
#[derive(Debug, Clone, Copy)]
pub struct FileRule {
    /// Path below the folder of the run without `.gz`; `*` stands for any text.
    pattern: &'static str,
    /// Purpose.
    pub kind: &'static str,
    packing: Packing,
    /// True for a file that every analysis reads. The timeline has one of several.
    is_input: bool,
    /// Source of files that can be regenerated.
    pub source: Option<FileSource>,
}

/// Compression of the files of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Never,
    /// Pruning compresses them.
    Pruning,
    /// The tool that records them compresses them; pruning does where it did not.
    Tool,
}

/// Source from which a file can be regenerated.
#[derive(Debug, Clone, Copy)]
pub struct FileSource {
    /// Place in the order of deletion, the least useful first.
    pub order: u8,
    /// Path of the source below the folder of the run.
    pub path: &'static str,
    /// Way to regenerate it.
    pub how: &'static str,
}

const fn file(pattern: &'static str, kind: &'static str) -> FileRule {
    FileRule { pattern, kind, packing: Packing::Never, is_input: false, source: None }
}

const fn recording(pattern: &'static str, kind: &'static str) -> FileRule {
    FileRule { packing: Packing::Pruning, ..file(pattern, kind) }
}

impl FileRule {
    const fn from(self, order: u8, path: &'static str, how: &'static str) -> Self {
        Self { source: Some(FileSource { order, path, how }), ..self }
    }

    const fn input(self) -> Self {
        Self { is_input: true, ..self }
    }
}

/// Lists the paths of the files that every analysis of a run reads, in the order of the phases.
pub fn input_paths() -> impl Iterator<Item = &'static str> {
    let rules = PhaseName::ALL.iter().flat_map(|phase| phase.files());
    rules.filter(|rule| rule.is_input).map(|rule| rule.pattern)
}

/// Finds the rule of a file, plain or compressed. Rules of the session come first, then those of the phases in order.
pub fn file_rule(path: &Path) -> Option<&'static FileRule> {
    let name = path.to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let phases = PhaseName::ALL.iter().flat_map(|phase| phase.files());
    SESSION.iter().chain(phases).chain(&REST).find(|rule| matches_wildcards(rule.pattern, plain))
}

/// Returns true for a recording or log that is not compressed.
pub fn is_unpacked_recording(path: &Path) -> bool {
    let packed = path.extension().is_some_and(|end| end == "gz");
    !packed && file_rule(path).is_some_and(|rule| rule.packing != Packing::Never)
}

/// Returns true for a recording or log that pruning has compressed.
pub fn is_packed_recording(path: &Path) -> bool {
    let packed = path.extension().is_some_and(|end| end == "gz");
    packed && file_rule(path).is_some_and(|rule| rule.packing == Packing::Pruning)
}

/// Files of the whole session.
const SESSION: [FileRule; 8] = [
    file("session.json", "record of the session"),
    file("config.yaml", "configuration"),
    file(".running.json", "marker of a run in progress"),
    file("try.json", "trial of changes"),
    file("incident.json", "moment that the run was kept for"),
    file("metrics.txt", "metrics of the engine at that moment"),
    recording("*.log", "log"),
    recording("vitals/*.jsonl", "vitals of the GPUs"),
];

/// Files of any other program.
const REST: [FileRule; 1] = [recording("*.csv", "other")];

const NSYS_REPORT: &str = "nsys/run.nsys-rep";
const NCU_REPORT: &str = "ncu/plan.ncu-rep";
const NCU_IMPORT: &str = "`ncu --import` regenerates it";
const ACCOUNT: FileRule = file("*workload.json", "workload account");

macro_rules! phases {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $lacks:expr, [$($file:expr,)*];)*) => {
        /// A phase, in the order of execution.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum PhaseName {
            $($(#[$doc])* $name,)*
        }

        impl PhaseName {
            /// All phases in order.
            pub const ALL: &[PhaseName] = &[$(PhaseName::$name),*];

            /// Returns the name used in `session.json`, in `runner` of the configuration, and in `ROOFGAP_PHASE`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(PhaseName::$name => $text,)*
                }
            }

            /// Returns the results that are missing without the phase.
            pub fn results(self) -> Option<About> {
                match self {
                    $(PhaseName::$name => $lacks,)*
                }
            }

            /// Returns the rules of the files that the phase leaves.
            pub fn files(self) -> &'static [FileRule] {
                match self {
                    $(PhaseName::$name => const { &[$($file,)*] },)*
                }
            }
        }
    };
}

phases! {
    /// Checks tools, GPU, disk space and program.
    #[default]
    Preflight = "preflight", None, [
        file("env.json", "environment"),
        file("inputs.yaml", "inputs"),
        file("scripts/*", "script"),
    ];
    /// Runs the program without a profiler.
    Baseline = "baseline", Some(About::Overhead), [
        ACCOUNT,
        recording("*baseline/*.rgcap", "unprofiled calls"),
    ];
    /// Records the timeline.
    Timeline = "timeline", Some(About::Kernels), [
        recording("*.nsys-rep", "nsys report"),
        recording("nsys/run.sqlite", "timeline (nsys)").from(4, NSYS_REPORT, "`nsys export` regenerates it"),
        recording("*.sqlite", "timeline (nsys)"),
        recording("nsys/summary_*.csv", "nsys summary").from(1, NSYS_REPORT, "`nsys stats` regenerates it"),
        recording("nsys/*.csv", "nsys summary"),
        file("nsys/*.qdstrm", "other").from(0, NSYS_REPORT, "the nsys report has its content"),
        recording("*.rgcap", "timeline (native)"),
        recording("*.rgcap.old", "timeline (native)"),
        file("agreement.json", "agreement of two timelines"),
    ];
    /// Records the operators of the framework.
    Operators = "operators", Some(About::Operators), [
        FileRule { packing: Packing::Tool, ..file("torch/trace.json", "timeline (torch)") },
        file("torch/trace*", "timeline (torch)"),
        file("*operators.json", "workload account"),
    ];
    /// Plans the counters.
    Select = "select", None, [file("ncu/plan.json", "plan for ncu"),];
    /// Measures the counters of the plan.
    Counters = "counters", Some(About::Counters), [
        recording("ncu/*.ncu-rep", "ncu report").from(2, NCU_REPORT, "the report of the whole plan has its content"),
        recording("*.ncu-rep", "ncu report"),
        recording("ncu/plan_raw.csv", "counters").from(3, NCU_REPORT, NCU_IMPORT).input(),
        recording("ncu/plan_details.csv", "counters").from(3, NCU_REPORT, NCU_IMPORT).input(),
        recording("ncu/*.csv", "counters").from(3, NCU_REPORT, NCU_IMPORT),
    ];
    /// Analyses all recordings together.
    Analyze = "analyze", None, [file("metrics.json", "analysis"),];
    /// Writes the reports.
    Report = "report", None, [file("*.md", "report"), file("*.html", "report"),];
}

impl std::fmt::Display for PhaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_purpose_and_pruning_knows_recordings() {
        let kind = |path: &str| file_rule(Path::new(path)).map_or("other", |rule| rule.kind);
        for (path, expected) in [
            ("session.json", "record of the session"),
            ("nodes/a/session.json", "other"),
            ("nodes/a/native/1-2.rgcap.old.gz", "timeline (native)"),
            ("baseline/1-2.rgcap.gz", "unprofiled calls"),
            ("nsys/run.sqlite.gz", "timeline (nsys)"),
            ("torch/trace.json.gz", "timeline (torch)"),
            ("torch/operators.json", "workload account"),
            ("operators.md", "report"),
            ("ncu/plan.json", "plan for ncu"),
            ("ncu/decode_raw.csv", "counters"),
            ("program/baseline/metrics.json", "other"),
        ] {
            assert_eq!(kind(path), expected, "{path}");
        }
        for (path, unpacked, packed) in [
            ("nsys/run.sqlite", true, false),
            ("nsys/run.sqlite.gz", false, true),
            ("torch/trace.json", true, false),
            ("torch/trace.json.gz", false, false),
            ("program/other.csv", true, false),
            ("metrics.json", false, false),
        ] {
            let path = Path::new(path);
            assert_eq!(
                (is_unpacked_recording(path), is_packed_recording(path)),
                (unpacked, packed),
                "{path:?}"
            );
        }
    }
}
