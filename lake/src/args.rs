//! Arguments of `roofgap-lake`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use roofgap_lake::trend::By;
use std::path::PathBuf;

/// Collect many runs as Parquet tables, and ask questions about them.
#[derive(Debug, Parser)]
#[command(name = "roofgap-lake", bin_name = "roofgap lake", version, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
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
pub struct Lake {
    /// Lake: a folder or s3://BUCKET/PREFIX
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    pub lake: String,
}

#[derive(Debug, Args)]
pub struct Add {
    /// Run directories, captures, and folders to search for both
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Lake: a folder or s3://BUCKET/PREFIX; created where it is missing
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    pub to: String,
    /// Project
    #[arg(long, default_value = "default")]
    pub project: String,
    /// Host of the runs; by default that of the capture
    #[arg(long)]
    pub host: Option<String>,
    /// Date of the runs, YYYY-MM-DD; by default the start of the run, else the modification time of the input
    #[arg(long)]
    pub date: Option<String>,
    /// Label of the runs, KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Also add every single kernel, copy and memset
    #[arg(long)]
    pub events: bool,
    /// Read each folder as one input: the captures in it are the ranks of one job
    #[arg(long)]
    pub join: bool,
    /// Inputs to load at the same time
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// nsys to export reports with
    #[arg(long)]
    pub nsys: Option<PathBuf>,
    /// Print one JSON object for each input
    #[arg(long)]
    pub json: bool,
}

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
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
pub struct Output {
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// File to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Ask {
    /// Name of a saved query, SQL, or FILE.sql
    pub query: String,
    #[command(flatten)]
    pub lake: Lake,
    #[command(flatten)]
    pub output: Output,
    /// Parameter of the query, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub param: Vec<String>,
    /// CSV file with the columns gpu and price_per_hour: the table `prices`
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// Property of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Property {
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
pub struct Trend {
    /// Metric: a column of the table stages, such as token_ns, elapsed_ns or mfu_pct
    pub metric: String,
    #[command(flatten)]
    pub lake: Lake,
    /// Stage
    #[arg(long, default_value = "decode")]
    pub stage: String,
    /// Property of runs
    #[arg(long, value_enum, default_value_t = Property::Commit)]
    pub by: Property,
    /// First date, YYYY-MM-DD
    #[arg(long)]
    pub since: Option<String>,
    /// Model
    #[arg(long)]
    pub model: Option<String>,
    /// Project
    #[arg(long)]
    pub project: Option<String>,
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Chart)]
    pub format: Format,
    /// File to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Regress {
    #[command(flatten)]
    pub lake: Lake,
    #[command(flatten)]
    pub output: Output,
    /// First date, YYYY-MM-DD
    #[arg(long)]
    pub since: Option<String>,
    /// Parameter of the saved query `regressions`, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub param: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Synth {
    /// Lake to create
    #[arg(long)]
    pub to: String,
    /// Number of runs
    #[arg(long, default_value_t = 2000)]
    pub runs: usize,
    /// Number of days
    #[arg(long, default_value_t = 30)]
    pub days: usize,
    /// Number of hosts
    #[arg(long, default_value_t = 16)]
    pub hosts: usize,
    /// Seed of the noise
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One file for each run, as `add` writes them
    #[arg(long)]
    pub single: bool,
    /// Partitions to write at the same time
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
}
