//! Arguments. Each struct turns into the plain properties of the crate that uses it; only this folder and `meta.rs` know clap.

mod analyze;
mod common;
mod record;
mod runs;

pub use analyze::{
    AnalysisFormat, Analyze, Compare, CompareFormat, Demo, Export, ExportFormat, Open, Report,
};
pub use clap_complete::Shell;
pub use common::{Format, OneRun};
#[cfg(feature = "embedded")]
pub use record::Workload;
pub use record::{
    COUNTERS_US, Capture, Config, Doctor, Load, Profile, RING_STACKS_HZ, STACKS_HZ, Try, Watch,
    account_from_environment,
};
#[cfg(feature = "mcp")]
pub use runs::Mcp;
#[cfg(feature = "serve")]
pub use runs::Serve;
pub use runs::{AllRuns, Runs};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Heading of the options that every command has.
const GLOBAL: &str = "Global options";

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
    after_help = "`roofgap FILE` opens the page of a capture or a run. More commands: report, workload, completions, man, schema."
)]
pub struct Args {
    /// Print only the answer, warnings and errors
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub quiet: bool,
    /// Print more progress
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub verbose: bool,
    /// When to use colours; auto respects NO_COLOR
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = GLOBAL)]
    pub color: ColorWhen,
    #[command(subcommand)]
    pub command: Command,
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
    /// Profile a program under nsys and ncu and write a run directory; by default the embedded model
    Profile(Profile),
    /// Analyse captures: nsys exports, PyTorch traces, ncu reports, native captures, run directories
    Analyze(Analyze),
    /// Analyse a capture of an H200 that is part of this program, and open its page; needs no GPU
    Demo(Demo),
    /// Open the page of a run or a capture in the browser; by default of the latest run
    Open(Open),
    /// Write the reports of a run again
    #[command(hide = true)]
    Report(Report),
    /// Write captures and runs for other programs: Perfetto, flame graphs, and Parquet tables of many runs
    Export(Export),
    /// Compare two runs or captures; with --fail-on, a gate for CI
    Compare(Compare),
    /// Try changes of the workload of a run, such as the action of a finding: run it changed and unchanged in turn, and keep the best or none
    Try(Try),
    /// List, show, merge, prune or scrub runs
    #[command(subcommand)]
    Runs(Runs),
    /// Check tools, versions, driver, permissions and disk space, and say how to fix each problem
    Doctor(Doctor),
    /// Show the configuration and the origin of each value, or list the presets
    #[command(subcommand)]
    Config(Config),
    /// Run the embedded model without a profiler
    #[cfg(feature = "embedded")]
    #[command(hide = true)]
    Workload(Workload),
    /// Send load to an OpenAI-compatible server and measure its latency; after --, the server to start
    Load(Load),
    /// Start a program with the native collector loaded and dormant, for `roofgap capture`; with --record, keep the last seconds of slow steps
    Watch(Watch),
    /// Record a window of a watched program, which runs on; without a process, list what is watched
    Capture(Capture),
    /// Serve read-only tools for agents over the Model Context Protocol, on standard input and output
    #[cfg(feature = "mcp")]
    Mcp(Mcp),
    /// Serve read-only tools for agents; not part of this build
    #[cfg(not(feature = "mcp"))]
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Mcp {
        /// Arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Serve the runs over HTTP: list, reports, files, comparisons; with --allow-run, start and follow sessions
    #[cfg(feature = "serve")]
    Serve(Serve),
    /// Serve the runs over HTTP; not part of this build
    #[cfg(not(feature = "serve"))]
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Serve {
        /// Arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Print a completion script for a shell
    #[command(hide = true)]
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Explain a finding: what it means, how it was computed, how to fix it; with captures, with their numbers; without one, list all
    Explain {
        /// Id of the finding, such as launch-bound
        finding: Option<String>,
        /// Captures or a run whose finding to derive
        #[arg(value_name = "CAPTURE")]
        inputs: Vec<PathBuf>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Print the manual page of a command; without one, the main page
    #[command(hide = true)]
    Man {
        /// Command and subcommand, such as `runs list`
        command: Vec<String>,
        /// Write the page of every command into this folder instead
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
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
        /// File
        file: PathBuf,
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
        Args::command().debug_assert();
    }
}
