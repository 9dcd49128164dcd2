//! One run of a workload without a profiler.

use std::path::Path;
use std::time::Duration;

use roofgap_analyze::MeasuredTime;
use roofgap_collect::child::Cancel;
use roofgap_trace::account::{self, Account, RequestStats};

use super::variant::{OWN_RUN, quoted};
use crate::run::{Event, Outcome, ProfileProps, profile};
use roofgap_base::exit::Exit;
use roofgap_runs::config::{Config, ConfigProps, compose};
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};

/// Measurements of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Times, ns. The first decides.
    pub times: Vec<(MeasuredTime, f64)>,
    pub token_hash: Option<String>,
    pub device_memory_bytes: Option<u64>,
}

impl Sample {
    /// Returns a time, ns.
    pub fn time(&self, of: &MeasuredTime) -> Option<f64> {
        let found = self.times.iter().find(|(known, _)| known == of);
        found.map(|(_, ns)| *ns)
    }
}

/// Failure of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub why: String,
    pub log_tail: Option<String>,
}

impl Failure {
    fn new(why: impl Into<String>) -> Self {
        Failure { why: why.into(), log_tail: None }
    }
}

/// End of an attempt to run a workload.
#[derive(Debug)]
pub enum Attempt {
    Measured(Sample),
    Failed(Failure),
    Cancelled,
}

/// Runs the workload of a run with changes, as a session of its baseline phase in a folder of its own, which is removed again.
pub fn attempt(
    session: &ProfileProps,
    config: &Path,
    changes: &[String],
    scratch: &Path,
    limit: Duration,
    cancel: &Cancel,
    tick: &mut dyn FnMut(Duration),
) -> Attempt {
    let mut overrides = changes.to_vec();
    overrides.extend([
        "runner=unwatched".to_owned(),
        "stage1.run_dir=null".to_owned(),
        OWN_RUN.to_owned(),
        format!("artifacts.stage2_dir={}", quoted(&scratch.to_string_lossy())),
        format!("run.timeout={:.3}s", limit.as_secs_f64().max(SHORTEST)),
    ]);
    let composed =
        compose(&ConfigProps { config: Some(config.to_owned()), overrides, ..ConfigProps::default() });
    let composed = match composed {
        Ok(composed) => composed,
        Err(error) => return Attempt::Failed(Failure::new(error.to_string())),
    };
    let props = ProfileProps { composed, ..session.clone() };
    let mut pass_ticks = |event: Event<'_>| {
        if let Event::Tick { elapsed, .. } = event {
            tick(elapsed);
        }
    };
    let outcome = match profile(&props, cancel, &mut pass_ticks) {
        Ok(outcome) => outcome,
        Err(_) if cancel.is_requested() => return Attempt::Cancelled,
        Err(error) => return Attempt::Failed(Failure::new(error.to_string())),
    };
    let attempt = result(&outcome, &props.composed.config);
    // What cannot be removed now is removed with the scratch folder.
    let _ = std::fs::remove_dir_all(&outcome.run_dir);
    attempt
}

/// Reads the measurements of a session.
fn result(outcome: &Outcome, config: &Config) -> Attempt {
    if outcome.exit == Exit::Interrupted {
        return Attempt::Cancelled;
    }
    let failed = outcome.record.phases.iter().find_map(|phase| match &phase.status {
        PhaseStatus::Failed { why, log_tail } if phase.name <= PhaseName::Baseline => {
            Some((why.clone(), log_tail.clone()))
        }
        _ => None,
    });
    if let Some((why, log_tail)) = failed {
        return Attempt::Failed(explain(why, log_tail));
    }
    let baseline = outcome.record.phase(PhaseName::Baseline);
    let command = baseline.and_then(|phase| phase.commands.last()?.outcome.as_ref());
    let Some(wall_ns) = command.and_then(|outcome| outcome.get("wall_ns")?.as_u64()) else {
        return Attempt::Failed(Failure::new("the program did not run"));
    };
    let wall = Duration::from_nanos(wall_ns);
    let path = Layout::of(&outcome.run_dir).baseline_account();
    let account = match path.exists().then(|| account::read(&path)).transpose() {
        Ok(account) => account,
        Err(error) => return Attempt::Failed(Failure::new(error.to_string())),
    };
    match times(account.as_ref(), wall, config.load.rate.is_some()) {
        Ok(times) => Attempt::Measured(Sample {
            times,
            token_hash: account.as_ref().and_then(|account| account.token_hash.clone()),
            device_memory_bytes: account.and_then(|account| account.device_memory_bytes),
        }),
        Err(failure) => Attempt::Failed(failure),
    }
}

/// Shortest time limit that a configuration can state, s.
const SHORTEST: f64 = 0.001;

/// Messages of programs that ran out of memory, in lower case.
const OUT_OF_MEMORY: [&str; 3] = ["out of memory", "outofmemory", "cannot allocate memory"];

/// Names the cause of a failure where the log does.
fn explain(why: String, log_tail: Option<String>) -> Failure {
    let log = log_tail.as_deref().unwrap_or_default().to_lowercase();
    let why = if OUT_OF_MEMORY.iter().any(|words| log.contains(words)) {
        format!("out of memory: {why}")
    } else {
        why
    };
    Failure { why, log_tail }
}

/// Lists the times of a run: of its requests, else of its stages; then that of the whole process.
fn times(
    account: Option<&Account>,
    wall: Duration,
    open_loop: bool,
) -> Result<Vec<(MeasuredTime, f64)>, Failure> {
    let mut times = match account {
        Some(Account { requests: Some(requests), .. }) => of_requests(requests, open_loop)?,
        Some(account) => of_stages(account),
        None => Vec::new(),
    };
    times.push((MeasuredTime::Process, wall.as_nanos() as f64));
    Ok(times)
}

/// Lists the times of requests. Where they arrive at a given rate, the throughput is that rate, so their latency decides.
fn of_requests(requests: &RequestStats, open_loop: bool) -> Result<Vec<(MeasuredTime, f64)>, Failure> {
    if requests.failed > 0 || requests.completed == 0 {
        let why = requests.failures.first().map(|failure| failure.why.as_str());
        return Err(Failure::new(format!(
            "{} of {} requests failed{}{}",
            requests.failed,
            requests.sent,
            if why.is_some() { ": " } else { "" },
            why.unwrap_or_default()
        )));
    }
    let mean = |of, list: Option<roofgap_trace::account::Percentiles>| Some((of, list?.mean as f64));
    let token = requests.tokens_per_s.filter(|rate| *rate > 0.0);
    let mut times: Vec<(MeasuredTime, f64)> = [
        token.map(|rate| (MeasuredTime::Token, 1e9 / rate)),
        mean(MeasuredTime::Request, requests.e2e_ns),
        mean(MeasuredTime::Ttft, requests.ttft_ns),
        mean(MeasuredTime::Itl, requests.itl_ns),
    ]
    .into_iter()
    .flatten()
    .collect();
    if open_loop {
        times.retain(|(of, _)| *of != MeasuredTime::Token);
    }
    Ok(times)
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

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::account::{Percentiles, Repeat, RequestFailure, StageTime, TokenCounts};

    fn repeat(warmup: bool, prefill: i64, decode: i64) -> Repeat {
        let stage =
            |name: &str, wall_ns| StageTime { name: name.to_owned(), wall_ns, ..StageTime::default() };
        Repeat { warmup, stages: vec![stage("prefill", prefill), stage("decode", decode)] }
    }

    const WALL: Duration = Duration::from_nanos(9_000);

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
        let failure = explain("the program ended with status 1".to_owned(), Some(log.to_owned()));
        assert_eq!(failure.why, "out of memory: the program ended with status 1");
        let failure = explain("the program ended with status 1".to_owned(), None);
        assert_eq!(failure.why, "the program ended with status 1");
    }
}
