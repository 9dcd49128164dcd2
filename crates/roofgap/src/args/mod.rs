//! Arguments. Each struct turns into the plain properties of the crate that uses it; only this folder and `meta.rs` know clap.

mod analyze;
mod common;
mod record;
mod runs;

pub use analyze::{Analyze, Compare, Demo, Export, ExportFormat, Open, Report};
pub use common::{Composition, Format};
#[cfg(feature = "embedded")]
pub use record::account_from_environment;
pub use record::{
    COUNTERS_US, Capture, Config, Doctor, Load, Profile, RING_STACKS_HZ, STACKS_HZ, Try, Watch,
};
pub use runs::{Mcp, OneRun, Runs, Serve};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use roofgap_analyze::Edit;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Profile LLMs on NVIDIA GPUs: where the time goes, how far it is from the roofline, and what to do first.
#[derive(Debug, Parser)]
#[command(
    name = "roofgap",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    override_usage = "roofgap [OPTIONS] <COMMAND>\n       roofgap FILE",
    after_help = "`roofgap FILE` opens the page of a capture or a run. More commands: report, workload, mcp, serve, completions, man, schema."
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command has.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Output format; markdown of analyze and compare, html of compare
    #[arg(
        id = "output_format",
        long = "format",
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub format: Format,
    /// Folder that contains the runs (default: tmp/stage2)
    #[arg(id = "runs_dir", long = "dir", global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print only the answer, warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print more progress
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to use colours; auto respects NO_COLOR
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: ColorWhen,
}

/// Commands by task.
const TASKS: [(&str, &[&str]); 4] = [
    ("Record", &["profile", "watch", "capture", "load"]),
    ("Read", &["analyze", "open", "demo", "explain", "compare", "export"]),
    ("Improve", &["what-if", "try"]),
    ("Manage", &["runs", "doctor", "config"]),
];

/// Returns the definition of the command line, whose help lists the commands by task.
pub fn definition() -> clap::Command {
    let command = Args::command();
    let style = *command.get_styles().get_header();
    let mut tasks = String::new();
    for (task, names) in TASKS {
        tasks.push_str(&format!("{style}{task}:{style:#}\n"));
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            tasks.push_str(&format!("  {:<9}{about}\n", sub.get_name()));
        }
        tasks.push('\n');
    }
    let options = format!("{style}Global options:{style:#}\n{{options}}");
    command
        .help_template(format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{tasks}{options}{{after-help}}"))
}

/// Puts `open` before the words of a command line that begins with a file or a folder instead of a command.
pub fn with_command(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    // A word with a dot or a slash was meant as a file, also where there is none.
    let is_path = |word: &OsString| {
        let text = word.to_string_lossy();
        Path::new(word).exists() || (!text.starts_with('-') && text.contains(['.', '/']))
    };
    let is_input = |word: &OsString| is_path(word) && Args::command().find_subcommand(word).is_none();
    if words.get(1).is_some_and(is_input) {
        words.insert(1, "open".into());
    }
    words
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Profile a program under nsys and ncu; by default the embedded model
    Profile(Profile),
    /// Analyse captures: of nsys, ncu, PyTorch, the native collector; or a run
    Analyze(Analyze),
    /// Open the page of a capture of an H200 that is part of this program
    Demo(Demo),
    /// Open the page of a run or a capture; by default of the latest run
    Open(Open),
    /// Write the reports of a run again
    #[command(hide = true)]
    Report(Report),
    /// Write captures and runs for other programs: Perfetto, flame graphs, tables in Parquet
    Export(Export),
    /// Compare two runs or captures; with --fail-on, a gate for CI
    Compare(Compare),
    /// Try the action of a finding: run the changed and the unchanged workload in turn
    Try(Try),
    /// List, show, merge, prune or scrub runs
    #[command(subcommand)]
    Runs(Runs),
    /// Check tools, driver, permissions and disk space, and say what to do
    Doctor(Doctor),
    /// Show the configuration and the origin of each value; list the presets
    #[command(subcommand)]
    Config(Config),
    /// Run the embedded model without a profiler
    #[cfg(feature = "embedded")]
    #[command(hide = true)]
    Workload(roofgap_workload::WorkloadProps),
    /// Send load to an OpenAI-compatible server and measure its latency
    Load(Load),
    /// Start a program that `capture` can record; with --record, keep slow steps
    Watch(Watch),
    /// Record a window of a watched program; without one, list what is watched
    Capture(Capture),
    /// Serve read-only tools for agents over the Model Context Protocol, on standard input and output
    #[command(hide = true)]
    Mcp(Mcp),
    /// Serve the runs over HTTP, read only: list, reports, files, comparisons
    #[command(hide = true)]
    Serve(Serve),
    /// Print a completion script for a shell
    #[command(hide = true)]
    Completions {
        /// Shell: bash, elvish, fish, powershell or zsh
        shell: String,
    },
    /// Explain a finding: what it means, how it was computed, how to fix it
    ///
    /// With captures, the finding is derived from their numbers; without a finding, all are listed.
    Explain {
        /// Id of the finding, such as launch-bound
        finding: Option<String>,
        /// Captures or a run whose finding to derive
        #[arg(value_name = "CAPTURE")]
        inputs: Vec<PathBuf>,
    },
    /// Predict the time of a step with changes, by replaying a capture
    ///
    /// Changes: graph, no-wait, host=FACTOR, no-other-work, kernel:NAME=SPEEDUPx, overlap-copies, no-allocations, fuse,
    /// fuse-attention. Several are made together.
    WhatIf {
        /// Capture or run
        input: PathBuf,
        /// Changes, such as graph or kernel:gemm=2x
        #[arg(required = true, value_name = "CHANGE")]
        edits: Vec<Edit>,
    },
    /// Print the manual page of a command; without one, the main page
    #[command(hide = true)]
    Man {
        /// Command and subcommand, such as `runs list`
        command: Vec<String>,
    },
    /// Print the JSON Schema of the analysis, or of try.json
    #[command(hide = true)]
    Schema {
        /// Document
        #[arg(value_enum, default_value_t)]
        document: Document,
    },
    /// Sample the hardware counters of all GPUs into a native capture, until interrupted
    #[cfg(all(feature = "embedded", target_os = "linux"))]
    #[command(hide = true)]
    SampleCounters {
        /// Folder of the capture; without it, only say whether counters can be sampled
        folder: Option<PathBuf>,
        /// Interval, us
        #[arg(long, default_value_t = 10)]
        interval_us: u64,
        /// Process with a CUDA that may have CUPTI beside it
        #[arg(long)]
        near: Option<u32>,
    },
    /// Sample energy, power, clocks and users of all GPUs into a file of JSON lines, until interrupted
    #[cfg(all(feature = "embedded", target_os = "linux"))]
    #[command(hide = true)]
    SampleVitals {
        /// File; without it, only say whether they can be sampled
        file: Option<PathBuf>,
        /// Also sample the activity of the GPUs; not while a profiler reads hardware counters
        #[arg(long)]
        activity: bool,
    },
    /// Kill the descendants of a process when it dies
    #[command(hide = true)]
    Guard {
        /// Process id
        pid: i32,
        /// Start time, clock ticks since boot
        start: u64,
    },
}

/// Document with a JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Document {
    /// metrics.json, and the output of analyze --format json
    #[default]
    Analysis,
    /// try.json
    Try,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_opened_and_a_command_stays_one() {
        let words = |text: &str| with_command(text.split(' ').map(OsString::from));
        assert_eq!(
            words("roofgap Cargo.toml --no-browser"),
            ["roofgap", "open", "Cargo.toml", "--no-browser"]
        );
        assert_eq!(words("roofgap src"), ["roofgap", "open", "src"]);
        assert_eq!(words("roofgap analyze src"), ["roofgap", "analyze", "src"]);
        assert_eq!(words("roofgap no-such-thing"), ["roofgap", "no-such-thing"]);
        assert_eq!(words("roofgap"), ["roofgap"]);
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn the_help_lists_every_command_by_task() {
        let command = definition();
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut shown: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut listed: Vec<&str> = TASKS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        listed.sort_unstable();
        assert_eq!(shown, listed);
    }

    /// Lists the flags of a command and of those below it. A flag of every command counts once.
    fn flags(command: &clap::Command, path: &str) -> Vec<String> {
        let own = command.get_arguments().filter(|arg| !arg.is_positional());
        let own = own.filter(|arg| path == "roofgap" || !arg.is_global_set());
        let own = own.filter_map(|arg| Some(format!("{path} --{}", arg.get_long()?)));
        let below =
            command.get_subcommands().flat_map(|sub| flags(sub, &format!("{path} {}", sub.get_name())));
        own.chain(below).collect()
    }

    #[test]
    fn flags_are_few() {
        let all = flags(&Args::command(), "roofgap");
        assert!(all.len() <= 90, "{} flags, at most 90:\n{}", all.len(), all.join("\n"));
        let analyze = all.iter().filter(|flag| flag.starts_with("roofgap analyze ")).count();
        assert!(analyze <= 14, "analyze has {analyze} flags, at most 14");
    }
}
