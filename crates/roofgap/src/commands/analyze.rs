//! `roofgap analyze`.

use crate::args::{Analyze, Format};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::model::{Architecture, Tokens, preset};
use roofgap_analyze::{Options, StageSet};
use roofgap_report::{Bundle, Context, json, text};

pub(super) fn run(args: Analyze, printer: &Printer) -> Result<u8, Failure> {
    let mut stages = StageSet::default();
    for stage in &args.stage {
        stages.set(stage)?;
    }
    let input = roofgap_trace::read(&args.inputs)?;
    let model = args.model.as_deref().map(model).transpose()?;
    let tokens = Tokens {
        prompt: args.prompt_tokens,
        generated: args.new_tokens,
        batch: args.batch,
        vision: args.vision_tokens,
        views: None,
    };
    let limits = UserLimits {
        peak_tflops: args.peak_tflops,
        bandwidth_gbs: args.bandwidth_gbs,
    };
    let (counters, account) = (input.counters, input.account);
    let options = Options {
        stages,
        counters,
        model,
        limits,
        tokens,
        account,
        ..Options::default()
    };
    let analysis = roofgap_analyze::analyze(&input.trace, &options);
    if let Some(dir) = &args.out {
        let title: Vec<String> = args.inputs.iter().map(|p| p.display().to_string()).collect();
        let context = Context {
            title: title.join(", "),
            ..Context::default()
        };
        let write = |path: &std::path::Path, source| Failure::Write {
            path: path.to_path_buf(),
            source,
        };
        std::fs::create_dir_all(dir).map_err(|e| write(dir, e))?;
        for file in roofgap_report::files(Bundle {
            analysis: &analysis,
            trace: Some(&input.trace),
            context: &context,
        }) {
            let path = dir.join(file.name);
            std::fs::write(&path, file.bytes).map_err(|e| write(&path, e))?;
            printer.progress(&format_args!("wrote {}", path.display()));
        }
    }
    let look = text::Look {
        color: printer.color(),
        kernels: args.top,
    };
    let answer = match args.format {
        Format::Text => text::render(&analysis, look),
        Format::Json => json::pretty(&analysis),
    };
    printer.answer(&answer).map_err(Failure::Print)?;
    Ok(0)
}

/// The model that `--model` names: a preset, or a file in the manner of a Hugging Face `config.json`.
fn model(name: &str) -> Result<Architecture, Failure> {
    let unknown = match preset(name) {
        Ok(architecture) => return Ok(architecture),
        Err(error) => error,
    };
    let mut path = std::path::PathBuf::from(name);
    if path.is_dir() {
        path.push("config.json");
    }
    if !path.is_file() {
        return Err(Failure::Usage(format!("{unknown}; and {name} is no file")));
    }
    let usage = |why: String| Failure::Usage(format!("cannot use {} as a model: {why}", path.display()));
    let text = std::fs::read(&path).map_err(|e| usage(e.to_string()))?;
    let config: serde_json::Value = serde_json::from_slice(&text).map_err(|e| usage(e.to_string()))?;
    Architecture::from_config(&config).map_err(|e| usage(e.to_string()))
}
