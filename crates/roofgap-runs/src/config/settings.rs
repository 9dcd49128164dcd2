//! The typed values of a configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use roofgap_base::error::Error;
use roofgap_collect::command::{NvtxRange, word_of_text};
use roofgap_collect::ncu::{CacheControl, ClockControl, ReplayMode, TargetProcesses};
use roofgap_collect::nsys::{CaptureEnd, GraphTrace};

use super::quantity::{Parameters, Size, Span, text_of};
use roofgap_collect::option_values;

/// Declares sections of the configuration, whose keys are all known.
macro_rules! sections {
    ($($(#[$doc:meta])* pub struct $name:ident { $($keys:tt)* })*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($keys)* })*
    };
}

sections! {
    /// A complete, checked configuration.
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

    /// `run`.
    pub struct Run {
        /// Id of the run that sessions on several nodes become; `None` for a session of its own.
        #[serde(deserialize_with = "run_id")]
        pub id: Option<String>,
        /// Amount of measurement.
        pub mode: Mode,
        /// Maximum number of launch groups per stage for ncu.
        pub top_n_kernels: u32,
        /// Time budget of the counters phase.
        pub counter_budget: Span,
        /// Time limit of the program in a phase.
        pub timeout: Span,
        /// Time between a request to stop and a kill. A profiler gets more time to write its report.
        pub grace: Span,
        /// Samples energy, power and clocks of the GPUs in each phase.
        pub vitals: bool,
    }

    /// `artifacts`.
    pub struct Artifacts {
        /// Folder of the run directories.
        pub stage2_dir: PathBuf,
    }

    /// `inputs`.
    pub struct Inputs {
        /// YAML list of images or prompts.
        pub manifest: Option<PathBuf>,
    }

    /// `stage1`.
    pub struct Stage1 {
        /// Folder of an earlier run.
        pub run_dir: Option<PathBuf>,
    }

    /// `retention`.
    pub struct Retention {
        /// Number of runs kept uncompressed.
        pub keep: u32,
        /// Maximum size of a run.
        pub max_run_bytes: Size,
    }

    /// `runner`: the requested phases.
    pub struct Runner {
        /// Run without a profiler.
        pub baseline: bool,
        /// Timeline.
        pub timeline: bool,
        /// Operators of the framework.
        pub operators: bool,
        /// Counters of kernels.
        pub counters: bool,
        /// Limit below `run.top_n_kernels`.
        pub max_kernels: Option<u32>,
    }

    /// `profiling`.
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

    /// `profiling.native`.
    pub struct Native {
        /// Records copies and sets; by default in deep mode only.
        pub copies: Option<bool>,
        /// CUDA graphs.
        pub graph: GraphTrace,
        /// Records one of this many steps; without step ranges, one of this many windows of 50 ms. 1 records all; `None` is
        /// [`DUTY`] in light mode and all in deep mode.
        pub duty: Option<NonZeroU32>,
        /// Interval in which a process of its own samples the hardware counters of all GPUs, us; `None` samples none.
        pub counters_us: Option<NonZeroU32>,
        /// Samples of the stacks of the program's Python processes, times a second; `None` samples 200 beside a full recording of
        /// one process, where they can be read, and else none.
        pub stacks_hz: Option<NonZeroU32>,
    }

    /// `profiling.nsys`.
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

    /// `profiling.ncu`.
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
        /// Additional arguments.
        pub extra_args: Vec<String>,
    }

    /// `profiling.torch`.
    pub struct Torch {
        /// Keeps the trace.
        pub trace: bool,
    }

    /// `server`: the server of `workload=server`.
    pub struct Server {
        /// Address.
        pub url: String,
        /// Time limit for getting ready.
        pub ready_timeout: Span,
    }

    /// `workload`.
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

    /// `model`.
    pub struct Model {
        /// Name in the reports.
        pub name: Option<String>,
        /// Variant, which the reports add to the name.
        #[serde(deserialize_with = "optional_text")]
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
        /// Ranks that share every layer (tensor parallelism), and its experts (expert parallelism), where the capture does not tell.
        pub tp: Option<NonZeroU32>,
        /// See `tp`.
        pub ep: Option<NonZeroU32>,
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
        pub set: serde_json::Map<String, Value>,
    }

    /// The load on a server.
    pub struct Load {
        /// Model to ask for; by default the first that the server lists.
        pub model: Option<String>,
        /// Requests in flight; with a rate, the most in flight.
        pub concurrency: u32,
        /// Mean requests per second at random times, instead of a fixed number in flight.
        pub rate: Option<f64>,
        /// Measured requests.
        pub requests: u64,
        /// Requests before them that are not measured.
        pub warmup: u64,
        /// Time after which no more requests start.
        pub duration: Option<Span>,
        /// Tokens of each prompt, which are random.
        pub prompt_tokens: NonZeroU32,
        /// Generated tokens of each request.
        pub output_tokens: NonZeroU32,
        /// JSONL file of prompts, used in turn: {"prompt": ...} or {"messages": ...}, with "output_tokens".
        pub prompts: Option<PathBuf>,
        /// Random token ids are below this number.
        pub vocabulary: u32,
        /// Time limit of one request.
        pub timeout: Span,
    }

    /// `hardware`.
    pub struct Hardware {
        /// Dense peak, TFLOP/s.
        pub peak_tflops: Option<f64>,
        /// Memory bandwidth, GB/s.
        pub bandwidth_gbs: Option<f64>,
    }
}

option_values! {
    /// Amount of measurement.
    Mode {
        /// All counters, kernels and operators.
        #[default]
        Deep = "deep",
        /// Fewer counters and kernels, no operators.
        Light = "light",
    }
    /// Ranges around the modules of a Python model, by which kernels have layers.
    LayerRanges {
        /// While a CUDA graph is captured.
        #[default]
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off",
    }
    /// Kind of the profiled program.
    WorkloadKind {
        /// The embedded model.
        #[default]
        Embedded = "embedded",
        /// A Hugging Face model through torch.
        Hf = "hf",
        /// A Python module configured by Hydra.
        Hydra = "hydra",
        /// The program after `--`.
        Command = "command",
        /// The server after `--`, under load.
        Server = "server",
    }
    /// Tool for the timeline.
    TimelineTool {
        /// The native collector; nsys for what only it records, for a Hydra module and without a GPU; the other where one is not available.
        #[default]
        Auto = "auto",
        /// Nsight Systems.
        Nsys = "nsys",
        /// The native collector.
        Native = "native",
    }
    /// Gate of a recording.
    CaptureGate {
        /// Everything is recorded, whatever `nvtx_capture` says.
        #[default]
        None = "none",
        /// The range of `nvtx_capture` is recorded.
        Nvtx = "nvtx",
    }
    /// Task of a model.
    Task {
        /// Text to text.
        #[default]
        Causal = "causal",
        /// Images and text to text.
        ImageText = "image_text",
    }
}

/// Default duty cycle of light mode and of `watch`: one of this many steps.
pub const DUTY: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);

impl Native {
    /// Returns the duty cycle in a mode; `None` records all.
    pub fn duty_in(&self, mode: Mode) -> Option<NonZeroU32> {
        let default = (mode == Mode::Light).then_some(DUTY);
        self.duty.or(default).filter(|every| every.get() > 1)
    }
}

/// Expressions for a range of any name, which nsys accepts and which never open.
const ANY_RANGE: [&str; 5] = ["range", "range@LLM", "*", "*@LLM", "*@*"];

/// Domain of the ranges of a model.
const LLM: &str = "LLM";

impl Nsys {
    /// Returns the first option that asks for what only nsys records.
    pub fn asks_for(&self) -> Option<&'static str> {
        let is_other = |api: &String| !["cuda", "nvtx", "osrt", "none"].contains(&api.as_str());
        let asked = [
            ("sample", self.sample != "none"),
            ("cpuctxsw", self.cpuctxsw != "none"),
            ("trace", self.trace.iter().any(is_other)),
            ("nvtx_capture", !matches!(self.gate(), Ok(None))),
            ("extra_args", !self.extra_args.is_empty()),
        ];
        asked.into_iter().find(|(_, is_asked)| *is_asked).map(|(option, _)| option)
    }

    /// Returns the range as written, unless the gate is off.
    fn range(&self) -> Option<&str> {
        self.nvtx_capture.as_deref().filter(|_| self.capture_range != Some(CaptureGate::None))
    }

    /// Returns the range that gates the recording; `None` where everything is recorded, also for a range of any name: stages are cut
    /// out afterwards. The order of nsys, `name@LLM` and `name@*`, is understood too.
    pub fn gate(&self) -> Result<Option<NvtxRange>, Error> {
        let Some(text) = self.range().filter(|text| !ANY_RANGE.contains(text)) else {
            return Ok(None);
        };
        let wrong = || format!("profiling.nsys.nvtx_capture is {text:?}; write it as [domain@]name");
        let range = NvtxRange::parse(text).ok_or_else(|| Error::new(wrong()))?;
        Ok(Some(match range {
            NvtxRange { domain: Some(name), name: domain } if domain == LLM || domain == "*" => {
                NvtxRange { domain: Some(domain), name }
            }
            range => range,
        }))
    }

    /// Says that a range of any name gates nothing.
    pub fn gate_note(&self) -> Option<String> {
        let any = self.range().filter(|text| ANY_RANGE.contains(text))?;
        Some(format!(
            "profiling.nsys.nvtx_capture={any} names no range: everything is recorded, and the stages are cut out afterwards"
        ))
    }
}

impl Ncu {
    /// Estimates the passes of a measured launch.
    pub fn passes(&self) -> u32 {
        match (&self.set, self.sections.len()) {
            (None, 0 | 1) => 9,
            (None, _) => 15,
            (Some(_), _) => 17,
        }
    }
}

impl Workload {
    /// Returns the program and its arguments as the system passes them on.
    pub fn words(&self) -> Vec<OsString> {
        self.program.iter().map(|word| word_of_text(word)).collect()
    }
}

impl Config {
    /// Finds a value that is out of range or contradicts another. Returns its key and the reason.
    pub(crate) fn contradiction(&self) -> Option<(&'static str, String)> {
        const AT_LEAST_1: &str = "expected at least 1";
        const NUMBER: &str = "expected a number";
        const ABOVE_0: &str = "expected more than 0";
        const KIND: &str = "workload.kind";
        let Self { run, workload, load, hardware, model, server: place, .. } = self;
        let nsys = &self.profiling.nsys;
        let is = |kind| workload.kind == kind;
        let ours = is(WorkloadKind::Embedded) || is(WorkloadKind::Hf);
        let (server, no_program) = (is(WorkloadKind::Server), workload.program.is_empty());
        let file = model.config.as_ref().map(|path| path.display().to_string());
        let named = model.target.clone().or(model.preset.clone()).or(file);
        let not_positive = |value: Option<f64>| value.is_some_and(|value| !value.is_finite() || value <= 0.0);
        let name = named.as_deref().unwrap_or_default();
        let other = format!(
            "the embedded model is not {name}; write workload=hf to profile {name}, or model=auto to profile the embedded model"
        );
        let checks = [
            (is(WorkloadKind::Embedded) && named.is_some(), KIND, other.as_str()),
            (
                run.top_n_kernels == 0,
                "run.top_n_kernels",
                "expected at least 1; runner.counters=false disables counters",
            ),
            (not_positive(hardware.peak_tflops), "hardware.peak_tflops", ABOVE_0),
            (not_positive(hardware.bandwidth_gbs), "hardware.bandwidth_gbs", ABOVE_0),
            (
                nsys.capture_range == Some(CaptureGate::Nvtx) && nsys.nvtx_capture.is_none(),
                "profiling.nsys.capture_range",
                "it needs a range: profiling.nsys.nvtx_capture=[domain@]name",
            ),
            (workload.batch == 0, "workload.batch", AT_LEAST_1),
            (workload.repeats == 0, "workload.repeats", AT_LEAST_1),
            (workload.tokens == Some(0), "workload.tokens", AT_LEAST_1),
            (ours && workload.tokens.is_none(), "workload.tokens", NUMBER),
            (ours && workload.prompt_tokens.is_none(), "workload.prompt_tokens", NUMBER),
            (
                is(WorkloadKind::Hf) && named.is_none() && model.model_type.is_none(),
                KIND,
                "it needs a model: model=NAME (see `config list`), model.target or model.config",
            ),
            (
                is(WorkloadKind::Hydra) && workload.module.is_none(),
                KIND,
                "it needs a module: workload.module=NAME",
            ),
            (is(WorkloadKind::Command) && no_program, KIND, "it needs a program: put it after --"),
            (server && no_program, KIND, "it needs a server: put its command after --"),
            (load.requests == 0, "load.requests", AT_LEAST_1),
            (!(1..=4096).contains(&load.concurrency), "load.concurrency", "expected 1 to 4096"),
            (not_positive(load.rate), "load.rate", "expected a number above 0, or null"),
            (has_wrong_port(&place.url), "server.url", "expected a port from 1 to 65535"),
            (
                !server && !is(WorkloadKind::Command) && !no_program,
                "workload.program",
                "a program after -- requires workload=command",
            ),
        ];
        checks.into_iter().find(|(wrong, ..)| *wrong).map(|(_, key, why)| (key, why.to_owned()))
    }
}

/// Tells whether an address names a port that no socket has. The client would take the usual port of the scheme instead.
fn has_wrong_port(url: &str) -> bool {
    let place = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = place.split(['/', '?', '#']).next().unwrap_or_default();
    // A name may precede the host; the colons of an IPv6 address are in brackets.
    let after = place.rsplit_once(['@', ']']).map_or(place, |(_, after)| after);
    after.rsplit_once(':').is_some_and(|(_, port)| !port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Reads text that may look like a number, such as the variant `7`.
fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        value => text_of(value, "text").map(Some),
    }
}

/// Reads the id of a shared run, which is the name of a folder; the number that a scheduler gives is one.
fn run_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let id = optional_text(deserializer)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let wrong =
        |id: &String| id.is_empty() || id.len() > 100 || id.starts_with('.') || !id.chars().all(allowed);
    if id.as_ref().is_some_and(wrong) {
        let why = "expected letters, digits, `-`, `_` and `.`, at most 100 and no `.` in front";
        return Err(de::Error::custom(why));
    }
    Ok(id)
}

/// Reads a list of words, or one text with commas.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Words::deserialize(deserializer).map(Words::into_list)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of words, or words separated by commas")]
enum Words {
    List(Vec<String>),
    Text(String),
}

impl Words {
    fn into_list(self) -> Vec<String> {
        match self {
            Words::List(list) => list,
            Words::Text(text) => {
                text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
            }
        }
    }
}

/// Reads names with text. Numbers and booleans become text.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map = BTreeMap::<String, Value>::deserialize(deserializer)?;
    map.into_iter()
        .map(|(name, value)| text_of(value, &format!("text for {name}")).map(|text| (name, text)))
        .collect()
}

/// Reads stage names with a pattern or a list of patterns.
fn stage_patterns<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let map = BTreeMap::<String, Words>::deserialize(deserializer)?;
    Ok(map.into_iter().map(|(name, patterns)| (name, patterns.into_list())).collect())
}

#[cfg(test)]
mod tests {
    use super::has_wrong_port;

    #[test]
    fn a_port_is_a_number_that_a_socket_has() {
        let right = [
            "http://a:8000",
            "http://a",
            "https://a/x:y",
            "http://[::1]:1/v1",
            "http://[::1]",
            "http://u:p@a",
        ];
        for url in right.into_iter().chain(["a:65535"]) {
            assert!(!has_wrong_port(url), "{url}");
        }
        for url in
            ["http://a:99999", "http://a:65536/v1", "http://a:0", "http://a:", "http://[::1]:x", "a:-1"]
        {
            assert!(has_wrong_port(url), "{url}");
        }
    }
}
