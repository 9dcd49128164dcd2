//! `roofgap export`: captures and runs for other programs.

use super::analyze::exporter;
use crate::args::{Export, ExportFormat};
use crate::printer::Printer;
use crate::reading::open;
use roofgap_analyze::RankInfo;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_report::ExportError;
#[cfg(feature = "parquet")]
use roofgap_report::export::parquet;
use roofgap_report::export::timeline::{self, RankPlace};
use roofgap_report::export::{save_folded, save_folded_idle};
use roofgap_runs::open::{Exporter, Opened, Overrides, open_inputs};
#[cfg(feature = "parquet")]
use roofgap_runs::open::{run_facts, run_key};
use roofgap_runs::run_dir::{DEFAULT_BASE, resolve};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Writes captures and runs in the format of another program.
pub fn run(args: Export, printer: &Printer) -> Result<Exit, Error> {
    let exporter = exporter(args.overrides.nsys());
    let overrides = Overrides { rank: args.rank, ..args.overrides.props()? };
    let inputs = args.inputs.iter().map(|input| find(input)).collect::<Result<Vec<_>, _>>()?;
    match (args.format, &args.out, &args.to) {
        #[cfg(not(feature = "parquet"))]
        (ExportFormat::Parquet, ..) => Err(super::not_built("export of Parquet")),
        #[cfg(feature = "parquet")]
        (ExportFormat::Parquet, None, Some(dir)) => {
            check_folder(dir)?;
            // The tables of a run have all its ranks.
            let overrides = Overrides { rank: None, ..overrides };
            add_runs(&inputs, dir, args.events, &overrides, &exporter, printer)
        }
        #[cfg(feature = "parquet")]
        (ExportFormat::Parquet, ..) => {
            Err(Error::new("parquet is a folder of tables: name it with --to DIR"))
        }
        (_, Some(path), _) if !args.events => {
            check_file(path)?;
            let opened = open(&inputs, &overrides, &exporter, printer)?;
            write_file(
                args.format,
                path,
                Job { opened: &opened, overrides: &overrides, exporter: &exporter },
            )?;
            printer.wrote(path);
            Ok(if opened.unreadable.is_empty() { Exit::Done } else { Exit::Partial })
        }
        _ => Err(Error::new(
            "--to and --events are options of parquet; name the file of this format with --out FILE",
        )),
    }
}

/// Returns the path of an input. What is no path is the id of a run.
fn find(input: &Path) -> Result<PathBuf, Error> {
    if input.exists() {
        return Ok(input.to_owned());
    }
    let run = resolve(Path::new(DEFAULT_BASE), &input.to_string_lossy());
    run.map(|run| run.path)
        .map_err(|why| Error::new(format!("there is no file {}, and {why}", input.display())))
}

/// Checks that a folder can be created, before the inputs are read.
pub fn check_folder(path: &Path) -> Result<(), Error> {
    let above = path.ancestors().find(|folder| folder.exists());
    match above.is_some_and(|folder| !folder.is_dir()) {
        true => Err(Error::io("write", path)(ErrorKind::NotADirectory.into())),
        false => Ok(()),
    }
}

/// Checks that the folder of a file is there, before the inputs are read.
fn check_file(path: &Path) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // The slash makes a file no folder.
    let facts = folder.unwrap_or(Path::new(".")).join("").metadata();
    facts.map_err(Error::io("write", path))?;
    match path.is_dir() {
        true => Err(Error::io("write", path)(ErrorKind::IsADirectory.into())),
        false => Ok(()),
    }
}

fn write_file(format: ExportFormat, path: &Path, job: Job<'_>) -> Result<(), Error> {
    let bundle = job.opened.bundle();
    let written = match format {
        ExportFormat::Folded => save_folded(bundle, path),
        ExportFormat::FoldedIdle => save_folded_idle(bundle, path),
        ExportFormat::Perfetto | ExportFormat::Parquet => match &job.opened.analysis.job {
            Some(ranks) => job.save_timelines(path, ranks.shown_rank),
            None => timeline::save(bundle, path),
        },
    };
    written.map_err(Error::of)
}

/// Adds runs to a folder of tables. One that fails does not stop the others.
#[cfg(feature = "parquet")]
fn add_runs(
    inputs: &[PathBuf],
    dir: &Path,
    events: bool,
    overrides: &Overrides,
    exporter: &Exporter,
    printer: &Printer,
) -> Result<Exit, Error> {
    let add = |input: &PathBuf| -> Result<Exit, Error> {
        let key = run_key(input)?;
        if !events && parquet::has_run(dir, &key) {
            printer.progress(&format_args!("{} is in {} as {key}", input.display(), dir.display()));
            return Ok(Exit::Done);
        }
        let opened = open(std::slice::from_ref(input), overrides, exporter, printer)?;
        let facts = run_facts(input, key, &opened);
        if events {
            Job { opened: &opened, overrides, exporter }.each_rank(|opened, rank| {
                parquet::save_events(opened.bundle(), &facts, rank, dir).map_err(Error::of)
            })?;
        }
        printer.wrote(&parquet::save_run(opened.bundle(), &facts, dir).map_err(Error::of)?);
        Ok(if opened.unreadable.is_empty() { Exit::Done } else { Exit::Partial })
    };
    let (mut exit, mut failures) = (Exit::Done, Vec::new());
    for input in inputs {
        match add(input) {
            Ok(Exit::Done) => {}
            Ok(_) => exit = Exit::Partial,
            Err(why) => failures.push(why),
        }
    }
    match failures.pop() {
        None => Ok(exit),
        Some(last) => {
            failures.iter().for_each(|why| printer.failure(why));
            if failures.len() + 1 == inputs.len() {
                return Err(last);
            }
            printer.failure(&last);
            Ok(Exit::Partial)
        }
    }
}

/// An opened input; for a job, also the means to open its other ranks.
#[derive(Clone, Copy)]
struct Job<'a> {
    opened: &'a Opened,
    overrides: &'a Overrides,
    exporter: &'a Exporter,
}

impl Job<'_> {
    /// Calls a function with each rank, one after the other, because only the trace of the shown rank is in memory.
    #[cfg(feature = "parquet")]
    fn each_rank(self, write: impl Fn(&Opened, u32) -> Result<(), Error>) -> Result<(), Error> {
        let ranks = &self.opened.analysis.ranks;
        let Some(job) = &self.opened.analysis.job else {
            return write(self.opened, ranks.first().map_or(0, |rank| rank.rank));
        };
        write(self.opened, job.shown_rank)?;
        let mut others = ranks.iter().filter(|rank| rank.rank != job.shown_rank);
        others.try_for_each(|rank| write(&self.open_rank(rank)?, rank.rank))
    }

    /// Loads one rank of a job by itself, or out of a file that holds several.
    fn open_rank(self, rank: &RankInfo) -> Result<Opened, Error> {
        let same_files = |other: &RankInfo| other.rank != rank.rank && other.sources == rank.sources;
        let shared = self.opened.analysis.ranks.iter().any(same_files);
        let overrides = Overrides { rank: shared.then_some(rank.rank), ..self.overrides.clone() };
        let files: Vec<PathBuf> = rank.sources.iter().map(PathBuf::from).collect();
        open_inputs(&files, &overrides, self.exporter)
    }

    /// Writes the timelines of all ranks of a job, in one clock where it is known.
    fn save_timelines(self, path: &Path, shown_rank: u32) -> Result<(), ExportError> {
        let ranks = &self.opened.analysis.ranks;
        let offset = |rank: &RankInfo| rank.clock_offset_ns.unwrap_or(0);
        let begin = |rank: &RankInfo| Some(rank.activity.as_ref()?.begin_ns - offset(rank));
        // Without clocks in common, every rank begins with its first operation.
        let aligned = ranks.iter().all(|rank| rank.clock_offset_ns.is_some());
        let first = ranks.iter().filter_map(begin).min().unwrap_or(0);
        let place = |rank: &RankInfo| RankPlace {
            rank: rank.rank,
            begin: if aligned { first } else { begin(rank).unwrap_or(0) } + offset(rank),
        };
        let places: Vec<RankPlace> = ranks.iter().map(place).collect();
        timeline::save_ranks(path, &places, |number, write| {
            match ranks.iter().find(|rank| rank.rank == number && number != shown_rank) {
                Some(rank) => write(self.open_rank(rank).map_err(std::io::Error::other)?.bundle()),
                None => write(self.opened.bundle()),
            }
        })
    }
}
