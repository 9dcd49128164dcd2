//! Every report of some inputs: `render OUT INPUT...`.

use roofgap_analyze::{Options, analyze};
use roofgap_report::{Bundle, Context, files};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let out = paths.next().ok_or("name a folder, then the inputs")?;
    let inputs: Vec<PathBuf> = paths.collect();
    let input = roofgap_trace::read(&inputs)?;
    let options = Options { counters: input.counters, account: input.account, ..Options::default() };
    let analyzed = analyze(&input.trace, &options);
    let names = inputs.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy());
    let context = Context { title: names.collect::<Vec<_>>().join(", "), ..Context::default() };
    std::fs::create_dir_all(&out)?;
    for file in files(Bundle {
        analysis: &analyzed.analysis,
        stages: &analyzed.stages,
        trace: Some(&input.trace),
        context: &context,
    }) {
        std::fs::write(out.join(file.name), file.bytes)?;
    }
    Ok(())
}
