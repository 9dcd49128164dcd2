//! All requests of a load, in a closed or an open loop.

use super::client::{Client, Outcome, Prompt, RequestError, Server, make_prompts};
use super::failed;
use super::stats::{self, Exported};
use jiff::Timestamp;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::sha256;
use roofgap_base::numbers;
use roofgap_collect::child::Cancel;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::Load;
use roofgap_wire::account::RequestStats;
use serde_json::Value;
use sha2::Digest;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A measured load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadRun {
    /// Latency and throughput.
    pub requests: RequestStats,
    /// Hash of all answers in the order of the prompts; `None` where a request failed or was not sent.
    pub answers_hash: Option<String>,
}

/// Time from the start of the load to the first sample of the server's gauges, and between samples after that.
const FIRST_SAMPLE: Duration = Duration::from_millis(200);
const SAMPLE: Duration = Duration::from_secs(1);

/// Most requests of a load with its warm-up. Their prompts are all made before the first is sent.
const MOST_REQUESTS: u64 = 10_000_000;

/// Longest sleep between two checks for cancellation.
const TICK: Duration = Duration::from_millis(50);

/// Sends the load of a configuration to its running server and measures it. With a rate, requests start at random times (Poisson), whether or
/// not earlier ones are done; without one, the next starts when one is done.
///
/// # Errors
/// Fails when no server answers, when it names no model, when the prompts cannot be read or when no request was answered.
pub fn run(config: &Config, cancel: &Cancel, progress: &mut dyn FnMut(&str)) -> Result<LoadRun, Error> {
    let load = &config.load;
    let server = Server::new(&config.server.url, load.timeout.0, load.concurrency as usize);
    let model = load.model.clone().map_or_else(|| first_model(&server), Ok)?;
    progress(&format!("the server is ready; model {model}"));
    let count = load.warmup.saturating_add(load.requests);
    if count > MOST_REQUESTS {
        return Err(Error::new(format!(
            "more than {MOST_REQUESTS} requests with those of the warm-up; send fewer (load.requests, load.warmup)"
        )));
    }
    let mut prompts = make_prompts(config, count)?;
    let measured = prompts.split_off((load.warmup as usize).min(prompts.len()));
    let mut client = Client { server, model, exact_length: true, trace: None };
    if let Some(first) = prompts.first().or(measured.first()) {
        let answer = client.send(0, first, Duration::ZERO, Instant::now());
        if matches!(answer.error, Some(RequestError::Status { status: 400 | 422, .. })) {
            client.exact_length = false;
            progress("the server does not accept ignore_eos, so answers may be shorter than asked for");
        }
    }
    send_all(&client, &prompts, None, load, cancel)?;
    progress(&format!("{} requests of the warm-up are done", numbers::count(prompts.len() as u64)));
    let mut samples = vec![stats::read_exported(&client.server)];
    client.trace = Some(format!("{:016x}", fastrand::u64(1..)));
    let (started, steady) = (Timestamp::now().as_nanosecond(), Instant::now());
    let due = load.rate.map(|rate| due_times(measured.len(), rate, config.workload.seed));
    let outcomes =
        sampled(&client.server, &mut samples, || send_all(&client, &measured, due.as_deref(), load, cancel))?;
    let change = Timestamp::now().as_nanosecond() - started - steady.elapsed().as_nanos() as i128;
    let trace = client.trace.take();
    samples.push(stats::read_exported(&client.server));
    progress(&format!("{} requests are done", numbers::count(outcomes.len() as u64)));
    let answers_hash = answers_hash(&outcomes, measured.len());
    let mut stats = stats::summary(&outcomes, i64::try_from(started).unwrap_or_default());
    stats.clock_change_ns = i64::try_from(change).ok();
    stats.trace = trace;
    if let (Some(before), Some(after)) = (samples.first(), samples.last()) {
        stats.metrics = stats::counter_changes(before, after);
        stats.gauges = stats::summarise_gauges(&samples);
    }
    if stats.completed == 0 {
        if cancel.is_requested() {
            return Err(cancelled());
        }
        let why = stats.failures.first().map_or_else(|| "no request was sent".to_owned(), |f| f.why.clone());
        let message = format!("all {} requests failed; most often: {why}", stats.sent);
        return Err(failed(message));
    }
    Ok(LoadRun { requests: stats, answers_hash })
}

/// Makes the error of a load that the user cancelled.
pub fn cancelled() -> Error {
    Error::new("interrupted").with_exit(Exit::Interrupted)
}

/// Hashes all answers in the order of the prompts; `None` unless each of `prompts` was answered.
fn answers_hash(outcomes: &[Outcome], prompts: usize) -> Option<String> {
    let all = outcomes.len() == prompts && outcomes.iter().all(|outcome| outcome.error.is_none());
    let mut sorted: Vec<&Outcome> = outcomes.iter().filter(|_| all && prompts > 0).collect();
    sorted.sort_by_key(|outcome| outcome.number);
    sorted.first()?;
    let hashes: Vec<u8> = sorted.iter().flat_map(|outcome| outcome.answer.clone().finalize()).collect();
    Some(format!("sha256:{}", sha256(&hashes)))
}

/// Runs a load and samples the server's gauges meanwhile. `samples` has the one before it.
fn sampled<T>(server: &Server, samples: &mut Vec<Exported>, load: impl FnOnce() -> T) -> T {
    // A server without metrics is not asked again.
    if samples.iter().flatten().all(|(name, _)| stats::is_counter(name)) {
        return load();
    }
    let (load_is_on, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut wait = FIRST_SAMPLE;
            while is_over.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                samples.push(stats::read_exported(server));
                wait = SAMPLE;
            }
        });
        let result = load();
        drop(load_is_on);
        result
    })
}

/// Sends the prompts, `load.concurrency` at a time, each not before it is `due`. Times count from the start of this call.
fn send_all(
    client: &Client,
    prompts: &[Prompt],
    due: Option<&[Duration]>,
    load: &Load,
    cancel: &Cancel,
) -> Result<Vec<Outcome>, Error> {
    let origin = Instant::now();
    let over = || cancel.is_requested() || load.duration.is_some_and(|limit| origin.elapsed() >= limit.0);
    let next = AtomicU64::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::SeqCst) as usize;
            let Some(prompt) = prompts.get(at) else {
                return outcomes;
            };
            let due = due.and_then(|due| due.get(at).copied());
            while due.is_some_and(|due| origin.elapsed() < due) && !over() {
                let left = due.unwrap_or_default().saturating_sub(origin.elapsed());
                thread::sleep(left.min(TICK));
            }
            if over() {
                return outcomes;
            }
            // A request counts from when it was due, so that waiting for a free connection is part of its latency.
            outcomes.push(client.send(at, prompt, due.unwrap_or_else(|| origin.elapsed()), origin));
        }
    };
    let workers = (load.concurrency as usize).clamp(1, prompts.len().max(1));
    let sent: Result<Vec<_>, _> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let sent = sent.map_err(|_| failed("a sending thread ended early"))?;
    Ok(sent.into_iter().flatten().collect())
}

/// Draws the times at which requests are due: the gaps of a Poisson process are exponential.
fn due_times(count: usize, rate: f64, seed: u64) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    let mut at = 0.0;
    let times = (0..count).map(|_| {
        at += -(1.0 - random.f64()).ln() / rate.max(f64::MIN_POSITIVE);
        Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX)
    });
    times.collect()
}

fn first_model(server: &Server) -> Result<String, Error> {
    let url = &server.url;
    let unknown =
        |why: String| Error::new(format!("{url} names no model: {why}; name it with --model (load.model)"));
    let (status, text) = server
        .get("v1/models", 1 << 20)
        .map_err(|error| failed(format!("no server answers at {url}: {error}")))?;
    if status != 200 {
        return Err(unknown(format!("HTTP status {status} from /v1/models")));
    }
    let models: Value = serde_json::from_str(&text).map_err(|error| unknown(error.to_string()))?;
    let first = models.pointer("/data/0/id").and_then(Value::as_str);
    first.map(str::to_owned).ok_or_else(|| unknown("it lists no model with an id".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Sha256;

    #[test]
    fn answers_are_hashed_in_the_order_of_the_prompts() {
        let answer = |number: usize, text: &str| Outcome {
            number,
            answer: Sha256::new_with_prefix(text),
            ..Outcome::default()
        };
        let (a, b) = (answer(0, "a"), answer(1, "b"));
        let hash = answers_hash(&[a.clone(), b.clone()], 2);
        assert!(hash.as_ref().is_some_and(|hash| hash.starts_with("sha256:")));
        assert_eq!(answers_hash(&[b.clone(), a.clone()], 2), hash);
        assert_ne!(answers_hash(&[answer(0, "b"), answer(1, "a")], 2), hash);
        assert_eq!(answers_hash(std::slice::from_ref(&a), 2), None);
        let failed = Outcome { error: Some(RequestError::Cut), ..b };
        assert_eq!(answers_hash(&[a, failed], 2), None);
        assert_eq!(answers_hash(&[], 0), None);
    }

    #[test]
    fn arrivals_have_the_rate_that_was_asked_for() {
        let times = due_times(5_000, 50.0, 3);
        let last = times.last().unwrap().as_secs_f64();
        assert!((90.0..110.0).contains(&last), "{last}");
        assert!(times.is_sorted());
        // Exponential gaps: the standard deviation is as large as the mean.
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.9..1.1).contains(&(variance.sqrt() / mean)));
    }
}
