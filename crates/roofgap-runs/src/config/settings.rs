//! The typed values of a configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use roofgap_collect::command::{NvtxRange, word_of_text};
use roofgap_collect::ncu::{CacheControl, ClockControl, ReplayMode, TargetProcesses};
use roofgap_collect::nsys::{CaptureEnd, GraphTrace};

use super::quantity::{Size, Span};
use super::traffic::Load;
use crate::run_dir::PhaseName;

/// A complete, checked configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `run`.
    pub run: Run,
    /// `artifacts`.
    pub artifacts: Artifacts,
    /// `inputs`.
    pub inputs: Inputs,
    /// `stage1`.
    pub stage1: Stage1,
    /// Stages to add or replace: name to range patterns.
    #[serde(deserialize_with = "stage_patterns")]
    pub stages: BTreeMap<String, Vec<String>>,
    /// `profiling`.
    pub profiling: Profiling,
    /// `retention`.
    pub retention: Retention,
    /// `runner`.
    pub runner: Runner,
    /// `workload`.
    pub workload: Workload,
    /// `server`.
    pub server: Server,
    /// `load`.
    pub load: Load,
    /// `model`.
    pub model: Model,
    /// `hardware`.
    pub hardware: Hardware,
}

/// Amount of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// All counters, kernels and operators.
    Deep,
    /// Fewer counters and kernels, no operators.
    Light,
}

impl Mode {
    /// Returns the name used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Deep => "deep",
            Mode::Light => "light",
        }
    }
}

/// `run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Id of a job whose sessions on several nodes become one run; `None` for a session of its own.
    #[serde(deserialize_with = "job_id")]
    pub id: Option<String>,
    /// Amount of measurement.
    pub mode: Mode,
    /// Maximum number of launch groups per stage for ncu.
    pub top_n_kernels: u32,
    /// Share of a stage's kernel time at which the selection stops, %.
    pub kernel_time_pct: f64,
    /// Time budget of the counters phase.
    pub counter_budget: Span,
    /// Time limit of the program in a phase.
    pub timeout: Span,
    /// Time between a request to stop and a kill. A profiler gets more time to write its report.
    pub grace: Span,
    /// Free disk space below which a session warns.
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
    /// Folder of an earlier run.
    pub run_dir: Option<PathBuf>,
}

/// `retention`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Number of runs kept uncompressed.
    pub keep: u32,
    /// Maximum size of a run.
    pub max_run_bytes: Size,
}

/// `runner`: the requested phases.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Runner {
    /// Switches of the phases.
    #[serde(flatten)]
    pub phases: BTreeMap<PhaseName, bool>,
    /// Profiler overhead above which a lighter setup is suggested, %.
    pub overhead_limit_pct: f64,
    /// Limit below `run.top_n_kernels`.
    pub max_kernels: Option<u32>,
}

impl Runner {
    /// Returns the switch of a phase. A phase without a switch is on.
    pub fn is_on(&self, phase: PhaseName) -> bool {
        self.phases.get(&phase).copied().unwrap_or(true)
    }
}

impl<'de> Deserialize<'de> for Runner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Runner;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("the phases of a session")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Runner, A::Error> {
                let mut runner =
                    Runner { phases: BTreeMap::new(), overhead_limit_pct: f64::MAX, max_kernels: None };
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "overhead_limit_pct" => runner.overhead_limit_pct = map.next_value()?,
                        "max_kernels" => runner.max_kernels = map.next_value()?,
                        name => {
                            let phase = PhaseName::ALL.iter().find(|phase| phase.as_str() == name);
                            let unknown =
                                || serde::de::Error::custom(format_args!("no phase is named {name}"));
                            let phase = *phase.ok_or_else(unknown)?;
                            runner.phases.insert(phase, map.next_value()?);
                        }
                    }
                }
                Ok(runner)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// `profiling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiling {
    /// Tool for the timeline.
    pub timeline: TimelineTool,
    /// Ranges around the modules of a Python model.
    pub layers: LayerRanges,
    /// `profiling.native`.
    pub native: Native,
    /// `profiling.nsys`.
    pub nsys: Nsys,
    /// `profiling.ncu`.
    pub ncu: Ncu,
    /// `profiling.torch`.
    pub torch: Torch,
}

/// Tool for the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimelineTool {
    /// nsys (in light mode native) where it is available, else the other.
    Auto,
    /// Nsight Systems.
    Nsys,
    /// The native collector.
    Native,
}

/// Ranges around the modules of a Python model, by which kernels have layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerRanges {
    /// While a CUDA graph is captured.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl LayerRanges {
    /// Returns the value of `ROOFGAP_LAYERS`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// `profiling.native`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Native {
    /// Records copies and sets; by default in deep mode only.
    pub copies: Option<bool>,
    /// CUDA graphs.
    pub graph: GraphTrace,
    /// Records one of this many steps; without step ranges, one of this many windows of 50 ms. 1 records all; `None` is
    /// [`DUTY`] in light mode and all in deep mode.
    pub duty: Option<NonZeroU32>,
    /// Pairs of windows, armed and dormant, that measure the overhead in a server; 0 measures none. `None` measures it after a load
    /// that is long enough.
    pub overhead_pairs: Option<u32>,
    /// Interval in which a process of its own samples the hardware counters of all GPUs, us; `None` samples none.
    pub counters_us: Option<NonZeroU32>,
    /// Samples of the stacks of the program's Python processes, times a second; `None` samples none.
    pub stacks_hz: Option<NonZeroU32>,
}

/// Default duty cycle of light mode and of `watch`: one of this many steps.
pub const DUTY: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);

impl Native {
    /// Returns the duty cycle in a mode; `None` records all.
    pub fn duty_in(&self, mode: Mode) -> Option<NonZeroU32> {
        let default = match mode {
            Mode::Light => Some(DUTY),
            Mode::Deep => None,
        };
        self.duty.or(default).filter(|every| every.get() > 1)
    }
}

/// `profiling.nsys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nsys {
    /// Path of the executable.
    pub path: Option<PathBuf>,
    /// Traced APIs.
    #[serde(deserialize_with = "words")]
    pub trace: Vec<String>,
    /// CPU sampling.
    pub sample: String,
    /// CPU context switches.
    pub cpuctxsw: String,
    /// CUDA graphs.
    pub cuda_graph_trace: GraphTrace,
    /// Records CUDA events.
    pub cuda_event_trace: bool,
    /// Gate of the recording; by default `nvtx_capture` decides.
    pub capture_range: Option<CaptureGate>,
    /// Range to record, `[domain@]name`.
    pub nvtx_capture: Option<String>,
    /// Action at the end of that range; by default [`CaptureEnd::Stop`].
    pub capture_range_end: Option<CaptureEnd>,
    /// Writes the kernel summary of nsys.
    pub stats: bool,
    /// Additional arguments.
    pub extra_args: Vec<String>,
}

/// Expressions for a range of any name, which nsys accepts and which never open.
const ANY_RANGE: [&str; 5] = ["range", "range@LLM", "*", "*@LLM", "*@*"];

/// Domain of the ranges of a model.
const LLM: &str = "LLM";

impl Nsys {
    /// Returns the range that gates the recording; `None` where everything is recorded, also for a range of any name: stages are cut
    /// out afterwards. The order of nsys, `name@LLM` and `name@*`, is understood too.
    pub fn gate(&self) -> Result<Option<NvtxRange>, String> {
        let written = self.nvtx_capture.as_deref();
        let written = written.filter(|_| self.capture_range != Some(CaptureGate::None));
        let Some(text) = written.filter(|text| !ANY_RANGE.contains(text)) else {
            return Ok(None);
        };
        let range = NvtxRange::parse(text)
            .ok_or_else(|| format!("profiling.nsys.nvtx_capture is {text:?}; write it as [domain@]name"))?;
        Ok(Some(match range {
            NvtxRange { domain: Some(name), name: domain } if domain == LLM || domain == "*" => {
                NvtxRange { domain: Some(domain), name }
            }
            range => range,
        }))
    }

    /// Says that a range of any name gates nothing.
    pub fn gate_note(&self) -> Option<String> {
        let any = self.nvtx_capture.as_deref().filter(|text| ANY_RANGE.contains(text))?;
        (self.capture_range != Some(CaptureGate::None)).then(|| {
            format!("profiling.nsys.nvtx_capture={any} names no range: everything is recorded, and the stages are cut out afterwards")
        })
    }
}

/// Gate of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureGate {
    /// Everything is recorded, whatever `nvtx_capture` says.
    None,
    /// The range of `nvtx_capture` is recorded.
    Nvtx,
}

/// `profiling.ncu`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ncu {
    /// Path of the executable.
    pub path: Option<PathBuf>,
    /// Section set.
    pub set: Option<String>,
    /// Additional sections.
    #[serde(deserialize_with = "words")]
    pub sections: Vec<String>,
    /// Additional metrics; `auto` stands for those of verdicts and roofline on this device.
    #[serde(deserialize_with = "words")]
    pub metrics: Vec<String>,
    /// Clock policy.
    pub clock_control: ClockControl,
    /// Cache policy.
    pub cache_control: CacheControl,
    /// Replay mode.
    pub replay_mode: ReplayMode,
    /// Target processes.
    pub target_processes: TargetProcesses,
    /// Stages to measure, as a pattern for their names or ranges, `[domain@]name`; by default all.
    pub nvtx_include: Option<String>,
    /// Rank whose kernels are measured in a job of several; `None` for every rank that ncu reaches.
    pub rank: Option<u32>,
    /// Launches measured per launch group.
    pub launch_count: u32,
    /// Estimated time of one measured launch, s.
    pub seconds_per_launch: f64,
    /// Estimated passes of one measured launch.
    pub passes_per_launch: u32,
    /// Estimated additional time of a pass per GB of weights, s.
    pub seconds_per_pass_and_gb: f64,
    /// Estimated time of start and end under ncu, s.
    pub startup_seconds: f64,
    /// Additional arguments.
    pub extra_args: Vec<String>,
}

/// `profiling.torch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Torch {
    /// Keeps the trace.
    pub trace: bool,
}

/// Kind of the profiled program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// The embedded model.
    Embedded,
    /// A Hugging Face model through torch.
    Hf,
    /// A Python module configured by Hydra.
    Hydra,
    /// The program after `--`.
    Command,
    /// The server after `--`, under load.
    Server,
}

impl WorkloadKind {
    /// Returns the name used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkloadKind::Embedded => "embedded",
            WorkloadKind::Hf => "hf",
            WorkloadKind::Hydra => "hydra",
            WorkloadKind::Command => "command",
            WorkloadKind::Server => "server",
        }
    }
}

/// `server`: the server of `workload=server`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address.
    pub url: String,
    /// Path that answers with status 200 once the server is ready.
    pub health: Option<String>,
    /// Time limit for getting ready.
    pub ready_timeout: Span,
}

/// `workload`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Kind.
    pub kind: WorkloadKind,
    /// Text tokens of the prompt; of a program that reports none, its prompt tokens, images included.
    pub prompt_tokens: Option<u32>,
    /// Tokens to generate; of a program that reports none, the tokens that it generates in a run.
    pub tokens: Option<u32>,
    /// Prompt tokens from images, of a program that does not report them.
    pub vision_tokens: Option<u32>,
    /// Text of the prompt.
    pub prompt: Option<String>,
    /// Batch size.
    pub batch: u32,
    /// Measured repeats.
    pub repeats: u32,
    /// Warm-up repeats.
    pub warmup: u32,
    /// Seed of weights and inputs.
    pub seed: u64,
    /// dtype of the weights; by default that of the model.
    pub dtype: Option<String>,
    /// `auto`, `cpu`, `cuda`, `cuda:1`.
    pub device: String,
    /// Uses torch.compile.
    pub compile: bool,
    /// CUDA graphs.
    pub cuda_graphs: bool,
    /// Side of the generated image, pixels.
    pub image_size: Option<u32>,
    /// Size of the embedded model.
    pub size: String,
    /// Threads of the embedded model.
    pub threads: Option<u32>,
    /// KV cache of the embedded model.
    pub kv_cache: bool,
    /// Most positions that the embedded model reads again without a KV cache.
    pub context_limit: Option<u32>,
    /// Python interpreter.
    pub python: String,
    /// Hydra module.
    pub module: Option<String>,
    /// Overrides for the Hydra module.
    pub overrides: Vec<String>,
    /// Program and arguments. One that is not UTF-8 is `bytes:` and its bytes in URL encoding.
    pub program: Vec<String>,
    /// Adds NVTX ranges to a Python program.
    pub annotate: bool,
    /// Waits for the GPU between stages.
    pub annotate_sync: bool,
    /// Working directory.
    pub cwd: Option<PathBuf>,
    /// Environment variables.
    #[serde(deserialize_with = "texts")]
    pub env: BTreeMap<String, String>,
}

impl Workload {
    /// Returns the program and its arguments as the system passes them on.
    pub fn words(&self) -> Vec<OsString> {
        self.program.iter().map(|word| word_of_text(word)).collect()
    }
}

/// Task of a model.
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
    /// Variant, which the reports add to the name.
    #[serde(deserialize_with = "text_or_number")]
    pub variant: Option<String>,
    /// Number of parameters, for a program that does not report it.
    pub params: Option<Parameters>,
    /// Built-in architecture.
    pub preset: Option<String>,
    /// A `config.json`.
    pub config: Option<PathBuf>,
    /// Local folder of the weights, or a preset.
    pub target: Option<String>,
    /// Revision of the weights.
    pub revision: Option<String>,
    /// dtype of the weights.
    pub dtype: String,
    /// Architecture name in transformers.
    pub model_type: Option<String>,
    /// Task.
    pub task: Task,
    /// Attention implementation of transformers.
    pub attention: Option<String>,
    /// Experts implementation of transformers.
    pub experts: Option<String>,
    /// Lets transformers run code from the weights.
    pub trust_remote_code: bool,
    /// Keys of `config.json` to change.
    pub set: serde_json::Map<String, serde_json::Value>,
}

impl Model {
    /// Returns the folder, preset or file that names the model.
    fn source(&self) -> Option<String> {
        let file = self.config.as_ref().map(|path| path.display().to_string());
        self.target.clone().or(self.preset.clone()).or(file)
    }
}

/// `hardware`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Dense peak, TFLOP/s.
    pub peak_tflops: Option<f64>,
    /// Memory bandwidth, GB/s.
    pub bandwidth_gbs: Option<f64>,
}

/// A wrong combination of values: whether it is there, its key, and what was expected.
type Check = (bool, &'static str, &'static str);

impl Config {
    /// Finds a value that is out of range or contradicts another. Returns its key and the reason.
    pub(crate) fn contradiction(&self) -> Option<(&'static str, String)> {
        let (run, nsys) = (&self.run, &self.profiling.nsys);
        let positive = |value: Option<f64>| value.is_none_or(|v| v > 0.0);
        let pct = run.kernel_time_pct > 0.0 && run.kernel_time_pct <= 100.0;
        let gated = nsys.capture_range == Some(CaptureGate::Nvtx);
        let checks: [Check; 5] = [
            (!pct, "run.kernel_time_pct", "expected more than 0 and at most 100"),
            (
                run.top_n_kernels == 0,
                "run.top_n_kernels",
                "expected at least 1; runner.counters=false disables counters",
            ),
            (!positive(self.hardware.peak_tflops), "hardware.peak_tflops", "expected more than 0"),
            (!positive(self.hardware.bandwidth_gbs), "hardware.bandwidth_gbs", "expected more than 0"),
            (
                gated && nsys.nvtx_capture.is_none(),
                "profiling.nsys.capture_range",
                "it needs a range: profiling.nsys.nvtx_capture=[domain@]name",
            ),
        ];
        let first = |checks: &[Check]| {
            let found = checks.iter().find(|(wrong, ..)| *wrong);
            found.map(|(_, key, why)| (*key, (*why).to_owned()))
        };
        first(&checks)
            .or_else(|| first(&self.number_checks()))
            .or_else(|| self.wrong_model())
            .or_else(|| first(&self.workload_checks()))
    }

    /// Checks the numbers of the workload.
    fn number_checks(&self) -> [Check; 5] {
        const AT_LEAST_1: &str = "expected at least 1";
        const NUMBER: &str = "expected a number";
        let workload = &self.workload;
        let ours = matches!(workload.kind, WorkloadKind::Embedded | WorkloadKind::Hf);
        [
            (workload.batch == 0, "workload.batch", AT_LEAST_1),
            (workload.repeats == 0, "workload.repeats", AT_LEAST_1),
            (workload.tokens == Some(0), "workload.tokens", AT_LEAST_1),
            (ours && workload.tokens.is_none(), "workload.tokens", NUMBER),
            (ours && workload.prompt_tokens.is_none(), "workload.prompt_tokens", NUMBER),
        ]
    }

    /// Says that a model is named and the embedded one would run.
    fn wrong_model(&self) -> Option<(&'static str, String)> {
        let name = self.model.source().filter(|_| self.workload.kind == WorkloadKind::Embedded)?;
        let why = format!(
            "the embedded model is not {name}; write workload=hf to profile {name}, or model=auto to profile the embedded model"
        );
        Some(("workload.kind", why))
    }

    /// Checks that the workload has what its kind needs.
    fn workload_checks(&self) -> [Check; 8] {
        let (workload, load) = (&self.workload, &self.load);
        let is = |kind| workload.kind == kind;
        let (server, no_program) = (is(WorkloadKind::Server), workload.program.is_empty());
        let no_model = self.model.source().is_none() && self.model.model_type.is_none();
        [
            (
                is(WorkloadKind::Hf) && no_model,
                "workload.kind",
                "it needs a model: model=NAME (see `config list`), model.target or model.config",
            ),
            (
                is(WorkloadKind::Hydra) && workload.module.is_none(),
                "workload.kind",
                "it needs a module: workload.module=NAME",
            ),
            (is(WorkloadKind::Command) && no_program, "workload.kind", "it needs a program: put it after --"),
            (server && no_program, "workload.kind", "it needs a server: put its command after --"),
            (server && load.requests == 0, "load.requests", "expected at least 1"),
            (server && load.concurrency == 0, "load.concurrency", "expected at least 1"),
            (
                server && load.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0),
                "load.rate",
                "expected a number above 0, or null",
            ),
            (
                !server && !is(WorkloadKind::Command) && !no_program,
                "workload.program",
                "a program after -- requires workload=command",
            ),
        ]
    }
}

/// A number of parameters: a number, or text such as `3B` and `570M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub struct Parameters(pub u64);

impl TryFrom<serde_json::Value> for Parameters {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, Self::Error> {
        let wrong = || format!("expected a number of parameters, such as 3000000000 or 3B, not {value}");
        if let Some(count) = value.as_u64() {
            return Ok(Self(count));
        }
        let text = value.as_str().ok_or_else(wrong)?.trim();
        let (number, unit) =
            text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
        let scale = match unit.to_ascii_uppercase().as_str() {
            "" => 1.0,
            "K" => 1e3,
            "M" => 1e6,
            "B" | "G" => 1e9,
            "T" => 1e12,
            _ => return Err(wrong()),
        };
        let count = number.trim().parse::<f64>().map_err(|_| wrong())? * scale;
        let fits = (1.0..1e18).contains(&count);
        fits.then_some(Self(count.round() as u64)).ok_or_else(wrong)
    }
}

/// Reads text that may look like a number, such as the variant `7`.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

/// Reads the id of a job, which is the name of a folder; the number of a batch job is one.
fn job_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let id = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Null => return Ok(None),
        serde_json::Value::String(text) => text,
        serde_json::Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.is_empty() || id.len() > 100 || id.starts_with('.') || !id.chars().all(allowed) {
        let why = "expected letters, digits, `-`, `_` and `.`, at most 100 and no `.` in front";
        return Err(serde::de::Error::custom(why));
    }
    Ok(Some(id))
}

/// Reads a list of words, or one text with commas.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a list of words, or words separated by commas")]
    enum Words {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Words::deserialize(deserializer)? {
        Words::List(list) => list,
        Words::Text(text) => {
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        }
    })
}

/// Reads names with text. Numbers and booleans become text.
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

/// Reads stage names with a pattern or a list of patterns.
fn stage_patterns<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Patterns(#[serde(deserialize_with = "words")] Vec<String>);
    let map = BTreeMap::<String, Patterns>::deserialize(deserializer)?;
    Ok(map.into_iter().map(|(name, Patterns(patterns))| (name, patterns)).collect())
}
