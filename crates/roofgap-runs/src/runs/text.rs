//! Renders the answers of the commands on runs as text.

use std::fmt::Write;
use std::path::Path;

use roofgap_base::numbers::{NONE, counted, or_none};
use roofgap_report::{Screen, columns, size, time};

use super::artifacts::ArtifactList;
use super::merge::MergeOutcome;
use super::prune::{Action, PruneOutcome, PrunePlan, RunPlan};
use super::scrub::ScrubOutcome;
use super::summary::{RunDetails, RunSummary, StageLine};

/// Lists texts, or a dash for none.
fn listed(texts: &[String]) -> String {
    if texts.is_empty() { NONE.to_owned() } else { texts.join(", ") }
}

fn stages(stages: &[StageLine]) -> String {
    let line = |stage: &StageLine| format!("{} {}", stage.name, time(stage.wall_ns));
    listed(&stages.iter().map(line).collect::<Vec<_>>())
}

/// Renders the result of a merge.
pub fn merged(outcome: &MergeOutcome) -> String {
    let ranks: Vec<String> = outcome.ranks.iter().map(u32::to_string).collect();
    let mut out = format!(
        "{}: {} of {}, ranks {}\n",
        outcome.run.display(),
        counted(outcome.captures as u64, "capture"),
        counted(outcome.from.len() as u64, "run"),
        listed(&ranks)
    );
    for problem in &outcome.problems {
        let _ = writeln!(out, "  {problem}");
    }
    out
}

/// Renders a list of the runs in a folder, newest last.
pub fn list(runs: &[RunSummary], base: &Path, screen: Screen) -> String {
    if runs.is_empty() {
        let place = if base.is_dir() { " in" } else { ": there is no folder" };
        return format!("no runs{place} {}; `roofgap profile` creates runs\n", base.display());
    }
    let row = |run: &RunSummary| {
        let compressed = if run.compressed { " (compressed)" } else { "" };
        [
            run.run_id.clone(),
            run.status.clone(),
            or_none(run.model.clone(), |model| model),
            listed(&run.devices),
            or_none(run.mode.clone(), |mode| mode),
            stages(&run.stages),
            format!("{}{compressed}", size(run.bytes)),
        ]
    };
    let titles = ["run", "status", "model", "device", "mode", "stages", "size>"];
    let mut out = columns(titles, runs.iter().map(row), screen);
    for (run, incident) in runs.iter().filter_map(|run| Some((run, run.incident.as_ref()?))) {
        let _ = writeln!(out, "{}", screen.wrapped(&format!("{}: incident at {incident}", run.run_id), 2));
    }
    out
}

/// Says that a run is over the cap, and what `command` would do to prune it.
pub fn over_cap(plan: &RunPlan, cap: u64, command: &str) -> String {
    let effect = match plan.saves_bytes {
        0 => "nothing, because its files cannot be regenerated".to_owned(),
        saved => format!("about {}", size(saved)),
    };
    let (bytes, cap) = (size(plan.bytes), size(cap));
    format!("the run has {bytes}, more than retention.max_run_bytes ({cap}); `{command}` would free {effect}")
}

/// Renders one run.
pub fn show(run: &RunDetails, screen: Screen) -> String {
    let summary = &run.summary;
    let mut facts: Vec<[String; 2]> = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.push([name.to_owned(), value]);
        }
    };
    let exit = summary.exit_status.map(|code| format!(" (exit status {code})"));
    fact("run", Some(summary.run_id.clone()));
    fact("folder", Some(summary.path.display().to_string()));
    fact("status", Some(format!("{}{}", summary.status, exit.unwrap_or_default())));
    fact("problem", summary.problem.clone());
    fact("started", summary.started.clone());
    fact("finished", summary.finished.clone());
    fact("mode", summary.mode.clone());
    fact("workload", summary.workload.clone());
    fact("model", summary.model.clone());
    fact("device", Some(summary.devices.join(", ")));
    fact("size", Some(format!("{} in {}", size(summary.bytes), counted(run.files as u64, "file"))));
    fact("roofgap", run.roofgap_version.clone());
    fact("repeat", run.repeat_command.clone());
    fact("incident", summary.incident.clone());
    let mut out = String::new();
    for [name, value] in facts {
        let _ = writeln!(out, "{}", screen.wrapped(&format!("{name:<9} {value}"), 10));
    }
    let mut section = |title: &str, text: String| {
        if !text.is_empty() {
            let _ = write!(out, "\n{title}\n{text}");
        }
    };
    if !summary.stages.is_empty() {
        let rows = summary.stages.iter().map(|stage| {
            let busy = or_none(stage.busy_ns, time);
            [stage.name.clone(), time(stage.wall_ns), busy]
        });
        section("Stages, one instance", columns(["stage", "wall>", "GPU busy>"], rows, screen));
    }
    if !run.phases.is_empty() {
        let rows = run.phases.iter().map(|phase| {
            let took = phase.wall_ns.map(|ns| time(i64::try_from(ns).unwrap_or(i64::MAX)));
            [
                phase.name.to_owned(),
                phase.status.to_owned(),
                took.unwrap_or_default(),
                phase.tool.clone().unwrap_or_default(),
                phase.why.clone().unwrap_or_default(),
            ]
        });
        section("Phases", columns(["phase", "status", "took>", "by", "why"], rows, screen));
    }
    let line = |line: &String| format!("{}\n", screen.wrapped(&format!("- {line}"), 2));
    let lines = |lines: &[String]| lines.iter().map(line).collect::<String>();
    section("Missing", lines(&run.missing));
    section("What to do first", lines(&run.findings));
    out
}

/// Renders the files of a run.
pub fn artifacts(list: &ArtifactList, screen: Screen) -> String {
    let rows = list.artifacts.iter().map(|file| {
        [file.path.clone(), size(file.bytes), or_none(file.sha256.clone(), |hash| hash), file.kind.to_owned()]
    });
    let mut out = columns(["file", "size>", "sha256", "purpose"], rows, screen);
    let _ = writeln!(out, "{}, {}", counted(list.artifacts.len() as u64, "file"), size(list.bytes));
    out
}

/// Renders a plan of pruning.
pub fn plan(plan: &PrunePlan, screen: Screen) -> String {
    let mut rows = Vec::new();
    for run in &plan.runs {
        if let Some(why) = &run.left_alone {
            rows.push([run.run_id.clone(), "keep".into(), size(run.bytes), String::new(), why.clone()]);
        }
        for step in &run.steps {
            rows.push([
                format!("{}/{}", run.run_id, step.path.display()),
                action(step.action).to_owned(),
                size(step.bytes),
                size(step.saves_bytes),
                step.why.clone(),
            ]);
        }
        if run.over_cap_bytes > 0 {
            let why = "over the limit; no file left can be regenerated".to_owned();
            rows.push([run.run_id.clone(), "note".into(), size(run.over_cap_bytes), String::new(), why]);
        }
    }
    let mut out = columns(["file", "action", "size>", "saves about>", "why"], rows, screen);
    let _ = writeln!(
        out,
        "{} {} {}; about {} would be saved",
        counted(plan.runs.len() as u64, "run"),
        if plan.runs.len() == 1 { "takes" } else { "take" },
        size(plan.bytes),
        size(plan.saves_bytes)
    );
    out
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Compress => "compress",
        Action::Delete => "delete",
    }
}

/// Renders the result of pruning.
pub fn pruned(outcome: &PruneOutcome, screen: Screen) -> String {
    let done = outcome.done.iter().map(|done| {
        [
            format!("{}/{}", done.run_id, done.path.display()),
            action(done.action).to_owned(),
            size(done.saved_bytes),
            String::new(),
        ]
    });
    let failed = outcome.failed.iter().map(|left| {
        let what = format!("{}/{}", left.run_id, left.path.display());
        [what, "kept".to_owned(), String::new(), left.why.clone()]
    });
    let rows: Vec<[String; 4]> = done.chain(failed).collect();
    let mut out = String::new();
    if !rows.is_empty() {
        out = columns(["file", "action", "saved>", "why"], rows, screen);
    }
    if outcome.interrupted {
        out.push_str("interrupted; the other files are unchanged\n");
    }
    let _ = writeln!(out, "{} saved", size(outcome.saved_bytes));
    out
}

/// Renders the result of packing.
pub fn scrubbed(outcome: &ScrubOutcome, screen: Screen) -> String {
    let files = counted(outcome.packed.len() as u64, "file");
    let (pack, bytes, hash) = (outcome.pack.display(), size(outcome.bytes), &outcome.sha256);
    let mut out = format!("{pack}: {files}, {bytes}, sha256 {hash}\n");
    let left_out = outcome.left_out.iter().map(|file| format!("  {}: {}", file.path, file.why));
    let title = (!outcome.left_out.is_empty()).then(|| "left out:".to_owned());
    for line in title.into_iter().chain(left_out) {
        let _ = writeln!(out, "{}", screen.wrapped(&line, 2));
    }
    out
}
