//! Step names of engines: how many requests and tokens a step scheduled.
//!
//! An engine names each step in an NVTX range or a profiler annotation. Its file lists the forms as [`Grammar`]s.

use super::{ENGINES, Engine};
use crate::result::StageKind;

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
    pub(super) const NONE: Self =
        Self { requests: Some(0), tokens: Some(0), sequence_tokens: Some(0), query_key_pairs: Some(0) };

    /// Describes requests of which nothing else is known.
    pub(super) fn requests(requests: u64) -> Self {
        match requests {
            0 => Self::NONE,
            requests => Self { requests: Some(requests), ..Self::default() },
        }
    }

    /// Returns true if the step had work of this phase.
    pub fn is_present(&self) -> bool {
        self.requests != Some(0)
    }

    /// Fills in what is open.
    fn complete(&mut self, other: &Self) {
        self.requests = self.requests.or(other.requests);
        self.tokens = self.tokens.or(other.tokens);
        self.sequence_tokens = self.sequence_tokens.or(other.sequence_tokens);
        self.query_key_pairs = self.query_key_pairs.or(other.query_key_pairs);
    }
}

/// What a step scheduled for requests that read their prompt, and for requests that generate.
pub type Phases = (Scheduled, Scheduled);

/// A form of step name.
pub struct Grammar {
    /// Example of the form.
    pub example: &'static str,
    /// Version in which it was seen.
    pub seen: &'static str,
    pub(super) parse: fn(&str) -> Option<Phases>,
}

/// One step of an engine, as its name describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineStep {
    /// Engine that ran the step.
    pub engine: &'static Engine,
    /// Requests that still read their prompt.
    pub context: Scheduled,
    /// Requests that generate.
    pub generation: Scheduled,
}

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
        let forms = ENGINES.iter().flat_map(|engine| engine.grammars.iter().map(move |form| (*engine, form)));
        forms.into_iter().find_map(|(engine, form)| {
            let (context, generation) = (form.parse)(name)?;
            Some(Self { engine, context, generation })
        })
    }

    /// Describes a step of which only the kind is known; `certain` where it has no work of another kind.
    pub fn of_kind(engine: &'static Engine, kind: StageKind, certain: bool) -> Self {
        let phase = |absent: bool| {
            if absent && certain { Scheduled::NONE } else { Scheduled::default() }
        };
        Self {
            engine,
            context: phase(kind == StageKind::Decode),
            generation: phase(kind == StageKind::Prefill),
        }
    }

    /// Returns the kind of the step by what it scheduled: custom where the name does not tell the phase, and `None` for a step that
    /// scheduled nothing.
    pub fn kind(&self) -> Option<StageKind> {
        match (self.context.is_present(), self.generation.is_present()) {
            (true, false) => Some(StageKind::Prefill),
            (false, true) => Some(StageKind::Decode),
            (true, true) => Some(if self.engine.mixes { StageKind::Mixed } else { StageKind::Custom }),
            (false, false) => None,
        }
    }

    /// Returns the doubt about the phase of a step; `None` where its name leaves none.
    pub fn doubt(&self) -> Option<&'static str> {
        let has_doubt = match self.kind()? {
            // Without tokens, requests that seem to generate may still read their prompts.
            StageKind::Decode => self.generation.requests.is_some() && self.generation.tokens.is_none(),
            kind => kind == StageKind::Custom,
        };
        self.engine.doubt.filter(|_| has_doubt)
    }

    /// Fills in what this name leaves open from the name of a step inside or around it.
    pub fn complete(&mut self, other: &Self) {
        if self.engine.lends_names {
            self.engine = other.engine;
        }
        self.context.complete(&other.context);
        self.generation.complete(&other.generation);
    }
}

/// Reads `N(T)_generation_M(T)`, the form of vLLM.
pub fn phases(text: &str) -> Option<Phases> {
    let (context, rest) = phase(text)?;
    let (generation, rest) = phase(rest.strip_prefix("_generation_")?)?;
    rest.is_empty().then_some((context, generation))
}

/// Reads `N(T)`, `N(T_...)` or `N(sq..sk..sqsq..sqsk..)` and returns what follows it.
fn phase(text: &str) -> Option<(Scheduled, &str)> {
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
pub fn quantity(text: &str) -> Option<u64> {
    text.parse::<u32>().ok().map(u64::from)
}

/// Returns the text of a field in words such as `bs=15 toks=15360`.
pub fn field<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    let mut fields = words.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    fields.find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// Splits `sq32sk55086` into its names and digits.
fn lettered(mut text: &str) -> Option<Vec<(&str, &str)>> {
    let mut fields = Vec::new();
    while !text.is_empty() {
        let (key, rest) = text.split_at(text.find(|c: char| c.is_ascii_digit())?);
        let (value, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        fields.push((key, value));
        text = rest;
    }
    Some(fields)
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
        for engine in ENGINES {
            for grammar in engine.grammars {
                let step = EngineStep::parse(grammar.example).unwrap();
                assert_eq!(step.engine, engine, "{}", grammar.example);
            }
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
        assert!(EngineStep::parse("execute_context_0(0)_generation_0(0)").unwrap().kind().is_none());
        for other in ["execute_diffusion_1_256x256", "execute_model", "execute_context_a(1)_generation_0(0)"]
        {
            assert_eq!(EngineStep::parse(other), None, "{other}");
        }
    }

    #[test]
    fn earlier_vllm_names_give_requests_alone() {
        assert_eq!(counts("execute_new_2_cached_14"), (Some(2), None, Some(14), None));
        let kind = |name: &str| EngineStep::parse(name).unwrap().kind().map(StageKind::as_str);
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
        let checked = "step[VERIFY bs=4 g_sq=16 g_sqsq=64 g_sqsk=4096 g_sk=1024 forward_id=7]";
        assert_eq!(counts(checked), (Some(0), Some(0), Some(4), None));
        assert_eq!(EngineStep::parse("step[DRAFT bs=4 toks=16]"), None, "a part of the step");
        assert_eq!(EngineStep::parse("step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]"), None, "a part of the step");
        assert!(EngineStep::parse("step[IDLE bs=0]").unwrap().kind().is_none());
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
}
