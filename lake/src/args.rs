//! Arguments of `roofgap-lake`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use roofgap_lake::trend::By;
use std::path::PathBuf;

/// Collect many runs as Parquet tables, and ask questions about them.
#[derive(Debug, Parser)]
#[command(name = "roofgap-lake", bin_name = "roofgap lake", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add run directories and captures; an input that is in the lake is skipped
    Add(Add),
    /// Answer a saved query, SQL, or a file with SQL
    Query(Ask),
    /// List the saved queries, or show one
    Queries {
        /// Query to show: its text, parameters and columns
        name: Option<String>,
    },
    /// Show a metric of a stage over commits or other properties of runs
    Trend(Trend),
    /// Find commits at which a stage became slower; exits with 5 if there is one
    Regress(Regress),
    /// Write a page about the fleet
    Report {
        /// Page to write
        out: PathBuf,
        #[command(flatten)]
        lake: Lake,
    },
    /// Merge the small files of each partition
    Compact {
        #[command(flatten)]
        lake: Lake,
    },
    /// Check every file; exits with 3 if answers are affected
    Check {
        #[command(flatten)]
        lake: Lake,
        /// Read footers only, not the rows
        #[arg(long)]
        quick: bool,
    },
    /// Describe the tables as Markdown
    Schema,
    /// Write a synthetic lake and print the answers that it has
    #[command(hide = true)]
    Synth(Synth),
}

#[derive(Debug, Args)]
pub(crate) struct Lake {
    /// Lake: a folder or s3://BUCKET/PREFIX
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    pub(crate) lake: String,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Run directories, captures, and folders to search for both
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Lake: a folder or s3://BUCKET/PREFIX; created where it is missing
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    pub(crate) to: String,
    /// Project
    #[arg(long, default_value = "default")]
    pub(crate) project: String,
    /// Host of the runs; by default that of the capture
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Date of the runs, YYYY-MM-DD; by default the start of the run, else the modification time of the input
    #[arg(long)]
    pub(crate) date: Option<String>,
    /// Label of the runs, KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,
    /// Also add every single kernel, copy and memset
    #[arg(long)]
    pub(crate) events: bool,
    /// Read each folder as one input: the captures in it are the ranks of one job
    #[arg(long)]
    pub(crate) join: bool,
    /// Inputs to load at the same time
    #[arg(long, default_value_t = 2)]
    pub(crate) jobs: usize,
    /// nsys to export reports with
    #[arg(long)]
    pub(crate) nsys: Option<PathBuf>,
    /// Print one JSON object for each input
    #[arg(long)]
    pub(crate) json: bool,
}

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    Table,
    /// Array of objects
    Json,
    /// Comma-separated values
    Csv,
    /// Parquet file; a terminal needs --output
    Parquet,
    /// Bars of the last column of numbers
    Chart,
    /// Page
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// File to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Ask {
    /// Name of a saved query, SQL, or FILE.sql
    pub(crate) query: String,
    #[command(flatten)]
    pub(crate) lake: Lake,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Parameter of the query, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    /// CSV file with the columns gpu and price_per_hour: the table `prices`
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
}

/// Property of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Property {
    /// Commit of the profiled program
    Commit,
    /// Date
    Date,
    /// GPU driver
    Driver,
    /// Version of the serving engine
    EngineVersion,
    /// Host
    Host,
}

impl From<Property> for By {
    fn from(property: Property) -> Self {
        match property {
            Property::Commit => Self::Commit,
            Property::Date => Self::Date,
            Property::Driver => Self::Driver,
            Property::EngineVersion => Self::EngineVersion,
            Property::Host => Self::Host,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Trend {
    /// Metric: a column of the table stages, such as token_ns, elapsed_ns or mfu_pct
    pub(crate) metric: String,
    #[command(flatten)]
    pub(crate) lake: Lake,
    /// Stage
    #[arg(long, default_value = "decode")]
    pub(crate) stage: String,
    /// Property of runs
    #[arg(long, value_enum, default_value_t = Property::Commit)]
    pub(crate) by: Property,
    /// First date, YYYY-MM-DD
    #[arg(long)]
    pub(crate) since: Option<String>,
    /// Model
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Project
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Chart)]
    pub(crate) format: Format,
    /// File to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Regress {
    #[command(flatten)]
    pub(crate) lake: Lake,
    #[command(flatten)]
    pub(crate) output: Output,
    /// First date, YYYY-MM-DD
    #[arg(long)]
    pub(crate) since: Option<String>,
    /// Parameter of the saved query `regressions`, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Synth {
    /// Lake to create
    #[arg(long)]
    pub(crate) to: String,
    /// Number of runs
    #[arg(long, default_value_t = 2000)]
    pub(crate) runs: usize,
    /// Number of days
    #[arg(long, default_value_t = 30)]
    pub(crate) days: usize,
    /// Number of hosts
    #[arg(long, default_value_t = 16)]
    pub(crate) hosts: usize,
    /// Seed of the noise
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// One file for each run, as `add` writes them
    #[arg(long)]
    pub(crate) single: bool,
    /// Partitions to write at the same time
    #[arg(long, default_value_t = 2)]
    pub(crate) jobs: usize,
}
