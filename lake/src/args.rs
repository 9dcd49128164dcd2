//! Arguments of `roofgap-lake`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use roofgap_lake::ingest::AddProps;
use roofgap_lake::trend::TrendProps;
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
}

#[derive(Debug, Args)]
pub struct Lake {
    /// Lake: a folder or s3://BUCKET/PREFIX
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    pub lake: String,
}

#[derive(Debug, Args)]
pub struct Add {
    #[command(flatten)]
    pub props: AddProps,
    /// Lake: a folder or s3://BUCKET/PREFIX; created where it is missing
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    pub to: String,
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

#[derive(Debug, Args)]
pub struct Trend {
    #[command(flatten)]
    pub props: TrendProps,
    #[command(flatten)]
    pub lake: Lake,
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
