//! `roofgap analyze`: analyses captures.

use super::signals::request_on_signal;
use crate::args::{AnalysisFormat, Analyze};
use crate::printer::Printer;
use crate::reading::{keep_private, with_bar};
use roofgap_analyze::{About, RankInfo, Trials};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_record::trial;
use roofgap_report::export::chrome::{self, RankPlace};
#[cfg(feature = "parquet")]
use roofgap_report::export::parquet::{self, Partition};
use roofgap_report::export::stacks;
use roofgap_report::{Bundle, json, markdown, telemetry};
use roofgap_runs::open::{Exporter, LoadError, Loaded, Overrides, load};
use roofgap_runs::run_dir::Layout;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub fn run(args: Analyze, printer: &Printer) -> Result<Exit, Error> {
    let exporter = exporter(args.nsys.clone());
    let overrides = Overrides { rank: args.rank, ..args.overrides.props()? };
    let selection = args.shown.props()?;
    check_outputs(&args)?;
    keep_private(&args.inputs);
    let loaded = with_bar(&args.inputs, printer, || load(&args.inputs, &overrides, &exporter))?;
    check_stage(args.shown.only.as_deref(), &loaded)?;
    for why in &loaded.unreadable {
        printer.warning(why);
    }
    let missing = missing_stages(&args.overrides.stage, &loaded);
    for why in &missing {
        printer.warning(why);
    }
    let page = match &args.out {
        Some(dir) => Some(write_reports(dir, &loaded, printer)?),
        None => None,
    };
    let exported = export(&args, &loaded, &overrides, &exporter, printer);
    let analysis = selection.of(&loaded.analysis);
    let part = Bundle { analysis: &analysis, ..bundle(&loaded) };
    match args.format {
        AnalysisFormat::Text => {
            printer.text(&args.shown.text(&analysis, printer)?)?;
            let trials = loaded.context.trials.as_ref();
            if let Some(trial) = trials.and_then(Trials::latest) {
                let screen = printer.screen();
                let result = trial::text::result(trial, screen);
                printer.text(&format!("\n{}\n{result}", screen.bold("Tried")))?;
            }
            match &page {
                Some(page) => printer.page(page)?,
                None if printer.is_live() => {
                    printer.progress(&"`--full` prints everything; `roofgap INPUT` opens the page");
                }
                None => {}
            }
        }
        AnalysisFormat::Json => printer.document(&json::pretty(&analysis))?,
        AnalysisFormat::Markdown => printer.document(&markdown::report(part))?,
    }
    exported?;
    Ok(if loaded.unreadable.is_empty() && missing.is_empty() { Exit::Done } else { Exit::Partial })
}

/// Checks that the folder of every output can hold it, before the inputs are read.
fn check_outputs(args: &Analyze) -> Result<(), Error> {
    let files =
        [&args.perfetto, &args.speedscope, &args.folded, &args.folded_idle, &args.prometheus, &args.otlp];
    for path in files.into_iter().flatten() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let found = folder.unwrap_or(Path::new(".")).metadata();
        let problem = match found {
            Ok(facts) if !facts.is_dir() => Some(ErrorKind::NotADirectory.into()),
            Ok(_) if path.is_dir() => Some(ErrorKind::IsADirectory.into()),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        if let Some(source) = problem {
            return Err(Error::io("write", path)(source));
        }
    }
    // These are created, with the folders above them.
    for path in [&args.out, &args.parquet].into_iter().flatten() {
        let above = path.ancestors().find(|folder| folder.exists());
        if above.is_some_and(|folder| !folder.is_dir()) {
            return Err(Error::io("write", path)(ErrorKind::NotADirectory.into()));
        }
    }
    Ok(())
}

/// Checks that the analysis has the stage of `--only`.
fn check_stage(only: Option<&str>, loaded: &Loaded) -> Result<(), Error> {
    let stages = &loaded.analysis.stages;
    match only {
        Some(stage) if stages.iter().all(|known| known.name != stage) => {
            let known: Vec<&str> = stages.iter().map(|known| known.name.as_str()).collect();
            let known = match known.as_slice() {
                [] => "the analysis has no stages".to_owned(),
                known => format!("the stages are {}", known.join(", ")),
            };
            Err(Error::new(format!("no stage {stage}; {known}")))
        }
        _ => Ok(()),
    }
}

/// Writes all reports into a folder and returns the path of the page.
pub fn write_reports(dir: &Path, loaded: &Loaded, printer: &Printer) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(dir).map_err(Error::io("write", dir))?;
    for file in roofgap_report::files(bundle(loaded)) {
        let path = dir.join(file.name);
        write_atomic(&path, &file.bytes).map_err(Error::io("write", &path))?;
        printer.progress(&format_args!("wrote {}", path.display()));
    }
    Ok(Layout::of(dir).page())
}

/// Explains each stage that `--stage` names and that the analysis does not have.
fn missing_stages(requested: &[String], loaded: &Loaded) -> Vec<String> {
    let names = requested.iter().filter_map(|text| text.split_once('=')).map(|(name, _)| name);
    let absent = names.filter(|name| loaded.analysis.stages.iter().all(|stage| stage.name != *name));
    let why = |name: &str| {
        let about = About::Stage(name.to_owned());
        let reasons = &loaded.analysis.reasons;
        let reason = reasons.iter().find(|reason| reason.about == about || reason.about == About::Stages);
        reason.map_or("no range matches it", |reason| &reason.why).to_owned()
    };
    absent.map(|name| format!("no stage {name}: {}", why(name))).collect()
}

/// Finds the nsys that exports reports. Signals are only handled while it runs: otherwise Ctrl-C ends the program at once.
pub fn exporter(nsys: Option<PathBuf>) -> Exporter {
    Exporter { before_export: request_on_signal, ..Exporter::new(Search::from_env(nsys), Cancel::new()) }
}

pub fn bundle(loaded: &Loaded) -> Bundle<'_> {
    Bundle {
        analysis: &loaded.analysis,
        stages: &loaded.stages,
        trace: Some(&loaded.trace),
        context: &loaded.context,
    }
}

/// Exports the timeline and its numbers for other tools. An export that fails does not stop the others: of several failures all but
/// the last, which is returned, are printed.
fn export(
    args: &Analyze,
    loaded: &Loaded,
    overrides: &Overrides,
    exporter: &Exporter,
    printer: &Printer,
) -> Result<(), Error> {
    let bundle = bundle(loaded);
    let wrote = |path: &Path| printer.progress(&format_args!("wrote {}", path.display()));
    let perfetto = |path: &PathBuf| -> Result<(), Error> {
        match &loaded.analysis.job {
            Some(job) => save_ranks(path, job.shown_rank, loaded, overrides, exporter)?,
            None => chrome::save(bundle, path).map_err(Error::of)?,
        }
        wrote(path);
        Ok(())
    };
    let speedscope = |path: &PathBuf| -> Result<(), Error> {
        stacks::save_speedscope(bundle, path).map_err(Error::of)?;
        wrote(path);
        Ok(())
    };
    let folded = |path: &PathBuf| -> Result<(), Error> {
        stacks::save_folded(bundle, path).map_err(Error::of)?;
        wrote(path);
        Ok(())
    };
    let folded_idle = |path: &PathBuf| -> Result<(), Error> {
        stacks::save_folded_idle(bundle, path).map_err(Error::of)?;
        wrote(path);
        Ok(())
    };
    let prometheus = |path: &PathBuf| write_text(path, &telemetry::prometheus(bundle), printer);
    let otlp = |path: &PathBuf| {
        let text = telemetry::otlp(bundle, SystemTime::now());
        write_text(path, &text, printer)
    };
    let parquet = |dir: &PathBuf| save_tables(dir, args, loaded, overrides, exporter, printer);
    let exports = [
        args.perfetto.as_ref().map(perfetto),
        args.speedscope.as_ref().map(speedscope),
        args.folded.as_ref().map(folded),
        args.folded_idle.as_ref().map(folded_idle),
        args.prometheus.as_ref().map(prometheus),
        args.otlp.as_ref().map(otlp),
        args.parquet.as_ref().map(parquet),
    ];
    let exports = exports.into_iter().flatten();
    let mut failures: Vec<Error> = exports.filter_map(Result::err).collect();
    let last = failures.pop();
    failures.iter().for_each(|failure| printer.failure(failure));
    last.map_or(Ok(()), Err)
}

/// Writes Parquet tables; of a job, those of every rank.
#[cfg(feature = "parquet")]
fn save_tables(
    dir: &Path,
    args: &Analyze,
    loaded: &Loaded,
    overrides: &Overrides,
    exporter: &Exporter,
    printer: &Printer,
) -> Result<(), Error> {
    let run = part_name(&args.inputs);
    let save = |loaded: &Loaded, rank: u32| -> Result<(), Error> {
        let partition = Partition { run: run.clone(), rank };
        for path in parquet::save(bundle(loaded), dir, &partition).map_err(Error::of)? {
            printer.progress(&format_args!("wrote {}", path.display()));
        }
        Ok(())
    };
    let Some(job) = &loaded.analysis.job else {
        return save(loaded, loaded.analysis.ranks.first().map_or(0, |rank| rank.rank));
    };
    save(loaded, job.shown_rank)?;
    // One after the other, because only the trace of the shown rank is in memory.
    for rank in loaded.analysis.ranks.iter().filter(|rank| rank.rank != job.shown_rank) {
        save(&load_rank(rank, &loaded.analysis.ranks, overrides, exporter)?, rank.rank)?;
    }
    Ok(())
}

#[cfg(not(feature = "parquet"))]
fn save_tables(
    _: &Path,
    _: &Analyze,
    _: &Loaded,
    _: &Overrides,
    _: &Exporter,
    _: &Printer,
) -> Result<(), Error> {
    Err(super::not_built("option --parquet"))
}

fn write_text(path: &Path, text: &str, printer: &Printer) -> Result<(), Error> {
    write_atomic(path, text.as_bytes()).map_err(Error::io("write", path))?;
    printer.progress(&format_args!("wrote {}", path.display()));
    Ok(())
}

/// Loads one rank of a job by itself, or out of a file that holds several.
fn load_rank(
    rank: &RankInfo,
    ranks: &[RankInfo],
    overrides: &Overrides,
    exporter: &Exporter,
) -> Result<Loaded, LoadError> {
    let same_files = |other: &RankInfo| other.rank != rank.rank && other.sources == rank.sources;
    let own = Overrides { rank: ranks.iter().any(same_files).then_some(rank.rank), ..overrides.clone() };
    let files: Vec<PathBuf> = rank.sources.iter().map(PathBuf::from).collect();
    load(&files, &own, exporter)
}

/// Writes the timelines of all ranks of a job, in one clock where it is known.
fn save_ranks(
    path: &Path,
    shown_rank: u32,
    loaded: &Loaded,
    overrides: &Overrides,
    exporter: &Exporter,
) -> Result<(), Error> {
    let ranks = &loaded.analysis.ranks;
    let offset = |rank: &RankInfo| rank.clock_offset_ns.unwrap_or(0);
    let begin = |rank: &RankInfo| Some(rank.activity.as_ref()?.begin_ns - offset(rank));
    // Without clocks in common, every rank begins with its first operation.
    let aligned = ranks.iter().all(|rank| rank.clock_offset_ns.is_some());
    let first = ranks.iter().filter_map(begin).min().unwrap_or(0);
    let places: Vec<RankPlace> = ranks
        .iter()
        .map(|rank| RankPlace {
            rank: rank.rank,
            begin: if aligned { first } else { begin(rank).unwrap_or(0) } + offset(rank),
        })
        .collect();
    let mut failed = None;
    let written = chrome::save_ranks(path, &places, |number, write| {
        if number == shown_rank {
            return write(bundle(loaded));
        }
        let Some(rank) = ranks.iter().find(|rank| rank.rank == number) else {
            return Ok(());
        };
        match load_rank(rank, ranks, overrides, exporter) {
            Ok(own) => write(bundle(&own)),
            Err(error) => {
                failed = Some(error);
                Err(std::io::Error::other("a rank is not readable"))
            }
        }
    });
    match failed {
        Some(error) => Err(error.into()),
        None => written.map_err(Error::of),
    }
}

#[cfg(feature = "parquet")]
/// Names a Parquet partition after the first input, without its extensions, in characters that are safe in a path.
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
