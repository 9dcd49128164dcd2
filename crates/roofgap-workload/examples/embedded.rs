//! Runs the embedded model by itself: `cargo run --release -p roofgap-workload --example embedded [PRESET] [ACCOUNT]`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;

use roofgap_workload::{WorkloadError, WorkloadProps, run};

fn main() -> Result<(), WorkloadError> {
    let mut arguments = std::env::args().skip(1);
    let preset = arguments.next().map(|name| name.parse()).transpose()?;
    let account = arguments
        .next()
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("ROOFGAP_WORKLOAD_JSON").map(PathBuf::from));
    let props = WorkloadProps { preset: preset.unwrap_or_default(), account, ..WorkloadProps::default() };
    let account = run(&props, &mut |progress| eprintln!("{progress:?}"))?;
    println!("{}", account.token_hash.unwrap_or_default());
    for operator in account.operators.iter().take(12) {
        println!(
            "{:8} {:16} {:6} calls {:9.3} ms self {:9.3} ms total",
            operator.stage.as_deref().unwrap_or("-"),
            operator.name,
            operator.calls,
            operator.self_cpu_ns as f64 / 1e6,
            operator.total_cpu_ns as f64 / 1e6,
        );
    }
    Ok(())
}
