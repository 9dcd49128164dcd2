//! The typed configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use roofgap_collect::ncu::{CacheControl, ClockControl, ReplayMode, TargetProcesses};
use roofgap_collect::nsys::GraphTrace;

use super::quantity::{Size, Span};

/// A whole configuration, checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What the run does as a whole.
    pub run: Run,
    /// Where results go.
    pub artifacts: Artifacts,
    /// What the program is given.
    pub inputs: Inputs,
    /// Results of an earlier run.
    pub stage1: Stage1,
    /// Stages beside or instead of the built-in ones: name to range patterns.
    #[serde(deserialize_with = "stage_patterns")]
    pub stages: BTreeMap<String, Vec<String>>,
    /// The tools.
    pub profiling: Profiling,
    /// What is kept of older runs.
    pub retention: Retention,
    /// Which phases are asked for.
    pub runner: Runner,
    /// What is profiled.
    pub workload: Workload,
    /// The model.
    pub model: Model,
    /// The roof.
    pub hardware: Hardware,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Everything.
    Deep,
    /// Fewer counters and kernels, no operators run.
    Light,
}

/// `run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// How much is measured.
    pub mode: Mode,
    /// Most kernel strata of a stage that go to ncu.
    pub top_n_kernels: u32,
    /// Share of a stage's kernel time at which the selection stops.
    pub kernel_time_pct: f64,
    /// Time that the counters run may take.
    pub counter_budget: Span,
    /// Longest that the program may run in a phase.
    pub timeout: Span,
    /// Time between asking a child to end and making it.
    pub grace: Span,
    /// Free disk room that a session needs.
    pub min_free_bytes: Size,
}

/// `artifacts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifacts {
    /// Folder of the run directories.
    pub stage2_dir: PathBuf,
}

/// `inputs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// YAML list of images or prompts.
    pub manifest: Option<PathBuf>,
}

/// `stage1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage1 {
    /// Outputs of an earlier run.
    pub run_dir: Option<PathBuf>,
}

/// `retention`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Runs kept whole.
    pub keep: u32,
    /// Cap on the size of one run.
    pub max_run_bytes: Size,
}

/// `runner`: the phases asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runner {
    /// The program unwatched.
    pub baseline: bool,
    /// A timeline.
    pub timeline: bool,
    /// Operators by torch.profiler.
    pub operators: bool,
    /// Counters by ncu.
    pub counters: bool,
    /// Overhead above which the report names the lighter way.
    pub overhead_limit_pct: f64,
    /// A lower limit than `run.top_n_kernels`.
    pub max_kernels: Option<u32>,
}

/// `profiling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiling {
    /// What records the timeline.
    pub timeline: TimelineTool,
    /// The native collector.
    pub native: Native,
    /// Nsight Systems.
    pub nsys: Nsys,
    /// Nsight Compute.
    pub ncu: Ncu,
    /// torch.profiler.
    pub torch: Torch,
}

/// What records the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimelineTool {
    /// nsys where it is found (native in light mode), else native.
    Auto,
    /// Nsight Systems.
    Nsys,
    /// The native collector.
    Native,
}

/// `profiling.native`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Native {
    /// Record copies and sets; by default in deep mode only.
    pub copies: Option<bool>,
    /// CUDA graphs.
    pub graph: GraphTrace,
}

/// `profiling.nsys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nsys {
    /// The executable.
    pub path: Option<PathBuf>,
    /// What is traced.
    #[serde(deserialize_with = "words")]
    pub trace: Vec<String>,
    /// CPU sampling.
    pub sample: String,
    /// CPU context switches.
    pub cpuctxsw: String,
    /// CUDA graphs.
    pub cuda_graph_trace: GraphTrace,
    /// Record CUDA events.
    pub cuda_event_trace: bool,
    /// Record only inside this range, `[domain@]name`.
    pub nvtx_capture: Option<String>,
    /// What happens when that range ends.
    pub capture_range_end: RangeEnd,
    /// Write the tool's own kernel summary.
    pub stats: bool,
    /// More arguments.
    pub extra_args: Vec<String>,
}

/// What happens when the range of a gated recording ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RangeEnd {
    /// The program goes on, unrecorded.
    Stop,
    /// The program is ended.
    StopShutdown,
}

/// `profiling.ncu`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ncu {
    /// The executable.
    pub path: Option<PathBuf>,
    /// A set of sections.
    pub set: Option<String>,
    /// More sections.
    #[serde(deserialize_with = "words")]
    pub sections: Vec<String>,
    /// More metrics; `auto` stands for those that verdicts and a roofline need on the device at hand.
    #[serde(deserialize_with = "words")]
    pub metrics: Vec<String>,
    /// Clock policy.
    pub clock_control: ClockControl,
    /// Cache policy.
    pub cache_control: CacheControl,
    /// Replay mode.
    pub replay_mode: ReplayMode,
    /// Which processes.
    pub target_processes: TargetProcesses,
    /// Launches measured of each stratum.
    pub launch_count: u32,
    /// Estimated seconds of one measured launch.
    pub seconds_per_launch: f64,
    /// Estimated passes of one measured launch.
    pub passes_per_launch: u32,
    /// Estimated seconds that a pass takes longer for each GB of weights.
    pub seconds_per_pass_and_gb: f64,
    /// Estimated seconds of start and end under ncu.
    pub startup_seconds: f64,
    /// More arguments.
    pub extra_args: Vec<String>,
}

/// `profiling.torch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Torch {
    /// Keep the trace.
    pub trace: bool,
}

/// What kind of program is profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// The model inside this binary.
    Embedded,
    /// A Hugging Face model through torch.
    Hf,
    /// A Python module configured by Hydra.
    Hydra,
    /// Whatever stands after `--`.
    Command,
}

/// `workload`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What kind of program.
    pub kind: WorkloadKind,
    /// Tokens of text in the prompt.
    pub prompt_tokens: u32,
    /// Tokens to generate.
    pub tokens: u32,
    /// Text of the prompt.
    pub prompt: Option<String>,
    /// Sequences at once.
    pub batch: u32,
    /// Measured repeats.
    pub repeats: u32,
    /// Repeats before those.
    pub warmup: u32,
    /// Seed of weights and inputs.
    pub seed: u64,
    /// dtype of the weights; the model's when absent.
    pub dtype: Option<String>,
    /// `auto`, `cpu`, `cuda`, `cuda:1`.
    pub device: String,
    /// torch.compile.
    pub compile: bool,
    /// CUDA graphs.
    pub cuda_graphs: bool,
    /// Side of the image that is made.
    pub image_size: Option<u32>,
    /// Size of the embedded model.
    pub size: String,
    /// Threads of the embedded model.
    pub threads: Option<u32>,
    /// The Python that runs it.
    pub python: String,
    /// Hydra module.
    pub module: Option<String>,
    /// Overrides for the Hydra module.
    pub overrides: Vec<String>,
    /// Program and arguments.
    pub program: Vec<String>,
    /// Add NVTX ranges to a Python program.
    pub annotate: bool,
    /// Wait for the GPU between the stages.
    pub annotate_sync: bool,
    /// Working directory.
    pub cwd: Option<PathBuf>,
    /// Environment variables.
    #[serde(deserialize_with = "texts")]
    pub env: BTreeMap<String, String>,
}

/// What a model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Text to text.
    Causal,
    /// Images and text to text.
    ImageText,
}

/// `model`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name in the reports.
    pub name: Option<String>,
    /// Built-in architecture.
    pub preset: Option<String>,
    /// A `config.json`.
    pub config: Option<PathBuf>,
    /// Local folder or name of the weights.
    pub target: Option<String>,
    /// Revision of the weights.
    pub revision: Option<String>,
    /// dtype of the weights.
    pub dtype: String,
    /// transformers' name of the architecture.
    pub model_type: Option<String>,
    /// What it does.
    pub task: Task,
    /// Attention implementation of transformers.
    pub attention: Option<String>,
    /// Experts implementation of transformers.
    pub experts: Option<String>,
    /// Let transformers run code that comes with the weights.
    pub trust_remote_code: bool,
    /// Keys of the configuration to change.
    pub set: serde_json::Map<String, serde_json::Value>,
}

/// `hardware`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Dense peak in TFLOP/s.
    pub peak_tflops: Option<f64>,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gbs: Option<f64>,
}

impl Config {
    /// What is wrong though each value by itself is right: the key and why.
    pub(crate) fn contradiction(&self) -> Option<(&'static str, String)> {
        let workload = &self.workload;
        let model = &self.model;
        let wrong = |key, why: &str| Some((key, why.to_owned()));
        let positive = |value: Option<f64>| value.is_none_or(|v| v > 0.0);
        if !(self.run.kernel_time_pct > 0.0 && self.run.kernel_time_pct <= 100.0) {
            return wrong("run.kernel_time_pct", "expected more than 0 and at most 100");
        }
        if self.run.top_n_kernels == 0 {
            return wrong(
                "run.top_n_kernels",
                "expected at least 1; runner.counters=false leaves counters out",
            );
        }
        if !positive(self.hardware.peak_tflops) {
            return wrong("hardware.peak_tflops", "expected more than 0");
        }
        if !positive(self.hardware.bandwidth_gbs) {
            return wrong("hardware.bandwidth_gbs", "expected more than 0");
        }
        for (key, value) in [
            ("workload.batch", workload.batch),
            ("workload.repeats", workload.repeats),
            ("workload.tokens", workload.tokens),
        ] {
            if value == 0 {
                return wrong(key, "expected at least 1");
            }
        }
        match workload.kind {
            WorkloadKind::Hf
                if model.target.is_none()
                    && model.config.is_none()
                    && model.preset.is_none()
                    && model.model_type.is_none() =>
            {
                wrong(
                    "workload.kind",
                    "it needs a model: model=NAME (see `config list`), model.target or model.config",
                )
            }
            WorkloadKind::Hydra if workload.module.is_none() => {
                wrong("workload.kind", "it needs a module: workload.module=NAME")
            }
            WorkloadKind::Command if workload.program.is_empty() => {
                wrong("workload.kind", "it needs a program: put it after --")
            }
            WorkloadKind::Embedded | WorkloadKind::Hf | WorkloadKind::Hydra
                if !workload.program.is_empty() =>
            {
                wrong(
                    "workload.program",
                    "a program after -- goes with workload=command only",
                )
            }
            _ => None,
        }
    }
}

/// A list of words, or one text with commas between them.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a list of words, or words with commas between them"
    )]
    enum Words {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Words::deserialize(deserializer)? {
        Words::List(list) => list,
        Words::Text(text) => text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

/// Names with text; numbers and booleans are taken as they were written.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
    map.into_iter()
        .map(|(name, value)| match value {
            serde_json::Value::String(text) => Ok((name, text)),
            serde_json::Value::Number(number) => Ok((name, number.to_string())),
            serde_json::Value::Bool(value) => Ok((name, value.to_string())),
            _ => Err(serde::de::Error::custom(format!("expected text for {name}"))),
        })
        .collect()
}

/// Stage names with a pattern or a list of them.
fn stage_patterns<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Patterns(#[serde(deserialize_with = "words")] Vec<String>);
    let map = BTreeMap::<String, Patterns>::deserialize(deserializer)?;
    Ok(map
        .into_iter()
        .map(|(name, Patterns(patterns))| (name, patterns))
        .collect())
}
