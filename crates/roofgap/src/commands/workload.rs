//! `roofgap workload`: runs the embedded model without a profiler.

use super::answer;
use crate::args::{Workload, account_from_environment};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_report::time;
use roofgap_workload::{Account, Ranges};
use std::fmt::Write;

pub fn run(args: Workload, printer: &Printer) -> Result<Exit, Error> {
    let mut props = args.props;
    props.account = props.account.or_else(account_from_environment);
    let account = roofgap_workload::run(&props, &Nvtx, &mut |line| printer.progress(&line))?;
    answer(&account, |account, _| text(account), printer)
}

/// Emits the model's ranges as NVTX ranges.
struct Nvtx;

impl Ranges for Nvtx {
    fn push(&self, domain: Option<&'static str>, name: &'static str) {
        #[cfg(target_os = "linux")]
        roofgap_inject::emit::push(domain, name);
    }

    fn pop(&self, domain: Option<&'static str>) {
        #[cfg(target_os = "linux")]
        roofgap_inject::emit::pop(domain);
    }
}

fn text(account: &Account) -> String {
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
            repeat.stages.iter().map(|s| format!("{} {}", s.name, time(s.wall_ns))).collect();
        let warm = if repeat.warmup { " (warm-up)" } else { "" };
        let _ = writeln!(out, "repeat {i}{warm}: {}", stages.join(", "));
    }
    if let Some(hash) = &account.token_hash {
        let _ = writeln!(out, "tokens {hash}");
    }
    out
}
