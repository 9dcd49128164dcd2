//! `ncu`: measuring kernel launches of a program.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::kernel_filter::{self, NameBase};
use crate::command::{CommandLine, PlannedCommand, escape_percent, with_suffix};
use crate::range::NvtxRange;
use crate::tool::Ncu;

/// GPU clocks during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockControl {
    /// Not controlled, so durations compare with the timeline.
    #[default]
    None,
    /// Locked to base: repeatable, but not comparable with the timeline.
    Base,
}

/// GPU caches between replay passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheControl {
    /// Flushed before each pass, so all passes agree.
    #[default]
    All,
    /// Not flushed.
    None,
}

/// Unit of replay for measurements of several passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayMode {
    /// One launch, with its memory restored.
    #[default]
    Kernel,
    /// The whole program.
    Application,
}

/// Processes whose launches are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetProcesses {
    /// The program and its descendants.
    #[default]
    All,
    /// Only the program itself.
    ApplicationOnly,
}

/// Options of `ncu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NcuProfile {
    /// Path of the report without the suffix `.ncu-rep`.
    pub output: PathBuf,
    /// Names of the kernels to measure; empty means all.
    pub kernels: Vec<String>,
    /// Form of these names.
    pub name_base: NameBase,
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
        NcuProfile { output: output.into(), launches_per_config: 1, ..NcuProfile::default() }
    }

    /// Returns the path of the report. ncu writes none when it measured nothing.
    pub fn report(&self) -> PathBuf {
        with_suffix(&self.output, ".ncu-rep")
    }

    /// Builds `ncu ... PROGRAM ...` from the options, sets and sections this ncu supports.
    pub fn command(&self, ncu: &Ncu, program: &CommandLine) -> PlannedCommand {
        let mut left_out = Vec::new();
        let processes = match self.processes {
            TargetProcesses::All => "all",
            TargetProcesses::ApplicationOnly => "application-only",
        };
        let mut line =
            CommandLine::new(&ncu.path).args(["--target-processes", processes, "--force-overwrite"]);
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

    fn policies(&self, ncu: &Ncu, line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        let clock = match self.clock {
            ClockControl::None => "none",
            ClockControl::Base => "base",
        };
        let cache = match self.cache {
            CacheControl::All => "all",
            CacheControl::None => "none",
        };
        let replay = match self.replay {
            ReplayMode::Kernel => "kernel",
            ReplayMode::Application => "application",
        };
        let mut line = line;
        for (option, value) in
            [("--clock-control", clock), ("--cache-control", cache), ("--replay-mode", replay)]
        {
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

    fn filters(&self, ncu: &Ncu, line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        let mut line = line;
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
            let (expression, count) = kernel_filter::alternation(&self.kernels);
            let distinct = self.kernels.iter().collect::<std::collections::HashSet<_>>().len();
            if count < distinct {
                left_out.push(format!(
                    "{} of {distinct} kernel names: too long for one command line",
                    distinct - count
                ));
            }
            line = line.args(["--kernel-name-base", self.name_base.as_str(), "--kernel-name", &expression]);
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

    fn measures(&self, ncu: &Ncu, line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        let mut line = line;
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
            let found = matching_sections(section, &ncu.sections);
            if found.is_empty() {
                left_out.push(format!("--section {section}: matches no section of this ncu"));
            }
            for name in found {
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

/// Returns true where `*` of the pattern can stand for the rest of the text.
fn matches_wildcards(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| rest.get(at..).is_some_and(|rest| matches_wildcards(after, rest)))
        }),
    }
}

fn knows(ncu: &Ncu, option: &str) -> bool {
    ncu.help.is_empty() || ncu.help.has(option)
}

#[cfg(test)]
mod tests {
    use super::super::output::{Page, import};
    use super::*;
    use crate::tool::{Help, ToolLocation, Version};
    use std::path::Path;

    const HELP: &str = "  --clock-control arg (=base)   x\n  --cache-control arg  x\n  --replay-mode arg  x\n  \
        --graph-profiling arg (=node) CUDA graph profiling mode:\n      node (default)\n  --null-stdin  x\n  \
        --filter-mode arg (=global)  Modes:\n    per-launch-config: Apply\n";
    const OLD_HELP: &str = "  --clock-control arg  x\n  --cache-control arg  x\n  --replay-mode arg  x\n";

    fn ncu(help: &str) -> Ncu {
        Ncu {
            path: "/opt/ncu".into(),
            location: ToolLocation::Path,
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
        for (pattern, found) in [
            ("SpeedOfLight", &["SpeedOfLight"] as &[&str]),
            (".*SpeedOfLight.*", &["SpeedOfLight", "SpeedOfLight_RooflineChart"]),
            ("*Chart", &["SpeedOfLight_RooflineChart"]),
            ("regex:.*ccup.*", &["Occupancy"]),
            ("Chart", &[]),
            ("regex:(a|b)", &["regex:(a|b)"]),
        ] {
            assert_eq!(matching_sections(pattern, &known), found, "{pattern}");
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
