//! Arguments. Each struct turns into the plain properties of the crate that uses it; only this file and `meta.rs` know clap.

use crate::failure::Failure;
use clap::{Parser, Subcommand, ValueEnum};
use regex_lite::Regex;
use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::model::{Architecture, Tokens, preset};
use roofgap_collect::command::{CommandLine, word_text};
use roofgap_report::{KernelOrder, NameFilter, Selection};
use roofgap_session::config::settings::DUTY;
use roofgap_session::config::{ConfigProps, Span};
use roofgap_session::load::Overrides as LoadOverrides;
use roofgap_session::run::attach::WindowLength;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use clap_complete::Shell;

/// Heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
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
    arg_required_else_help = true
)]
pub(crate) struct Args {
    /// Print only the answer, warnings and errors
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
    /// Print more progress
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: bool,
    /// When to use colours; auto respects NO_COLOR
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto, value_name = "WHEN", help_heading = GLOBAL)]
    pub(crate) color: ColorWhen,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Profile a program under nsys and ncu and write a run directory; by default the embedded model
    Profile(Profile),
    /// Analyse captures: nsys exports, PyTorch traces, ncu reports, native captures, run directories
    Analyze(Analyze),
    /// Analyse a capture of an H200 that is part of this program, and open its page; needs no GPU
    Demo(Demo),
    /// Open the page of a run or a capture in the browser; by default of the latest run
    Open(Open),
    /// Write the reports of a run again
    Report(Report),
    /// Compare two runs or captures; with --fail-on, a gate for CI
    Compare(Compare),
    /// Try the action of a finding: run the changed workload and the unchanged one in turn, and measure the difference
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
    Workload(Workload),
    /// Send load to an OpenAI-compatible server and measure its latency; after --, the server to start
    Load(Load),
    /// Start a program with the native collector loaded and dormant, for `roofgap capture`
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
    /// Collect many runs as Parquet tables and ask questions about them, with roofgap-lake
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lake {
        /// Arguments of roofgap-lake
        #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Explain a finding: what it means, how it was computed, how to fix it; without one, list all
    Explain {
        /// Id of the finding, such as launch-bound
        finding: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Print the manual page of a command; without one, the main page
    Man {
        /// Command and subcommand, such as `runs list`
        command: Vec<String>,
        /// Write the page of every command into this folder instead
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
    /// Print the JSON Schema of the analysis, or of try.json
    Schema {
        /// Document
        #[arg(value_enum, default_value_t = Document::Analysis)]
        document: Document,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Document {
    /// metrics.json, and the output of analyze --format json
    Analysis,
    /// try.json
    Try,
}

/// Output format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people
    Text,
    /// JSON for programs
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Analyze {
    /// Files, folders of captures, or a run directory; formats are detected from content. Timelines of several ranks are one analysis
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Write all reports into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the timeline as a trace for Perfetto or chrome://tracing; compressed if the name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,
    /// Write tables of events as Parquet into this folder, as run=NAME/rank=N/TABLE.parquet
    #[arg(long, value_name = "DIR")]
    pub(crate) parquet: Option<PathBuf>,
    /// Write GPU time by ranges and operators as a profile for speedscope
    #[arg(long, value_name = "FILE")]
    pub(crate) speedscope: Option<PathBuf>,
    /// Write GPU time by ranges and operators as folded stacks for flame graphs, in nanoseconds
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// Write times, tokens per second, MFU and overhead in the text format of Prometheus
    #[arg(long, value_name = "FILE")]
    pub(crate) prometheus: Option<PathBuf>,
    /// Write the same numbers as OpenTelemetry metrics (OTLP JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) otlp: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = AnalysisFormat::Text)]
    pub(crate) format: AnalysisFormat,
    #[command(flatten)]
    pub(crate) shown: Shown,
    #[command(flatten)]
    pub(crate) overrides: AnalysisOverrides,
    /// Rank whose analysis is shown, of several ranks of a job; by default the lowest
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// The nsys that exports a .nsys-rep file, if it is not on the PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) nsys: Option<PathBuf>,
}

/// Output format of an analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnalysisFormat {
    /// Tables for people
    Text,
    /// JSON for programs
    Json,
    /// The report as Markdown
    Markdown,
}

/// The part of an analysis that is shown.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is shown")]
pub(crate) struct Shown {
    /// Show this stage only
    #[arg(long, value_name = "STAGE")]
    pub(crate) only: Option<String>,
    /// Show only kernels whose full or short name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) kernel: Option<String>,
    /// Order of the kernels
    #[arg(long, value_enum, default_value_t = SortBy::Total, value_name = "BY")]
    pub(crate) sort: SortBy,
    /// Number of kernels to list; 0 lists none
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub(crate) top: usize,
}

/// Order of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// Total time, longest first
    Total,
    /// Mean time, longest first
    Mean,
    /// Number of calls, most first
    Calls,
    /// Time above the roof, longest first
    Roof,
    /// Name
    Name,
}

impl Shown {
    /// Returns the selection for the reports.
    pub(crate) fn props(&self) -> Result<Selection, Failure> {
        let regex = |pattern: &String| {
            Regex::new(pattern).map_err(|why| Failure::Regex {
                pattern: pattern.clone(),
                why,
            })
        };
        let kernel = self.kernel.as_ref().map(regex).transpose()?;
        let matches = |regex: Regex| -> NameFilter { Box::new(move |name| regex.is_match(name)) };
        Ok(Selection {
            stage: self.only.clone(),
            kernel: kernel.map(matches),
            order: match self.sort {
                SortBy::Total => KernelOrder::Total,
                SortBy::Mean => KernelOrder::Mean,
                SortBy::Calls => KernelOrder::Calls,
                SortBy::Roof => KernelOrder::AboveRoof,
                SortBy::Name => KernelOrder::Name,
            },
        })
    }
}

/// Facts that override what the inputs say.
#[derive(Debug, clap::Args)]
pub(crate) struct AnalysisOverrides {
    // Not a doc comment: rustdoc would read the brackets as a link.
    #[arg(
        long,
        value_name = "NAME=PATTERN",
        help = "Replace or add a stage: its name and its ranges, as [domain@]name, separated by commas"
    )]
    pub(crate) stage: Vec<String>,
    /// Model that ran: a preset such as deepseek_ocr, a config.json, or a folder with one
    #[arg(long, value_name = "NAME|config.json")]
    pub(crate) model: Option<String>,
    /// Prompt tokens, including image tokens
    #[arg(long, value_name = "N")]
    pub(crate) prompt_tokens: Option<u64>,
    /// Tokens generated per run
    #[arg(long, value_name = "N")]
    pub(crate) new_tokens: Option<u64>,
    /// Image tokens in the prompt
    #[arg(long, value_name = "N")]
    pub(crate) vision_tokens: Option<u64>,
    /// Batch size: sequences decoded together
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u64>,
    /// Dense peak of the GPU, TFLOP/s; replaces the known value
    #[arg(long, value_name = "TFLOPS")]
    pub(crate) peak_tflops: Option<f64>,
    /// Memory bandwidth of the GPU, GB/s; replaces the known value
    #[arg(long, value_name = "GBS")]
    pub(crate) bandwidth_gbs: Option<f64>,
}

impl AnalysisOverrides {
    /// Returns the overrides for the loader; reads the model file if one is named.
    pub(crate) fn props(&self) -> Result<LoadOverrides, Failure> {
        Ok(LoadOverrides {
            stages: self.stage.clone(),
            model: self.model.as_deref().map(model).transpose()?,
            tokens: Tokens {
                prompt: self.prompt_tokens,
                generated: self.new_tokens,
                batch: self.batch,
                vision: self.vision_tokens,
                views: None,
            },
            limits: UserLimits {
                peak_tflops: self.peak_tflops,
                bandwidth_gbs: self.bandwidth_gbs,
            },
            rank: None,
        })
    }
}

/// Returns the model that `--model` names: a preset, or a Hugging Face `config.json`.
fn model(name: &str) -> Result<Architecture, Failure> {
    let unknown = match preset(name) {
        Ok(architecture) => return Ok(architecture),
        Err(error) => error,
    };
    let mut path = PathBuf::from(name);
    if path.is_dir() {
        path.push("config.json");
    }
    if !path.is_file() {
        return Err(Failure::UnknownModel {
            name: name.to_owned(),
            preset: unknown,
        });
    }
    let read = || -> Result<Architecture, Box<dyn std::error::Error>> {
        let config: serde_json::Value =
            serde_json::from_slice(&roofgap_collect::file::read_document(&path)?)?;
        Ok(Architecture::from_config(&config)?)
    };
    read().map_err(|why| Failure::ModelFile { path, why })
}

/// Sources of a configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Composition {
    /// Overrides: group=option, key=value, +key=value, ~key
    #[arg(value_name = "OVERRIDE")]
    pub(crate) overrides: Vec<String>,
    /// Folder of presets that override the built-in ones
    #[arg(long, value_name = "DIR")]
    pub(crate) config_dir: Option<PathBuf>,
    /// Resolved configuration, such as the config.yaml of a run
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl Composition {
    /// Returns the properties that a configuration is composed from.
    pub(crate) fn props(self, program: &[OsString]) -> ConfigProps {
        ConfigProps {
            config_dir: self.config_dir,
            config: self.config,
            overrides: self.overrides,
            program: program.iter().map(|word| word_text(word)).collect(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Profile {
    #[command(flatten)]
    pub(crate) composition: Composition,
    /// Check everything and print the commands without running them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Output format; json prints the run, its state, what is missing and the paths of its files
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "dry_run")]
    pub(crate) format: Format,
    /// Program to profile and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Folder that contains the runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Base {
    /// Folder that contains the runs
    #[arg(long, value_name = "DIR", default_value = "tmp/stage2")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Folder for the capture and its reports (default: a new one for temporary files)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the path of the page without opening it
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Open {
    /// Run (id, prefix, folder or `latest`), a folder with a page, or captures, whose page is written to a temporary folder
    #[arg(value_name = "RUN|CAPTURE")]
    pub(crate) inputs: Vec<String>,
    /// Print the path of the page without opening it
    #[arg(long)]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) base: Base,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// Run: an id, a unique prefix of one, a folder, or `latest`
    pub(crate) run: String,
    /// Overrides of the run's configuration, such as model=qwen3_8b workload.prompt_tokens=512 workload.tokens=64
    #[arg(value_name = "OVERRIDE")]
    pub(crate) overrides: Vec<String>,
    /// Account of `roofgap load` whose requests the server of a captured window served
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) base: Base,
}

/// Output format of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Tables for people
    Text,
    /// JSON for programs
    Json,
    /// Markdown for a pull request comment
    Markdown,
    /// An HTML page
    Html,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// Before: a run (id, prefix, folder or `latest`), a metrics.json or a capture
    #[arg(value_name = "BASE")]
    pub(crate) before: String,
    /// After
    #[arg(value_name = "HEAD")]
    pub(crate) after: String,
    /// Exit with status 5 if a number is worse by more than this and by more than its noise: 5%, decode.wall=3%, prefill.busy=2ms
    #[arg(long, value_name = "LIMIT")]
    pub(crate) fail_on: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub(crate) format: CompareFormat,
    #[command(flatten)]
    pub(crate) base: Base,
    #[command(flatten)]
    pub(crate) overrides: AnalysisOverrides,
    /// The nsys that exports a .nsys-rep file, if it is not on the PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) nsys: Option<PathBuf>,
    /// Number of kernels and parts of a change to list
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub(crate) top: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Try {
    /// Run: an id, a unique prefix of one, a folder, or `latest`; with --history, the folder that contains the runs
    #[arg(required_unless_present = "history")]
    pub(crate) run: Option<String>,
    /// Findings of the run, such as launch-bound, or single changes, such as hf.cuda_graphs; by default the first finding with a change
    #[arg(value_name = "FINDING")]
    pub(crate) findings: Vec<String>,
    /// Try the changes of every finding
    #[arg(long, conflicts_with = "findings")]
    pub(crate) all: bool,
    /// Try an environment variable of the program, as a change of its own
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Time to spend on runs
    #[arg(long, value_name = "TIME", default_value = "20m")]
    pub(crate) budget: Span,
    /// Fewest runs of each workload; noisy ones run up to four times as often
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) repeats: u32,
    /// Keep changes that may change the output, such as another dtype
    #[arg(long)]
    pub(crate) accept_changed_output: bool,
    /// Start without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print the plan and its cost without running anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Compare predicted with measured gains of all runs in a folder
    #[arg(long, conflicts_with_all = ["findings", "all", "env", "dry_run", "yes"])]
    pub(crate) history: bool,
    #[command(flatten)]
    pub(crate) base: Base,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Reason against the value of `--env`.
#[derive(Debug, thiserror::Error)]
#[error("expected NAME=VALUE, with a name of letters, digits and underscores")]
struct NotAVariable;

/// Parses an environment variable.
fn variable(text: &str) -> Result<(String, String), NotAVariable> {
    let (name, value) = text.split_once('=').ok_or(NotAVariable)?;
    let mut letters = name.chars();
    let starts = letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if starts && letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err(NotAVariable)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List every run with its model, device, status, stage times and size
    List {
        #[command(flatten)]
        base: Base,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Show one run: its phases, what is missing, what to do first, and the command to repeat it
    Show(OneRun),
    /// List every file of a run with its size and SHA-256
    Artifacts(OneRun),
    /// Merge the runs of several nodes of one job into one run, and write its reports
    Merge {
        /// Runs: ids, unique prefixes of ids, or folders
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<String>,
        /// Folder of the merged run
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        #[command(flatten)]
        base: Base,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Compress older runs and delete files of large ones that can be regenerated
    Prune {
        /// Print what would be done and how much space it would free
        #[arg(long)]
        dry_run: bool,
        /// Folder that contains the runs (default: artifacts.stage2_dir)
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Number of the newest runs to keep whole (default: retention.keep)
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
        /// Overrides such as retention.keep=3, retention.max_run_bytes=1GB, artifacts.stage2_dir=DIR
        #[command(flatten)]
        composition: Composition,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Remove host names, user names, home paths and secrets from a run
    Scrub {
        #[command(flatten)]
        run: OneRun,
        /// Write the clean files into an archive (.tar.gz)
        #[arg(long, value_name = "FILE")]
        pack: Option<PathBuf>,
        /// List what would be removed, without a change
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneRun {
    /// Run: an id, a unique prefix of one, a folder, or `latest`
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) base: Base,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Python of the workload
    #[arg(long, default_value = "python3")]
    pub(crate) python: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show every value and its origin
    Show {
        #[command(flatten)]
        composition: Composition,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// List every group and its options
    List {
        /// Folder of presets that override the built-in ones
        #[arg(long, value_name = "DIR")]
        config_dir: Option<PathBuf>,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

#[cfg(feature = "mcp")]
#[derive(Debug, clap::Args)]
pub(crate) struct Mcp {
    /// Folders whose captures may be read, beside the runs; no other file is (default: the current folder)
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub(crate) folders: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) base: Base,
    /// The nsys that exports a .nsys-rep file, if it is not on the PATH
    #[arg(long, value_name = "FILE")]
    pub(crate) nsys: Option<PathBuf>,
}

#[cfg(feature = "serve")]
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8791")]
    pub(crate) listen: std::net::SocketAddr,
    #[command(flatten)]
    pub(crate) base: Base,
    /// File of the token that every request must carry; made if it is missing (default: roofgap/serve-token in the state folder)
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Name under which clients reach the server, beside its address; can be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Certificate of the server in PEM form, followed by those that signed it; an address that other machines can reach needs it, or a proxy
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate; refused if everyone can read it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A proxy in front encrypts the connections
    #[arg(long)]
    pub(crate) behind_tls_proxy: bool,
    /// Let clients start sessions of configured presets
    #[arg(long)]
    pub(crate) allow_run: bool,
    /// Let clients start sessions of any command line, and so any program on this machine
    #[arg(long, requires = "allow_run")]
    pub(crate) allow_command: bool,
    /// Folder of presets that override the built-in ones
    #[arg(long, value_name = "DIR")]
    pub(crate) config_dir: Option<PathBuf>,
    /// Connections at a time; further ones wait
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub(crate) max_connections: usize,
    /// Sessions that may wait for their turn; one runs at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) max_queue: usize,
    /// Seconds for a client to send a request, and to take a part of an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) client_timeout: u64,
}

#[cfg(feature = "embedded")]
#[derive(Debug, clap::Args)]
pub(crate) struct Workload {
    /// Size of the model: nano, tiny or small
    #[arg(long, default_value = "tiny")]
    pub(crate) preset: roofgap_workload::Preset,
    /// Seed of the weights, the image and the prompt
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Text tokens of the prompt
    #[arg(long, default_value_t = 64)]
    pub(crate) prompt_tokens: usize,
    /// Tokens to generate
    #[arg(long, default_value_t = 32)]
    pub(crate) new_tokens: usize,
    /// Measured repeats
    #[arg(long, default_value_t = 3)]
    pub(crate) repeats: usize,
    /// Warm-up repeats before them
    #[arg(long, default_value_t = 1)]
    pub(crate) warmup: usize,
    /// Width and height of the image, pixels
    #[arg(long)]
    pub(crate) image_size: Option<usize>,
    /// Threads (default: all processors)
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    /// Decode without a KV cache: a deliberately slow path, to try the tool on
    #[arg(long)]
    pub(crate) no_kv_cache: bool,
    /// With --no-kv-cache: read only the last N positions again, which changes the output
    #[arg(long, value_name = "N", requires = "no_kv_cache")]
    pub(crate) context_limit: Option<usize>,
    /// File for the account of the run (default: $ROOFGAP_WORKLOAD_JSON, if set)
    #[arg(long, value_name = "FILE")]
    pub(crate) account: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[cfg(feature = "embedded")]
impl Workload {
    /// Returns the properties of the embedded model's run.
    pub(crate) fn props(self) -> roofgap_workload::WorkloadProps {
        let from_environment = || std::env::var_os("ROOFGAP_WORKLOAD_JSON").map(PathBuf::from);
        roofgap_workload::WorkloadProps {
            preset: self.preset,
            seed: self.seed,
            prompt_tokens: self.prompt_tokens,
            new_tokens: self.new_tokens,
            repeats: self.repeats,
            warmup: self.warmup,
            image_size: self.image_size,
            threads: self.threads,
            kv_cache: !self.no_kv_cache,
            context_limit: self.context_limit,
            account: self.account.or_else(from_environment),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// Address of the server
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub(crate) url: String,
    /// Model to ask for (default: the first that the server lists)
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Requests in flight; with --rate, the most in flight
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: u32,
    /// Mean requests per second at random times, instead of a fixed number in flight
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Measured requests
    #[arg(long, default_value_t = 64)]
    pub(crate) requests: u64,
    /// Requests before them that are not measured
    #[arg(long, default_value_t = 8)]
    pub(crate) warmup: u64,
    /// Time after which no more requests start, such as 30s or 5m
    #[arg(long)]
    pub(crate) duration: Option<Span>,
    /// Prompt tokens: 512, 100-900 or lognormal:MEDIAN:SIGMA
    #[arg(long, default_value = "512")]
    pub(crate) prompt_tokens: roofgap_load::Lengths,
    /// Generated tokens, in the same form
    #[arg(long, default_value = "128")]
    pub(crate) output_tokens: roofgap_load::Lengths,
    /// JSONL file of prompts, used in turn: {"prompt": ...}, {"messages": ...} or {"prompt_tokens": N}, with "output_tokens"
    #[arg(long, value_name = "FILE")]
    pub(crate) prompts: Option<PathBuf>,
    /// Random token ids are below this number
    #[arg(long, default_value_t = 10_000)]
    pub(crate) vocabulary: u32,
    /// Time limit of one request
    #[arg(long, default_value = "5m")]
    pub(crate) timeout: Span,
    /// Seed of lengths, tokens and arrival times
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Largest time to first token of a good request, such as 0.5s
    #[arg(long)]
    pub(crate) good_ttft: Option<Span>,
    /// Largest mean time between tokens of a good request, such as 0.05s
    #[arg(long)]
    pub(crate) good_itl: Option<Span>,
    /// Path that answers with status 200 once the server is ready (default: /health, then /v1/models)
    #[arg(long)]
    pub(crate) health: Option<String>,
    /// Time limit for the server to get ready
    #[arg(long, default_value = "10m")]
    pub(crate) ready_timeout: Span,
    /// Time that the server has to end after SIGINT, and again after SIGTERM, before SIGKILL
    #[arg(long, default_value = "10s")]
    pub(crate) grace: Span,
    /// Pairs of windows, with the native collector armed and dormant, that measure its overhead in the server after the load
    #[arg(long, value_name = "N", requires = "server", value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub(crate) overhead_pairs: Option<u32>,
    /// Length of such a window
    #[arg(long, default_value = "0.5s")]
    pub(crate) overhead_window: Span,
    /// Shortest load after which the overhead is measured
    #[arg(long, default_value = "0s")]
    pub(crate) overhead_after: Span,
    /// File for the account of the run (default: $ROOFGAP_WORKLOAD_JSON, if set)
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Server to start and its arguments
    #[arg(last = true, value_name = "SERVER")]
    server: Vec<OsString>,
}

impl Load {
    /// Returns the properties of the load.
    pub(crate) fn props(&self) -> Result<roofgap_load::LoadProps, Failure> {
        let arrivals = match self.rate {
            None => roofgap_load::Arrivals::Closed {
                concurrency: self.concurrency,
            },
            Some(rate) if rate > 0.0 && rate.is_finite() => roofgap_load::Arrivals::Open {
                rate,
                most_in_flight: self.concurrency,
            },
            Some(rate) => return Err(Failure::Rate { rate }),
        };
        Ok(roofgap_load::LoadProps {
            url: self.url.clone(),
            model: self.model.clone(),
            arrivals,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            prompts: self.prompts.clone(),
            vocabulary: self.vocabulary,
            requests: self.requests,
            warmup: self.warmup,
            duration: self.duration.map(|span| span.0),
            timeout: self.timeout.0,
            seed: self.seed,
            good_ttft: self.good_ttft.map(|span| span.0),
            good_itl: self.good_itl.map(|span| span.0),
            pairs: self.overhead_pairs.map(|pairs| roofgap_load::PairProps {
                pairs,
                window: self.overhead_window.0,
                after: self.overhead_after.0,
                control: std::env::temp_dir().join(format!("roofgap-pairs-{}", std::process::id())),
            }),
        })
    }

    /// Returns the file for the account.
    pub(crate) fn account(&self) -> Option<PathBuf> {
        let from_environment = || std::env::var_os("ROOFGAP_WORKLOAD_JSON").map(PathBuf::from);
        self.account.clone().or_else(from_environment)
    }

    /// Returns the command line of the server to start.
    pub(crate) fn command(&self) -> Option<CommandLine> {
        let (program, args) = self.server.split_first()?;
        Some(CommandLine::new(program).args(args))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// Record the first 64 steps of a capture and then one of N, 8 in a row; 1 records all
    #[arg(long, value_name = "N", default_value_t = DUTY)]
    pub(crate) duty: NonZeroU32,
    /// Program to start and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Capture {
    /// Process of a watched program, or `latest`
    #[arg(value_name = "PID")]
    pub(crate) process: Option<String>,
    /// Length of the window, such as 5s; with --steps, the longest time to wait for them
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Span>,
    /// Record this many steps of the model instead of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Folder that gets the run (default: artifacts.stage2_dir)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

impl Capture {
    /// Returns the length of the window.
    pub(crate) fn length(&self) -> WindowLength {
        let time = self.time.map(|span| span.0);
        match self.steps {
            Some(count) => WindowLength::Steps {
                count,
                limit: time.unwrap_or(STEPS_LIMIT),
            },
            None => WindowLength::Time(time.unwrap_or(DEFAULT_WINDOW)),
        }
    }
}

/// Length of a window without `--for`.
const DEFAULT_WINDOW: Duration = Duration::from_secs(5);

/// Time limit of `--steps` without `--for`.
const STEPS_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Args::command().debug_assert();
    }
}
