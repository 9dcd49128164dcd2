//! The fuzzer: damages an input of every reader and server, and checks what comes out of it.
//!
//! Shared by `examples/fuzz.rs`, which runs for as long as it is told to, `examples/coverage.rs`, in which libFuzzer chooses the inputs by
//! the code that they reach, and `tests/it/damaged.rs`, which runs a fixed number of inputs and those that once failed (`crashes`).

mod served;

use flate2::read::MultiGzDecoder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use roofgap_analyze::compare::{Side, compare};
use roofgap_analyze::{Analysis, Options, Stage, analyze};
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_report::RunFacts;
use roofgap_report::compare::{Shown, html};
use roofgap_report::export::parquet::{save_events, save_run};
use roofgap_report::export::timeline;
use roofgap_report::{Bundle, Context, files, text};
use roofgap_runs::open::{Exporter, Overrides, open_side};
use roofgap_testkit::mutate::{Content, Mutator};
use roofgap_testkit::{Graphs, Program, Spec, kineto, nsys};
use roofgap_trace::{OpKind, Trace};
use roofgap_wire::FrameBuilder;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Bytes before the first frame of a native capture, and before the payload of a frame.
const HEADER: usize = roofgap_wire::HEADER_LEN;
const FRAME_HEAD: usize = 24;

/// A target and its undamaged inputs.
struct Seeds {
    target: &'static str,
    damage: Damage,
    inputs: Vec<Vec<u8>>,
}

/// Method of damage.
#[derive(Clone, Copy, PartialEq)]
enum Damage {
    /// The bytes of the file.
    Bytes(Content),
    /// The rows of its tables.
    Tables,
}

/// Undamaged inputs of every target.
pub(crate) struct Corpus(Vec<Seeds>);

/// Name of the target whose inputs are analyses that were written.
const METRICS: &str = "metrics";

/// Name of the target whose inputs are the records of a capture, without frames.
const RECORDS: &str = "native-records";

/// Outcome of one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was refused with an error.
    Refused,
    /// It was analysed, and everything about it is possible.
    Analysed,
}

impl Corpus {
    /// Collects real captures and synthetic ones.
    pub(crate) fn load() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let exported = |spec: &Spec| {
            let path = folder.path().join(format!("{}.sqlite", spec.seed));
            nsys::write(&Program::run(spec), &path).unwrap();
            std::fs::read(&path).unwrap()
        };
        let tangled = Spec::tangled(600);
        let whole_graphs = Spec { graphs: Graphs::Whole, seed: 5, ..Spec::tangled(500) };
        let databases = vec![
            exported(&tangled),
            exported(&Spec { seed: 6, ..Spec::tangled(8) }),
            exported(&whole_graphs),
            fixture("h200/llama4.sqlite.gz"),
            fixture("vllm/vllm_dense_graph.sqlite.gz"),
        ];
        let written = |kernels| {
            let mut trace = Vec::new();
            kineto::write(&Program::run(&Spec::simple(kernels)), &mut trace).unwrap();
            trace
        };
        let traces = vec![
            written(300),
            written(8),
            first_events(&fixture("h200/llama4.kineto.json.gz"), 700),
            first_events(&fixture("vllm/vllm_dense_graph.kineto.json.gz"), 700),
            std::fs::read(fixtures().join("torch/cuspy.json")).unwrap(),
        ];
        let seeds = |target, damage, inputs| Seeds { target, damage, inputs };
        let text = Damage::Bytes(Content::Text);
        let capture = std::fs::read(fixtures().join("native/stand-in.rgcap")).unwrap();
        Self(vec![
            seeds("nsys-rows", Damage::Tables, databases.clone()),
            seeds("nsys", Damage::Bytes(Content::Binary), databases),
            seeds("kineto", text, traces),
            seeds(
                "ncu-raw",
                text,
                vec![fixture("ncu/mt_basic_raw.csv.gz"), fixture("ncu/llama4_light_raw.csv.gz")],
            ),
            seeds(
                "ncu-details",
                text,
                vec![fixture("ncu/mt_basic_details.csv.gz"), fixture("ncu/mt_basic_details_ncu2024.csv.gz")],
            ),
            seeds("ncu-rep", Damage::Bytes(Content::Binary), vec![fixture("ncu/mt_basic.ncu-rep.gz")]),
            seeds(
                "kernel-summary",
                text,
                vec![
                    fixture("kernel-summary/printed.csv.gz"),
                    fixture("kernel-summary/grid_block.csv.gz"),
                    fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz"),
                ],
            ),
            seeds(
                "perfetto",
                Damage::Bytes(Content::Binary),
                vec![
                    std::fs::read(fixtures().join("perfetto/program.pftrace")).unwrap(),
                    fixture("torch/cuspy.pftrace"),
                ],
            ),
            seeds(RECORDS, Damage::Bytes(Content::Binary), records(&capture)),
            seeds("native", Damage::Bytes(Content::Binary), vec![capture]),
            seeds("account", text, vec![ACCOUNT.into()]),
            seeds(METRICS, text, vec![metrics(&folder.path().join("6.sqlite"))]),
            seeds(served::HTTP, text, served::requests()),
            seeds(served::MCP, text, served::messages()),
        ])
    }

    /// Writes the undamaged inputs that are small enough for many tries a second into a folder for each target.
    #[allow(dead_code, reason = "the tests write none")]
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        for seeds in self.0.iter().filter(|seeds| seeds.damage != Damage::Tables) {
            let folder = folder.join(seeds.target);
            std::fs::create_dir_all(&folder)?;
            let smallest = seeds.inputs.iter().map(Vec::len).min().unwrap_or(0);
            let small = seeds.inputs.iter().filter(|input| input.len() <= smallest.max(64 << 10));
            for (number, input) in small.enumerate() {
                std::fs::write(folder.join(number.to_string()), input)?;
            }
        }
        Ok(())
    }

    /// Damages one input and checks what comes out of it. The number decides everything.
    ///
    /// # Errors
    /// Describes a panic or an impossible result; the input lies in `folder` then.
    pub(crate) fn run(&self, number: u64, folder: &Path) -> Result<Outcome, String> {
        let seeds = &self.0[number as usize % self.0.len()];
        let mut mutator = Mutator::new(number);
        let path = folder.join("input");
        seeds.damaged(&mut mutator, &path);
        let bytes = std::fs::read(&path).unwrap();
        try_input(seeds.target, &bytes, folder)
            .map_err(|why| format!("input {number}, {}: {why}", seeds.target))
    }
}

/// Tries one input of a target; `folder` is for files.
///
/// # Errors
/// Describes a panic or an impossible result.
pub(crate) fn try_input(target: &str, bytes: &[u8], folder: &Path) -> Result<Outcome, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| match target {
        served::HTTP => served::request(bytes),
        served::MCP => served::message(bytes),
        _ => {
            let path = folder.join("capture");
            let framed = (target == RECORDS).then(|| framed(bytes));
            std::fs::write(&path, framed.as_deref().unwrap_or(bytes)).unwrap();
            if target == METRICS { check_compared(&path) } else { check(&path, folder) }
        }
    }));
    outcome.unwrap_or_else(|panic| Err(format!("panicked: {}", message(&*panic))))
}

impl Seeds {
    fn damaged(&self, mutator: &mut Mutator, path: &Path) {
        let pick = |mutator: &mut Mutator| self.inputs[mutator.below(self.inputs.len())].clone();
        let (mut bytes, other) = (pick(mutator), pick(mutator));
        match self.damage {
            Damage::Bytes(content) => mutator.mutate(content, &mut bytes, &other),
            Damage::Tables => {
                std::fs::write(path, &bytes).unwrap();
                let db = rusqlite::Connection::open(path).unwrap();
                mutator.mutate_tables(&db).unwrap();
                return;
            }
        }
        std::fs::write(path, bytes).unwrap();
    }
}

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

fn fixture(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(fixtures().join(name)).unwrap();
    MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Keeps the first events of a PyTorch trace, so that reading it does not take long.
fn first_events(text: &[u8], most: usize) -> Vec<u8> {
    let mut trace: Value = serde_json::from_slice(text).unwrap();
    trace["traceEvents"].as_array_mut().unwrap().truncate(most);
    serde_json::to_vec_pretty(&trace).unwrap()
}

/// Returns the records of each frame of a native capture, and of all of them.
fn records(capture: &[u8]) -> Vec<Vec<u8>> {
    let (_, mut rest) = capture.split_at(HEADER);
    let mut payloads = Vec::new();
    while rest.len() > FRAME_HEAD {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (stored, raw, codec) = (word(8) as usize, word(12) as usize, word(16));
        let body = &rest[FRAME_HEAD..FRAME_HEAD + stored];
        payloads.push(match codec {
            0 => body.to_vec(),
            _ => lz4_flex::block::decompress(body, raw).unwrap(),
        });
        rest = &rest[FRAME_HEAD + stored..];
    }
    payloads.push(payloads.concat());
    payloads
}

/// Makes a native capture of records. Their checksum is right, so that the reader sees them.
fn framed(records: &[u8]) -> Vec<u8> {
    let mut frames = FrameBuilder::new();
    frames.put_encoded(records);
    let mut bytes = roofgap_wire::Header::new(7, 1, 1).encode().to_vec();
    bytes.extend_from_slice(frames.close());
    bytes
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Writes the analysis of a capture, as a run has it.
fn metrics(path: &Path) -> Vec<u8> {
    let trace = roofgap_trace::read(&[path.to_path_buf()]).unwrap().trace;
    serde_json::to_vec(&analyze(&trace, &Options::default()).analysis).unwrap()
}

/// Compares an analysis that was written with itself and with none.
fn check_compared(path: &Path) -> Result<Outcome, String> {
    let exporter = Exporter::new(Search { named: None, path: Vec::new(), root: None }, Cancel::new());
    let Ok(side) = open_side(path, &path.display().to_string(), &Overrides::default(), &exporter) else {
        return Ok(Outcome::Refused);
    };
    let empty = Analysis::default();
    let [head, base] = [&side.analysis, &empty].map(|analysis| Side { analysis, facts: &side.facts });
    for (base, head) in [(head, head), (base, head), (head, base)] {
        let comparison = compare(base, head, &[]);
        roofgap_report::compare::text(&comparison, text::TextOptions::default());
        roofgap_report::compare::markdown(&comparison);
        html(&comparison, [base, head].map(|side| Shown { analysis: side.analysis, page: None }));
    }
    Ok(Outcome::Analysed)
}

/// Reads, analyses and exports an input, and reads the exports back.
fn check(path: &Path, folder: &Path) -> Result<Outcome, String> {
    let input = match roofgap_trace::read(&[path.to_path_buf()]) {
        Ok(input) => input,
        Err(error) if error.to_string().is_empty() => return Err("an empty error".to_owned()),
        Err(_) => return Ok(Outcome::Refused),
    };
    let trace = input.trace;
    let options = Options { counters: input.counters, account: input.account, ..Options::default() };
    let analyzed = analyze(&trace, &options);
    let analysis = &analyzed.analysis;
    numbers(analysis, &trace)?;
    // Stages without their profiler are replayed.
    let half = |stage: &Stage| Some((stage.name.clone(), stage.steady.as_ref()?.time_ns / 2));
    let unprofiled: Vec<_> = analysis.stages.iter().filter_map(half).collect();
    if !unprofiled.is_empty() {
        numbers(&analyze(&trace, &Options { unprofiled, ..options }).analysis, &trace)?;
    }
    let bundle =
        Bundle { analysis, stages: &analyzed.stages, trace: Some(&trace), context: &Context::default() };
    let first =
        |report: &roofgap_report::ReportFile| (report.name == "metrics.json").then(|| report.bytes.clone());
    let reports = files(bundle);
    let json = reports.iter().find_map(first).unwrap_or_default();
    let again: Analysis = serde_json::from_slice(&json).map_err(|error| format!("metrics.json: {error}"))?;
    if again.stages.len() != analysis.stages.len() || again.kernels.len() != analysis.kernels.len() {
        return Err("metrics.json reads back as another analysis".to_owned());
    }
    text::render(analysis, text::TextOptions::default());
    if trace.span().is_some() {
        let exported = folder.join("perfetto.json");
        timeline::save(bundle, &exported).map_err(|error| error.to_string())?;
        perfetto(&exported, &trace)?;
    }
    let (key, date) = ("fuzz".to_owned(), "2026-01-01".to_owned());
    let (tables, facts) = (folder.join("tables"), RunFacts { key, date, ..RunFacts::default() });
    // A run that is there already is not written again.
    if tables.exists() {
        std::fs::remove_dir_all(&tables).map_err(|error| error.to_string())?;
    }
    save_events(bundle, &facts, 0, &tables).map_err(|error| error.to_string())?;
    save_run(bundle, &facts, &tables).map_err(|error| error.to_string())?;
    let is_kernel = |kind: &&OpKind| matches!(kind, OpKind::Kernel | OpKind::Graph);
    let kernels = trace.ops.kind.iter().filter(is_kernel).count();
    for (name, rows) in [
        ("launches", kernels),
        ("calls", trace.calls.len()),
        ("ranges", trace.ranges.rows.len()),
        ("counters", analysis.counters.len()),
    ] {
        let key = if name == "counters" { "fuzz" } else { "fuzz-0" };
        let path = tables.join(format!("{name}/date=2026-01-01/{key}.parquet"));
        let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
        let reader = SerializedFileReader::new(file).map_err(|error| format!("{name}: {error}"))?;
        let written = reader.get_row_iter(None).map_err(|error| error.to_string())?;
        let written = written.filter(Result::is_ok).count();
        if written != rows {
            return Err(format!("{name} has {written} rows of {rows}"));
        }
    }
    Ok(Outcome::Analysed)
}

/// Checks that a Perfetto trace is JSON with every operation, and that no event lasts less than nothing.
fn perfetto(path: &Path, trace: &Trace) -> Result<(), String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_slice(&text).map_err(|error| format!("Perfetto: {error}"))?;
    let events = json["traceEvents"].as_array().ok_or("Perfetto: no events")?;
    let is_slice = |event: &&Value| event["ph"] == "X";
    if let Some(event) = events.iter().filter(is_slice).find(|event| {
        let time = |key: &str| event[key].as_f64().is_some_and(|time| time >= 0.0);
        !time("ts") || !time("dur")
    }) {
        return Err(format!("Perfetto: {event}"));
    }
    let slices = events.iter().filter(is_slice).count();
    if slices < trace.ops.len() {
        return Err(format!("Perfetto: {slices} slices for {} operations", trace.ops.len()));
    }
    Ok(())
}

/// Checks that every number of an analysis is possible.
fn numbers(analysis: &Analysis, trace: &Trace) -> Result<(), String> {
    // JSON has no such numbers and would hide them as null.
    let debug = without_strings(&format!("{analysis:?}"));
    for absurd in ["NaN", "inf"] {
        // A number, not the start of a word.
        let is_number = |at: &usize| !debug[at + 3..].starts_with(|c: char| c.is_alphabetic());
        if let Some(at) = debug.match_indices(absurd).map(|(at, _)| at).find(is_number) {
            return Err(format!("{absurd} in ...{}", &debug[at.saturating_sub(200)..at + 3]));
        }
    }
    let json = serde_json::to_value(analysis).map_err(|error| error.to_string())?;
    if let Some(negative) = negative(&json, "") {
        return Err(format!("negative: {negative}"));
    }
    let require = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    let devices = trace.devices.len().max(1) as i128;
    if let (Some(busy), Some((first, last))) = (analysis.totals.busy_ns, trace.span()) {
        let span = i128::from(last) - i128::from(first);
        require(i128::from(busy) <= span * devices, "busy time above wall time times devices")?;
    }
    for stage in &analysis.stages {
        if let (Some(busy), Some(projected)) = (stage.busy_ns, stage.projected_ns) {
            let most = i128::from(projected) * i128::from(stage.device_count.max(1));
            let what = format!("{}: busy {busy} in {projected} ns on {}", stage.name, stage.device_count);
            require(i128::from(busy) <= most, &what)?;
        }
    }
    for row in &analysis.counters {
        let pcts = [row.sm_pct, row.memory_pct, row.dram_pct, row.l2_pct];
        require(pcts.into_iter().flatten().all(|pct| pct <= 200.0), &format!("{row:?}"))?;
    }
    let utilisations = analysis.stages.iter().filter_map(|stage| stage.mfu.as_ref());
    let whole = analysis.whole.iter().filter_map(|whole| whole.mfu.as_ref());
    for mfu in utilisations.chain(whole) {
        require(mfu.by_wall_pct <= 100.0, &format!("{mfu:?}"))?;
    }
    for kernel in &analysis.kernels {
        let ordered = kernel.min_ns.zip(kernel.max_ns).is_none_or(|(min, max)| min <= max);
        require(ordered, &format!("{kernel:?}"))?;
    }
    let staged = analysis.stages.iter().flat_map(|stage| &stage.kernels);
    // Totals of a summary table are those of another tool.
    for kernel in analysis.kernels.iter().chain(staged).filter(|_| !trace.ops.is_empty()) {
        let (Some(min), Some(max), Some(median)) = (kernel.min_ns, kernel.max_ns, kernel.median_ns) else {
            return Err(format!("{}: no shortest or longest call", kernel.short_name));
        };
        let ordered = min <= median && median <= max && min <= kernel.mean_ns && kernel.mean_ns <= max;
        require(ordered && max <= kernel.total_ns, &format!("{kernel:?}"))?;
    }
    Ok(())
}

/// Finds a negative number and returns its key and value.
fn negative(json: &Value, key: &str) -> Option<String> {
    match json {
        Value::Number(number) if number.as_f64().is_some_and(|value| value < 0.0) => {
            Some(format!("{key}: {number}"))
        }
        Value::Array(items) => items.iter().find_map(|item| negative(item, key)),
        // The terms of a bound are added and subtracted, and a clock may be early or late.
        Value::Object(fields) => {
            let mut positive = fields.iter().filter(|(key, _)| *key != "terms" && *key != "clock_shift_ns");
            positive.find_map(|(key, item)| negative(item, key))
        }
        _ => None,
    }
}

/// Removes quoted strings, whose content comes from the input.
fn without_strings(debug: &str) -> String {
    let mut out = String::with_capacity(debug.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in debug.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if !quoted => out.push(c),
            _ => {}
        }
    }
    out
}

/// A workload account with every field.
const ACCOUNT: &str = r#"{
  "schema": "roofgap.workload/1",
  "model": {"name": "small", "parameters": 1000000, "active_parameters": 500000, "dtype": "bf16", "weights": "random",
    "config": {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000}},
  "tokens": {"prompt": 128, "generated": 32, "batch": 1, "vision": 16},
  "device": {"kind": "cuda", "name": "NVIDIA H200"},
  "repeats": [
    {"warmup": true, "stages": [{"name": "prefill", "wall_ns": 9000000}]},
    {"warmup": false, "stages": [
      {"name": "prefill", "wall_ns": 5000000, "notes": [{"name": "sam", "wall_ns": 1000000}]},
      {"name": "decode", "wall_ns": 80000000, "steps_ns": [2500000, 2600000, 2400000]}]}],
  "operators": [{"name": "matmul", "stage": "decode", "calls": 12, "self_cpu_ns": 100, "total_cpu_ns": 200,
    "self_gpu_ns": 300, "total_gpu_ns": 400}],
  "token_hash": "00ff",
  "peak": {"flops_per_s": 9.9e14, "bytes_per_s": 4.8e12, "how": "measured"},
  "notes": ["a remark"]
}"#;
