//! Splits the ncu result by stage.

use std::path::Path;

use roofgap_analyze::counters::canonical;
use roofgap_analyze::{NamedPlace, StageSet};
use roofgap_trace::Trace;
use roofgap_trace::ncu::CounterSet;

use crate::run::context::PhaseContext;
use crate::select::{Plan, launch_groups};
use roofgap_runs::run_dir::PhaseName;

/// Finds the stage of each measured launch: by the ranges around it, else by the plan where only one stage has the kernel
/// and shape.
pub fn stages_of_launches(
    counters: &CounterSet,
    trace: &Trace,
    set: &StageSet,
    plan: &Plan,
) -> Vec<Option<String>> {
    let whole = trace.ranges.rows.is_empty();
    counters
        .launches
        .iter()
        .map(|launch| {
            match set.place(&launch.nvtx) {
                NamedPlace::Warmup => return None,
                NamedPlace::Stage(at) => return set.stages.get(at).map(|rule| rule.name.clone()),
                NamedPlace::Step(name) => return Some(name.to_owned()),
                NamedPlace::Outside => {}
            }
            if whole {
                return Some(launch_groups::WHOLE.to_owned());
            }
            let mut stages: Vec<&str> = plan
                .groups
                .iter()
                .filter(|s| Some(s.grid) == launch.grid && Some(s.block) == launch.block)
                .filter(|s| canonical(&s.kernel) == canonical(&launch.kernel))
                .map(|s| s.stage.as_str())
                .collect();
            stages.dedup();
            match stages.as_slice() {
                [only] => Some((*only).to_owned()),
                _ => None,
            }
        })
        .collect()
}

/// Writes the rows of each stage to a file of its own. A report that holds one stage only is linked under its name.
pub fn split_by_stage(
    context: &mut PhaseContext<'_>,
    raw: &Path,
    report: &Path,
    stage_of: &[Option<String>],
    plan: &Plan,
) {
    const PHASE: PhaseName = PhaseName::Counters;
    for cover in &plan.stages {
        let csv = context.layout.ncu_stage_raw(&cover.name);
        match split(raw, &csv, stage_of, &cover.name) {
            Ok(0) => {}
            Ok(_) => {
                context.output(PHASE, &csv);
                if !stage_of.iter().all(|own| own.as_ref() == Some(&cover.name)) {
                    continue;
                }
                let link = context.layout.ncu_stage_report(&cover.name);
                let _ = std::fs::remove_file(&link);
                // A link costs nothing, a copy 100 MB.
                if std::fs::hard_link(report, &link).is_ok() {
                    context.output(PHASE, &link);
                }
            }
            Err(error) => {
                let note = format!("cannot write {}: {error}", csv.display());
                context.record.note(PHASE, note);
            }
        }
    }
}

/// Copies the header, the units and the rows of one stage. Returns the number of rows.
fn split(raw: &Path, to: &Path, stage_of: &[Option<String>], stage: &str) -> Result<usize, csv::Error> {
    // Messages of ncu may precede the table.
    let text = std::fs::read_to_string(raw)?;
    let table = text.find("\"ID\",").map_or(text.as_str(), |at| text.get(at..).unwrap_or_default());
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(table.as_bytes());
    let mut writer =
        csv::WriterBuilder::new().quote_style(csv::QuoteStyle::Always).flexible(true).from_writer(Vec::new());
    let mut rows = 0;
    let mut launch = 0;
    for (at, record) in reader.records().enumerate() {
        let record = record?;
        let is_head = at == 0 || (at == 1 && record.get(0).is_some_and(|id| id.trim().is_empty()));
        if is_head {
            writer.write_record(&record)?;
            continue;
        }
        if stage_of.get(launch).is_some_and(|own| own.as_deref() == Some(stage)) {
            writer.write_record(&record)?;
            rows += 1;
        }
        launch += 1;
    }
    if rows > 0 {
        let bytes = writer.into_inner().map_err(|error| std::io::Error::other(error.to_string()))?;
        roofgap_base::file::write_atomic(to, &bytes)?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_to_their_stage() {
        let folder = tempfile::tempdir().unwrap();
        let (raw, to) = (folder.path().join("raw.csv"), folder.path().join("decode_raw.csv"));
        std::fs::write(&raw, "==PROF== x\n\"ID\",\"Kernel Name\"\n\"\",\"\"\n\"0\",\"a, b\"\n\"1\",\"c\"\n")
            .unwrap();
        let stages = [Some("decode".to_owned()), Some("prefill".to_owned())];
        assert_eq!(split(&raw, &to, &stages, "decode").unwrap(), 1);
        let text = std::fs::read_to_string(&to).unwrap();
        assert_eq!(text, "\"ID\",\"Kernel Name\"\n\"\",\"\"\n\"0\",\"a, b\"\n");
        assert_eq!(split(&raw, &folder.path().join("none.csv"), &stages, "vision").unwrap(), 0);
        assert!(!folder.path().join("none.csv").exists());
    }
}
