//! Starting a server, waiting until it is ready, sending load and stopping it.

use super::LoadProps;
use super::client::{RequestError, agent, get};
use super::run::{self, LoadRun};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::{Cancel, ChildSpec, EndReason, OutputTarget, StopPlan, run as run_child};
use roofgap_collect::command::CommandLine;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// A server to start.
#[derive(Debug, Clone)]
pub struct ServerProps {
    /// Command line.
    pub command: CommandLine,
    /// File for the server's output; its last lines are kept in memory if `None`.
    pub log: Option<PathBuf>,
    /// Time limit for getting ready.
    pub ready_timeout: Duration,
    /// Time after the polite signal, and again after SIGTERM, before the server is killed.
    pub grace: Duration,
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
    progress: &mut dyn FnMut(&str),
) -> Result<LoadRun, Error> {
    let output = || match &server.log {
        Some(path) => OutputTarget::file(path),
        None => OutputTarget::Memory { max_bytes: 64 << 10 },
    };
    let error_log = server.log.as_ref().map(|path| path.with_extension("stderr.log"));
    let errors = error_log.map_or_else(output, OutputTarget::file);
    let stop = Cancel::new();
    let spec = ChildSpec {
        stop: StopPlan { interrupt: server.grace, terminate: server.grace, ..StopPlan::default() },
        cancel: stop.clone(),
        ..ChildSpec::new(&server.command, output(), errors)
    };
    progress(&format!("starting {}", server.command));
    let (is_ready, result, outcome) = thread::scope(|scope| {
        let child = scope.spawn(|| run_child(spec, &mut |_| {}));
        let has_ended = || child.is_finished();
        let ready = wait_until_ready(server, load, cancel, &has_ended);
        let is_ready = ready.is_ok();
        let result = ready.and_then(|()| run::run(load, cancel, progress));
        if is_ready && !answered(&result) {
            wait_for_end(load, cancel, &has_ended);
        }
        stop.request();
        (is_ready, result, child.join())
    });
    progress("the server has ended");
    match outcome {
        Ok(Err(error)) => Err(Error::of(error).with_exit(Exit::ProgramFailed)),
        // A server that ended by itself explains why requests failed.
        Ok(Ok(outcome)) if outcome.ended == EndReason::Exited && !answered(&result) => {
            let when = if is_ready { "under load" } else { "before it was ready" };
            let message = format!("the server {} {when}\n{}", outcome.describe(), outcome.output_tail());
            Err(Error::new(message).with_exit(Exit::ProgramFailed))
        }
        _ => result,
    }
}

/// Tells whether all requests were answered: then the server may end as it likes.
fn answered(result: &Result<LoadRun, Error>) -> bool {
    result.as_ref().is_ok_and(|run| run.requests.failed == 0)
}

/// Waits until the server answers its health check.
fn wait_until_ready(
    server: &ServerProps,
    load: &LoadProps,
    cancel: &Cancel,
    has_ended: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let agent = agent(CHECK, 1);
    let start = Instant::now();
    loop {
        if cancel.is_requested() {
            return Err(run::cancelled());
        }
        if has_ended() {
            return Err(Error::new("the server ended before it was ready").with_exit(Exit::ProgramFailed));
        }
        let last = match health(&agent, &load.url) {
            Ok(200) => return Ok(()),
            Ok(status) => format!("HTTP status {status}"),
            Err(error) => error.to_string(),
        };
        if start.elapsed() >= server.ready_timeout {
            let (url, seconds) = (&load.url, server.ready_timeout.as_secs());
            let message = format!("the server at {url} was not ready after {seconds} s: {last}");
            return Err(Error::new(message).with_exit(Exit::ProgramFailed));
        }
        thread::sleep(POLL);
    }
}

/// Asks `/health`, or `/v1/models` where there is none, whether the server is ready. Returns the status of its answer.
fn health(agent: &ureq::Agent, url: &str) -> Result<u16, RequestError> {
    let status = |path: &str| {
        let answer = get(agent, &format!("{}/{path}", url.trim_end_matches('/')), 1 << 16);
        answer.map(|(status, _)| status)
    };
    match status("health") {
        Ok(404 | 405) => status("v1/models"),
        answer => answer,
    }
}

/// Waits for the end of a server that failed requests, which takes longer where it does not answer any more.
fn wait_for_end(load: &LoadProps, cancel: &Cancel, has_ended: &dyn Fn() -> bool) {
    let (agent, start) = (agent(CHECK, 1), Instant::now());
    while !has_ended() && !cancel.is_requested() && start.elapsed() < NOTICE_SILENT {
        if start.elapsed() >= NOTICE && health(&agent, &load.url) == Ok(200) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
