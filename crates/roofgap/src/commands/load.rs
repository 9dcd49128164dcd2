//! `roofgap load`: sends load to a server, which it may start itself.

use super::{answer, signals};
use crate::args::Load;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_record::traffic::{
    Load as LoadOptions, LoadProps, ServerProps, serve_and_load, server_account_path, write_account,
};
use roofgap_report::{count, requests_text};
use roofgap_runs::config::compose;

pub fn run(args: Load, printer: &Printer) -> Result<Exit, Error> {
    let (config, account) = (compose(&args.props())?.config, args.account());
    let load =
        LoadProps { url: config.server.url, load: LoadOptions { seed: config.workload.seed, ..config.load } };
    let cancel = signals::cancel_on_signal()?;
    let mut print = |line: &str| printer.progress(&line);
    let result = match args.command() {
        Some(command) => {
            let command = match &account {
                Some(path) => command.env("ROOFGAP_WORKLOAD_JSON", server_account_path(path)),
                None => command,
            };
            let server = ServerProps {
                command,
                log: account.as_ref().map(|path| path.with_file_name("server.log")),
                ready_timeout: config.server.ready_timeout.0,
                grace: config.run.grace.0,
            };
            serve_and_load(&server, &load, &cancel, &mut print)
        }
        None => roofgap_record::traffic::run(&load, &cancel, &mut print),
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
