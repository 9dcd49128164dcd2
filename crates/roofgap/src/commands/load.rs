//! `roofgap load`: sends load to a server, which it may start itself. `roofgap workload`: runs the embedded model without a profiler.

use super::{answer, signals};
use crate::args::Load;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_record::traffic::{serve_and_load, server_account_path, write_account};
use roofgap_report::{count, requests_text};
use roofgap_runs::config::compose;

pub fn run(args: Load, printer: &Printer) -> Result<Exit, Error> {
    let (config, account) = (compose(&args.props())?.config, args.account());
    let cancel = signals::cancel_on_signal()?;
    let mut print = |line: &str| printer.progress(&line);
    let result = match args.command() {
        Some(command) => {
            let command = match &account {
                Some(path) => command.env("ROOFGAP_WORKLOAD_JSON", server_account_path(path)),
                None => command,
            };
            let log = account.as_ref().map(|path| path.with_file_name("server.log"));
            serve_and_load(&command, log, &config, &cancel, &mut print)
        }
        None => roofgap_record::traffic::run(&config, &cancel, &mut print),
    };
    let result = result?;
    let requests = &result.requests;
    for failure in &requests.failures {
        printer.warning(&format!("{} requests failed: {}", count(failure.count), failure.why));
    }
    if let Some(path) = account {
        write_account(&path, &result).map_err(Error::io("write", &path))?;
    }
    answer(requests, requests_text, printer)
}

/// Runs the embedded model.
#[cfg(feature = "embedded")]
pub fn workload(mut props: roofgap_workload::WorkloadProps, printer: &Printer) -> Result<Exit, Error> {
    props.account = props.account.or_else(crate::args::account_from_environment);
    let account = roofgap_workload::run(&props, &Nvtx, &mut |line| printer.progress(&line))?;
    answer(&account, |account, _| workload_text(account), printer)
}

/// Emits the model's ranges as NVTX ranges.
#[cfg(feature = "embedded")]
struct Nvtx;

#[cfg(feature = "embedded")]
impl roofgap_workload::Ranges for Nvtx {
    fn push(&self, domain: Option<&'static str>, name: &'static str) {
        #[cfg(target_os = "linux")]
        roofgap_inject::emit::push(domain, name);
    }

    fn pop(&self, domain: Option<&'static str>) {
        #[cfg(target_os = "linux")]
        roofgap_inject::emit::pop(domain);
    }
}

#[cfg(feature = "embedded")]
fn workload_text(account: &roofgap_workload::Account) -> String {
    use std::fmt::Write;

    let mut out = String::new();
    let model = account.model.clone().unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}: {} weights, so the output is meaningless",
        model.name.unwrap_or_default(),
        model.weights.unwrap_or_default()
    );
    for (i, repeat) in account.repeats.iter().enumerate() {
        let stages: Vec<String> =
            repeat.stages.iter().map(|s| format!("{} {}", s.name, roofgap_report::time(s.wall_ns))).collect();
        let warm = if repeat.warmup { " (warm-up)" } else { "" };
        let _ = writeln!(out, "repeat {i}{warm}: {}", stages.join(", "));
    }
    if let Some(hash) = &account.token_hash {
        let _ = writeln!(out, "tokens {hash}");
    }
    out
}
