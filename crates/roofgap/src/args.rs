//! Arguments, which become plain values once; nothing below knows the parser.

use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Where the time of an LLM goes on an NVIDIA GPU, how far it is from the roof, and what to do first.
#[derive(Debug, Parser)]
#[command(
    name = "roofgap",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    /// Say nothing but the answer, warnings and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more on the way
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program under nsys and ncu and leave a bundle; with nothing named, the embedded model
    Profile(Profile),
    /// Analyse captures: nsys exports, PyTorch traces, ncu reports, native captures, run directories
    Analyze(Analyze),
    /// Write the reports of a run again
    Report(Report),
    /// Hold two runs or captures against one another; with --fail-on, a gate for CI
    Compare(Compare),
    /// The runs that are there: list, show, artifacts, prune, scrub
    #[command(subcommand)]
    Runs(Runs),
    /// Tools, versions, driver, permissions and disk, and what to do about each
    Doctor(Doctor),
    /// The composed configuration and where each value came from
    #[command(subcommand)]
    Config(Config),
    /// The embedded model by itself
    #[cfg(feature = "embedded")]
    Workload(Workload),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
    /// Print the JSON Schema of the analysis
    Schema,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people
    Text,
    /// JSON for programs
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Analyze {
    /// Files or run directories; each is recognised by its content
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Write all reports into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the timeline as a trace for Perfetto or chrome://tracing; compressed where the name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,
    /// Write tables of single events as Parquet into this folder, as run=NAME/rank=0/TABLE.parquet
    #[arg(long, value_name = "DIR")]
    pub(crate) parquet: Option<PathBuf>,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) stated: Stated,
    /// The nsys that exports a .nsys-rep, where it is not found by itself
    #[arg(long, value_name = "FILE")]
    pub(crate) nsys: Option<PathBuf>,
    /// How many kernels to list
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub(crate) top: usize,
}

/// What a user states beside the inputs.
#[derive(Debug, clap::Args)]
pub(crate) struct Stated {
    /// Replace or add a stage: its name and the ranges that make it, as [domain@]name, separated by commas
    #[arg(long, value_name = "NAME=PATTERN")]
    pub(crate) stage: Vec<String>,
    /// The model that ran: a preset such as deepseek_ocr, a config.json, or a folder that holds one
    #[arg(long, value_name = "NAME|config.json")]
    pub(crate) model: Option<String>,
    /// Tokens of the prompt, those of images included
    #[arg(long, value_name = "N")]
    pub(crate) prompt_tokens: Option<u64>,
    /// Tokens generated in a run
    #[arg(long, value_name = "N")]
    pub(crate) new_tokens: Option<u64>,
    /// Tokens of the prompt that stand for images
    #[arg(long, value_name = "N")]
    pub(crate) vision_tokens: Option<u64>,
    /// Sequences at once
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u64>,
    /// Dense peak of the device in TFLOP/s, over what is known of it
    #[arg(long, value_name = "TFLOPS")]
    pub(crate) peak_tflops: Option<f64>,
    /// Memory bandwidth of the device in GB/s, over what is known of it
    #[arg(long, value_name = "GBS")]
    pub(crate) bandwidth_gbs: Option<f64>,
}

/// Where a configuration comes from.
#[derive(Debug, clap::Args)]
pub(crate) struct Composition {
    /// Overrides: group=option, key=value, +key=value, ~key
    #[arg(value_name = "OVERRIDE")]
    pub(crate) overrides: Vec<String>,
    /// A folder of presets over the built-in ones
    #[arg(long, value_name = "DIR")]
    pub(crate) config_dir: Option<PathBuf>,
    /// A resolved configuration, such as the config.yaml of a bundle
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Profile {
    #[command(flatten)]
    pub(crate) composition: Composition,
    /// Check everything and print every command that would run, without running it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The program to profile and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<String>,
}

/// Where runs are looked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Base {
    /// The folder that holds the runs
    #[arg(long, value_name = "DIR", default_value = "tmp/stage2")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// A run: its id, the beginning of it, its folder, or `latest`
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) base: Base,
}

/// How a comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Tables for people
    Text,
    /// JSON for programs
    Json,
    /// Markdown fit for a comment on a pull request
    Markdown,
    /// A page
    Html,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// What it was: a run (id, beginning of one, folder, `latest`), a metrics.json or a capture
    #[arg(value_name = "BASE")]
    pub(crate) before: String,
    /// What it is now
    #[arg(value_name = "HEAD")]
    pub(crate) after: String,
    /// End with status 5 if something is worse by more, beyond its noise: 5%, decode.wall=3%, prefill.busy=2ms
    #[arg(long, value_name = "LIMIT")]
    pub(crate) fail_on: Vec<String>,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub(crate) format: CompareFormat,
    #[command(flatten)]
    pub(crate) base: Base,
    #[command(flatten)]
    pub(crate) stated: Stated,
    /// The nsys that exports a .nsys-rep, where it is not found by itself
    #[arg(long, value_name = "FILE")]
    pub(crate) nsys: Option<PathBuf>,
    /// How many kernels and parts of a change to list
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub(crate) top: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// Every run: when, what, on what, how it ended, how long its stages took, how large it is
    List {
        #[command(flatten)]
        base: Base,
        /// How to print the answer
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// One run: its phases, what is missing, what to do first, how to have it again
    Show(OneRun),
    /// Every file of a run with its size and SHA-256
    Artifacts(OneRun),
    /// Compress older runs and cut large ones to what cannot be made again
    Prune {
        /// Say what would be done and what it would win, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Overrides such as retention.keep=3, retention.max_run_bytes=1GB, artifacts.stage2_dir=DIR
        #[command(flatten)]
        composition: Composition,
        /// How to print the answer
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Take out of a run what belongs to the machine and its people
    Scrub {
        #[command(flatten)]
        run: OneRun,
        /// Write what is clean into one archive (.tar.gz)
        #[arg(long, value_name = "FILE")]
        pack: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneRun {
    /// A run: its id, the beginning of it, its folder, or `latest`
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) base: Base,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// The Python of the workload
    #[arg(long, default_value = "python3")]
    pub(crate) python: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Every value and where it came from
    Show {
        #[command(flatten)]
        composition: Composition,
        /// How to print the answer
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Every group and what can be chosen in it
    List {
        /// A folder of presets over the built-in ones
        #[arg(long, value_name = "DIR")]
        config_dir: Option<PathBuf>,
    },
}

#[cfg(feature = "embedded")]
#[derive(Debug, clap::Args)]
pub(crate) struct Workload {
    /// Size of the model: nano, tiny or small
    #[arg(long, default_value = "tiny")]
    pub(crate) preset: roofgap_workload::Preset,
    /// Seed of weights, image and prompt
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
    /// Repeats before them, marked as warm-up
    #[arg(long, default_value_t = 1)]
    pub(crate) warmup: usize,
    /// Side of the square image, pixels
    #[arg(long)]
    pub(crate) image_size: Option<usize>,
    /// Threads; all of the machine's when not given
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    /// Where to write the account of the run (default: $ROOFGAP_WORKLOAD_JSON, else nowhere)
    #[arg(long, value_name = "FILE")]
    pub(crate) account: Option<PathBuf>,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Args::command().debug_assert();
    }
}
