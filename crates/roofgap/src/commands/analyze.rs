//! `roofgap analyze`.

use super::profile::cancel;
use crate::args::{Analyze, Format, Stated};
use crate::failure::{Failure, PARTIAL};
use crate::printer::Printer;
use roofgap_analyze::About;
use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::model::{Architecture, Tokens, preset};
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_report::parquet::{self, Partition};
use roofgap_report::{Bundle, chrome, json, text};
use roofgap_session::inputs::{Exporter, Given, is_report, load};
use roofgap_session::session::Loaded;
use std::path::{Path, PathBuf};

pub(super) fn run(args: Analyze, printer: &Printer) -> Result<u8, Failure> {
    let loaded = load(
        &args.inputs,
        &given(&args.stated)?,
        &exporter(&args.inputs, args.nsys.clone())?,
    )?;
    for why in &loaded.unreadable {
        printer.warning(why);
    }
    let not_there = missing_stages(&args.stated.stage, &loaded);
    for why in &not_there {
        printer.warning(why);
    }
    if let Some(dir) = &args.out {
        let write = |path: &Path, source| Failure::Write {
            path: path.to_path_buf(),
            source,
        };
        std::fs::create_dir_all(dir).map_err(|e| write(dir, e))?;
        for file in roofgap_report::files(bundle(&loaded)) {
            let path = dir.join(file.name);
            std::fs::write(&path, file.bytes).map_err(|e| write(&path, e))?;
            printer.progress(&format_args!("wrote {}", path.display()));
        }
    }
    export(&args, &loaded, printer)?;
    let look = text::TextOptions {
        color: printer.color(),
        kernels: args.top,
    };
    let answer = match args.format {
        Format::Text => text::render(&loaded.analysis, look),
        Format::Json => json::pretty(&loaded.analysis),
    };
    printer.answer(&answer).map_err(Failure::Print)?;
    let whole = loaded.unreadable.is_empty() && not_there.is_empty();
    Ok(if whole { 0 } else { PARTIAL })
}

/// The stages that `--stage` names and that are not there, with the reason.
fn missing_stages(stated: &[String], loaded: &Loaded) -> Vec<String> {
    let names = stated
        .iter()
        .filter_map(|text| text.split_once('='))
        .map(|(name, _)| name);
    let absent = names.filter(|name| loaded.analysis.stages.iter().all(|stage| stage.name != *name));
    let why = |name: &str| {
        let about = About::Stage(name.to_owned());
        let reasons = &loaded.analysis.reasons;
        let reason = reasons
            .iter()
            .find(|reason| reason.about == about || reason.about == About::Stages);
        reason
            .map_or("no range matches it", |reason| &reason.why)
            .to_owned()
    };
    absent
        .map(|name| format!("no stage {name}: {}", why(name)))
        .collect()
}

/// The nsys that exports a report. Signals are only taken over where it may run: else Ctrl-C ends the program at once.
pub(super) fn exporter(inputs: &[PathBuf], nsys: Option<PathBuf>) -> Result<Exporter, Failure> {
    let cancel = if inputs.iter().any(|path| is_report(path)) {
        cancel()?
    } else {
        Cancel::new()
    };
    Ok(Exporter {
        search: Search::here(nsys),
        cancel,
    })
}

fn bundle(loaded: &Loaded) -> Bundle<'_> {
    Bundle {
        analysis: &loaded.analysis,
        stages: &loaded.stages,
        trace: Some(&loaded.trace),
        context: &loaded.context,
    }
}

/// The timeline for other tools, where that is asked for.
fn export(args: &Analyze, loaded: &Loaded, printer: &Printer) -> Result<(), Failure> {
    if let Some(path) = &args.perfetto {
        chrome::save(bundle(loaded), path)?;
        printer.progress(&format_args!("wrote {}", path.display()));
    }
    if let Some(dir) = &args.parquet {
        let partition = Partition {
            run: part_name(&args.inputs),
            rank: 0,
        };
        for path in parquet::save(bundle(loaded), dir, &partition)? {
            printer.progress(&format_args!("wrote {}", path.display()));
        }
    }
    Ok(())
}

/// A name for a part of a data set: that of the first input without its endings, in characters that suit a path.
fn part_name(inputs: &[PathBuf]) -> String {
    let full = inputs.first().and_then(|path| path.canonicalize().ok());
    let name = full.as_deref().and_then(Path::file_name).unwrap_or_default();
    let name = name.to_string_lossy();
    let stem = name.split('.').find(|part| !part.is_empty()).unwrap_or("capture");
    let fine = |c: char| {
        if c.is_ascii_alphanumeric() || "-_".contains(c) {
            c
        } else {
            '_'
        }
    };
    stem.chars().map(fine).collect()
}

/// What the user states beside the inputs.
pub(super) fn given(stated: &Stated) -> Result<Given, Failure> {
    Ok(Given {
        stages: stated.stage.clone(),
        model: stated.model.as_deref().map(model).transpose()?,
        tokens: Tokens {
            prompt: stated.prompt_tokens,
            generated: stated.new_tokens,
            batch: stated.batch,
            vision: stated.vision_tokens,
            views: None,
        },
        limits: UserLimits {
            peak_tflops: stated.peak_tflops,
            bandwidth_gbs: stated.bandwidth_gbs,
        },
    })
}

/// The model that `--model` names: a preset, or a file in the manner of a Hugging Face `config.json`.
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
        return Err(Failure::Usage(format!("{unknown}; and {name} is no file")));
    }
    let usage = |why: String| Failure::Usage(format!("cannot use {} as a model: {why}", path.display()));
    let text = std::fs::read(&path).map_err(|e| usage(e.to_string()))?;
    let config: serde_json::Value = serde_json::from_slice(&text).map_err(|e| usage(e.to_string()))?;
    Architecture::from_config(&config).map_err(|e| usage(e.to_string()))
}
