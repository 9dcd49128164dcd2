//! Which launches are measured, and how.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::pattern::{self, NameBase};
use crate::command::{CommandLine, Planned};
use crate::range::NvtxRange;
use crate::tool::Ncu;

/// What ncu does with the clocks while it measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockControl {
    /// They run as in the program itself, so durations compare with the timeline's.
    #[default]
    None,
    /// Locked to base: repeats well, compares with nothing.
    Base,
}

/// What ncu does with the caches between passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheControl {
    /// Flushed: each pass starts cold, and counters are the same in each.
    #[default]
    All,
    /// Left as they are.
    None,
}

/// How a launch is measured in several passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayMode {
    /// The launch is repeated with its memory restored.
    #[default]
    Kernel,
    /// The whole program is run again for each pass.
    Application,
}

/// Whose launches are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetProcesses {
    /// The program and what it starts.
    #[default]
    All,
    /// The program alone.
    ApplicationOnly,
}

/// Which of the launches that fit are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// The first `count` of each kernel, grid and block.
    PerLaunchConfig {
        /// How many of each.
        count: u32,
    },
    /// The first `count` of all, after `skip`.
    First {
        /// How many are passed over.
        skip: u32,
        /// How many are measured.
        count: u32,
    },
    /// All of them.
    All,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The report without its suffix: ncu adds `.ncu-rep`.
    pub output: PathBuf,
    /// Kernels by name; empty means all.
    pub kernels: Vec<String>,
    /// Which name that is.
    pub name_base: NameBase,
    /// Only launches inside one of these ranges; empty means all.
    pub ranges: Vec<NvtxRange>,
    /// Not those inside one of these, warm-up for one.
    pub except: Vec<NvtxRange>,
    /// Which launches of those.
    pub sampling: Sampling,
    /// A set of sections.
    pub set: Option<String>,
    /// Sections.
    pub sections: Vec<String>,
    /// Metrics.
    pub metrics: Vec<String>,
    /// Clocks.
    pub clock: ClockControl,
    /// Caches.
    pub cache: CacheControl,
    /// Passes.
    pub replay: ReplayMode,
    /// The program alone, or what it starts too.
    pub processes: TargetProcesses,
    /// End the program once `Sampling::First` is met. For each launch configuration ncu has no such end: watch its
    /// output with [`super::Profiled`] instead.
    pub end_when_met: bool,
    /// Arguments the user adds, before the program.
    pub extra: Vec<String>,
}

impl Plan {
    /// Nothing but where to: all kernels, each launch configuration once.
    pub fn to(output: impl Into<PathBuf>) -> Self {
        Plan {
            output: output.into(),
            kernels: Vec::new(),
            name_base: NameBase::Mangled,
            ranges: Vec::new(),
            except: Vec::new(),
            sampling: Sampling::PerLaunchConfig { count: 1 },
            set: None,
            sections: Vec::new(),
            metrics: Vec::new(),
            clock: ClockControl::None,
            cache: CacheControl::All,
            replay: ReplayMode::Kernel,
            processes: TargetProcesses::All,
            end_when_met: false,
            extra: Vec::new(),
        }
    }

    /// The report ncu leaves where it measured something.
    pub fn report(&self) -> PathBuf {
        let mut name = self.output.clone().into_os_string();
        name.push(".ncu-rep");
        name.into()
    }

    /// `ncu ... program ...`, with the options, sets and sections this ncu lists.
    pub fn command(&self, ncu: &Ncu, program: &CommandLine) -> Planned {
        let mut left_out = Vec::new();
        let processes = match self.processes {
            TargetProcesses::All => "all",
            TargetProcesses::ApplicationOnly => "application-only",
        };
        let mut line =
            CommandLine::new(&ncu.path).args(["--target-processes", processes, "--force-overwrite"]);
        line = line.arg("--export").arg(literal(&self.output));
        line = self.policies(ncu, line, &mut left_out);
        line = self.filters(ncu, line, &mut left_out);
        line = self.measures(ncu, line, &mut left_out);
        // Its children are in a background group and would stop on reading the terminal.
        if ncu.help.has("--null-stdin") {
            line = line.arg("--null-stdin");
        }
        let command = line.args(self.extra.iter().map(String::as_str)).around(program);
        Planned { command, left_out }
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
        for (option, value) in [
            ("--clock-control", clock),
            ("--cache-control", cache),
            ("--replay-mode", replay),
        ] {
            if knows(ncu, option) {
                line = line.args([option, value]);
            } else {
                left_out.push(format!("{option} {value}: this ncu has no such option"));
            }
        }
        if ncu.help.offers("--graph-profiling", "node") {
            line = line.args(["--graph-profiling", "node"]);
        }
        line
    }

    fn filters(&self, ncu: &Ncu, line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        let mut line = line;
        if !self.ranges.is_empty() || !self.except.is_empty() {
            line = line.arg("--nvtx");
        }
        for range in &self.ranges {
            line = line.arg("--nvtx-include").arg(range.for_ncu());
        }
        for range in &self.except {
            line = line.arg("--nvtx-exclude").arg(range.for_ncu());
        }
        if !self.kernels.is_empty() {
            let (expression, count) = pattern::alternation(&self.kernels);
            let distinct = self
                .kernels
                .iter()
                .collect::<std::collections::HashSet<_>>()
                .len();
            if count < distinct {
                left_out.push(format!(
                    "{} of {distinct} kernel names: too long for one command line",
                    distinct - count
                ));
            }
            line = line.args([
                "--kernel-name-base",
                self.name_base.as_str(),
                "--kernel-name",
                &expression,
            ]);
        }
        match self.sampling {
            Sampling::All => line,
            Sampling::First { skip, count } => {
                if skip > 0 {
                    line = line.args(["--launch-skip", &skip.to_string()]);
                }
                line = line.args(["--launch-count", &count.to_string()]);
                if self.end_when_met {
                    line.args(["--kill", "yes"])
                } else {
                    line
                }
            }
            Sampling::PerLaunchConfig { count } => {
                if ncu.help.is_empty() || ncu.help.offers("--filter-mode", "per-launch-config") {
                    return line.args([
                        "--filter-mode",
                        "per-launch-config",
                        "--launch-count",
                        &count.to_string(),
                    ]);
                }
                // A program goes round its kernels, so the first launches hold a few of each.
                let kernels = u32::try_from(self.kernels.len().max(8)).unwrap_or(u32::MAX);
                let first = kernels.saturating_mul(8).saturating_mul(count);
                left_out.push(format!(
                    "--filter-mode per-launch-config: this ncu has no such mode, so the first {first} launches are measured"
                ));
                line.args(["--launch-count", &first.to_string()])
            }
        }
    }

    fn measures(&self, ncu: &Ncu, line: CommandLine, left_out: &mut Vec<String>) -> CommandLine {
        let mut line = line;
        let lists = |known: &[String], name: &String| known.is_empty() || known.contains(name);
        if let Some(set) = &self.set {
            // The same set had another name up to 2022.
            let older = (set == "basic")
                .then(|| "default".to_owned())
                .filter(|name| ncu.sets.contains(name));
            if lists(&ncu.sets, set) {
                line = line.args(["--set", set]);
            } else if let Some(older) = older {
                line = line.args(["--set", &older]);
            } else {
                left_out.push(format!("--set {set}: this ncu has only {}", ncu.sets.join(", ")));
            }
        }
        for section in &self.sections {
            if section.starts_with("regex:") || lists(&ncu.sections, section) {
                line = line.args(["--section", section]);
            } else {
                left_out.push(format!("--section {section}: this ncu has no such section"));
            }
        }
        if self.metrics.is_empty() {
            line
        } else {
            line.arg("--metrics").arg(self.metrics.join(","))
        }
    }
}

fn knows(ncu: &Ncu, option: &str) -> bool {
    ncu.help.is_empty() || ncu.help.has(option)
}

/// A path in which ncu is not to see `%p`, `%i`, `%h` and the like.
fn literal(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => text.replace('%', "%%").into(),
        None => path.as_os_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::{Page, import};
    use super::*;
    use crate::tool::{Help, Place, Version};

    const HELP: &str = "  --clock-control arg (=base)   x\n  --cache-control arg  x\n  --replay-mode arg  x\n  \
        --graph-profiling arg (=node) CUDA graph profiling mode:\n      node (default)\n  --null-stdin  x\n  \
        --filter-mode arg (=global)  Modes:\n    per-launch-config: Apply\n";
    const OLD_HELP: &str = "  --clock-control arg  x\n  --cache-control arg  x\n  --replay-mode arg  x\n";

    fn ncu(help: &str) -> Ncu {
        Ncu {
            path: "/opt/ncu".into(),
            place: Place::Path,
            version: Version::find("2025.3.1"),
            help: Help::read(help),
            sets: ["basic", "roofline"].map(str::to_owned).to_vec(),
            sections: ["SpeedOfLight", "Occupancy"].map(str::to_owned).to_vec(),
        }
    }

    fn plan() -> Plan {
        Plan {
            kernels: vec!["_Z4burnPf".to_owned(), "nvjet_a.b".to_owned()],
            ranges: ["LLM@prefill", "LLM@decode_all"]
                .map(|range| NvtxRange::parse(range).unwrap())
                .to_vec(),
            except: vec![NvtxRange::parse("LLM@warmup").unwrap()],
            sections: vec![
                "SpeedOfLight".to_owned(),
                ".*Roofline.*".to_owned(),
                "regex:Mem.*".to_owned(),
            ],
            metrics: vec![
                "gpu__time_duration.sum".to_owned(),
                "dram__bytes_read.sum".to_owned(),
            ],
            ..Plan::to("/runs/1/ncu/all")
        }
    }

    #[test]
    fn one_run_for_the_whole_plan() {
        let planned = plan().command(&ncu(HELP), &CommandLine::new("python3").arg("x.py"));
        assert_eq!(
            planned.command.to_string(),
            "/opt/ncu --target-processes all --force-overwrite --export /runs/1/ncu/all --clock-control none \
             --cache-control all --replay-mode kernel --graph-profiling node --nvtx --nvtx-include LLM@prefill/ \
             --nvtx-include LLM@decode_all/ --nvtx-exclude LLM@warmup/ --kernel-name-base mangled \
             --kernel-name 'regex:^(_Z4burnPf|nvjet_a\\.b)$' --filter-mode per-launch-config --launch-count 1 \
             --section SpeedOfLight --section 'regex:Mem.*' --metrics gpu__time_duration.sum,dram__bytes_read.sum \
             --null-stdin python3 x.py"
        );
        assert_eq!(
            planned.left_out,
            ["--section .*Roofline.*: this ncu has no such section"]
        );
    }

    #[test]
    fn what_an_older_ncu_lacks_is_left_out_and_told() {
        let plan = Plan {
            set: Some("full".to_owned()),
            ..Plan::to("r")
        };
        let planned = plan.command(&ncu(OLD_HELP), &CommandLine::new("a"));
        let line = planned.command.to_string();
        assert!(
            !line.contains("filter-mode") && !line.contains("null-stdin") && !line.contains("--set"),
            "{line}"
        );
        assert_eq!(planned.left_out.len(), 2, "{:?}", planned.left_out);
        assert!(
            planned
                .left_out
                .iter()
                .any(|why| why.contains("only basic, roofline"))
        );
    }

    #[test]
    fn the_basic_set_under_its_older_name() {
        let mut old = ncu(OLD_HELP);
        old.sets = vec!["default".to_owned()];
        let plan = Plan {
            set: Some("basic".to_owned()),
            ..Plan::to("r")
        };
        let line = plan.command(&old, &CommandLine::new("a")).command.to_string();
        assert!(line.contains("--set default"), "{line}");
    }

    #[test]
    fn an_early_end_only_where_ncu_counts_over_all_launches() {
        let first = Plan {
            sampling: Sampling::First { skip: 50, count: 3 },
            end_when_met: true,
            ..Plan::to("r")
        };
        let line = first
            .command(&ncu(HELP), &CommandLine::new("a"))
            .command
            .to_string();
        assert!(
            line.contains("--launch-skip 50 --launch-count 3 --kill yes"),
            "{line}"
        );
        let each = Plan {
            end_when_met: true,
            ..Plan::to("r")
        };
        assert!(
            !each
                .command(&ncu(HELP), &CommandLine::new("a"))
                .command
                .to_string()
                .contains("--kill")
        );
    }

    #[test]
    fn a_report_is_read_in_base_units() {
        assert_eq!(plan().report(), Path::new("/runs/1/ncu/all.ncu-rep"));
        assert_eq!(
            import(&ncu(HELP), &plan().report(), Page::Raw).to_string(),
            "/opt/ncu --import /runs/1/ncu/all.ncu-rep --page raw --csv --print-units base"
        );
    }
}
