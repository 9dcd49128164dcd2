//! `roofgap workload`: the embedded model by itself.

use crate::args::{Format, Workload};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_workload::{Account, Progress, Ranges, WorkloadProps};
use std::fmt::Write;

pub(super) fn run(args: Workload, printer: &Printer) -> Result<u8, Failure> {
    let account = args
        .account
        .or_else(|| std::env::var_os("ROOFGAP_WORKLOAD_JSON").map(Into::into));
    let props = WorkloadProps {
        preset: args.preset,
        seed: args.seed,
        prompt_tokens: args.prompt_tokens,
        new_tokens: args.new_tokens,
        repeats: args.repeats,
        warmup: args.warmup,
        image_size: args.image_size,
        threads: args.threads,
        account,
    };
    let account =
        roofgap_workload::run_with(&props, &Nvtx, &mut |progress| printer.progress(&line(&progress)))?;
    let answer = match args.format {
        Format::Text => text(&account),
        Format::Json => {
            let json = serde_json::to_string_pretty(&account).map_err(|e| Failure::Bug(e.to_string()))?;
            format!("{json}\n")
        }
    };
    printer.answer(&answer).map_err(Failure::Print)?;
    Ok(0)
}

/// The model's ranges, for whichever tool listens.
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

/// Progress as a line.
fn line(progress: &Progress) -> String {
    let ms = |ns: &i64| *ns as f64 / 1e6;
    match progress {
        Progress::Started {
            preset,
            parameters,
            seed,
            threads,
        } => {
            format!("{preset} model with {parameters} random parameters (seed {seed}) on {threads} threads")
        }
        Progress::WeightsReady { wall_ns } => format!("weights ready after {:.0} ms", ms(wall_ns)),
        Progress::PeakMeasured {
            flops_per_s,
            bytes_per_s,
        } => format!(
            "this machine: {:.1} GFLOP/s, {:.1} GB/s, measured",
            *flops_per_s as f64 / 1e9,
            *bytes_per_s as f64 / 1e9
        ),
        Progress::RepeatDone {
            index,
            of,
            warmup,
            prefill_ns,
            decode_ns,
        } => {
            let warm = if *warmup { ", warm-up" } else { "" };
            format!(
                "run {index} of {of}{warm}: prefill {:.1} ms, decode {:.1} ms",
                ms(prefill_ns),
                ms(decode_ns)
            )
        }
        Progress::AccountWritten { path } => format!("account written to {}", path.display()),
    }
}

fn text(account: &Account) -> String {
    let mut out = String::new();
    let model = account.model.clone().unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}: {} weights, the output has no meaning",
        model.name.unwrap_or_default(),
        model.weights.unwrap_or_default()
    );
    for (i, repeat) in account.repeats.iter().enumerate() {
        let stages: Vec<String> = repeat
            .stages
            .iter()
            .map(|s| format!("{} {:.1} ms", s.name, s.wall_ns as f64 / 1e6))
            .collect();
        let warm = if repeat.warmup { " (warm-up)" } else { "" };
        let _ = writeln!(out, "repeat {i}{warm}: {}", stages.join(", "));
    }
    if let Some(hash) = &account.token_hash {
        let _ = writeln!(out, "tokens {hash}");
    }
    out
}
