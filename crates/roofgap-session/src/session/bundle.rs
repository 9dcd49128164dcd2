//! From the files of a run directory to its analysis and reports. Everything is read from disk, so that a run that was cut
//! short, or one of long ago, is rendered in the same way as one that just ended.

use std::path::PathBuf;

use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::model::{Architecture, preset};
use roofgap_analyze::{About, Analysis, Operator, Options, Overhead, Profiler, Reason, StageIndex, StageSet};
use roofgap_report::{Bundle, Context, PhaseLine, ReportFile};
use roofgap_trace::Input;
use roofgap_trace::account::{self, Account};

use super::environment;
use super::layout::{Layout, stored};
use super::model;
use crate::config::Config;
use crate::config::settings::WorkloadKind;
use crate::inputs::Given;
use crate::overhead::overhead;
use crate::record::{PhaseName, PhaseRecord, PhaseStatus, SessionRecord};

/// What the files of a run say, together.
pub(super) struct Reading {
    pub(super) input: Input,
    pub(super) analysis: Analysis,
    pub(super) index: StageIndex,
    /// What could not be read, and why.
    pub(super) unreadable: Vec<String>,
}

/// The stages to look for.
pub(super) fn stages(config: &Config) -> Result<StageSet, String> {
    let mut set = StageSet::default();
    for (name, patterns) in &config.stages {
        set.set(&format!("{name}={}", patterns.join(",")))
            .map_err(|error| error.to_string())?;
    }
    Ok(set)
}

/// Read and analyse what a run directory holds, under its configuration and what the user states over it.
pub(super) fn read(layout: &Layout, config: &Config, record: &SessionRecord, given: &Given) -> Reading {
    let mut unreadable = Vec::new();
    let files = measurements(layout, record, &mut unreadable);
    let mut input = read_files(files, &mut unreadable);
    // Pages of one report, each with a part of what is known of a launch.
    let mut sets = std::mem::take(&mut input.counters).into_iter();
    let counters = sets.next().map(|first| {
        sets.fold(first, |mut whole, page| {
            whole.absorb(page);
            whole
        })
    });
    let account = program_account(layout);
    let mut stages = noted(stages(config), "stages", &mut unreadable).unwrap_or_default();
    for stage in &given.stages {
        let set = stages.set(stage).map_err(|error| error.to_string());
        noted(set, "stages", &mut unreadable);
    }
    let model = given.model.clone();
    let options = Options {
        stages,
        counters: counters.into_iter().collect(),
        model: model.or_else(|| noted(architecture(config), "model", &mut unreadable).flatten()),
        limits: UserLimits {
            peak_tflops: given.limits.peak_tflops.or(config.hardware.peak_tflops),
            bandwidth_gbs: given.limits.bandwidth_gbs.or(config.hardware.bandwidth_gbs),
        },
        tokens: given.tokens.clone(),
        operators: operators(layout, account.as_ref()),
        overhead: overheads(layout),
        account,
    };
    let analyzed = roofgap_analyze::analyze(&input.trace, &options);
    let mut analysis = analyzed.analysis;
    let mut known = reasons(record);
    let ran = |name| {
        record
            .phase(name)
            .is_some_and(|phase| phase.status == PhaseStatus::Ok)
    };
    if ran(PhaseName::Baseline) && account_at(layout.baseline_account()).is_none() {
        known.push(Reason::new(
            About::Overhead,
            "the program gives no times of its stages, so that watched and unwatched ones cannot be compared",
        ));
    }
    // The session knows better why a table is empty than the analysis, which only sees that it is.
    analysis
        .reasons
        .retain(|reason| !known.iter().any(|own| own.about == reason.about));
    analysis.reasons.extend(known);
    let heavy = too_heavy(&analysis, config.runner.overhead_limit_pct);
    analysis
        .reasons
        .extend(heavy.into_iter().map(|why| Reason::new(About::Overhead, why)));
    analysis.reasons.extend(
        unreadable
            .iter()
            .map(|why| Reason::new(About::Sources, why.clone())),
    );
    Reading {
        input,
        analysis,
        index: analyzed.stages,
        unreadable,
    }
}

fn noted<T>(result: Result<T, String>, about: &str, unreadable: &mut Vec<String>) -> Option<T> {
    result
        .map_err(|why| unreadable.push(format!("{about}: {why}")))
        .ok()
}

/// One bad file must not cost the others.
fn read_files(files: Vec<PathBuf>, unreadable: &mut Vec<String>) -> Input {
    if let Ok(input) = roofgap_trace::read(&files) {
        return input;
    }
    let mut good: Vec<PathBuf> = Vec::new();
    for file in files {
        let mut attempt = good.clone();
        attempt.push(file);
        match roofgap_trace::read(&attempt) {
            Ok(_) => good = attempt,
            Err(error) => unreadable.push(error.to_string()),
        }
    }
    roofgap_trace::read(&good).unwrap_or_default()
}

/// The files of a run that hold measurements.
fn measurements(layout: &Layout, record: &SessionRecord, unreadable: &mut Vec<String>) -> Vec<PathBuf> {
    let timeline = record.phase(PhaseName::Timeline);
    let tool = timeline.and_then(|phase| phase.tool.as_deref());
    let native = layout.native_captures();
    let export = stored(layout.nsys_sqlite());
    let mut files: Vec<PathBuf> = match tool {
        Some("native") => native,
        Some(_) => export.into_iter().collect(),
        // The phase did not end: whatever is whole is used.
        None => export.map_or(native, |export| vec![export]),
    };
    if files.is_empty() && timeline.is_some_and(|phase| phase.status == PhaseStatus::Ok) {
        let remedy = match stored(layout.nsys_report()) {
            Some(report) => format!("; analyse {} instead, where nsys is installed", report.display()),
            None => String::new(),
        };
        unreadable.push(format!("the timeline was recorded and its file is gone{remedy}"));
    }
    files.extend(
        [layout.ncu_raw(), layout.ncu_details()]
            .into_iter()
            .filter_map(stored),
    );
    files
}

/// An account of the program, packed or not.
pub(crate) fn account_at(path: PathBuf) -> Option<Account> {
    let path = stored(path)?;
    let plain = account::read(&path).ok();
    plain.or_else(|| roofgap_trace::read(&[path]).ok()?.account)
}

/// What the program says of itself, unwatched where there is such a run.
fn program_account(layout: &Layout) -> Option<Account> {
    [
        layout.baseline_account(),
        layout.nsys_account(),
        layout.native_account(),
        layout.torch_account(),
    ]
    .into_iter()
    .find_map(account_at)
}

/// Operators of the run under torch.profiler, else those that the program timed itself.
fn operators(layout: &Layout, own: Option<&Account>) -> Option<Vec<Operator>> {
    let torch = account_at(layout.torch_account());
    let account = torch
        .as_ref()
        .or(own)
        .filter(|account| !account.operators.is_empty())?;
    let mut sums: Vec<Operator> = Vec::new();
    let add = |a: Option<i64>, b: Option<i64>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    for operator in &account.operators {
        match sums.iter_mut().find(|sum| sum.name == operator.name) {
            Some(sum) => {
                sum.calls += operator.calls;
                sum.self_cpu_ns += operator.self_cpu_ns;
                sum.total_cpu_ns += operator.total_cpu_ns;
                sum.self_gpu_ns = add(sum.self_gpu_ns, operator.self_gpu_ns);
                sum.total_gpu_ns = add(sum.total_gpu_ns, operator.total_gpu_ns);
            }
            None => sums.push(Operator {
                name: operator.name.clone(),
                calls: operator.calls,
                self_cpu_ns: operator.self_cpu_ns,
                self_gpu_ns: operator.self_gpu_ns,
                total_cpu_ns: operator.total_cpu_ns,
                total_gpu_ns: operator.total_gpu_ns,
            }),
        }
    }
    sums.sort_by_key(|sum| std::cmp::Reverse((sum.self_gpu_ns, sum.self_cpu_ns)));
    Some(sums)
}

/// The architecture that FLOPs and bytes are computed from; the program's own account names it where this does not.
fn architecture(config: &Config) -> Result<Option<Architecture>, String> {
    let model = &config.model;
    if config.workload.kind == WorkloadKind::Embedded {
        // It is far smaller than the model it is shaped after; its account has its own configuration.
        return Ok(None);
    }
    let folder = model::weights(model).map(|folder| folder.join("config.json"));
    let file = model
        .config
        .clone()
        .or_else(|| folder.filter(|file| file.is_file()));
    match (file, model::preset_name(model)) {
        (Some(file), _) => {
            let said = |error: String| format!("{}: {error}", file.display());
            let bytes = std::fs::read(&file).map_err(|error| said(error.to_string()))?;
            let json =
                serde_json::from_slice(&bytes).map_err(|error: serde_json::Error| said(error.to_string()))?;
            Architecture::from_config(&json)
                .map(Some)
                .map_err(|error| said(error.to_string()))
        }
        // Random weights with changed keys are another model than the preset; the account has their configuration.
        (None, Some(name)) if model.set.is_empty() => {
            preset(name).map(Some).map_err(|error| error.to_string())
        }
        (None, _) => Ok(None),
    }
}

/// Watched over unwatched time of each stage, for every tool that ran.
fn overheads(layout: &Layout) -> Vec<Overhead> {
    let Some(base) = account_at(layout.baseline_account()) else {
        return Vec::new();
    };
    let watched = [
        (Profiler::Nsys, layout.nsys_account()),
        (Profiler::Native, layout.native_account()),
        (Profiler::Torch, layout.torch_account()),
        (Profiler::Ncu, layout.ncu_account()),
    ];
    let mut found = Vec::new();
    for (tool, path) in watched {
        if let Some(account) = account_at(path) {
            let ratios = overhead(&base, &account).into_iter();
            found.extend(ratios.map(|(stage, ratio)| Overhead { tool, stage, ratio }));
        }
    }
    found
}

/// Where a tool cost more than the limit: how much, and the lighter way.
pub(super) fn too_heavy(analysis: &Analysis, limit_pct: f64) -> Vec<String> {
    let heavy = analysis
        .overhead
        .iter()
        .filter(|overhead| (overhead.ratio - 1.0) * 100.0 > limit_pct);
    heavy
        .filter_map(|overhead| {
            let lighter = match overhead.tool {
                Profiler::Nsys => "profiling.timeline=native or run.mode=light watches for less",
                Profiler::Native => "trust kernel times, and take wall time from the unwatched run",
                // Replays are how ncu measures, and torch.profiler runs apart; no time of theirs is shown as the program's.
                _ => return None,
            };
            let more = (overhead.ratio - 1.0) * 100.0;
            Some(format!(
                "{} made {} {more:.0} % slower than unwatched; {lighter}",
                overhead.tool, overhead.stage
            ))
        })
        .collect()
}

/// Why parts of the analysis are empty, as far as the session knows.
fn reasons(record: &SessionRecord) -> Vec<Reason> {
    let about = [
        (PhaseName::Baseline, About::Overhead),
        (PhaseName::Timeline, About::Kernels),
        (PhaseName::Operators, About::Operators),
        (PhaseName::Counters, About::Counters),
    ];
    let reason = |(name, about): (PhaseName, About)| {
        let why = match &record.phase(name)?.status {
            PhaseStatus::Ok => return None,
            PhaseStatus::Pending => format!("the session ended before its {name} phase"),
            PhaseStatus::Running => format!("the session ended during its {name} phase"),
            PhaseStatus::Skipped { why } => format!("the {name} phase was skipped: {why}"),
            PhaseStatus::Failed { why, .. } => format!("the {name} phase failed: {why}"),
        };
        Some(Reason::new(about, why))
    };
    about.into_iter().filter_map(reason).collect()
}

/// The reports of a run.
pub(super) fn reports(
    reading: &Reading,
    record: &SessionRecord,
    layout: &Layout,
    config: &Config,
) -> Vec<ReportFile> {
    let context = context(record, layout, config);
    roofgap_report::files(Bundle {
        analysis: &reading.analysis,
        stages: &reading.index,
        trace: Some(&reading.input.trace),
        context: &context,
    })
}

/// Why a phase ended as it did, and what is worth knowing of one that went well.
fn told(phase: &PhaseRecord) -> Option<String> {
    let why = phase.status.why().map(str::to_owned);
    why.or_else(|| (!phase.notes.is_empty()).then(|| phase.notes.join("; ")))
}

/// What goes with the numbers of a run.
pub(super) fn context(record: &SessionRecord, layout: &Layout, config: &Config) -> Context {
    let line = |phase: &PhaseRecord| PhaseLine {
        name: phase.name.to_string(),
        status: phase.status.word().to_owned(),
        why: told(phase),
        seconds: phase.wall_ns.map(|ns| ns as f64 / 1e9),
    };
    Context {
        title: record.run_id.clone(),
        environment: environment_of(record, layout, config),
        phases: record.phases.iter().map(line).collect(),
        repeat: Some(record.repeat_command.clone()),
    }
}

/// What a reader needs to place the numbers.
fn environment_of(record: &SessionRecord, layout: &Layout, config: &Config) -> Vec<(String, String)> {
    let own = [
        ("run", &record.run_id),
        ("started", &record.started),
        ("mode", &record.mode),
        ("workload", &record.workload),
        ("roofgap", &record.roofgap_version),
    ];
    let mut lines: Vec<(String, String)> = own
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    lines.extend(environment::lines(&layout.environment()));
    if let Some(folder) = &config.stage1.run_dir {
        lines.push(("stage 1 run".to_owned(), folder.display().to_string()));
    }
    lines
}
