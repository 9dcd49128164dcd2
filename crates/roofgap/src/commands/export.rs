//! `roofgap export`: captures for other programs.

use super::analyze::exporter;
use crate::args::{Export, ExportFormat};
use crate::printer::Printer;
use crate::reading::open;
use roofgap_analyze::RankInfo;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
#[cfg(feature = "parquet")]
use roofgap_report::export::parquet::{self, Partition};
use roofgap_report::export::stacks;
use roofgap_report::export::timeline::{self, RankPlace};
use roofgap_report::telemetry;
use roofgap_runs::open::{Exporter, Opened, Overrides, open_inputs};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Writes captures in the format of another program.
pub fn run(args: Export, printer: &Printer) -> Result<Exit, Error> {
    let exporter = exporter(args.overrides.nsys.clone());
    let overrides = Overrides { rank: args.rank, ..args.overrides.props()? };
    let exports = [(args.format, args.out)];
    check_outputs(None, &exports)?;
    let opened = open(&args.inputs, &overrides, &exporter, printer)?;
    let job = Exporting { inputs: &args.inputs, opened: &opened, overrides: &overrides, exporter: &exporter };
    job.write_all(&exports, printer)?;
    Ok(if opened.unreadable.is_empty() { Exit::Done } else { Exit::Partial })
}

/// Checks that the folder of every output can hold it, before the inputs are read.
pub fn check_outputs(reports: Option<&Path>, exports: &[(ExportFormat, PathBuf)]) -> Result<(), Error> {
    let (folders, files): (Vec<_>, Vec<_>) =
        exports.iter().partition(|(format, _)| *format == ExportFormat::Parquet);
    // Folders are created, with those above them.
    for path in reports.into_iter().chain(folders.iter().map(|(_, path)| path.as_path())) {
        let above = path.ancestors().find(|folder| folder.exists());
        if above.is_some_and(|folder| !folder.is_dir()) {
            return Err(Error::io("write", path)(ErrorKind::NotADirectory.into()));
        }
    }
    for (_, path) in files {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // The slash makes a file no folder.
        let found = folder.unwrap_or(Path::new(".")).join("").metadata();
        found.map_err(Error::io("write", path))?;
        if path.is_dir() {
            return Err(Error::io("write", path)(ErrorKind::IsADirectory.into()));
        }
    }
    Ok(())
}

/// Input of an export; for a job, also the means to open its other ranks.
#[derive(Clone, Copy)]
pub struct Exporting<'a> {
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "only tables are named after them"))]
    pub inputs: &'a [PathBuf],
    pub opened: &'a Opened,
    pub overrides: &'a Overrides,
    pub exporter: &'a Exporter,
}

impl Exporting<'_> {
    /// Writes every export. One that fails does not stop the others: of several failures all but the last, which is returned, are
    /// printed.
    pub fn write_all(self, exports: &[(ExportFormat, PathBuf)], printer: &Printer) -> Result<(), Error> {
        let written = exports.iter().map(|(format, path)| self.write(*format, path, printer));
        let mut failures: Vec<Error> = written.filter_map(Result::err).collect();
        let last = failures.pop();
        failures.iter().for_each(|failure| printer.failure(failure));
        last.map_or(Ok(()), Err)
    }

    fn write(self, format: ExportFormat, path: &Path, printer: &Printer) -> Result<(), Error> {
        let bundle = self.opened.bundle();
        let text = |text: String| write_atomic(path, text.as_bytes()).map_err(Error::io("write", path));
        match format {
            ExportFormat::Parquet => return self.save_tables(path, printer),
            ExportFormat::Perfetto => match &self.opened.analysis.job {
                Some(job) => self.save_ranks(path, job.shown_rank)?,
                None => timeline::save(bundle, path).map_err(Error::of)?,
            },
            ExportFormat::Speedscope => stacks::save_speedscope(bundle, path).map_err(Error::of)?,
            ExportFormat::Folded => stacks::save_folded(bundle, path).map_err(Error::of)?,
            ExportFormat::FoldedIdle => stacks::save_folded_idle(bundle, path).map_err(Error::of)?,
            ExportFormat::Prometheus => text(telemetry::prometheus(bundle))?,
            ExportFormat::Spans => {
                let why = "the recording does not tell which requests were in its steps; record vLLM with `roofgap watch` or the native collector";
                text(telemetry::spans(bundle).ok_or_else(|| Error::new(why))?)?;
            }
            ExportFormat::Otlp => text(telemetry::otlp(bundle, SystemTime::now()))?,
        }
        printer.wrote(path);
        Ok(())
    }

    /// Writes Parquet tables; of a job, those of every rank.
    #[cfg(feature = "parquet")]
    fn save_tables(self, dir: &Path, printer: &Printer) -> Result<(), Error> {
        let run = part_name(self.inputs);
        let save = |opened: &Opened, rank: u32| -> Result<(), Error> {
            let partition = Partition { run: run.clone(), rank };
            for path in parquet::save(opened.bundle(), dir, &partition).map_err(Error::of)? {
                printer.wrote(&path);
            }
            Ok(())
        };
        let ranks = &self.opened.analysis.ranks;
        let Some(job) = &self.opened.analysis.job else {
            return save(self.opened, ranks.first().map_or(0, |rank| rank.rank));
        };
        save(self.opened, job.shown_rank)?;
        // One after the other, because only the trace of the shown rank is in memory.
        for rank in ranks.iter().filter(|rank| rank.rank != job.shown_rank) {
            save(&self.open_rank(rank)?, rank.rank)?;
        }
        Ok(())
    }

    #[cfg(not(feature = "parquet"))]
    fn save_tables(self, _: &Path, _: &Printer) -> Result<(), Error> {
        Err(super::not_built("option --parquet"))
    }

    /// Loads one rank of a job by itself, or out of a file that holds several.
    fn open_rank(self, rank: &RankInfo) -> Result<Opened, Error> {
        let same_files = |other: &RankInfo| other.rank != rank.rank && other.sources == rank.sources;
        let shared = self.opened.analysis.ranks.iter().any(same_files);
        let own = Overrides { rank: shared.then_some(rank.rank), ..self.overrides.clone() };
        let files: Vec<PathBuf> = rank.sources.iter().map(PathBuf::from).collect();
        open_inputs(&files, &own, self.exporter)
    }

    /// Writes the timelines of all ranks of a job, in one clock where it is known.
    fn save_ranks(self, path: &Path, shown_rank: u32) -> Result<(), Error> {
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
        let written = timeline::save_ranks(path, &places, |number, write| {
            match ranks.iter().find(|rank| rank.rank == number && number != shown_rank) {
                Some(rank) => write(self.open_rank(rank).map_err(std::io::Error::other)?.bundle()),
                None => write(self.opened.bundle()),
            }
        });
        written.map_err(Error::of)
    }
}

/// Names a Parquet partition after the first input, without its extensions, in characters that are safe in a path.
#[cfg(feature = "parquet")]
fn part_name(inputs: &[PathBuf]) -> String {
    let full = inputs.first().and_then(|path| path.canonicalize().ok());
    let name = full.as_deref().and_then(Path::file_name).unwrap_or_default();
    let name = name.to_string_lossy();
    let stem = name.split('.').find(|part| !part.is_empty()).unwrap_or("capture");
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' }
    };
    stem.chars().map(safe).collect()
}
