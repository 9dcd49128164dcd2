//! Step names of serving engines: who scheduled how many requests and tokens.
//!
//! An engine names each step in an NVTX range or a profiler annotation. [`GRAMMARS`] lists the forms; to add an engine, add a row and
//! its parser.

use crate::result::StageKind;

/// A serving engine whose step names are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM with its PyTorch executor.
    TensorRtLlm,
    /// Hugging Face transformers: steps of its continuous batching have names, those of `generate` are marked by Python frames.
    Transformers,
    /// A program that names its own steps, as `roofgap.step` in Python does.
    Custom,
}

impl Engine {
    /// Returns the engine's own spelling.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::TensorRtLlm => "TensorRT-LLM",
            Self::Transformers => "transformers",
            Self::Custom => "custom",
        }
    }

    /// Returns the engine of a spelling.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Vllm, Self::Sglang, Self::TensorRtLlm, Self::Transformers];
        all.into_iter().find(|engine| engine.name() == name)
    }
}

/// Requests and tokens of one phase in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scheduled {
    /// Number of requests; `None` where the name gives only a total.
    pub requests: Option<u64>,
    /// Number of new tokens.
    pub tokens: Option<u64>,
    /// Sum of the sequence lengths after the step, tokens.
    pub sequence_tokens: Option<u64>,
    /// Sum over requests of new tokens times sequence length.
    pub query_key_pairs: Option<u64>,
}

impl Scheduled {
    const NONE: Self =
        Self { requests: Some(0), tokens: Some(0), sequence_tokens: Some(0), query_key_pairs: Some(0) };

    /// Returns true if the step had work of this phase.
    pub fn is_present(&self) -> bool {
        self.requests != Some(0)
    }
}

/// One step of an engine, as its name describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineStep {
    /// Engine that ran the step.
    pub engine: Engine,
    /// Requests that still read their prompt.
    pub context: Scheduled,
    /// Requests that generate.
    pub generation: Scheduled,
}

/// A form of step name.
pub struct Grammar {
    /// Engine that writes it.
    pub engine: Engine,
    /// Example of the form.
    pub example: &'static str,
    /// Version in which it was seen.
    pub seen: &'static str,
    parse: fn(&str) -> Option<(Scheduled, Scheduled)>,
}

/// Every form that is read. The first that fits wins.
pub const GRAMMARS: &[Grammar] = &[
    Grammar {
        engine: Engine::Vllm,
        example: "execute_context_2(768)_generation_14(14)",
        seen: "vLLM 0.14 to 0.26",
        parse: vllm,
    },
    Grammar {
        engine: Engine::Vllm,
        example: "execute_new_2_cached_14",
        seen: "vLLM 0.11.1 to 0.13",
        parse: vllm_new_and_cached,
    },
    Grammar {
        engine: Engine::Vllm,
        example: "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)",
        seen: "vLLM with detailed_trace_annotation, 2026",
        parse: vllm,
    },
    Grammar {
        engine: Engine::Sglang,
        example: "step[EXTEND bs=15 toks=15360]",
        seen: "SGLang 0.5",
        parse: sglang,
    },
    Grammar {
        engine: Engine::TensorRtLlm,
        example: "[Executor] _forward_step 100: 2 ctx reqs, 4096 ctx tokens, 30 gen reqs",
        seen: "TensorRT-LLM 0.20 to 1.2",
        parse: tensorrt_llm,
    },
    Grammar {
        engine: Engine::Transformers,
        example: "transformers_context_3(14)_generation_5(5)",
        seen: "the annotation of this project, transformers 5.17",
        parse: transformers,
    },
    Grammar {
        engine: Engine::Custom,
        example: "roofgap_context_1(512)_generation_4(4)",
        seen: "the Python package of this project",
        parse: custom,
    },
];

impl EngineStep {
    /// Parses the name of a range; `None` where no engine writes such a name.
    ///
    /// ```
    /// use roofgap_analyze::EngineStep;
    /// let step = EngineStep::parse("execute_context_5(2046)_generation_2(2)").unwrap();
    /// assert_eq!(step.context.tokens, Some(2046));
    /// assert_eq!(step.generation.requests, Some(2));
    /// ```
    pub fn parse(name: &str) -> Option<Self> {
        GRAMMARS.iter().find_map(|grammar| {
            let (context, generation) = (grammar.parse)(name)?;
            Some(Self { engine: grammar.engine, context, generation })
        })
    }

    /// Describes a step of which only the kind is known; `certain` where it has no work of another kind.
    pub fn of_kind(engine: Engine, kind: StageKind, certain: bool) -> Self {
        let phase = |absent: bool| {
            if absent && certain { Scheduled::NONE } else { Scheduled::default() }
        };
        Self {
            engine,
            context: phase(kind == StageKind::Decode),
            generation: phase(kind == StageKind::Prefill),
        }
    }

    /// Returns name and kind of the stage of the step, by what it scheduled; `None` for a step that scheduled nothing.
    pub fn stage(&self) -> Option<(&'static str, StageKind)> {
        match (self.context.is_present(), self.generation.is_present()) {
            (true, false) => Some(("prefill", StageKind::Prefill)),
            (false, true) => Some(("decode", StageKind::Decode)),
            (true, true) => Some(("mixed", StageKind::Mixed)),
            (false, false) => None,
        }
    }

    /// Returns true if the step scheduled nothing.
    pub fn is_empty(&self) -> bool {
        !self.context.is_present() && !self.generation.is_present()
    }

    /// Returns true for a step of vLLM whose name tells new requests from others and no tokens: those others may still read their prompts.
    pub fn may_read_prompts(&self) -> bool {
        let generation = &self.generation;
        self.engine == Engine::Vllm
            && generation.is_present()
            && generation.requests.is_some()
            && generation.tokens.is_none()
    }

    /// Fills in what this name leaves open from the name of a step inside or around it.
    pub fn complete(&mut self, other: &Self) {
        // Other engines write names of vLLM's form beside their own.
        if self.engine == Engine::Vllm {
            self.engine = other.engine;
        }
        for (own, theirs) in [(&mut self.context, &other.context), (&mut self.generation, &other.generation)]
        {
            own.requests = own.requests.or(theirs.requests);
            own.tokens = own.tokens.or(theirs.tokens);
            own.sequence_tokens = own.sequence_tokens.or(theirs.sequence_tokens);
            own.query_key_pairs = own.query_key_pairs.or(theirs.query_key_pairs);
        }
    }
}

/// Returns true for the range in which an engine captures a CUDA graph, such as `capture_32_FULL`.
pub fn is_graph_capture(name: &str) -> bool {
    let Some((size, mode)) = name.strip_prefix("capture_").and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    size.parse::<u64>().is_ok()
        && !mode.is_empty()
        && mode.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

/// Returns true for the step range of PyTorch's profiler, `ProfilerStep#7`.
pub fn is_profiler_step(name: &str) -> bool {
    name.strip_prefix("ProfilerStep#").is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Reads `execute_[TOTAL_]context_N(...)_generation_M(...)`.
fn vllm(name: &str) -> Option<(Scheduled, Scheduled)> {
    let rest = name.strip_prefix("execute_")?;
    let rest = match rest.strip_prefix("context_") {
        Some(rest) => rest,
        None => {
            let (total, rest) = rest.split_once("_context_")?;
            total.parse::<u64>().ok()?;
            rest
        }
    };
    vllm_phases(rest)
}

/// Reads `execute_new_N_cached_M`, which has no tokens. A request is new in its first step only: the later steps of a prompt that is
/// read in several count as generation.
fn vllm_new_and_cached(name: &str) -> Option<(Scheduled, Scheduled)> {
    let (new, cached) = name.strip_prefix("execute_new_")?.split_once("_cached_")?;
    let phase = |text: &str| {
        Some(match quantity(text)? {
            0 => Scheduled::NONE,
            requests => Scheduled { requests: Some(requests), ..Scheduled::default() },
        })
    };
    Some((phase(new)?, phase(cached)?))
}

/// Reads `transformers_context_N(T)_generation_M(T)`.
fn transformers(name: &str) -> Option<(Scheduled, Scheduled)> {
    vllm_phases(name.strip_prefix("transformers_context_")?)
}

/// Reads `roofgap_context_N(T)_generation_M(T)`.
fn custom(name: &str) -> Option<(Scheduled, Scheduled)> {
    vllm_phases(name.strip_prefix("roofgap_context_")?)
}

/// Reads `N(...)_generation_M(...)`.
fn vllm_phases(text: &str) -> Option<(Scheduled, Scheduled)> {
    let (context, rest) = vllm_phase(text)?;
    let (generation, rest) = vllm_phase(rest.strip_prefix("_generation_")?)?;
    rest.is_empty().then_some((context, generation))
}

/// Reads `N(T)`, `N(T_...)` or `N(sq..sk..sqsq..sqsk..)` and returns what follows it.
fn vllm_phase(text: &str) -> Option<(Scheduled, &str)> {
    let (requests, rest) = text.split_once('(')?;
    let (inside, rest) = rest.split_once(')')?;
    let mut phase = Scheduled { requests: Some(quantity(requests)?), ..Scheduled::default() };
    if inside.starts_with("sq") {
        for (key, value) in lettered(inside)? {
            match key {
                "sq" => phase.tokens = Some(quantity(value)?),
                "sk" => phase.sequence_tokens = Some(quantity(value)?),
                "sqsk" => phase.query_key_pairs = Some(value.parse().ok()?),
                _ => {}
            }
        }
    } else {
        let tokens = inside.split('_').next()?;
        phase.tokens = Some(quantity(tokens)?);
    }
    Some((phase, rest))
}

/// Reads a number of requests or tokens. Larger numbers than any engine schedules are refused, so that no sum over steps overflows.
fn quantity(text: &str) -> Option<u64> {
    text.parse::<u32>().ok().map(u64::from)
}

/// Splits `sq32sk55086` into its names and digits.
fn lettered(mut text: &str) -> Option<Vec<(&str, &str)>> {
    let mut fields = Vec::new();
    while !text.is_empty() {
        let digits = text.find(|c: char| c.is_ascii_digit())?;
        let (key, rest) = text.split_at(digits);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (value, rest) = rest.split_at(end);
        fields.push((key, value));
        text = rest;
    }
    Some(fields)
}

/// Reads `step[MODE bs=N toks=T c_sq=.. g_sk=..]`.
fn sglang(name: &str) -> Option<(Scheduled, Scheduled)> {
    let inside = name.strip_prefix("step[")?.strip_suffix(']')?;
    let mut words = inside.split_ascii_whitespace();
    let mode = words.next()?;
    let text = |key: &str| {
        let mut fields = inside.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        fields.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    let field = |key: &str| quantity(text(key)?);
    let batch = field("raw_bs").or_else(|| field("bs"))?;
    let phase = |requests: Option<u64>, tokens: Option<u64>, prefix: &str| Scheduled {
        requests,
        tokens: field(&format!("{prefix}_sq")).or(tokens),
        sequence_tokens: field(&format!("{prefix}_sk")),
        query_key_pairs: text(&format!("{prefix}_sqsk")).and_then(|pairs| pairs.parse().ok()),
    };
    Some(match mode {
        "EXTEND" | "SPLIT_PREFILL" | "DLLM_EXTEND" => {
            (phase(Some(batch), field("toks"), "c"), Scheduled::NONE)
        }
        // One new token for each request.
        "DECODE" => (Scheduled::NONE, phase(Some(batch), Some(batch), "g")),
        "MIXED" => (phase(field("c"), None, "c"), phase(field("g"), None, "g")),
        // Speculative decoding: draft tokens and their check serve requests that generate. How many tokens they yield is not in
        // the name.
        "TARGET_VERIFY" | "DRAFT_LOOP" | "DRAFT_EXTEND" | "DRAFT_EXTEND_V2" => (
            Scheduled::NONE,
            Scheduled { requests: Some(batch), sequence_tokens: field("g_sk"), ..Scheduled::default() },
        ),
        "IDLE" | "PREBUILT" => (Scheduled::NONE, Scheduled::NONE),
        _ => return None,
    })
}

/// Reads `[Executor] _forward_step 100: 2 ctx reqs, 4096 ctx tokens, 30 gen reqs`. Older versions lack the prefix, the number or the
/// tokens; the C++ runtime writes `executeStep: 2 ctx reqs, 30 gen reqs`.
fn tensorrt_llm(name: &str) -> Option<(Scheduled, Scheduled)> {
    let rest = name.strip_prefix("[Executor] ").unwrap_or(name);
    let rest = rest.strip_prefix("_forward_step").or_else(|| rest.strip_prefix("executeStep"))?;
    let (number, counts) = rest.split_once(':')?;
    let number = number.trim();
    if !number.is_empty() {
        number.parse::<u64>().ok()?;
    }
    let (mut context, mut generation) = (Scheduled::default(), Scheduled::default());
    for count in counts.split(',') {
        let (value, unit) = count.trim().split_once(' ')?;
        let value = Some(quantity(value)?);
        match unit.trim() {
            "ctx reqs" => context.requests = value,
            "ctx tokens" => context.tokens = value,
            "gen reqs" => generation.requests = value,
            "gen tokens" => generation.tokens = value,
            _ => {}
        }
    }
    context.requests?;
    generation.requests?;
    if context.requests == Some(0) {
        context = Scheduled::NONE;
    }
    if generation.requests == Some(0) {
        generation = Scheduled::NONE;
    }
    Some((context, generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(name: &str) -> (Option<u64>, Option<u64>, Option<u64>, Option<u64>) {
        let step = EngineStep::parse(name).unwrap_or_else(|| panic!("{name}"));
        let (c, g) = (step.context, step.generation);
        (c.requests, c.tokens, g.requests, g.tokens)
    }

    #[test]
    fn every_example_is_read_by_its_own_engine() {
        for grammar in GRAMMARS {
            let step = EngineStep::parse(grammar.example).unwrap();
            assert_eq!(step.engine, grammar.engine, "{}", grammar.example);
        }
    }

    #[test]
    fn vllm_names_give_requests_and_tokens() {
        let some = |a, b, c, d| (Some(a), Some(b), Some(c), Some(d));
        assert_eq!(counts("execute_context_5(2046)_generation_2(2)"), some(5, 2046, 2, 2));
        assert_eq!(counts("execute_context_1(888_788544)_generation_0(0)"), some(1, 888, 0, 0));
        let detailed = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)";
        assert_eq!(counts(detailed), some(0, 0, 32, 32));
        let step = EngineStep::parse(detailed).unwrap();
        assert_eq!(step.generation.sequence_tokens, Some(55_086));
        assert_eq!(step.generation.query_key_pairs, Some(55_086));
        assert!(EngineStep::parse("execute_context_0(0)_generation_0(0)").unwrap().is_empty());
        for other in ["execute_diffusion_1_256x256", "execute_model", "execute_context_a(1)_generation_0(0)"]
        {
            assert_eq!(EngineStep::parse(other), None, "{other}");
        }
    }

    #[test]
    fn earlier_vllm_names_give_requests_alone() {
        assert_eq!(counts("execute_new_2_cached_14"), (Some(2), None, Some(14), None));
        let kind = |name: &str| EngineStep::parse(name).unwrap().stage().map(|(name, _)| name);
        assert_eq!(kind("execute_new_3_cached_0"), Some("prefill"));
        assert_eq!(kind("execute_new_0_cached_64"), Some("decode"));
        assert_eq!(kind("execute_new_1_cached_64"), Some("mixed"));
        assert_eq!(kind("execute_new_0_cached_0"), None);
        for other in ["execute_new_1", "execute_new_a_cached_1", "execute_new_1_cached_1_x"] {
            assert_eq!(EngineStep::parse(other), None, "{other}");
        }
    }

    #[test]
    fn sglang_names_give_the_mode_and_the_batch() {
        assert_eq!(counts("step[EXTEND bs=15 toks=15360]"), (Some(15), Some(15_360), Some(0), Some(0)));
        assert_eq!(counts("step[DECODE bs=32]"), (Some(0), Some(0), Some(32), Some(32)));
        assert_eq!(counts("step[MIXED bs=66]"), (None, None, None, None));
        let mixed = "step[MIXED bs=3 c=1 g=2 c_sq=100 c_sk=300 c_sqsq=10000 c_sqsk=30000 g_sq=2 g_sk=500 g_sqsq=2 g_sqsk=500]";
        assert_eq!(counts(mixed), (Some(1), Some(100), Some(2), Some(2)));
        assert_eq!(counts("step[TARGET_VERIFY bs=4]"), (Some(0), Some(0), Some(4), None));
        assert_eq!(counts("step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]"), (Some(0), Some(0), Some(3), None));
        assert!(EngineStep::parse("step[IDLE bs=0]").unwrap().is_empty());
        assert_eq!(EngineStep::parse("step[3]"), None);
    }

    #[test]
    fn tensorrt_llm_names_may_lack_the_number_and_the_tokens() {
        let all = "[Executor] _forward_step 100: 2 ctx reqs, 4096 ctx tokens, 30 gen reqs";
        assert_eq!(counts(all), (Some(2), Some(4096), Some(30), None));
        assert_eq!(
            counts("[Executor] _forward_step: 0 ctx reqs, 8 gen reqs"),
            (Some(0), Some(0), Some(8), None)
        );
        assert_eq!(counts("_forward_step: 1 ctx reqs, 0 gen reqs"), (Some(1), None, Some(0), Some(0)));
        assert_eq!(counts("executeStep: 1 ctx reqs, 3 gen reqs"), (Some(1), None, Some(3), None));
        assert_eq!(EngineStep::parse("[Executor] _forward_step_inter_pp"), None);
    }

    #[test]
    fn numbers_that_no_engine_schedules_are_no_step() {
        for name in [
            "execute_context_1(18446744073709551615)_generation_1(1)",
            "execute_context_4294967296(1)_generation_1(1)",
            "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_1(sq4294967296sk1sqsq1sqsk1)",
            "step[DECODE bs=18446744073709551615]",
            "[Executor] _forward_step 1: 1 ctx reqs, 18446744073709551615 ctx tokens, 3 gen reqs",
        ] {
            assert_eq!(EngineStep::parse(name), None, "{name}");
        }
        // Pairs of tokens are not counts: a prompt of a million tokens has 10^12.
        let long = "execute_1000000_context_1(sq1000000sk1000000sqsq1000000000000sqsk1000000000000)_generation_0(sq0sk0sqsq0sqsk0)";
        let step = EngineStep::parse(long).unwrap();
        assert_eq!(step.context.query_key_pairs, Some(1_000_000_000_000));
    }

    #[test]
    fn an_inner_step_completes_the_outer_one() {
        let mut outer = EngineStep::parse("step[MIXED bs=66]").unwrap();
        let inner = EngineStep::parse("execute_context_2(786)_generation_64(64)").unwrap();
        outer.complete(&inner);
        assert_eq!(outer.context.tokens, Some(786));
        assert_eq!(outer.generation.requests, Some(64));
    }

    #[test]
    fn graph_capture_and_profiler_steps_are_known() {
        assert!(is_graph_capture("capture_32_FULL") && is_graph_capture("capture_8192_PIECEWISE"));
        assert!(!is_graph_capture("capture_the_flag") && !is_graph_capture("capture_32_"));
        assert!(is_profiler_step("ProfilerStep#12") && !is_profiler_step("ProfilerStep*"));
    }
}
