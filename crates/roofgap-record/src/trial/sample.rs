//! One run of a workload without a profiler, and its times.

use std::path::Path;
use std::time::Duration;

use roofgap_analyze::MeasuredTime;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_runs::run_dir::layout::stored;
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};
use roofgap_trace::account;
use roofgap_trace::account::{Account, RequestStats};
use roofgap_trace::vitals;

use super::plan::{DECODE, TrialProps};
use super::variant::{SINGLE_RUN, quoted};
use crate::run::{Event, Outcome, profile};

/// Measurements of one run.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Times, ns. The first decides.
    pub times: Vec<(MeasuredTime, f64)>,
    /// Hash of the generated tokens.
    pub token_hash: Option<String>,
    /// Peak memory of the device, bytes.
    pub device_memory_bytes: Option<u64>,
    /// Generated tokens.
    pub output_tokens: Option<u64>,
    /// Requests that were answered.
    pub requests: Option<u64>,
    /// Median clock of the multiprocessors while the GPUs worked, MHz.
    pub sm_mhz: Option<f64>,
}

impl Sample {
    /// Returns a time, ns.
    pub fn time(&self, of: &MeasuredTime) -> Option<f64> {
        self.times.iter().find(|(known, _)| known == of).map(|(_, ns)| *ns)
    }
}

/// Failure of a run, with the last lines of its log.
#[derive(Debug, Default)]
pub struct Failure {
    pub why: String,
    pub log_tail: Option<String>,
}

/// Reason why a run has no measurements, or to end a trial early. Any error is a failure of the run by `?`, so this is no error type itself.
#[derive(Debug)]
pub enum Stop {
    /// The user cancelled it.
    Cancelled,
    /// The budget is spent.
    Budget,
    /// The workload failed.
    Failed(Failure),
    /// `try.json` cannot be written.
    Record(Error),
}

impl<E: std::error::Error> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(Failure { why: error.to_string(), log_tail: None })
    }
}

/// Runs the workload of a run with overrides, as a session of its baseline phase in a folder of its own, which is removed again.
pub fn attempt(
    trial: &TrialProps,
    mut overrides: Vec<String>,
    scratch: &Path,
    limit: Duration,
    cancel: &Cancel,
    tick: &mut dyn FnMut(Duration),
) -> Result<Sample, Stop> {
    overrides.extend([
        "runner=unwatched".to_owned(),
        "stage1.run_dir=null".to_owned(),
        SINGLE_RUN.to_owned(),
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
        Err(_) if cancel.is_requested() => return Err(Stop::Cancelled),
        outcome => outcome?,
    };
    let sample = measured(&outcome, props.composed.config.load.rate.is_some());
    // What cannot be removed now is removed with the scratch folder.
    let _ = std::fs::remove_dir_all(&outcome.run_dir);
    sample
}

/// Reads the measurements of a session.
fn measured(outcome: &Outcome, open_loop: bool) -> Result<Sample, Stop> {
    if outcome.exit == Exit::Interrupted {
        return Err(Stop::Cancelled);
    }
    for phase in outcome.record.phases.iter().filter(|phase| phase.name <= PhaseName::Baseline) {
        if let PhaseStatus::Failed { why, log_tail } = &phase.status {
            return Err(Stop::Failed(explain(why, log_tail.clone())));
        }
    }
    let baseline = outcome.record.phase(PhaseName::Baseline);
    let command = baseline.and_then(|phase| phase.commands.last()?.outcome.as_ref());
    let wall_ns = command.and_then(|outcome| outcome.get("wall_ns")?.as_u64());
    let wall_ns = wall_ns.ok_or_else(|| Error::new("the program did not run"))?;
    let layout = Layout::of(&outcome.run_dir);
    let path = layout.baseline_account();
    let account = path.exists().then(|| account::read(&path)).transpose()?;
    let times = times(account.as_ref(), wall_ns, open_loop)?;
    let account = account.unwrap_or_default();
    let generated = account.tokens.and_then(|tokens| tokens.generated);
    Ok(Sample {
        times,
        output_tokens: account.requests.as_ref().map_or(generated, |requests| requests.output_tokens),
        requests: account.requests.map(|requests| requests.completed),
        token_hash: account.token_hash,
        device_memory_bytes: account.device_memory_bytes,
        sm_mhz: busy_clock(&layout),
    })
}

/// Returns the median clock of the multiprocessors while the GPUs worked, MHz; `None` where it was not sampled.
fn busy_clock(layout: &Layout) -> Option<f64> {
    let gpus = vitals::read(&stored(layout.vitals(PhaseName::Baseline))?).ok()?;
    vitals::busy_mhz(gpus.iter().flat_map(|gpu| &gpu.states))
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
) -> Result<Vec<(MeasuredTime, f64)>, Error> {
    let mut times = match account {
        Some(Account { requests: Some(requests), .. }) => of_requests(requests, open_loop)?,
        Some(account) => of_stages(account),
        None => Vec::new(),
    };
    times.push((MeasuredTime::Process, wall_ns as f64));
    Ok(times)
}

/// Lists the times of requests. Where they arrive at a given rate, the throughput is that rate, so their latency decides.
fn of_requests(requests: &RequestStats, open_loop: bool) -> Result<Vec<(MeasuredTime, f64)>, Error> {
    if requests.failed > 0 || requests.completed == 0 {
        let why = requests.failures.first().map(|failure| format!(": {}", failure.why));
        let (failed, sent) = (requests.failed, requests.sent);
        let why = why.unwrap_or_default();
        return Err(Error::new(format!("{failed} of {sent} requests failed{why}")));
    }
    let token = requests.tokens_per_s.filter(|rate| *rate > 0.0 && !open_loop);
    let latencies = [
        (MeasuredTime::Request, requests.e2e_ns),
        (MeasuredTime::Ttft, requests.ttft_ns),
        (MeasuredTime::Itl, requests.itl_ns),
    ];
    let token = token.map(|rate| (MeasuredTime::Token, 1e9 / rate));
    let means = latencies.into_iter().filter_map(|(of, list)| Some((of, list?.mean as f64)));
    Ok(token.into_iter().chain(means).collect())
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
        assert_eq!(failure.to_string(), "1 of 4 requests failed: status 500");
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
