//! Writes a synthetic lake of any size, for tests and measurements, and prints the answers that it has.
//!
//! `cargo run --release -p roofgap-lake --example synth_lake -- --to LAKE --runs 1000000`

#![allow(clippy::print_stdout)]

mod make;
mod planted;
mod write;

use clap::Parser;
use planted::Extent;
use roofgap_lake::LakeError;
use roofgap_lake::store::Store;

#[derive(Debug, Parser)]
struct Arguments {
    /// Lake to create
    #[arg(long)]
    to: String,
    /// Number of runs
    #[arg(long, default_value_t = 2000)]
    runs: usize,
    /// Number of days
    #[arg(long, default_value_t = 30)]
    days: usize,
    /// Number of hosts
    #[arg(long, default_value_t = 16)]
    hosts: usize,
    /// Seed of the noise
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One file for each run, as `add` writes them
    #[arg(long)]
    single: bool,
    /// Partitions to write at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

fn main() -> Result<(), LakeError> {
    let args = Arguments::parse();
    let extent =
        Extent { runs: args.runs, days: args.days.max(1), hosts: args.hosts.max(1), seed: args.seed };
    write::write(&Store::create(&args.to)?, &extent, args.single, args.jobs)?;
    println!("{}", serde_json::to_string_pretty(&extent.planted()).unwrap_or_default());
    Ok(())
}
