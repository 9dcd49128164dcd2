//! Opens a run directory. Everything comes from disk, so that an interrupted or an old run is opened like a new one.
//! Workload accounts give the program's own times, and profiler overhead.

use super::{Opened, Overrides, ranks, read_analysis, read_each, read_sniffed, sniff_each};
use crate::config::model::architecture;
use crate::config::settings::WorkloadKind;
use crate::config::{Config, ConfigProps, compose};
use crate::run_dir::environment::Environment;
use crate::run_dir::folder::read_json;
use crate::run_dir::layout::stored;
use crate::run_dir::phases::input_paths;
use crate::run_dir::{Layout, PhaseName, PhaseRecord, PhaseStatus, SessionRecord, read_trial};
use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::knobs::{HfFacts, ProgramFacts, WorkloadFacts};
use roofgap_analyze::model::{Architecture, Tokens, preset};
use roofgap_analyze::{
    About, Analysis, Engine, Incident, Operator, Options, Overhead, Profiler, Reason, StageError, StageIndex,
    StageSet,
};
use roofgap_base::error::Error;
use roofgap_base::stats::ratio_error;
use roofgap_report::{Context, PhaseLine};
use roofgap_trace::account::{self, Account, RequestStats};
use roofgap_trace::{Sniffed, Trace, read_files};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run directory with its record and configuration.
#[derive(Debug)]
pub struct Run {
    /// Files.
    pub layout: Layout,
    /// Record of the session.
    pub record: SessionRecord,
    /// Configuration.
    pub config: Config,
}

impl Run {
    /// Opens a run directory.
    pub fn open(run_dir: &Path) -> Result<Self, Error> {
        Self::open_with(run_dir, &[])
    }

    /// Opens a run directory with overrides of its configuration, in Hydra's syntax.
    pub fn open_with(run_dir: &Path, overrides: &[String]) -> Result<Self, Error> {
        let layout = Layout::of(run_dir);
        let record = SessionRecord::read(run_dir)?;
        let composed = compose(&ConfigProps {
            config: Some(layout.config()),
            overrides: overrides.to_vec(),
            ..ConfigProps::default()
        })?;
        Ok(Self { layout, record, config: composed.config })
    }

    /// Reads and analyses the files of the run.
    pub fn open_recordings(&self, overrides: &Overrides) -> Opened {
        open_recordings(&self.layout, &self.config, &self.record, overrides)
    }
}

/// Builds the stage set of a configuration.
pub fn stages(config: &Config) -> Result<StageSet, StageError> {
    let mut set = StageSet::default();
    for (name, patterns) in &config.stages {
        set.set(&format!("{name}={}", patterns.join(",")))?;
    }
    Ok(set)
}

/// Reads and analyses a run directory under its configuration and the overrides.
pub fn open_recordings(
    layout: &Layout,
    config: &Config,
    record: &SessionRecord,
    overrides: &Overrides,
) -> Opened {
    let mut unreadable = Vec::new();
    let paths = recordings(layout, record, &mut unreadable);
    // A bundle that is shared has its analysis, and no captures.
    if let ([missing], Some(Ok(analysis))) =
        (unreadable.as_mut_slice(), stored(layout.metrics()).map(|path| read_analysis(&path)))
    {
        missing.push_str("; the reports are those of its metrics.json");
        let context = Context { trial: read_trial(layout).ok().flatten(), ..context(record, layout, config) };
        return Opened {
            trace: Trace::default(),
            analysis,
            stages: StageIndex::default(),
            context,
            unreadable,
        };
    }
    let files = sniff_each(&paths, &mut unreadable);
    let division = ranks::divide(&files);
    // The ranks of a job are read one by one; here only what belongs to all of them.
    let together = division.as_ref().map_or(&files, |division| &division.others);
    let input = read_sniffed(together, &mut unreadable);
    // The pages of one ncu report each describe a part of every launch.
    let counters = input.counters.into_iter().reduce(|mut whole, page| {
        whole.absorb(page);
        whole
    });
    let account = named_by_user(config, with_stage1_operators(layout, program_account(layout)));
    let tool = record.phase(PhaseName::Timeline).and_then(|phase| phase.tool.as_deref());
    let mut stages = stages(config).unwrap_or_else(|error| {
        unreadable.push(format!("stages: {error}"));
        StageSet::default()
    });
    for stage in &overrides.stages {
        unreadable.extend(stages.set(stage).err().map(|error| format!("stages: {error}")));
    }
    let shapes = stored(layout.torch_trace()).and_then(|path| match roofgap_trace::read(&[path]) {
        Ok(input) => Some(input.trace),
        Err(error) => {
            unreadable.push(error.to_string());
            None
        }
    });
    let given = overrides.given.clone();
    let named = match named_model(config, overrides, account.as_ref()) {
        Err(error) if overrides.folders.is_some() => {
            // A run that is data must not name files elsewhere.
            unreadable.push(error);
            Ok(None)
        }
        named => named,
    };
    let options = Options {
        stages,
        counters: counters.into_iter().collect(),
        no_model: named.as_ref().err().cloned(),
        model: named.unwrap_or_default(),
        limits: UserLimits {
            peak_tflops: given.limits.peak_tflops.or(config.hardware.peak_tflops),
            bandwidth_gbs: given.limits.bandwidth_gbs.or(config.hardware.bandwidth_gbs),
        },
        model_name: model_name(config),
        tensor_parallel: given.tensor_parallel.or(config.model.tp.map(NonZeroU32::get)),
        expert_parallel: given.expert_parallel.or(config.model.ep.map(NonZeroU32::get)),
        tokens: tokens(given.tokens, config, account.as_ref()),
        operators: operators(layout, account.as_ref(), shapes.as_ref()),
        shapes: shapes.map(Arc::new),
        overhead: overheads(layout),
        baseline: Some(layout.baseline_captures())
            .filter(|captures| !captures.is_empty())
            .map(|captures| read_each(&captures, &mut unreadable).trace.into()),
        recorded_requests: recorded_requests(layout, tool),
        workload: workload_facts(config),
        baseline_vitals: stored(layout.vitals(PhaseName::Baseline))
            .and_then(|path| roofgap_trace::vitals::read(&path).ok())
            .unwrap_or_default(),
        account,
        ..given
    };
    let read = |_, files: &[Sniffed]| Ok(read_files(files)?);
    let ranks = match division {
        Some(division) => Some(ranks::open_ranks(&division, &options, overrides.rank, read)),
        None => ranks::open_divided(&input.trace, &options, overrides.rank),
    };
    let opened = match ranks {
        Some(Ok(mut ranks)) => {
            ranks.unreadable.splice(0..0, unreadable);
            ranks
        }
        not_ranks => {
            let trace = match not_ranks {
                Some(Err(error)) => {
                    unreadable.push(error.to_string());
                    read_sniffed(&files, &mut unreadable).trace
                }
                _ => input.trace,
            };
            Opened { unreadable, ..Opened::analyze(trace, &options, String::new()) }
        }
    };
    with_context(opened, layout, config, record)
}

/// Returns the model that the user or the configuration names, or why it is not known. `None` where the program's account describes it.
fn named_model(
    config: &Config,
    overrides: &Overrides,
    account: Option<&Account>,
) -> Result<Option<Architecture>, String> {
    if overrides.given.model.is_some() {
        return Ok(overrides.given.model.clone());
    }
    let own = account.and_then(|account| account.model.as_ref());
    if config.workload.kind == WorkloadKind::Hf && own.is_some_and(|own| !own.modules.is_empty()) {
        // The program knows better what it built.
        return Ok(None);
    }
    let named =
        architecture(config, overrides.folders.as_deref()).map_err(|error| format!("model: {error}"))?;
    Ok(named.or_else(|| preset_of_account(account?)))
}

/// Adds to an analysis what the run directory has beside its recordings.
fn with_context(mut opened: Opened, layout: &Layout, config: &Config, record: &SessionRecord) -> Opened {
    add_baseline(&mut opened.analysis, &account_at(layout.baseline_account()).unwrap_or_default());
    if layout.incident().is_file() {
        match read_json::<Incident>(&layout.incident()) {
            Ok(mut incident) => {
                incident.explain(&opened.analysis);
                opened.analysis.incident = Some(incident);
            }
            Err(error) => opened.unreadable.push(error.to_string()),
        }
    }
    if layout.agreement().is_file() {
        match read_json(&layout.agreement()) {
            Ok(agreement) => opened.analysis.agreement = Some(agreement),
            Err(error) => opened.unreadable.push(error.to_string()),
        }
    }
    opened.context = context(record, layout, config);
    match read_trial(layout) {
        Ok(trial) => opened.context.trial = trial,
        Err(error) => opened.unreadable.push(error.to_string()),
    }
    add_reasons(&mut opened.analysis, layout, record, &opened.unreadable);
    opened
}

/// Returns the facts about the workload of a configuration; `None` for a Hydra module, whose settings are its own.
fn workload_facts(config: &Config) -> Option<WorkloadFacts> {
    let (workload, model) = (&config.workload, &config.model);
    match workload.kind {
        WorkloadKind::Embedded => Some(WorkloadFacts::Embedded {
            kv_cache: workload.kv_cache,
            context_limit: workload.context_limit.map(u64::from),
        }),
        WorkloadKind::Hf => Some(WorkloadFacts::Hf(HfFacts {
            compile: workload.compile,
            cuda_graphs: workload.cuda_graphs,
            batch: workload.batch.into(),
            dtype: model.dtype.clone(),
            attention: model.attention.clone(),
            experts: model.experts.clone(),
        })),
        WorkloadKind::Command | WorkloadKind::Server => Some(WorkloadFacts::Program(ProgramFacts {
            words: workload.program.clone(),
            engine_command: Engine::of_command(&workload.words()),
        })),
        WorkloadKind::Hydra => None,
    }
}

/// Returns the tokens that the user stated, on the command line or in the configuration of a program that has its own inputs. Each wins
/// over what the program's account says.
fn tokens(stated: Tokens, config: &Config, account: Option<&Account>) -> Tokens {
    let workload = &config.workload;
    let has_batch = account.and_then(|account| account.tokens?.batch).is_some();
    let configured = workload.prompt_tokens.or(workload.tokens).or(workload.vision_tokens).is_some();
    if !has_own_inputs(config) || !configured {
        return stated;
    }
    stated.or(Tokens {
        prompt: workload.prompt_tokens.map(u64::from),
        generated: workload.tokens.map(u64::from),
        vision: workload.vision_tokens.map(u64::from),
        batch: (!has_batch).then_some(workload.batch.into()),
    })
}

/// Tells whether the program decides about its model and inputs, so that the configuration describes them and does not set them.
fn has_own_inputs(config: &Config) -> bool {
    matches!(config.workload.kind, WorkloadKind::Command | WorkloadKind::Hydra)
}

/// Puts the name and the size of the model that the user gives over those in the account of a program.
fn named_by_user(config: &Config, account: Option<Account>) -> Option<Account> {
    let (name, params) = (model_name(config), config.model.params);
    if !has_own_inputs(config) || (name.is_none() && params.is_none()) {
        return account;
    }
    account.map(|mut account| {
        let model = account.model.get_or_insert_default();
        model.name = name.or(model.name.take());
        model.parameters = params.map(|params| params.0).or(model.parameters);
        account
    })
}

/// Returns the preset that an account names without a configuration of its model.
fn preset_of_account(account: &Account) -> Option<Architecture> {
    let model = account.model.as_ref().filter(|model| model.config.is_none())?;
    let name = model.name.as_deref()?;
    preset(name).or_else(|_| preset(name.rsplit('/').next().unwrap_or(name))).ok()
}

/// Adds the operators of a Stage 1 runner from its run with torch.profiler on, where the account of another run has none.
fn with_stage1_operators(layout: &Layout, account: Option<Account>) -> Option<Account> {
    let mut account = account?;
    if let Some(figures) = account.stage1.as_mut().filter(|figures| figures.operators.is_empty()) {
        let profiled = account_at(layout.torch_account()).and_then(|account| account.stage1);
        figures.operators = profiled.map(|figures| figures.operators).unwrap_or_default();
    }
    Some(account)
}

/// Options of `roofgap analyze` and the keys of a session that give the same.
const KEYS: [(&str, &str); 3] = [
    ("--model NAME|config.json", "model=NAME, model.config=FILE"),
    ("--set ", ""),
    ("--stage NAME=PATTERN", "+stages.NAME=[PATTERN]"),
];

/// Names the keys of a session where a reason names the options of `roofgap analyze`.
fn with_keys(why: &str) -> String {
    KEYS.iter().fold(why.to_owned(), |why, (option, key)| why.replace(option, key))
}

/// Returns the name of the model in the configuration: `model.name`, else the last part of `model.target`; with its variant.
pub fn model_name(config: &Config) -> Option<String> {
    let model = &config.model;
    let target = || {
        let name = Path::new(model.target.as_ref()?).file_name()?;
        Some(name.to_string_lossy().into_owned())
    };
    let named = config.workload.kind != WorkloadKind::Embedded;
    let name = model.name.clone().or_else(target).filter(|_| named)?;
    Some(model.variant.as_ref().map_or(name.clone(), |variant| format!("{name} {variant}")))
}

/// Lists the recordings of a run.
fn recordings(layout: &Layout, record: &SessionRecord, unreadable: &mut Vec<String>) -> Vec<PathBuf> {
    let timeline = record.phase(PhaseName::Timeline);
    let tool = timeline.and_then(|phase| phase.tool.as_deref());
    let native = layout.native_captures();
    let export = stored(layout.nsys_sqlite());
    let mut files: Vec<PathBuf> = match tool {
        Some("native") => native,
        Some(_) => export.into_iter().collect(),
        // The phase did not end; any complete recording is used.
        None => export.map_or(native, |export| vec![export]),
    };
    if files.is_empty() && timeline.is_some_and(|phase| phase.status == PhaseStatus::Ok) {
        let remedy = match stored(layout.nsys_report()) {
            Some(report) => format!("; analyse {} instead, where nsys is installed", report.display()),
            None => String::new(),
        };
        unreadable.push(format!("the recorded timeline is missing{remedy}"));
    }
    files.extend(stored(layout.vitals(PhaseName::Timeline)));
    files.extend(input_paths().filter_map(|path| stored(layout.root().join(path))));
    files
}

/// Adds the session's reasons for empty tables. They replace those of the analysis on the same subject, because the session
/// knows the cause.
fn add_reasons(analysis: &mut Analysis, layout: &Layout, record: &SessionRecord, unreadable: &[String]) {
    let mut known: Vec<Reason> = record
        .phases
        .iter()
        .filter_map(|phase| Some(Reason::new(phase.name.results()?, absence(phase)?)))
        .collect();
    let baseline = record.phase(PhaseName::Baseline);
    if baseline.is_some_and(|phase| phase.status == PhaseStatus::Ok)
        && account_at(layout.baseline_account()).is_none()
    {
        let why = "neither the program nor its ranges tell the unprofiled times of stages, so profiler overhead cannot be computed";
        known.push(Reason::new(About::Overhead, why));
    }
    // Pairs of windows need no baseline.
    known.retain(|reason| reason.about != About::Overhead || analysis.overhead.is_empty());
    let replaced = |reason: &Reason| known.iter().any(|new| new.about == reason.about);
    analysis.reasons.retain(|reason| !replaced(reason));
    analysis.reasons.extend(known);
    for reason in &mut analysis.reasons {
        reason.why = with_keys(&reason.why);
    }
    let heavy = overhead_warnings(analysis);
    analysis.reasons.extend(heavy.into_iter().map(|why| Reason::new(About::Overhead, why)));
    analysis.reasons.extend(unreadable.iter().map(|why| Reason::new(About::Sources, why.clone())));
}

/// Describes why a phase has no result.
fn absence(phase: &PhaseRecord) -> Option<String> {
    let name = phase.name;
    match &phase.status {
        PhaseStatus::Ok => None,
        PhaseStatus::Pending => Some(format!("the session ended before its {name} phase")),
        PhaseStatus::Running => Some(format!("the session ended during its {name} phase")),
        PhaseStatus::Skipped { why } => Some(format!("the {name} phase was skipped: {why}")),
        PhaseStatus::Failed { why, .. } => Some(format!("the {name} phase failed: {why}")),
    }
}

/// Profiler overhead above which a lighter setup is suggested, %.
const OVERHEAD_LIMIT_PCT: f64 = 25.0;

/// Lists the tools whose overhead exceeds the limit, each with a lighter alternative.
pub fn overhead_warnings(analysis: &Analysis) -> Vec<String> {
    let warning = |overhead: &roofgap_analyze::Overhead| {
        let more_pct = (overhead.sure_ratio() - 1.0) * 100.0;
        let lighter = match overhead.tool {
            Profiler::Nsys => "profiling.timeline=native or run.mode=light has less overhead",
            Profiler::Native => "use the kernel times, and take wall time from the baseline",
            // ncu replays kernels and torch.profiler has its own run; their times are never shown as the program's.
            _ => return None,
        };
        (more_pct > OVERHEAD_LIMIT_PCT).then(|| {
            format!(
                "profiler overhead: {} made {} {more_pct:.0} % slower; {lighter}",
                overhead.tool, overhead.stage
            )
        })
    };
    analysis.overhead.iter().filter_map(warning).collect()
}

/// Builds the title, environment and phases for a report.
pub fn context(record: &SessionRecord, layout: &Layout, config: &Config) -> Context {
    let line = |phase: &PhaseRecord| PhaseLine {
        name: phase.name.to_string(),
        status: phase.status.word().to_owned(),
        why: match phase.status.why() {
            Some(why) => Some(why.to_owned()),
            None => (!phase.notes.is_empty()).then(|| phase.notes.join("; ")),
        },
        seconds: phase.wall_ns.map(|ns| ns as f64 / 1e9),
    };
    let mut environment: Vec<(String, String)> = [
        ("run", &record.run_id),
        ("started", &record.started),
        ("mode", &record.mode),
        ("workload", &record.workload),
        ("roofgap", &record.roofgap_version),
    ]
    .map(|(name, value)| (name.to_owned(), value.clone()))
    .into();
    environment.extend(Environment::read(layout).lines());
    if let Some(folder) = &config.stage1.run_dir {
        environment.push(("stage 1 run".to_owned(), folder.display().to_string()));
    }
    Context {
        title: record.run_id.clone(),
        environment,
        phases: record.phases.iter().map(line).collect(),
        repeat: Some(record.repeat_command.clone()),
        trial: None,
    }
}

/// Reads a workload account, plain or compressed.
pub fn account_at(path: PathBuf) -> Option<Account> {
    account::read(&stored(path)?).ok()
}

/// Reads the first account of a run, the one of the baseline before those under a profiler.
fn program_account(layout: &Layout) -> Option<Account> {
    [layout.baseline_account(), layout.nsys_account(), layout.native_account(), layout.torch_account()]
        .into_iter()
        .find_map(account_at)
}

/// Returns the operators recorded by torch.profiler, else those of the program's own account.
fn operators(layout: &Layout, program: Option<&Account>, trace: Option<&Trace>) -> Option<Vec<Operator>> {
    let torch = account_at(layout.torch_account());
    match (torch.as_ref().or(program).filter(|account| !account.operators.is_empty()), trace) {
        (Some(account), _) => Some(roofgap_analyze::account_operators(account)),
        (None, trace) => trace.map(roofgap_analyze::trace_operators),
    }
}

/// Reads the requests that were sent while the timeline was recorded by a tool.
fn recorded_requests(layout: &Layout, tool: Option<&str>) -> Option<RequestStats> {
    let path = match tool? {
        "native" => layout.native_account(),
        _ => layout.nsys_account(),
    };
    account_at(path)?.requests
}

/// Returns the overhead of each stage for every tool that ran: the profiled time divided by that of the baseline.
fn overheads(layout: &Layout) -> Vec<Overhead> {
    let base = account_at(layout.baseline_account()).unwrap_or_default();
    let profiled = [
        (Profiler::Nsys, layout.nsys_account()),
        (Profiler::Native, layout.native_account()),
        (Profiler::Torch, layout.torch_account()),
        (Profiler::Ncu, layout.ncu_account()),
    ];
    let overheads = |(tool, path)| {
        let ratios = ratios(&base, &account_at(path).unwrap_or_default()).into_iter();
        ratios.map(move |(stage, ratio, interval)| Overhead {
            tool,
            stage,
            ratio,
            interval,
            pairs: None,
            of_runs: None,
            stated: false,
        })
    };
    profiled.into_iter().flat_map(overheads).collect()
}

/// Adds the times of the stages in the run without a profiler.
fn add_baseline(analysis: &mut Analysis, base: &Account) {
    for (name, times) in stage_times(base) {
        let stages = analysis.stages.iter_mut().filter(|stage| stage.name == name);
        stages.for_each(|stage| stage.set_baseline(&times));
    }
    // The spread of a Stage 1 runner is that of runs of which the account has the mean.
    for time in base.stage1.iter().flat_map(|figures| &figures.times) {
        let stages = analysis.stages.iter_mut().filter(|stage| stage.name == time.name);
        stages.filter_map(|stage| stage.baseline.as_mut()).for_each(|own| own.std_ns = Some(time.std_ns));
    }
}

/// A stage with the ratio of its times and the confidence interval of that.
type StageRatio = (String, f64, Option<(f64, f64)>);

/// Divides the profiled by the unprofiled time of each stage in both accounts: the fastest of each, because other load on the machine only
/// ever adds to a time. The interval is that of the repeats.
fn ratios(base: &Account, profiled: &Account) -> Vec<StageRatio> {
    let base = stage_times(base);
    let ratio = |(stage, times): (&str, Vec<i64>)| {
        let (_, unprofiled) = base.iter().find(|(name, _)| *name == stage)?;
        let floats = |times: &[i64]| times.iter().map(|ns| *ns as f64).collect::<Vec<f64>>();
        let fastest = |times: &[i64]| times.iter().min().filter(|ns| **ns > 0).map(|ns| *ns as f64);
        let ratio = fastest(&times)? / fastest(unprofiled)?;
        let factor = ratio_error(&floats(&times), &floats(unprofiled)).map(f64::exp);
        Some((stage.to_owned(), ratio, factor.map(|factor| (ratio / factor, ratio * factor))))
    };
    stage_times(profiled).into_iter().filter_map(ratio).collect()
}

/// Lists the measured times of each stage, ns, in order of first occurrence.
pub(super) fn stage_times(account: &Account) -> Vec<(&str, Vec<i64>)> {
    let mut stages: Vec<(&str, Vec<i64>)> = Vec::new();
    let measured = account.repeats.iter().filter(|repeat| !repeat.warmup);
    for stage in measured.flat_map(|repeat| &repeat.stages) {
        match stages.iter_mut().find(|(name, _)| *name == stage.name) {
            Some((_, times)) => times.push(stage.wall_ns),
            None => stages.push((&stage.name, vec![stage.wall_ns])),
        }
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigProps, compose};
    use roofgap_trace::account::{ModelFacts, ModuleFacts, Repeat, StageTime, TokenCounts};

    fn facts_of(overrides: &[&str]) -> Option<WorkloadFacts> {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let props = ConfigProps { overrides, ..ConfigProps::default() };
        workload_facts(&compose(&props).unwrap().config)
    }

    #[test]
    fn a_model_that_is_not_understood_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"model_type": "new"}"#).unwrap();
        let target = format!("model.target='{}'", folder.path().display());
        let props =
            ConfigProps { overrides: vec!["workload=hf".to_owned(), target], ..ConfigProps::default() };
        let config = compose(&props).unwrap().config;
        let named = |account: Option<&Account>| named_model(&config, &Overrides::default(), account);
        let why = named(None).unwrap_err();
        assert!(why.contains("config.json") && why.contains("num_hidden_layers"), "{why}");
        // The modules that the program lists come first.
        let facts = ModelFacts { modules: vec![ModuleFacts::default()], ..ModelFacts::default() };
        let account = Account { model: Some(facts), ..Account::default() };
        assert_eq!(named(Some(&account)), Ok(None));
    }

    /// What a user says of the model and the tokens of a Stage 1 run wins over what the runner wrote.
    #[test]
    fn the_user_describes_a_program_better_than_its_account() {
        let composed = |overrides: &[&str]| {
            let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
            compose(&ConfigProps { overrides, ..ConfigProps::default() }).unwrap().config
        };
        let own = TokenCounts { prompt: Some(281), generated: Some(4), batch: Some(2), vision: None };
        let facts = ModelFacts { name: Some("deepseek_ocr".to_owned()), ..ModelFacts::default() };
        let account = Account { tokens: Some(own), model: Some(facts), ..Account::default() };
        let module = ["workload=hydra", "workload.module=m"];
        let bare = composed(&module);
        assert_eq!(tokens(Tokens::default(), &bare, Some(&account)), Tokens::default());
        assert_eq!(preset_of_account(&account).unwrap().name(), "deepseek_ocr");
        let mut stated = module.to_vec();
        stated.extend(["workload.prompt_tokens=512", "workload.vision_tokens=273", "model=qwen3_8b"]);
        stated.extend(["model.variant=base", "model.params=8.2B"]);
        let stated = composed(&stated);
        let found = tokens(Tokens::default(), &stated, Some(&account));
        assert_eq!((found.prompt, found.vision, found.batch), (Some(512), Some(273), None));
        assert_eq!(found.generated, None, "the account fills what the user does not say");
        let model = named_by_user(&stated, Some(account)).unwrap().model.unwrap();
        assert_eq!(
            (model.name.as_deref(), model.parameters),
            (Some("Qwen/Qwen3-8B base"), Some(8_200_000_000))
        );
        // The inputs of the embedded model are those that it runs with.
        assert_eq!(tokens(Tokens::default(), &composed(&[]), None), Tokens::default());
    }

    #[test]
    fn advice_of_a_session_names_its_keys() {
        let advice =
            with_keys("none was given (--set workload.vision_tokens=N, 0 for a prompt without images)");
        assert!(advice.contains("workload.vision_tokens=N, 0 for a prompt without images"), "{advice}");
        assert!(!advice.contains("--"), "{advice}");
    }

    #[test]
    fn the_settings_of_each_kind_of_workload() {
        assert_eq!(
            facts_of(&["workload.kv_cache=false"]),
            Some(WorkloadFacts::Embedded { kv_cache: false, context_limit: None })
        );
        assert_eq!(
            facts_of(&["model=qwen3_0_6b", "workload.batch=4", "model.experts=grouped_mm"]),
            Some(WorkloadFacts::Hf(HfFacts {
                batch: 4,
                dtype: "bf16".to_owned(),
                experts: Some("grouped_mm".to_owned()),
                ..HfFacts::default()
            }))
        );
        let server = facts_of(&["workload=server", "workload.program=[vllm, serve, m, --enforce-eager]"]);
        let Some(WorkloadFacts::Program(program)) = server else {
            panic!("{server:?}");
        };
        assert_eq!(program.engine_command.map(|engine| engine.name), Some("vLLM"));
        assert_eq!(program.words.len(), 4);
        assert_eq!(facts_of(&["workload=hydra", "workload.module=m"]), None);
    }

    fn account(times: &[(bool, &str, i64)]) -> Account {
        let repeat = |(warmup, name, wall_ns): &(bool, &str, i64)| Repeat {
            warmup: *warmup,
            stages: vec![StageTime { name: (*name).to_owned(), wall_ns: *wall_ns, ..StageTime::default() }],
        };
        Account { repeats: times.iter().map(repeat).collect(), ..Account::default() }
    }

    #[test]
    fn overhead_is_of_the_fastest_measured_repeats() {
        let base = account(&[(true, "decode", 1), (false, "decode", 120), (false, "decode", 100)]);
        let profiled = account(&[(false, "decode", 150), (false, "decode", 170), (false, "new", 5)]);
        let [(stage, ratio, Some((low, high)))] = &ratios(&base, &profiled)[..] else {
            panic!("one stage with an interval");
        };
        assert_eq!((stage.as_str(), *ratio), ("decode", 1.5));
        assert!(*low < 1.0 && *high > 2.0, "two repeats prove little: {low} to {high}");
        let once = account(&[(false, "decode", 150)]);
        assert_eq!(ratios(&base, &once), [("decode".to_owned(), 1.5, None)]);
        assert_eq!(ratios(&account(&[(false, "decode", 0)]), &profiled), []);
    }
}
