//! Starting a server, waiting until it is ready, sending load and stopping it.

use super::client::{RequestError, Server};
use super::failed;
use super::run::{self, LoadRun};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::{Cancel, ChildSpec, EndReason, OutputTarget, StopPlan, run as run_child};
use roofgap_collect::command::CommandLine;
use roofgap_runs::config::Config;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Interval between health checks.
const POLL: Duration = Duration::from_millis(200);
/// Time in which the end of a server that failed requests is noticed while it still answers.
const NOTICE: Duration = Duration::from_secs(1);
/// The same for one that does not answer any more.
const NOTICE_SILENT: Duration = Duration::from_secs(20);
/// Time limit of one health check.
const CHECK: Duration = Duration::from_secs(5);

/// Starts a server, sends load once it is ready, and stops it whatever happens. `log` is the file for the server's output; without one, its
/// last lines are kept in memory.
///
/// # Errors
/// Fails when the server cannot be started, is not ready in time, ends early, or answers no request.
pub fn serve_and_load(
    command: &CommandLine,
    log: Option<PathBuf>,
    config: &Config,
    cancel: &Cancel,
    progress: &mut dyn FnMut(&str),
) -> Result<LoadRun, Error> {
    let output =
        |log: Option<PathBuf>| log.map_or(OutputTarget::Memory { max_bytes: 64 << 10 }, OutputTarget::file);
    let errors = output(log.as_ref().map(|path| path.with_extension("stderr.log")));
    let (stop, grace) = (Cancel::new(), config.run.grace.0);
    let spec = ChildSpec {
        // The grace counts after the polite signal, and again after SIGTERM.
        stop: StopPlan { interrupt: grace, terminate: grace, ..StopPlan::default() },
        cancel: stop.clone(),
        ..ChildSpec::new(command, output(log), errors)
    };
    progress(&format!("starting {command}"));
    let server = Server::new(&config.server.url, CHECK, 1);
    let (is_ready, result, outcome) = thread::scope(|scope| {
        let child = scope.spawn(|| run_child(spec, &mut |_| {}));
        let has_ended = || child.is_finished();
        let ready = wait_until_ready(&server, config.server.ready_timeout.0, cancel, &has_ended);
        let is_ready = ready.is_ok();
        let result = ready.and_then(|()| run::run(config, cancel, progress));
        if is_ready && !answered(&result) {
            wait_for_end(&server, cancel, &has_ended);
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
            Err(failed(message))
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
    server: &Server,
    limit: Duration,
    cancel: &Cancel,
    has_ended: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        if cancel.is_requested() {
            return Err(run::cancelled());
        }
        if has_ended() {
            return Err(failed("the server ended before it was ready"));
        }
        let last = match health(server) {
            Ok(200) => return Ok(()),
            Ok(status) => format!("HTTP status {status}"),
            Err(error) => error.to_string(),
        };
        if start.elapsed() >= limit {
            let (url, seconds) = (&server.url, limit.as_secs());
            let message = format!("the server at {url} was not ready after {seconds} s: {last}");
            return Err(failed(message));
        }
        thread::sleep(POLL);
    }
}

/// Asks `/health`, or `/v1/models` where there is none, whether the server is ready. Returns the status of its answer.
fn health(server: &Server) -> Result<u16, RequestError> {
    let status = |path: &str| server.get(path, 1 << 16).map(|(status, _)| status);
    match status("health") {
        Ok(404 | 405) => status("v1/models"),
        answer => answer,
    }
}

/// Waits for the end of a server that failed requests, which takes longer where it does not answer any more.
fn wait_for_end(server: &Server, cancel: &Cancel, has_ended: &dyn Fn() -> bool) {
    let start = Instant::now();
    while !has_ended() && !cancel.is_requested() && start.elapsed() < NOTICE_SILENT {
        if start.elapsed() >= NOTICE && health(server) == Ok(200) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
