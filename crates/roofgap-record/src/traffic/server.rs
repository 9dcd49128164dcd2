//! Starting a server, waiting until it is ready, sending load and stopping it.

use crate::traffic::client::{RequestError, agent, get};
use crate::traffic::error::LoadError;
use crate::traffic::props::LoadProps;
use crate::traffic::run::{self, LoadRun, Progress};
use roofgap_collect::child::{Cancel, EndReason, Job, Outcome, OutputTarget, StopPlan, run as run_child};
use roofgap_collect::command::CommandLine;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A server to start.
#[derive(Debug, Clone)]
pub struct ServerProps {
    /// Command line.
    pub command: CommandLine,
    /// File for the server's output; its last lines are kept in memory if `None`.
    pub log: Option<PathBuf>,
    /// Path that answers with status 200 once the server is ready; `/health`, then `/v1/models`, if `None`.
    pub health: Option<String>,
    /// Time limit for getting ready.
    pub ready_timeout: Duration,
    /// Time after the polite signal, and again after SIGTERM, before the server is killed.
    pub grace: Duration,
}

/// A server's run under load.
#[derive(Debug)]
pub struct ServerRun {
    /// Load.
    pub load: LoadRun,
    /// Time from the start until the server was ready, ns.
    pub ready_ns: i64,
}

/// Interval between health checks.
const POLL: Duration = Duration::from_millis(200);
/// Time in which the end of a server that failed requests is noticed while it still answers.
const NOTICE: Duration = Duration::from_secs(1);
/// The same for one that does not answer any more.
const NOTICE_SILENT: Duration = Duration::from_secs(20);
/// Time limit of one health check.
const CHECK: Duration = Duration::from_secs(5);

/// Starts a server, sends load once it is ready, and stops it whatever happens.
///
/// # Errors
/// Fails when the server cannot be started, is not ready in time, ends early, or answers no request.
pub fn serve_and_load(
    server: &ServerProps,
    load: &LoadProps,
    cancel: &Cancel,
    progress: &mut dyn FnMut(Progress),
) -> Result<ServerRun, LoadError> {
    let output = || match &server.log {
        Some(path) => OutputTarget::file(path),
        None => OutputTarget::Memory { max_bytes: 64 << 10 },
    };
    let error_log = server.log.as_ref().map(|path| path.with_extension("stderr.log"));
    let errors = error_log.map_or_else(output, OutputTarget::file);
    let stop = Cancel::new();
    let job = Job {
        stop: StopPlan { interrupt: server.grace, terminate: server.grace, ..StopPlan::default() },
        cancel: stop.clone(),
        ..Job::new(&server.command, output(), errors)
    };
    let ended = AtomicBool::new(false);
    let outcome: Mutex<Option<Result<Outcome, LoadError>>> = Mutex::new(None);
    let started = Instant::now();
    progress(Progress::ServerStarted { command: server.command.to_string() });
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let result = run_child(job, &mut |_| {}).map_err(LoadError::Child);
            if let Ok(mut outcome) = outcome.lock() {
                *outcome = Some(result);
            }
            ended.store(true, Ordering::SeqCst);
        });
        let result = wait_until_ready(server, load, cancel, &ended).and_then(|()| {
            let ready_ns = i64::try_from(started.elapsed().as_nanos()).unwrap_or(i64::MAX);
            let load = run::run(load, cancel, progress)?;
            Ok(ServerRun { load, ready_ns })
        });
        let failed = match &result {
            Ok(run) => run.load.requests.failed > 0,
            Err(LoadError::NotReady { .. } | LoadError::Cancelled) => false,
            Err(_) => true,
        };
        if failed {
            wait_for_end(server, load, cancel, &ended);
        }
        stop.request();
        result
    });
    progress(Progress::ServerStopped);
    let outcome = outcome.into_inner().ok().flatten();
    match (result, outcome) {
        (_, Some(Err(error))) => Err(error),
        // A server that ended by itself explains why requests failed.
        (result, Some(Ok(outcome))) if outcome.ended == EndReason::Exited && !answered(&result) => {
            let when = match &result {
                Err(LoadError::NotReady { .. }) | Err(LoadError::ServerEnded { .. }) => "before it was ready",
                _ => "under load",
            };
            Err(LoadError::ServerEnded {
                when,
                how: outcome.describe(),
                tail: outcome.output_tail().to_owned(),
            })
        }
        (result, _) => result,
    }
}

/// Tells whether all requests were answered: then the server may end as it likes.
fn answered(result: &Result<ServerRun, LoadError>) -> bool {
    let stats = result.as_ref().map(|run| &run.load.requests);
    stats.is_ok_and(|stats| stats.failed == 0)
}

/// Waits until the server answers its health check.
fn wait_until_ready(
    server: &ServerProps,
    load: &LoadProps,
    cancel: &Cancel,
    ended: &AtomicBool,
) -> Result<(), LoadError> {
    let agent = agent(CHECK, 1);
    let start = Instant::now();
    loop {
        if cancel.is_requested() {
            return Err(LoadError::Cancelled);
        }
        if ended.load(Ordering::SeqCst) {
            return Err(LoadError::ServerEnded {
                when: "before it was ready",
                how: String::new(),
                tail: String::new(),
            });
        }
        let last = match health(&agent, server, load) {
            Ok(200) => return Ok(()),
            Ok(status) => format!("HTTP status {status}"),
            Err(error) => error.to_string(),
        };
        if start.elapsed() >= server.ready_timeout {
            return Err(LoadError::NotReady {
                url: load.url.clone(),
                seconds: server.ready_timeout.as_secs(),
                last,
            });
        }
        thread::sleep(POLL);
    }
}

/// Asks whether the server is ready and returns the status of its answer.
fn health(agent: &ureq::Agent, server: &ServerProps, load: &LoadProps) -> Result<u16, RequestError> {
    let status = |path: &str| {
        let (url, path) = (load.url.trim_end_matches('/'), path.trim_start_matches('/'));
        get(agent, &format!("{url}/{path}"), 1 << 16).map(|(status, _)| status)
    };
    match &server.health {
        Some(path) => status(path),
        None => match status("/health") {
            Ok(404 | 405) => status("/v1/models"),
            answer => answer,
        },
    }
}

/// Waits until a server that failed requests has ended, as long as it seems to.
fn wait_for_end(server: &ServerProps, load: &LoadProps, cancel: &Cancel, ended: &AtomicBool) {
    let (agent, start) = (agent(CHECK, 1), Instant::now());
    while !ended.load(Ordering::SeqCst) && !cancel.is_requested() && start.elapsed() < NOTICE_SILENT {
        if start.elapsed() >= NOTICE && health(&agent, server, load) == Ok(200) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
