//! Runs damaged inputs through every reader, the analysis and the exports until the time is over or one of them fails.
//!
//! `fuzz [--seconds N] [--from NUMBER] [--only NUMBER] [--keep DIR] [--seeds DIR]`. Each input has a number, which makes it again.
//! `--seeds` writes the undamaged inputs of every target instead.
//! Run it under `ulimit -v`, so that an input that takes too much memory fails too.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../fuzz/mod.rs"]
mod fuzz;

use fuzz::{Corpus, Outcome};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut seconds, mut number, mut only, mut keep) = (60, 0, None, None);
    for pair in arguments.chunks(2) {
        let [option, value] = pair else {
            return Err(
                "fuzz [--seconds N] [--from NUMBER] [--only NUMBER] [--keep DIR] [--seeds DIR]".into()
            );
        };
        match option.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--from" => number = value.parse()?,
            "--only" => only = Some(value.parse()?),
            "--seeds" => return Ok(Corpus::load().write(value.as_ref())?),
            "--keep" => keep = Some(value.clone()),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let folder = tempfile::tempdir()?;
    let folder = keep.map_or(folder.path().to_path_buf(), Into::into);
    std::fs::create_dir_all(&folder)?;
    let corpus = Corpus::load();
    if let Some(only) = only {
        println!("{:?}; the input is {}", corpus.run(only, &folder)?, folder.join("input").display());
        return Ok(());
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut analysed, mut failed, mut slowest, first) = (0u64, 0u64, (Duration::ZERO, 0), number);
    while Instant::now() < until {
        let begin = Instant::now();
        match corpus.run(number, &folder) {
            Ok(outcome) => analysed += u64::from(outcome == Outcome::Analysed),
            Err(why) => {
                failed += 1;
                println!("{why}");
            }
        }
        slowest = slowest.max((begin.elapsed(), number));
        number += 1;
    }
    println!(
        "{} inputs, {analysed} analysed, {failed} failed; the slowest was {} with {:.1} s",
        number - first,
        slowest.1,
        slowest.0.as_secs_f64()
    );
    if failed > 0 { Err("some inputs failed".into()) } else { Ok(()) }
}
