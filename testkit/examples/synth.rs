//! Writes a synthetic capture, and its expected analysis to `OUT.expected.json`.
//!
//! `synth nsys|kineto KERNELS OUT [tangled] [processes=N] [devices=N] [streams=N] [graphs=none|nodes|whole] [orphans=N]
//! [shuffled=true|false] [seed=N]`
//!
//! `synth job RANKS KERNELS FOLDER` writes the ranks of a job as PyTorch traces of about KERNELS kernels each.

use roofgap_testkit::job::{JobRun, JobSpec};
use roofgap_testkit::{Graphs, Program, Spec, kineto, nsys};
use std::error::Error;
use std::fs::File;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let ["job", ranks, kernels, folder] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return job(ranks.parse()?, kernels.parse()?, Path::new(folder));
    }
    let [format, kernels, out, options @ ..] = arguments.as_slice() else {
        return Err("synth nsys|kineto KERNELS OUT [OPTION=VALUE...]".into());
    };
    let spec = spec(kernels.parse()?, options)?;
    let program = Program::run(&spec);
    match format.as_str() {
        "nsys" => nsys::write(&program, Path::new(out))?,
        "kineto" if spec.processes > 1 => {
            return Err("a trace of the PyTorch profiler has one process".into());
        }
        "kineto" => kineto::write(&program, File::create_new(out)?)?,
        other => return Err(format!("{other} is no format; nsys or kineto").into()),
    }
    let expected = File::create(format!("{out}.expected.json"))?;
    serde_json::to_writer(std::io::BufWriter::new(expected), &program.expected)?;
    Ok(())
}

/// Writes the ranks of a job; the last one is late in every step.
fn job(ranks: usize, kernels: u32, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut spec = JobSpec::even(ranks, 0);
    spec.numbered = true;
    spec.kernels = 50;
    // One kernel of a step is the all-reduce.
    spec.steps = kernels / (spec.kernels + 1);
    if let Some(last) = spec.late_ns.last_mut() {
        *last = 40_000;
    }
    let run = JobRun::run(&spec);
    std::fs::create_dir_all(folder)?;
    for rank in 0..ranks {
        run.write(rank, File::create_new(folder.join(format!("rank{rank}.json")))?)?;
    }
    Ok(())
}

fn spec(kernels: u64, options: &[String]) -> Result<Spec, Box<dyn Error>> {
    let mut spec = Spec::simple(kernels);
    for option in options {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "tangled" => spec = Spec::tangled(kernels),
            "processes" => spec.processes = value.parse()?,
            "devices" => spec.devices = value.parse()?,
            "streams" => spec.streams = value.parse()?,
            "orphans" => spec.orphans = value.parse()?,
            "shuffled" => spec.shuffled = value.parse()?,
            "seed" => spec.seed = value.parse()?,
            "graphs" => {
                spec.graphs = match value {
                    "none" => Graphs::None,
                    "nodes" => Graphs::Nodes,
                    "whole" => Graphs::Whole,
                    other => return Err(format!("graphs={other}: none, nodes or whole").into()),
                }
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(spec)
}
