//! Serving engines and frameworks: a file for each with settings, `others` for the rest, and a row in [`ENGINES`].
//!
//! It holds all that is known about it: its command, package and metrics, the names and Python frames of its steps,
//! and its knobs; settings for the actions of findings are in `texts/engines.md`. `step` reads step names.

pub(crate) mod knob;
mod others;
mod sglang;
mod step;
mod transformers;
mod vllm;

pub(crate) use transformers::TRANSFORMERS;

pub use step::{EngineStep, Grammar, Scheduled};

use crate::result::{EngineInfo, GaugeStats, RequestStats};
use crate::sections;
use knob::KnobRule;
use roofgap_trace::frames::{Frame, FrameRole};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

/// All engines.
pub static ENGINES: [&Engine; 8] = [
    &TRANSFORMERS,
    &vllm::VLLM,
    &sglang::SGLANG,
    &others::TENSORRT_LLM,
    &others::ATOM,
    &others::LMDEPLOY,
    &others::LLAMA_CPP,
    &others::CUSTOM,
];

/// A serving engine, or a framework that names its steps.
pub struct Engine {
    /// Name, as the engine spells it.
    pub name: &'static str,
    /// Commands and Python modules that start it.
    commands: &'static [&'static str],
    /// Python package.
    package: Option<&'static str>,
    /// Beginning of the names of its metrics.
    metrics: Option<&'static str>,
    /// Forms of its step names.
    pub grammars: &'static [Grammar],
    /// Other engines write names of its form beside their own.
    lends_names: bool,
    /// A step can read prompts and generate. If it cannot, a name that leaves both open does not tell the phase.
    mixes: bool,
    /// Doubt about the phase of a step whose name does not tell it, or has no tokens.
    doubt: Option<&'static str>,
    /// Tells whether it captures a CUDA graph in a range of this name.
    is_capture: fn(&str) -> bool,
    /// Changes of its settings.
    pub(crate) knobs: &'static [KnobRule],
    /// Runs its steps as CUDA graphs unless told otherwise.
    pub(crate) uses_graphs: bool,
    /// Compiles the model only where it runs CUDA graphs too, unless told otherwise.
    pub(crate) compiles_for_graphs: bool,
    /// Runs in the process of the program, not in separate processes.
    pub in_process: bool,
}

/// Settings by engine.
const ADVICE: &str = include_str!("../../texts/engines.md");

/// Title of the settings of an engine of which none are known.
const ANY_ENGINE: &str = "Any engine";

/// Settings of an engine that carry out an action, as parts of sentences.
#[derive(Debug)]
pub struct Advice {
    /// Runs the steps as CUDA graphs.
    pub graphs: &'static str,
    /// Fuses elementwise kernels.
    pub compile: &'static str,
    /// Allows more requests in a step.
    pub larger_batch: &'static str,
    /// Reads fewer prompt tokens in a step; a sentence.
    pub smaller_prompts: &'static str,
    /// Starts more processes around the model; a sentence, or empty.
    pub more_frontends: &'static str,
    /// Prepares a step while the GPU runs the one before.
    pub overlap: &'static str,
    /// Captures graphs for more batch sizes.
    pub graph_sizes: &'static str,
    /// Gives the KV cache more room.
    pub larger_cache: &'static str,
}

/// Returns the text of a line `- **NAME**: TEXT` in a section; empty without one.
pub(crate) fn setting(section: &'static str, name: &str) -> &'static str {
    let mut lines = section.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**: "));
    lines.find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

impl Advice {
    /// Reads the section of an engine.
    fn read(section: &'static str) -> Self {
        let setting = |name: &str| setting(section, name);
        Self {
            graphs: setting("graphs"),
            compile: setting("compile"),
            larger_batch: setting("larger batch"),
            smaller_prompts: setting("smaller prompts"),
            more_frontends: setting("more frontends"),
            overlap: setting("overlap"),
            graph_sizes: setting("graph sizes"),
            larger_cache: setting("larger cache"),
        }
    }

    /// Returns the advice for an engine; without one, or for one whose settings are not known, that for any.
    pub fn for_engine(engine: Option<&Engine>) -> &'static Self {
        static ALL: LazyLock<Vec<(&str, Advice)>> = LazyLock::new(|| {
            sections(ADVICE, "\n## ").map(|(name, section)| (name, Advice::read(section))).collect()
        });
        static NONE: LazyLock<Advice> = LazyLock::new(|| Advice::read(""));
        let named = |name: &str| ALL.iter().find(|(known, _)| *known == name).map(|(_, advice)| advice);
        engine.and_then(|engine| named(engine.name)).or_else(|| named(ANY_ENGINE)).unwrap_or(&NONE)
    }
}

impl Engine {
    /// An engine of which nothing is known.
    const UNKNOWN: Self = Self {
        name: "",
        commands: &[],
        package: None,
        metrics: None,
        grammars: &[],
        lends_names: false,
        mixes: true,
        doubt: None,
        is_capture: |_| false,
        knobs: &[],
        uses_graphs: false,
        compiles_for_graphs: false,
        in_process: false,
    };

    /// Returns the engine of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ENGINES.into_iter().find(|engine| engine.name == name)
    }

    /// Returns the engine of an analysis.
    pub(crate) fn of_analysis(info: Option<&EngineInfo>) -> Option<&'static Self> {
        Self::named(&info?.name)
    }

    /// Returns the serving engine that a command starts, such as `vllm serve ...` or `python3 -m sglang.launch_server ...`. Such an
    /// engine runs in several processes. A worker of NVIDIA Dynamo, `python3 -m dynamo.vllm ...`, is the engine of its name, with its
    /// flags, steps and metrics.
    pub fn of_command(words: &[OsString]) -> Option<&'static Self> {
        let program = words.first().and_then(|word| Path::new(word).file_name());
        let after_m = words.iter().skip_while(|word| *word != "-m").nth(1);
        [program, after_m.map(OsString::as_os_str)].into_iter().flatten().find_map(|name| {
            let name = name.to_str()?;
            let first = name.strip_prefix("dynamo.").unwrap_or(name).split(['.', '-']).next()?;
            ENGINES.into_iter().find(|engine| engine.commands.contains(&first))
        })
    }

    /// Returns the engine and the role of a Python frame that the reader kept.
    pub(crate) fn of_frame(name: &str) -> Option<(&'static Self, FrameRole)> {
        let frame = Frame::named(name)?;
        Some((Self::named(frame.engine)?, frame.role))
    }

    /// Lists the Python packages of all engines.
    pub fn packages() -> impl Iterator<Item = &'static str> {
        ENGINES.into_iter().filter_map(|engine| engine.package)
    }

    /// Tells whether a metric is one of an engine.
    pub fn exports(metric: &str) -> bool {
        let mut prefixes = ENGINES.into_iter().filter_map(|engine| engine.metrics);
        prefixes.any(|prefix| metric.starts_with(prefix))
    }

    /// Tells whether some engine captures a CUDA graph in a range of this name.
    pub(crate) fn captures_in(range: &str) -> bool {
        ENGINES.into_iter().any(|engine| (engine.is_capture)(range))
    }
}

/// Names are unique.
/// Returns the engine that a Python function belongs to, and the part of its code.
pub(crate) fn part_of(file: &str, function: &str) -> Option<String> {
    let is_in = |path: &str| {
        let at = file.find(path);
        at.is_some_and(|at| at == 0 || file.as_bytes().get(at - 1) == Some(&b'/'))
    };
    include_str!("parts.tsv").lines().find_map(|line| {
        let mut columns = line.split('\t');
        let (engine, path, name) = (columns.next()?, columns.next()?, columns.next()?);
        let part = columns.next().filter(|_| (name == "-" || name == function) && is_in(path))?;
        Some(format!("{engine} {part}"))
    })
}

impl PartialEq for Engine {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Engine {}

impl fmt::Debug for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// Metrics of a server while load was sent; `None` for one that it does not export.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServerGauges<'a> {
    /// Used share of the KV cache, 0 to 1.
    pub cache_usage: Option<&'a GaugeStats>,
    /// Number of requests that run.
    pub running: Option<&'a GaugeStats>,
    /// Number of requests that wait.
    pub waiting: Option<&'a GaugeStats>,
    /// Number of evictions of requests, which are computed again.
    pub evictions: Option<f64>,
}

/// Metrics of engines: what each tells, and its name.
const GAUGES: &str = include_str!("gauges.tsv");

impl<'a> ServerGauges<'a> {
    /// Finds the metrics among those that were sampled.
    pub fn of(requests: &'a RequestStats) -> Self {
        let names = |gauge: &'static str| {
            let lines = GAUGES.lines().filter_map(|line| line.split_once('\t'));
            lines.filter(move |(known, _)| *known == gauge).map(|(_, name)| name)
        };
        let gauge = |gauge| names(gauge).find_map(|name| requests.gauges.get(name));
        let evictions = names("evictions").filter_map(|name| requests.metrics.get(name));
        Self {
            cache_usage: gauge("cache_usage"),
            running: gauge("running"),
            waiting: gauge("waiting"),
            evictions: evictions.copied().reduce(f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_its_metrics() {
        let sampled = |names: &[&str]| {
            let gauge = |(at, name): (usize, &&str)| {
                let stats = GaugeStats { mean: at as f64, ..GaugeStats::default() };
                ((*name).to_owned(), stats)
            };
            RequestStats { gauges: names.iter().enumerate().map(gauge).collect(), ..RequestStats::default() }
        };
        for names in [
            ["vllm:gpu_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"],
            ["sglang:token_usage", "sglang:num_running_reqs", "sglang:num_queue_reqs"],
            [
                "lmdeploy:gpu_cache_usage_perc",
                "lmdeploy:num_requests_running",
                "lmdeploy:num_requests_waiting",
            ],
            ["atom:kv_cache_usage_ratio", "atom:requests_running", "atom:requests_waiting"],
        ] {
            let requests = sampled(&names);
            let gauges = ServerGauges::of(&requests);
            let means = [gauges.cache_usage, gauges.running, gauges.waiting]
                .map(|gauge| gauge.map(|gauge| gauge.mean));
            assert_eq!(means, [Some(0.0), Some(1.0), Some(2.0)], "{names:?}");
            assert!(names.into_iter().all(Engine::exports));
        }
        assert_eq!(ServerGauges::of(&sampled(&["other:gauge"])), ServerGauges::default());
        assert!(!Engine::exports("other:gauge"));
    }

    #[test]
    fn engines_are_known_by_command_and_module() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            Engine::of_command(&words).map(|engine| engine.name)
        };
        assert_eq!(of("/usr/bin/vllm serve Qwen/Qwen3-8B"), Some("vLLM"));
        assert_eq!(of("python3 -m vllm.entrypoints.openai.api_server"), Some("vLLM"));
        assert_eq!(of("python3 -u -m sglang.launch_server --model x"), Some("SGLang"));
        assert_eq!(of("trtllm-serve model"), Some("TensorRT-LLM"));
        assert_eq!(of("python3 -m atom.entrypoints.openai_server --model x"), Some("ATOM"));
        assert_eq!(of("python3 -m dynamo.vllm --model x"), Some("vLLM"));
        assert_eq!(of("python -m dynamo.trtllm --model-path x"), Some("TensorRT-LLM"));
        assert_eq!(of("python -m dynamo.frontend"), None);
        assert_eq!(of("python3 vllm_offline.py"), None);
        assert_eq!(of("./run --tool vllm"), None);
        assert_eq!(Engine::of_command(&[]), None);
    }

    #[test]
    fn names_are_unique() {
        for engine in ENGINES {
            assert_eq!(Engine::named(engine.name), Some(engine));
            assert_eq!(ENGINES.iter().filter(|other| **other == engine).count(), 1, "{engine:?}");
        }
    }

    #[test]
    fn graph_captures_are_known() {
        assert!(Engine::captures_in("capture_32_FULL") && Engine::captures_in("capture_8192_PIECEWISE"));
        assert!(Engine::captures_in("capture_graph_bs_32") && !Engine::captures_in("capture_graph_bs_"));
        assert!(!Engine::captures_in("capture_the_flag") && !Engine::captures_in("capture_32_"));
    }

    #[test]
    fn every_section_of_the_advice_is_that_of_an_engine_and_is_read() {
        for (title, section) in sections(ADVICE, "\n## ") {
            let known = Engine::named(title);
            assert!(title == ANY_ENGINE || known.is_some_and(|engine| engine.uses_graphs), "{title}");
            let advice = format!("{:?}", Advice::for_engine(known));
            let lines: Vec<&str> = section.lines().filter(|line| !line.is_empty()).collect();
            assert!(lines.len() >= 7, "{title}");
            for line in lines {
                let (_, text) = line.split_once("**: ").unwrap();
                assert!(advice.contains(&format!("{text:?}")), "{line}");
            }
        }
        assert!(!Advice::for_engine(None).graphs.is_empty());
    }
}
