//! A workload with changes, as overrides of its configuration and as a command, and one run of it without a profiler.

use std::path::Path;
use std::time::Duration;

use roofgap_analyze::{Failure, Goal, Knob, KnobChange, MeasuredTime, OutputEffect, Sample};
use roofgap_base::exit::Exit;
use roofgap_base::file::read_text;
use roofgap_base::stats::median_f64;
use roofgap_collect::child::Cancel;
use roofgap_collect::command::{CommandLine, word_of_text};
use roofgap_collect::entries;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::layout::stored;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};
use roofgap_trace::account;
use roofgap_trace::account::{Account, RequestStats};
use roofgap_trace::vitals::{self, GpuVitals};

use super::TrialProps;
use crate::run::{Event, Outcome, profile};

/// Reason why a run has no measurements. It is built from any error by `?`, so it is not an error type itself.
#[derive(Debug)]
pub enum Unmeasured {
    Failed(Failure),
    Cancelled,
}

impl<E: std::error::Error> From<E> for Unmeasured {
    fn from(error: E) -> Self {
        Self::Failed(Failure::new(error.to_string()))
    }
}

/// Runs the workload of a run with changes, as a session of its baseline phase in a folder of its own, which is removed again.
pub fn attempt(
    trial: &TrialProps,
    mut overrides: Vec<String>,
    scratch: &Path,
    limit: Duration,
    cancel: &Cancel,
    tick: &mut dyn FnMut(Duration),
) -> Result<Sample, Unmeasured> {
    overrides.extend([
        "runner=unwatched".to_owned(),
        "stage1.run_dir=null".to_owned(),
        OWN_RUN.to_owned(),
        format!("artifacts.stage2_dir={}", quoted(&scratch.to_string_lossy())),
        format!("run.timeout={:.3}s", limit.as_secs_f64().max(SHORTEST)),
    ]);
    let props = trial.session_with(overrides)?;
    let mut pass_ticks = |event: Event<'_>| {
        if let Event::Tick { elapsed, .. } = event {
            tick(elapsed);
        }
    };
    let outcome = match profile(&props, cancel, &mut pass_ticks) {
        Err(_) if cancel.is_requested() => return Err(Unmeasured::Cancelled),
        outcome => outcome?,
    };
    let sample = result(&outcome, &props.composed.config);
    // What cannot be removed now is removed with the scratch folder.
    let _ = std::fs::remove_dir_all(&outcome.run_dir);
    sample
}

/// Reads the measurements of a session.
fn result(outcome: &Outcome, config: &Config) -> Result<Sample, Unmeasured> {
    if outcome.exit == Exit::Interrupted {
        return Err(Unmeasured::Cancelled);
    }
    for phase in outcome.record.phases.iter().filter(|phase| phase.name <= PhaseName::Baseline) {
        if let PhaseStatus::Failed { why, log_tail } = &phase.status {
            return Err(Unmeasured::Failed(explain(why, log_tail.clone())));
        }
    }
    let baseline = outcome.record.phase(PhaseName::Baseline);
    let command = baseline.and_then(|phase| phase.commands.last()?.outcome.as_ref());
    let wall_ns = command.and_then(|outcome| outcome.get("wall_ns")?.as_u64());
    let wall_ns = wall_ns.ok_or_else(|| Unmeasured::Failed(Failure::new("the program did not run")))?;
    let layout = Layout::of(&outcome.run_dir);
    let path = layout.baseline_account();
    let account = path.exists().then(|| account::read(&path)).transpose()?;
    let mut sample = sample_of(account.as_ref(), wall_ns, config).map_err(Unmeasured::Failed)?;
    let gpus = stored(layout.vitals(PhaseName::Baseline)).and_then(|path| vitals::read(&path).ok());
    let gpus = gpus.unwrap_or_default();
    sample.sm_mhz = busy_clock(&gpus);
    let joules = account.as_ref().and_then(|account| joules_per_token(account, &gpus));
    sample.times.extend(joules.map(|joules| (MeasuredTime::Energy, joules * 1e9)));
    let logs = entries(&layout.baseline())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "log"));
    let logs = logs.filter_map(|path| read_text(&path).ok());
    sample.log_errors = logs.map(|log| log.lines().filter(|line| is_error(line)).count() as u64).sum();
    Ok(sample)
}

/// Reads the measurements of a program from its account and the time of its process.
pub fn sample_of(account: Option<&Account>, wall_ns: u64, config: &Config) -> Result<Sample, Failure> {
    let requests = account.and_then(|account| account.requests.as_ref());
    let generated = account.and_then(|account| account.tokens?.generated);
    Ok(Sample {
        times: times(account, wall_ns, config.load.rate.is_some())?,
        token_hash: account.and_then(|account| account.token_hash.clone()),
        device_memory_bytes: account.and_then(|account| account.device_memory_bytes),
        output_tokens: requests.map_or(generated, |requests| requests.output_tokens),
        requests: requests.map(|requests| requests.completed),
        log_errors: 0,
        sm_mhz: None,
    })
}

/// Puts the time that a goal is about first, where it decides.
pub fn decide_by(sample: &mut Sample, goal: Goal) -> Result<(), Failure> {
    let position = |of: MeasuredTime| sample.times.iter().position(|(known, _)| *known == of);
    let Some(at) = goal.decides().into_iter().find_map(position) else {
        let names: Vec<String> = goal.decides().iter().map(|of| of.name().to_owned()).collect();
        return Err(Failure::new(format!(
            "the run has no {}, which the goal {goal} needs",
            names.join(" or ")
        )));
    };
    sample.times[..=at].rotate_right(1);
    Ok(())
}

/// Tells whether a line of a log reports an error.
fn is_error(line: &str) -> bool {
    const WORDS: [&str; 5] = ["ERROR", "CRITICAL", "FATAL", "Traceback", "panicked"];
    line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| WORDS.contains(&word))
}

/// Returns the energy of all GPUs per generated token while requests were answered; `None` without vitals or requests.
fn joules_per_token(account: &Account, gpus: &[GpuVitals]) -> Option<f64> {
    let requests = account.requests.as_ref()?;
    let tokens = requests.output_tokens.filter(|tokens| *tokens > 0)?;
    let of_gpu = |gpu: &GpuVitals| gpu.joules(requests.start_unix_ns, requests.window_ns);
    let joules = gpus.iter().map(of_gpu).sum::<Option<f64>>()?;
    (joules > 0.0).then(|| joules / tokens as f64)
}

/// Returns the median clock of the multiprocessors while the GPUs worked, MHz.
fn busy_clock(gpus: &[GpuVitals]) -> Option<f64> {
    // The first bit is that of an idle GPU.
    let busy = gpus.iter().flat_map(|gpu| &gpu.states).filter(|state| state.reasons & 1 == 0);
    median_f64(&mut busy.filter_map(|state| state.sm_mhz).collect::<Vec<f64>>())
}

/// Shortest time limit that a configuration can state, s.
const SHORTEST: f64 = 0.001;

/// Messages of programs that ran out of memory, in lower case.
const OUT_OF_MEMORY: [&str; 3] = ["out of memory", "outofmemory", "cannot allocate memory"];

/// Names the cause of a failure where the log does.
fn explain(why: &str, log_tail: Option<String>) -> Failure {
    let log = log_tail.as_deref().unwrap_or_default().to_lowercase();
    let cause = if OUT_OF_MEMORY.iter().any(|words| log.contains(words)) { "out of memory: " } else { "" };
    Failure { why: format!("{cause}{why}"), log_tail }
}

/// Lists the times of a run: of its requests, else of its stages; then that of the whole process.
fn times(
    account: Option<&Account>,
    wall_ns: u64,
    open_loop: bool,
) -> Result<Vec<(MeasuredTime, f64)>, Failure> {
    let mut times = match account {
        Some(Account { requests: Some(requests), .. }) => of_requests(requests, open_loop)?,
        Some(account) => of_stages(account),
        None => Vec::new(),
    };
    times.push((MeasuredTime::Process, wall_ns as f64));
    Ok(times)
}

/// Lists the times of requests. Where they arrive at a given rate, the throughput is that rate, so their latency decides.
fn of_requests(requests: &RequestStats, open_loop: bool) -> Result<Vec<(MeasuredTime, f64)>, Failure> {
    if requests.failed > 0 || requests.completed == 0 {
        let why = requests.failures.first().map(|failure| format!(": {}", failure.why));
        let (failed, sent) = (requests.failed, requests.sent);
        return Err(Failure::new(format!("{failed} of {sent} requests failed{}", why.unwrap_or_default())));
    }
    let mean = |of, list: Option<roofgap_trace::account::Percentiles>| Some((of, list?.mean as f64));
    let token = requests.tokens_per_s.filter(|rate| *rate > 0.0 && !open_loop);
    let good = requests.good_requests_per_s.filter(|rate| *rate > 0.0);
    let times = [
        token.map(|rate| (MeasuredTime::Token, 1e9 / rate)),
        mean(MeasuredTime::Request, requests.e2e_ns),
        mean(MeasuredTime::Ttft, requests.ttft_ns),
        mean(MeasuredTime::Itl, requests.itl_ns),
        good.map(|rate| (MeasuredTime::GoodRequest, 1e9 / rate)),
    ];
    Ok(times.into_iter().flatten().collect())
}

/// Lists the mean times of the measured repeats per sequence, so that runs of other batch sizes compare.
fn of_stages(account: &Account) -> Vec<(MeasuredTime, f64)> {
    let repeats: Vec<_> = account.repeats.iter().filter(|repeat| !repeat.warmup).collect();
    let batch = account.tokens.and_then(|tokens| tokens.batch).unwrap_or(1).max(1) as f64;
    let mut stages: Vec<(&str, f64)> = Vec::new();
    for stage in repeats.iter().flat_map(|repeat| &repeat.stages) {
        let ns = stage.wall_ns as f64 / batch / repeats.len() as f64;
        match stages.iter_mut().find(|(name, _)| *name == stage.name) {
            Some((_, sum)) => *sum += ns,
            None => stages.push((&stage.name, ns)),
        }
    }
    if stages.is_empty() {
        return Vec::new();
    }
    let whole: f64 = stages.iter().map(|(_, ns)| ns).sum();
    let generated = account.tokens.and_then(|tokens| tokens.generated);
    let decode = stages.iter().find(|(name, _)| *name == DECODE);
    let token = generated
        .filter(|tokens| *tokens > 0)
        .zip(decode)
        .map(|(tokens, (_, ns))| (MeasuredTime::Token, ns / tokens as f64));
    let each = stages.iter().map(|(name, ns)| (MeasuredTime::Stage((*name).to_owned()), *ns));
    std::iter::once((MeasuredTime::Run, whole)).chain(each).chain(token).collect()
}

/// Stage that generates tokens.
pub const DECODE: &str = "decode";

/// Override that makes a session one of its own. With the id of a run of several nodes, it would become another of them.
pub const OWN_RUN: &str = "run.id=null";

/// A workload with changes. Without any it is the workload of the run.
#[derive(Debug, Clone, Default)]
pub struct Variant {
    /// Changes, in the order in which they are applied.
    pub knobs: Vec<Knob>,
}

impl Variant {
    /// Adds a change.
    pub fn with(&self, knob: &Knob) -> Self {
        let mut knobs = self.knobs.clone();
        knobs.push(knob.clone());
        Self { knobs }
    }

    /// Returns the ids of the changes.
    pub fn ids(&self) -> Vec<String> {
        self.knobs.iter().map(|knob| knob.id.clone()).collect()
    }

    /// Returns the name in messages.
    pub fn label(&self) -> String {
        if self.knobs.is_empty() { "base".to_owned() } else { self.ids().join(" + ") }
    }

    /// Returns the largest effect of the changes on the output.
    pub fn effect(&self) -> OutputEffect {
        let has = |effect: &OutputEffect| self.knobs.iter().any(|knob| knob.output == *effect);
        let effects = [OutputEffect::Changes, OutputEffect::Rounding];
        effects.into_iter().find(has).unwrap_or(OutputEffect::None)
    }

    fn changes(&self) -> impl Iterator<Item = &KnobChange> {
        self.knobs.iter().flat_map(|knob| &knob.changes)
    }

    /// Returns the program and its arguments with the changed flags.
    fn program(&self, config: &Config) -> Vec<String> {
        let mut words = config.workload.program.clone();
        for change in self.changes() {
            match change {
                KnobChange::AddFlag { flag, value } => {
                    remove_flag(&mut words, flag, value.is_some());
                    words.push(flag.clone());
                    words.extend(value.clone());
                }
                KnobChange::RemoveFlag { flag, takes_value } => remove_flag(&mut words, flag, *takes_value),
                KnobChange::Setting { .. } | KnobChange::Environment { .. } => {}
            }
        }
        words
    }

    /// Returns the overrides that make these changes to the configuration of the run.
    pub fn overrides(&self, config: &Config) -> Vec<String> {
        let mut overrides: Vec<String> = self
            .changes()
            .filter_map(|change| match change {
                KnobChange::Setting { key, value } => Some(format!("{key}={value}")),
                KnobChange::Environment { name, value } => {
                    Some(format!("++workload.env.{name}={}", quoted(value)))
                }
                KnobChange::AddFlag { .. } | KnobChange::RemoveFlag { .. } => None,
            })
            .collect();
        let program = self.program(config);
        if program != config.workload.program {
            let words: Vec<String> = program.iter().map(|word| quoted(word)).collect();
            overrides.push(format!("workload.program=[{}]", words.join(", ")));
        }
        overrides
    }

    /// Returns the command that profiles the workload with these changes.
    pub fn profile_command(&self, run: &Path, config: &Config) -> String {
        let line = CommandLine::new("roofgap").args(["profile", "--config"]);
        line.arg(run.join("config.yaml"))
            .args(self.overrides(config))
            .args(config.run.id.as_ref().map(|_| OWN_RUN))
            .to_string()
    }

    /// Returns the command that runs the workload with these changes: that of the program itself where only its flags and its
    /// environment change.
    pub fn command(&self, run: &Path, config: &Config) -> String {
        let own = matches!(config.workload.kind, WorkloadKind::Command | WorkloadKind::Server)
            && !self.changes().any(|change| matches!(change, KnobChange::Setting { .. }));
        let mut words = self.program(config).into_iter().map(|word| word_of_text(&word));
        let Some(program) = words.next().filter(|_| own) else {
            return self.profile_command(run, config);
        };
        let mut line = CommandLine::new(program).args(words);
        for (name, value) in &config.workload.env {
            line = line.env(name, value);
        }
        for change in self.changes() {
            if let KnobChange::Environment { name, value } = change {
                line = line.env(name, value);
            }
        }
        if let Some(folder) = &config.workload.cwd {
            line = line.cwd(folder);
        }
        line.to_string()
    }
}

/// Tells whether two knobs change the same setting, flag or variable.
pub fn conflict(a: &Knob, b: &Knob) -> bool {
    fn subject(change: &KnobChange) -> (u8, String) {
        match change {
            KnobChange::Setting { key, .. } => (0, key.clone()),
            KnobChange::AddFlag { flag, .. } | KnobChange::RemoveFlag { flag, .. } => (1, spelled(flag)),
            KnobChange::Environment { name, .. } => (2, name.clone()),
        }
    }
    let subjects: Vec<_> = a.changes.iter().map(subject).collect();
    b.changes.iter().any(|change| subjects.contains(&subject(change)))
}

/// Removes a flag, written as `--flag`, `--flag value` or `--flag=value`.
fn remove_flag(words: &mut Vec<String>, flag: &str, takes_value: bool) {
    let flag = spelled(flag);
    let mut kept = Vec::new();
    let mut rest = std::mem::take(words).into_iter();
    while let Some(word) = rest.next() {
        match word.split_once('=') {
            None if spelled(&word) == flag => {
                if takes_value {
                    rest.next();
                }
            }
            Some((name, _)) if spelled(name) == flag => {}
            _ => kept.push(word),
        }
    }
    *words = kept;
}

/// Returns one spelling of a flag: engines accept `--max_num_seqs` for `--max-num-seqs`.
fn spelled(flag: &str) -> String {
    flag.replace('_', "-")
}

/// Quotes a value of an override.
pub fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::account::{Percentiles, Repeat, RequestFailure, StageTime, TokenCounts};

    fn repeat(warmup: bool, prefill: i64, decode: i64) -> Repeat {
        let stage =
            |name: &str, wall_ns| StageTime { name: name.to_owned(), wall_ns, ..StageTime::default() };
        Repeat { warmup, stages: vec![stage("prefill", prefill), stage("decode", decode)] }
    }

    const WALL: u64 = 9_000;

    #[test]
    fn stages_count_per_sequence_without_warm_ups() {
        let account = Account {
            tokens: Some(TokenCounts { generated: Some(10), batch: Some(2), ..TokenCounts::default() }),
            repeats: vec![repeat(true, 5_000, 5_000), repeat(false, 100, 400), repeat(false, 300, 800)],
            ..Account::default()
        };
        let times = times(Some(&account), WALL, false).unwrap();
        let stage = |name: &str| MeasuredTime::Stage(name.to_owned());
        assert_eq!(
            times,
            [
                (MeasuredTime::Run, 400.0),
                (stage("prefill"), 100.0),
                (stage("decode"), 300.0),
                (MeasuredTime::Token, 30.0),
                (MeasuredTime::Process, 9_000.0),
            ]
        );
    }

    #[test]
    fn a_program_without_an_account_has_the_time_of_its_process() {
        assert_eq!(times(None, WALL, false).unwrap(), [(MeasuredTime::Process, 9_000.0)]);
        let empty = Account::default();
        assert_eq!(times(Some(&empty), WALL, false).unwrap(), [(MeasuredTime::Process, 9_000.0)]);
    }

    #[test]
    fn throughput_decides_in_a_closed_loop_and_latency_in_an_open_one() {
        let list = |mean| Some(Percentiles { mean, ..Percentiles::default() });
        let mut account = Account {
            requests: Some(RequestStats {
                sent: 4,
                completed: 4,
                tokens_per_s: Some(1_000.0),
                ttft_ns: list(5),
                itl_ns: list(6),
                e2e_ns: list(7),
                ..RequestStats::default()
            }),
            ..Account::default()
        };
        let first = |account: &Account, open| times(Some(account), WALL, open).unwrap().remove(0);
        assert_eq!(first(&account, false), (MeasuredTime::Token, 1e6));
        assert_eq!(first(&account, true), (MeasuredTime::Request, 7.0));
        let requests = account.requests.as_mut().unwrap();
        requests.failed = 1;
        requests.failures = vec![RequestFailure { why: "status 500".to_owned(), count: 1 }];
        let failure = times(Some(&account), WALL, false).unwrap_err();
        assert_eq!(failure.why, "1 of 4 requests failed: status 500");
    }

    #[test]
    fn running_out_of_memory_is_named() {
        let log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB";
        let failure = explain("the program ended with status 1", Some(log.to_owned()));
        assert_eq!(failure.why, "out of memory: the program ended with status 1");
        let failure = explain("the program ended with status 1", None);
        assert_eq!(failure.why, "the program ended with status 1");
    }
}

#[cfg(test)]
mod variant_tests {
    use super::*;
    use roofgap_analyze::OutputEffect;
    use roofgap_runs::config::{ConfigProps, compose};

    fn knob(id: &str, changes: Vec<KnobChange>) -> Knob {
        Knob {
            id: id.to_owned(),
            title: id.to_owned(),
            changes,
            output: OutputEffect::None,
            applies: String::new(),
        }
    }

    fn flag(flag: &str, value: Option<&str>) -> KnobChange {
        KnobChange::AddFlag { flag: flag.to_owned(), value: value.map(str::to_owned) }
    }

    fn variable(name: &str, value: &str) -> KnobChange {
        KnobChange::Environment { name: name.to_owned(), value: value.to_owned() }
    }

    fn without(flag: &str, takes_value: bool) -> KnobChange {
        KnobChange::RemoveFlag { flag: flag.to_owned(), takes_value }
    }

    fn config(overrides: &[&str]) -> Config {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let props = ConfigProps { overrides, ..ConfigProps::default() };
        compose(&props).unwrap().config
    }

    #[test]
    fn flags_are_added_replaced_and_removed() {
        let config = config(&[
            "workload=command",
            "workload.program=[python, run.py, --enforce-eager, --max_num_seqs=8, --dtype, half, -x]",
        ]);
        let knob = knob(
            "k",
            vec![
                without("--enforce-eager", false),
                without("--dtype", true),
                flag("--max-num-seqs", Some("64")),
                flag("--fast", None),
            ],
        );
        let variant = Variant::default().with(&knob);
        let expected = ["python", "run.py", "-x", "--max-num-seqs", "64", "--fast"];
        assert_eq!(variant.program(&config), expected);
        assert_eq!(variant.command(Path::new("r"), &config), "python run.py -x --max-num-seqs 64 --fast");
        assert!(Variant::default().overrides(&config).is_empty());
    }

    #[test]
    fn overrides_compose_to_the_changed_workload() {
        let words = ["sh", "-c", "echo 'a, b]' \\\\ $X", "--eager"];
        let list = words.map(quoted).join(", ");
        let program = format!("workload.program=[{list}]");
        let base = ["workload=command", program.as_str()];
        let knob = knob("k", vec![without("--eager", false), variable("MODE", "it's \\ 1, 2")]);
        let overrides = Variant::default().with(&knob).overrides(&config(&base));
        let mut all: Vec<&str> = base.to_vec();
        all.extend(overrides.iter().map(String::as_str));
        let changed = config(&all);
        assert_eq!(changed.workload.program, words[..3]);
        assert_eq!(changed.workload.env["MODE"], "it's \\ 1, 2");
    }

    #[test]
    fn a_setting_is_kept_by_a_command_of_roofgap() {
        let setting =
            KnobChange::Setting { key: "workload.cuda_graphs".to_owned(), value: "true".to_owned() };
        let variant = Variant::default().with(&knob("hf.cuda_graphs", vec![setting]));
        assert_eq!(
            variant.command(Path::new("/runs/1"), &config(&[])),
            "roofgap profile --config /runs/1/config.yaml workload.cuda_graphs=true"
        );
        assert_eq!(
            variant.command(Path::new("/runs/job7"), &config(&["run.id=job7"])),
            "roofgap profile --config /runs/job7/config.yaml workload.cuda_graphs=true run.id=null",
            "another run, not another node of the job"
        );
        assert_eq!(variant.label(), "hf.cuda_graphs");
        assert_eq!(Variant::default().label(), "base");
    }

    #[test]
    fn knobs_of_the_same_flag_conflict() {
        let a = knob("a", vec![flag("--max-num-seqs", Some("64"))]);
        let b = knob("b", vec![flag("--max_num_seqs", Some("128"))]);
        let c = knob("c", vec![variable("--max-num-seqs", "1")]);
        assert!(conflict(&a, &b) && conflict(&b, &a));
        assert!(!conflict(&a, &c));
    }
}
