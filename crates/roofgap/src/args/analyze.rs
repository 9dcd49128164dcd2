//! Arguments of the commands that read captures.

use super::common::{AnalysisOverrides, unprofiled};
use crate::printer::Printer;
use clap::ValueEnum;
use regex_lite::Regex;
use roofgap_analyze::Analysis;
use roofgap_base::error::Error;
use roofgap_report::text::{self, TextOptions};
use roofgap_report::{KernelOrder, NameFilter, Selection};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Analyze {
    /// Files, folders of captures, or a run directory; formats are detected from content. Timelines of several ranks are one analysis
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// Write all reports into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub overrides: AnalysisOverrides,
    /// Time of a step of a stage without the profiler, such as decode=21.3ms; the report then also shows the stage without the
    /// profiler's cost
    #[arg(long, value_name = "STAGE=TIME", value_parser = unprofiled)]
    pub unprofiled: Vec<(String, i64)>,
    /// Rank whose analysis is shown, of several ranks of a job; by default the lowest
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub struct Export {
    /// What to write
    #[arg(value_enum)]
    pub format: ExportFormat,
    /// Captures, folders of captures, or runs (folder, id or `latest`). For parquet each is a run of its own
    #[arg(required = true, value_name = "RUN|CAPTURE")]
    pub inputs: Vec<PathBuf>,
    /// File to write. A name in .gz is compressed
    #[arg(long, value_name = "FILE", required_unless_present = "to")]
    pub out: Option<PathBuf>,
    /// Folder of tables to which parquet adds the runs; one that is there is left as it is
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub to: Option<PathBuf>,
    /// For parquet, also write single kernels, copies, CUDA calls and ranges
    #[arg(long)]
    pub events: bool,
    #[command(flatten)]
    pub overrides: AnalysisOverrides,
    /// Rank of several that is written where a format holds one; by default the lowest
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
}

/// A format for other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The timeline: JSON for Perfetto and chrome://tracing, or Perfetto's own format for a name in .pftrace
    Perfetto,
    /// Tables of many runs, as TABLE/date=DATE/KEY.parquet
    Parquet,
    /// GPU time by ranges and operators as folded stacks for flame graphs, in nanoseconds
    Folded,
    /// Idle time of each stage by stack of the CPU as folded stacks, in nanoseconds; needs a capture with stacks
    FoldedIdle,
}

/// The part of an analysis that is shown.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is shown")]
pub struct Shown {
    /// Print everything instead of the first screen
    #[arg(long)]
    pub full: bool,
    /// Print these sections only, such as stages,host,kernels,layers,copies,losses
    #[arg(long, value_name = "SECTIONS", value_delimiter = ',')]
    pub show: Vec<String>,
    /// Show this stage only
    #[arg(long, value_name = "STAGE")]
    pub only: Option<String>,
    /// Show only kernels whose full or short name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub kernel: Option<String>,
    /// Order of the kernels
    #[arg(long, value_enum, value_name = "BY")]
    pub sort: Option<SortBy>,
    /// Number of kernels to list; 0 lists none (default: 12)
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
}

/// Order of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
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
    /// Renders what is asked for: the first screen, named sections, or everything.
    pub fn text(&self, analysis: &Analysis, printer: &Printer) -> Result<String, Error> {
        let kernels = self.top.unwrap_or(TextOptions::default().kernels);
        let look = TextOptions { stages_only: self.only.is_some(), ..printer.text_options(kernels) };
        let selected =
            self.only.is_some() || self.kernel.is_some() || self.sort.is_some() || self.top.is_some();
        match self.full || selected {
            _ if !self.show.is_empty() => text::show(analysis, look, &self.show).map_err(Error::of),
            true => Ok(text::render(analysis, look)),
            false => Ok(text::brief(analysis, look)),
        }
    }

    /// Returns the selection for the reports.
    pub fn props(&self) -> Result<Selection, Error> {
        let regex = |pattern: &String| {
            Regex::new(pattern)
                .map_err(|why| Error::new(format!("{pattern:?} is not a regular expression: {why}")))
        };
        let kernel = self.kernel.as_ref().map(regex).transpose()?;
        let matches = |regex: Regex| -> NameFilter { Box::new(move |name| regex.is_match(name)) };
        Ok(Selection {
            stage: self.only.clone(),
            kernel: kernel.map(matches),
            order: self.sort.map(|by| -> KernelOrder {
                match by {
                    SortBy::Total => |a, b| b.total_ns.cmp(&a.total_ns),
                    SortBy::Mean => |a, b| b.mean_ns.cmp(&a.mean_ns),
                    SortBy::Calls => |a, b| b.calls.cmp(&a.calls),
                    SortBy::Roof => |a, b| b.roof.above_roof_ns.cmp(&a.roof.above_roof_ns),
                    SortBy::Name => |a, b| a.short_name.cmp(&b.short_name),
                }
            }),
        })
    }
}

#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Folder for the capture and its reports (default: a new one for temporary files)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the path of the page without opening it
    #[arg(long)]
    pub no_browser: bool,
}

#[derive(Debug, clap::Args)]
pub struct Open {
    /// Run (id, prefix, folder or `latest`), a folder with a page, or captures, whose page is written to a temporary folder
    #[arg(value_name = "RUN|CAPTURE")]
    pub inputs: Vec<String>,
    /// Print the path of the page without opening it
    #[arg(long)]
    pub no_browser: bool,
}

#[derive(Debug, clap::Args)]
pub struct Report {
    /// Run: an id, a unique prefix of one, a folder, or `latest`
    pub run: String,
    /// Overrides of the run's configuration, such as model=qwen3_8b workload.prompt_tokens=512 workload.tokens=64
    #[arg(value_name = "OVERRIDE")]
    pub overrides: Vec<String>,
    /// Account of `roofgap load` whose requests the server of a captured window served
    #[arg(long, value_name = "FILE")]
    pub requests: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Before: a run (id, prefix, folder or `latest`), a metrics.json or a capture
    #[arg(value_name = "BASE")]
    pub before: String,
    /// After
    #[arg(value_name = "HEAD")]
    pub after: String,
    /// Exit with status 5 if a number is worse by more than this and by more than its noise: 5%, decode.wall=3%, prefill.busy=2ms
    #[arg(long, value_name = "LIMIT")]
    pub fail_on: Vec<String>,
    #[command(flatten)]
    pub overrides: AnalysisOverrides,
    /// Time of a step of a stage without the profiler, such as decode=21.3ms; the report then also shows the stage without the
    /// profiler's cost
    #[arg(long, value_name = "STAGE=TIME", value_parser = unprofiled)]
    pub unprofiled: Vec<(String, i64)>,
    /// Number of kernels and parts of a change to list
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub top: usize,
}
