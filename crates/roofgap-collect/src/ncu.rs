//! Command lines and output of ncu: measuring kernel launches of a program, and report pages as CSV.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::command::{
    CommandLine, NvtxRange, PlannedCommand, escape_percent, escaped, matches_wildcards, option_values,
    with_suffix,
};
use crate::tool::Ncu;

option_values! {
    /// GPU clocks during a measurement.
    ClockControl {
        /// Not controlled, so durations compare with the timeline.
        #[default]
        None = "none",
        /// Locked to base: repeatable, but not comparable with the timeline.
        Base = "base",
    }
    /// GPU caches between replay passes.
    CacheControl {
        /// Flushed before each pass, so all passes agree.
        #[default]
        All = "all",
        /// Not flushed.
        None = "none",
    }
    /// Unit of replay for measurements of several passes.
    ReplayMode {
        /// One launch, with its memory restored.
        #[default]
        Kernel = "kernel",
        /// The whole program.
        Application = "application",
    }
    /// Processes whose launches are measured.
    TargetProcesses {
        /// The program and its descendants.
        #[default]
        All = "all",
        /// Only the program itself.
        ApplicationOnly = "application-only",
    }
    /// A page of an ncu report.
    Page {
        /// One row per launch, one column per metric.
        #[default]
        Raw = "raw",
        /// One row per metric, with the results of ncu's rules.
        Details = "details",
    }
}

/// Options of `ncu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NcuProfile {
    /// Path of the report without the suffix `.ncu-rep`.
    pub output: PathBuf,
    /// Mangled names of the kernels to measure; empty means all. nsys and ncu demangle differently (ncu drops inner namespaces and
    /// casts), so a readable name from a timeline often matches nothing.
    pub kernels: Vec<String>,
    /// NVTX ranges to measure; empty means everything.
    pub ranges: Vec<NvtxRange>,
    /// NVTX ranges to exclude, such as warm-up.
    pub excluded_ranges: Vec<NvtxRange>,
    /// Start/end range that is open in the processes to exclude.
    pub excluded_processes: Option<NvtxRange>,
    /// Launches to measure for each kernel, grid and block.
    pub launches_per_config: u32,
    /// Set of sections.
    pub set: Option<String>,
    /// Sections.
    pub sections: Vec<String>,
    /// Metrics.
    pub metrics: Vec<String>,
    /// Clock control.
    pub clock: ClockControl,
    /// Cache control.
    pub cache: CacheControl,
    /// Replay mode.
    pub replay: ReplayMode,
    /// Processes to measure.
    pub processes: TargetProcesses,
    /// User arguments, placed before the program.
    pub extra: Vec<String>,
}

impl NcuProfile {
    /// Creates the default: all kernels, each launch configuration once.
    pub fn new(output: impl Into<PathBuf>) -> Self {
        Self { output: output.into(), launches_per_config: 1, ..Self::default() }
    }

    /// Returns the path of the report. ncu writes none when it measured nothing.
    pub fn report(&self) -> PathBuf {
        with_suffix(&self.output, ".ncu-rep")
    }

    /// Builds `ncu ... PROGRAM ...` from the options, sets and sections this ncu supports.
    pub fn command(&self, ncu: &Ncu, program: &CommandLine) -> PlannedCommand {
        let mut left_out = Vec::new();
        let mut line = CommandLine::new(&ncu.path).args([
            "--target-processes",
            self.processes.as_str(),
            "--force-overwrite",
        ]);
        line = line.arg("--export").arg(escape_percent(&self.output));
        line = self.policies(ncu, line, &mut left_out);
        line = self.filters(ncu, line, &mut left_out);
        line = self.measures(ncu, line, &mut left_out);
        // Children run in a background process group and would stop when they read the terminal.
        if ncu.help.has("--null-stdin") {
            line = line.arg("--null-stdin");
        }
        let command = line.args(self.extra.iter().map(String::as_str)).around(program);
        PlannedCommand { command, left_out }
    }

    fn policies(&self, ncu: &Ncu, mut line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        for (option, value) in [
            ("--clock-control", self.clock.as_str()),
            ("--cache-control", self.cache.as_str()),
            ("--replay-mode", self.replay.as_str()),
        ] {
            if knows(ncu, option) {
                line = line.args([option, value]);
            } else {
                left_out.push(format!("{option} {value}: not supported by this ncu"));
            }
        }
        if ncu.help.offers("--graph-profiling", "node") {
            line = line.args(["--graph-profiling", "node"]);
        }
        line
    }

    fn filters(&self, ncu: &Ncu, mut line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        if !self.ranges.is_empty() || !self.excluded_ranges.is_empty() || self.excluded_processes.is_some() {
            line = line.arg("--nvtx");
        }
        for range in &self.ranges {
            line = line.arg("--nvtx-include").arg(range.for_ncu());
        }
        for range in &self.excluded_ranges {
            line = line.arg("--nvtx-exclude").arg(range.for_ncu());
        }
        if let Some(range) = &self.excluded_processes {
            line = line.arg("--nvtx-exclude").arg(range.of_process_for_ncu());
        }
        if !self.kernels.is_empty() {
            let (expression, count) = alternation(&self.kernels);
            let distinct = self.kernels.iter().collect::<std::collections::HashSet<_>>().len();
            if count < distinct {
                left_out.push(format!(
                    "{} of {distinct} kernel names: too long for one command line",
                    distinct - count
                ));
            }
            line = line.args(["--kernel-name-base", "mangled", "--kernel-name", &expression]);
        }
        let per_config = self.launches_per_config;
        if ncu.help.is_empty() || ncu.help.offers("--filter-mode", "per-launch-config") {
            line = line.args(["--filter-mode", "per-launch-config"]);
            return line.args(["--launch-count", &per_config.to_string()]);
        }
        // A program repeats its kernels, so the first launches include several of each.
        let kernels = u32::try_from(self.kernels.len().max(8)).unwrap_or(u32::MAX);
        let first = kernels.saturating_mul(8).saturating_mul(per_config);
        left_out.push(format!(
            "--filter-mode per-launch-config: not supported by this ncu; the first {first} launches are measured"
        ));
        line.args(["--launch-count", &first.to_string()])
    }

    fn measures(&self, ncu: &Ncu, mut line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        let lists = |known: &[String], name: &String| known.is_empty() || known.contains(name);
        if let Some(set) = &self.set {
            // Named `default` up to 2022.
            let older = (set == "basic").then(|| "default".to_owned()).filter(|name| ncu.sets.contains(name));
            if lists(&ncu.sets, set) {
                line = line.args(["--set", set]);
            } else if let Some(older) = older {
                line = line.args(["--set", &older]);
            } else {
                left_out.push(format!("--set {set}: this ncu supports only {}", ncu.sets.join(", ")));
            }
        }
        for section in &self.sections {
            let sections = matching_sections(section, &ncu.sections);
            if sections.is_empty() {
                left_out.push(format!("--section {section}: matches no section of this ncu"));
            }
            for name in sections {
                line = line.args(["--section", name]);
            }
        }
        if self.metrics.is_empty() { line } else { line.arg("--metrics").arg(self.metrics.join(",")) }
    }
}

/// Finds the sections that a name or a pattern selects. A pattern has `.*` or `*` for any text, with `regex:` before it or not. Other
/// regular expressions, and all where the sections are unknown, are left to ncu.
fn matching_sections<'a>(section: &'a str, known: &'a [String]) -> Vec<&'a str> {
    let pattern = section.strip_prefix("regex:");
    let wildcards = pattern.unwrap_or(section).replace(".*", "*");
    let is_plain = wildcards.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '*'));
    if known.is_empty() || (pattern.is_some() && !is_plain) {
        return vec![section];
    }
    known.iter().map(String::as_str).filter(|name| matches_wildcards(&wildcards, name)).collect()
}

fn knows(ncu: &Ncu, option: &str) -> bool {
    ncu.help.is_empty() || ncu.help.has(option)
}

/// Longest name, in characters, that is matched in full; longer names are matched by start and end. Linux limits one
/// argument to 128 KiB, and names of generated kernels reach many thousand characters.
const MAX_NAME: usize = 1000;
/// Maximum length of the expression, bytes.
const MAX_EXPRESSION: usize = 120_000;

/// Builds `regex:^(a|b|c)$` that matches these names literally; returns it and the number of names that fit.
fn alternation(names: &[String]) -> (String, usize) {
    let mut length = 0;
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let literal = literal(name);
        if taken.contains(&literal) {
            continue;
        }
        length += literal.len() + 1;
        if length > MAX_EXPRESSION {
            break;
        }
        taken.push(literal);
    }
    (format!("regex:^({})$", taken.join("|")), taken.len())
}

/// Characters with a meaning in a regular expression.
const REGEX_SYNTAX: &str = r"\^$.|?*+()[]{}";

fn literal(name: &str) -> String {
    let escape = |text: &str| escaped(text, REGEX_SYNTAX);
    let count = name.chars().count();
    if count <= MAX_NAME {
        return escape(name);
    }
    let head: String = name.chars().take(MAX_NAME * 3 / 4).collect();
    let end: String = name.chars().skip(count - MAX_NAME / 4).collect();
    format!("{}.*{}", escape(&head), escape(&end))
}

/// Splits metrics into those the chip supports and the rest. One unknown name makes ncu measure nothing.
pub fn split_supported(wanted: Vec<String>, known: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    wanted.into_iter().partition(|metric| {
        // ncu expands `regex:`, `group:` and `breakdown:` to existing metrics.
        metric.contains(':') || metric.split('.').next().is_some_and(|base| known.contains(base))
    })
}

/// Returns the chip of a compute capability, as in `ncu --query-metrics --chips`.
pub fn chip_name(major: u32, minor: u32) -> Option<&'static str> {
    Some(match (major, minor) {
        (7, 0) => "gv100",
        (7, 5) => "tu102",
        (8, 0) => "ga100",
        (8, 6) => "ga102",
        (8, 7) => "ga10b",
        (8, 9) => "ad102",
        (9, 0) => "gh100",
        (10, 0) => "gb100",
        (10, 3) => "gb110",
        (12, 0) => "gb202",
        _ => return None,
    })
}

/// Builds `ncu --import REPORT --page ... --csv`, which prints CSV in base units.
pub fn import(ncu: &Ncu, report: &Path, page: Page) -> CommandLine {
    let line = CommandLine::new(&ncu.path).arg("--import").arg(report);
    line.args(["--page", page.as_str(), "--csv", "--print-units", "base"])
}

/// Tells whether a line of ncu is about a measured launch: `==PROF== Profiling "name" - 3: 0%....50%....100% - 9 passes`. An incomplete
/// line counts too: ncu appends progress to it.
pub fn is_measured_launch(line: &str) -> bool {
    let rest = line.trim_start().strip_prefix("==PROF== Profiling ");
    rest.and_then(|rest| rest.strip_prefix('"')).is_some_and(|rest| rest.contains('"'))
}

/// Reason why ncu measured nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NcuFailure {
    /// Message, of ncu where no better one is known.
    pub message: String,
    /// Suggested fix.
    pub remedy: &'static str,
}

/// Fix for a driver that restricts performance counters to administrators.
pub const PERMISSION_REMEDY: &str = "run as root (sudo -E), or allow all users: put \"options nvidia NVreg_RestrictProfilingToAdminUsers=0\" \
     into a file of /etc/modprobe.d and reload the driver; in a container add --cap-add=SYS_ADMIN";

/// Failures, causes before their consequences: words in a line of ncu, the message where it is not that line, and the fix.
const FAILURES: [(&[&str], Option<&str>, &str); 6] = [
    (
        &["ERR_NVGPUCTRPERM"],
        Some("this user may not read performance counters (ERR_NVGPUCTRPERM)"),
        PERMISSION_REMEDY,
    ),
    (
        &[
            "did not match any section",
            "Failed to find metric",
            "Invalid metric",
            "Unknown metric",
            "section set",
        ],
        None,
        "see ncu --list-sets, --list-sections and --query-metrics for the valid names",
    ),
    (
        &["driver resource was unavailable"],
        None,
        "stop other profilers on this GPU (DCGM: dcgmi profiling --pause), then try again",
    ),
    (
        &["driver is not installed", "Cuda driver is not compatible"],
        None,
        "install or update the NVIDIA driver; nvidia-smi must work",
    ),
    (
        &["No kernels were profiled"],
        Some("no kernel was profiled"),
        "no launch matched the filters: the program may use other kernels under ncu, or its NVTX ranges did not open",
    ),
    (&["==ERROR=="], None, "see the log of ncu"),
];

impl NcuFailure {
    /// Finds the failure that explains an empty result in the output of ncu, whose lines begin with `==`.
    pub fn find(output: &str) -> Option<Self> {
        FAILURES.iter().find_map(|(words, message, remedy)| {
            let is_told = |line: &&str| line.contains("==") && words.iter().any(|word| line.contains(word));
            let line = output.lines().find(is_told)?;
            let message = message.unwrap_or(line.trim().trim_start_matches("==ERROR==").trim());
            Some(Self { message: message.to_owned(), remedy })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{Help, Version};
    use std::path::Path;

    const HELP: &str = "  --clock-control arg (=base)   x\n  --cache-control arg  x\n  --replay-mode arg  x\n  \
        --graph-profiling arg (=node) CUDA graph profiling mode:\n      node (default)\n  --null-stdin  x\n  \
        --filter-mode arg (=global)  Modes:\n    per-launch-config: Apply\n";
    const OLD_HELP: &str = "  --clock-control arg  x\n  --cache-control arg  x\n  --replay-mode arg  x\n";

    fn ncu(help: &str) -> Ncu {
        Ncu {
            path: "/opt/ncu".into(),
            version: Version::find("2025.3.1"),
            help: Help::parse(help),
            sets: ["basic", "roofline"].map(str::to_owned).to_vec(),
            sections: ["SpeedOfLight", "Occupancy"].map(str::to_owned).to_vec(),
        }
    }

    fn profile() -> NcuProfile {
        NcuProfile {
            kernels: vec!["_Z4burnPf".to_owned(), "nvjet_a.b".to_owned()],
            ranges: ["LLM@prefill", "LLM@decode_all"].map(|range| NvtxRange::parse(range).unwrap()).to_vec(),
            excluded_ranges: vec![NvtxRange::parse("LLM@warmup").unwrap()],
            sections: vec![
                "SpeedOfLight".to_owned(),
                ".*Roofline.*".to_owned(),
                "regex:Occ.*".to_owned(),
                "regex:Mem[a-z]+".to_owned(),
            ],
            metrics: vec!["gpu__time_duration.sum".to_owned(), "dram__bytes_read.sum".to_owned()],
            ..NcuProfile::new("/runs/1/ncu/all")
        }
    }

    #[test]
    fn one_run_for_the_whole_profile() {
        let planned = profile().command(&ncu(HELP), &CommandLine::new("python3").arg("x.py"));
        assert_eq!(
            planned.command.to_string(),
            "/opt/ncu --target-processes all --force-overwrite --export /runs/1/ncu/all --clock-control none \
             --cache-control all --replay-mode kernel --graph-profiling node --nvtx --nvtx-include LLM@prefill/ \
             --nvtx-include LLM@decode_all/ --nvtx-exclude LLM@warmup/ --kernel-name-base mangled \
             --kernel-name 'regex:^(_Z4burnPf|nvjet_a\\.b)$' --filter-mode per-launch-config --launch-count 1 \
             --section SpeedOfLight --section Occupancy --section 'regex:Mem[a-z]+' --metrics gpu__time_duration.sum,dram__bytes_read.sum \
             --null-stdin python3 x.py"
        );
        assert_eq!(planned.left_out, ["--section .*Roofline.*: matches no section of this ncu"]);
    }

    #[test]
    fn processes_are_excluded_by_a_range_of_theirs() {
        let profile =
            NcuProfile { excluded_processes: NvtxRange::parse("roofgap.other_rank"), ..NcuProfile::new("r") };
        let line = profile.command(&ncu(HELP), &CommandLine::new("a")).command;
        let words = line.to_string();
        assert!(words.contains("--nvtx --nvtx-exclude roofgap.other_rank --filter-mode"), "{words}");
    }

    #[test]
    fn sections_by_pattern() {
        let known = ["SpeedOfLight", "SpeedOfLight_RooflineChart", "Occupancy"].map(str::to_owned);
        for (pattern, selected) in [
            ("SpeedOfLight", &["SpeedOfLight"] as &[&str]),
            (".*SpeedOfLight.*", &["SpeedOfLight", "SpeedOfLight_RooflineChart"]),
            ("*Chart", &["SpeedOfLight_RooflineChart"]),
            ("regex:.*ccup.*", &["Occupancy"]),
            ("Chart", &[]),
            ("regex:(a|b)", &["regex:(a|b)"]),
        ] {
            assert_eq!(matching_sections(pattern, &known), selected, "{pattern}");
        }
        assert_eq!(matching_sections("Anything", &[]), ["Anything"]);
    }

    #[test]
    fn options_an_older_ncu_lacks_are_left_out() {
        let profile = NcuProfile { set: Some("full".to_owned()), ..NcuProfile::new("r") };
        let planned = profile.command(&ncu(OLD_HELP), &CommandLine::new("a"));
        let line = planned.command.to_string();
        assert!(
            !line.contains("filter-mode") && !line.contains("null-stdin") && !line.contains("--set"),
            "{line}"
        );
        assert_eq!(planned.left_out.len(), 2, "{:?}", planned.left_out);
        assert!(planned.left_out.iter().any(|why| why.contains("only basic, roofline")));
    }

    #[test]
    fn the_basic_set_under_its_older_name() {
        let mut old = ncu(OLD_HELP);
        old.sets = vec!["default".to_owned()];
        let profile = NcuProfile { set: Some("basic".to_owned()), ..NcuProfile::new("r") };
        let line = profile.command(&old, &CommandLine::new("a")).command.to_string();
        assert!(line.contains("--set default"), "{line}");
    }

    #[test]
    fn a_report_is_read_in_base_units() {
        assert_eq!(profile().report(), Path::new("/runs/1/ncu/all.ncu-rep"));
        assert_eq!(
            import(&ncu(HELP), &profile().report(), Page::Raw).to_string(),
            "/opt/ncu --import /runs/1/ncu/all.ncu-rep --page raw --csv --print-units base"
        );
    }
}

#[cfg(test)]
mod kernel_filter_tests {
    use super::*;

    fn matched(names: &[&str]) -> (String, usize) {
        alternation(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_taken_literally_and_once() {
        assert_eq!(
            matched(&["_Z4burnPf", "nvjet_1", "_Z4burnPf"]),
            ("regex:^(_Z4burnPf|nvjet_1)$".to_owned(), 2)
        );
        let (expression, _) = matched(&["void at::f<(int)4, T[]>(T1 *, a::{b}) const^$|.?+\\"]);
        assert_eq!(
            expression,
            r"regex:^(void at::f<\(int\)4, T\[\]>\(T1 \*, a::\{b\}\) const\^\$\|\.\?\+\\)$"
        );
    }

    #[test]
    fn a_long_name_is_matched_by_both_ends() {
        let name = format!("{}{}", "a".repeat(5000), "(".repeat(5000));
        let (expression, count) = matched(&[&name]);
        assert_eq!(count, 1);
        assert_eq!(expression, format!("regex:^({}.*{})$", "a".repeat(750), r"\(".repeat(250)));
    }

    #[test]
    fn an_argument_never_gets_too_long_for_the_kernel() {
        let names: Vec<String> = (0..500).map(|index| format!("{index}_{}", "x".repeat(900))).collect();
        let (expression, count) = alternation(&names);
        assert!(expression.len() <= 128 * 1024 - 32);
        assert!((100..500).contains(&count));
        assert!(expression.ends_with(")$"));
    }
}

#[cfg(test)]
mod metrics_tests {
    use super::*;

    #[test]
    fn unsupported_metrics_are_split_off() {
        let known = BTreeSet::from(["gpu__time_duration".to_owned(), "sm__throughput".to_owned()]);
        let wanted =
            ["gpu__time_duration.sum", "flop_count_hp", "breakdown:sm__throughput"].map(str::to_owned);
        let (have, lack) = split_supported(wanted.to_vec(), &known);
        assert_eq!(have, ["gpu__time_duration.sum", "breakdown:sm__throughput"]);
        assert_eq!(lack, ["flop_count_hp"]);
    }
}

#[cfg(test)]
mod output_tests {
    use super::*;

    #[test]
    fn a_measured_launch() {
        for line in [
            "==PROF== Profiling \"void f<\"x\">(int)\" - 12: 0%....50%....100% - 9 passes",
            "==PROF== Profiling \"burn\" - 0 (1/6): 0%....50%....100% - 1 pass",
            "==PROF== Profiling \"burn\" - 0: 0%",
        ] {
            assert!(is_measured_launch(line), "{line}");
        }
        for line in ["==PROF== Connected to process 12", "==PROF== Profiling \"burn", "burn"] {
            assert!(!is_measured_launch(line), "{line}");
        }
    }

    #[test]
    fn causes_come_before_their_consequences() {
        let text = "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access \
                    NVIDIA GPU Performance Counters on the target device 0.\n==WARNING== No kernels were profiled.\n";
        let failure = |text: &str| NcuFailure::find(text).unwrap();
        assert_eq!(failure(text).remedy, PERMISSION_REMEDY);
        assert_eq!(failure("==WARNING== No kernels were profiled.\n").message, "no kernel was profiled");
        let section = "==ERROR== Option '--section .*SpeedOfLight.*' did not match any section.";
        assert_eq!(failure(section).message, section.trim_start_matches("==ERROR== "));
        assert!(failure(section).remedy.contains("--list-sections"));
        let other = failure("==ERROR== The application returned an error code (1).");
        assert_eq!(other.remedy, "see the log of ncu");
        assert_eq!(NcuFailure::find("==PROF== Disconnected from process 1"), None);
    }
}
