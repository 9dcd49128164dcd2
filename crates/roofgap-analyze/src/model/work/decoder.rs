//! The work of the language model: prefill of a prompt, steps of decode, and the steps of a serving engine by the requests and tokens in
//! their names.

use super::vision::View;
use super::{StageWork, Term, term, that_hold};
use crate::engines::EngineStep;
use crate::model::{Architecture, Block, Pairs, biases, linears_text};
use crate::result::NotKnown;
use std::collections::BTreeMap;

/// A prefill.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefillInput {
    /// Sequences at once.
    pub batch: u64,
    /// Tokens of a sequence, those of images included.
    pub prompt: u64,
    /// Images that go through the vision part for one sequence.
    pub views: Vec<View>,
}

/// Steps of decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeInput {
    /// Sequences at once.
    pub batch: u64,
    /// Tokens in the cache before the first step.
    pub context: u64,
    /// Steps; each adds one token to every sequence.
    pub steps: u64,
}

/// Distinct experts that a number of tokens touches, when each picks `per_token` of `routed` at random and independently.
pub fn distinct_experts(routed: u64, per_token: u64, tokens: u64) -> f64 {
    let routed = routed as f64;
    if routed == 0.0 {
        return 0.0;
    }
    let missed = (1.0 - per_token as f64 / routed).clamp(0.0, 1.0);
    routed * (1.0 - missed.powf(tokens as f64))
}

/// Tokens looked at by `count` tokens in a row, the first of which looks at `first`, none at more than `window`.
pub fn looked_at(first: u64, count: u64, window: Option<u64>) -> f64 {
    let sum = |from: f64, n: f64| n * from + n * (n - 1.0) / 2.0;
    let (first, count) = (first as f64, count as f64);
    match window.map(|window| window as f64) {
        Some(window) => {
            let growing = (window - first).clamp(0.0, count);
            sum(first, growing) + (count - growing) * window
        }
        None => sum(first, count),
    }
}

/// Passes over the layers: their sizes and their number.
pub struct Pass<'a> {
    pub architecture: &'a Architecture,
    /// Tokens of one pass, all sequences together.
    pub tokens: u64,
    /// Passes; each reads the weights once.
    pub passes: u64,
    /// Sequences of a pass; 0 leaves out attention over the cache.
    pub sequences: u64,
    /// Tokens that one sequence adds in a pass.
    pub added: u64,
    /// Tokens looked at by the first token of a sequence in the first pass.
    pub first_look: u64,
    /// Positions of a pass for which the output head is computed.
    pub heads: u64,
    /// Sequences that have a state from earlier passes.
    pub resumed: u64,
}

impl Architecture {
    /// The work of a prefill, with the vision part where there are images.
    pub fn prefill(&self, input: &PrefillInput) -> StageWork {
        let mut terms = match &self.vision {
            Some(vision) => self.vision_terms(vision, &input.views, input.batch),
            None => Vec::new(),
        };
        let pass = Pass {
            architecture: self,
            tokens: input.batch.saturating_mul(input.prompt),
            passes: 1,
            sequences: input.batch,
            added: input.prompt,
            first_look: 1,
            heads: input.batch,
            resumed: 0,
        };
        terms.extend(pass.terms());
        let head = "prefill computes the output head for the last token of each sequence only";
        StageWork::new("prefill", terms, None, self.common_assumptions()).noting(Some(head.to_owned()))
    }

    /// The work of steps of decode.
    pub fn decode(&self, input: &DecodeInput) -> StageWork {
        let pass = Pass {
            architecture: self,
            tokens: input.batch,
            passes: input.steps,
            sequences: input.batch,
            added: 1,
            first_look: input.context.saturating_add(1),
            heads: input.batch,
            resumed: input.batch,
        };
        let once = "each decode step reads every weight it uses once and the whole cache once";
        StageWork::new("decode", pass.terms(), Some(input.steps), self.common_assumptions())
            .noting(Some(once.to_owned()))
    }

    pub(super) fn common_assumptions(&self) -> Vec<String> {
        let blocks = || self.decoder.groups.iter().flat_map(|group| &group.blocks);
        let mut assumptions = self.assumptions.clone();
        assumptions.push(format!("weights: {}; cache and activations in {}", self.weights.how, self.dtype));
        assumptions.extend(that_hold([
            (
                true,
                "matrix products and attention are counted, a multiply-add as two; norms, softmax, positions and activation \
                 functions are not",
            ),
            (true, "attention is causal: a token looks at itself and those before it"),
            (
                blocks().any(|block| block.state > 0.0),
                "a state is updated and read once for each token, two multiply-adds a value, and moved once a pass",
            ),
            (
                true,
                "bytes that must move are weights and the cache of keys and values; activations are taken to stay on chip",
            ),
            (
                self.has_experts(),
                "tokens choose experts at random and independently: n tokens touch E x (1 - (1 - k/E)^n) of E experts",
            ),
            (
                self.replicas > 1,
                "every replica sends as many tokens to the experts as this one, and each rank gets an even share",
            ),
            (
                blocks().any(|block| block.pairs.is_some_and(|pairs| pairs.latent)),
                "the cache holds the compressed keys and values; an implementation that caches them expanded moves more",
            ),
        ]));
        assumptions
    }

    /// The term of attention over the cache in layers of one shape: the pairs of tokens that it looks at, and the tokens of the cache
    /// that it reads and writes, for each of a number of sequences or for all.
    pub(super) fn cache_term(
        &self,
        count: u64,
        attention: &Pairs,
        sequences: Option<u64>,
        (pairs, read, written): (f64, f64, f64),
    ) -> Term {
        let Pairs { keys, values, cached, window, .. } = *attention;
        let value_bytes = self.dtype.bits() / 8.0;
        let layers = count as f64 * sequences.map_or(1.0, |sequences| sequences as f64);
        let each = sequences.map_or_else(String::new, |sequences| format!("{sequences} sequences x "));
        let window = window.filter(|_| sequences.is_some());
        let window = window.map_or_else(String::new, |window| format!(", at most {window} back"));
        term(
            "attention over the cache",
            2.0 * layers * pairs * (keys + values) as f64,
            layers * ((read + written) * cached as f64) * value_bytes,
            format!(
                "2 x {count} layers x {each}{pairs} pairs of tokens x ({keys} + {values}){window}; cache: {cached} values of {value_bytes} \
                 bytes a token and layer, {read} tokens read, {written} written"
            ),
        )
    }
}

impl Pass<'_> {
    pub fn terms(&self) -> Vec<Term> {
        let decoder = &self.architecture.decoder;
        let weights = &self.architecture.weights;
        let rows = self.tokens as f64 * self.passes as f64;
        let mut terms = vec![term(
            "embedding",
            0.0,
            rows * decoder.embedding as f64 * (weights.other_bits / 8.0),
            format!("{}{} rows of {}", self.passes_text(), self.tokens, decoder.embedding),
        )];
        for group in &decoder.groups {
            for block in &group.blocks {
                self.block(block, group.count, &mut terms);
            }
        }
        if decoder.model.products() > 0.0 {
            terms.push(self.products(&decoder.model, 1, self.tokens));
        }
        terms.push(self.norms());
        let mut head = self.products(&decoder.head, 1, self.heads);
        if decoder.tied {
            head.how.push_str(" (the embedding table)");
        }
        terms.push(head);
        terms
    }

    fn passes_text(&self) -> String {
        if self.passes == 1 { String::new() } else { format!("{} steps x ", self.passes) }
    }

    /// Matrix products over a number of rows in each pass.
    fn products(&self, block: &Block, layers: u64, rows: u64) -> Term {
        let weights = &self.architecture.weights;
        let bits = weights.bits(block.precision);
        let passes = self.passes as f64 * layers as f64;
        let (one, bias) = (block.products(), biases(&block.linears));
        // The experts of a rank get tokens of all replicas, and a rank has that much fewer of them.
        let replicas = self.architecture.replicas;
        let tokens = rows.saturating_mul(replicas.into());
        let (used, read, chosen) = match block.chosen {
            Some(experts) => {
                let touched =
                    distinct_experts(experts.routed, experts.per_token, tokens) / f64::from(replicas);
                (experts.per_token as f64, touched, format!("{} experts x ", experts.per_token))
            }
            None => (1.0, 1.0, String::new()),
        };
        let of_experts = block.chosen.map_or_else(
            || format!("weights at {bits} bits read once a pass"),
            |experts| format!("{read:.2} of {} experts read a pass, {bits} bits a weight", experts.routed),
        );
        let bias_text = if bias > 0.0 { format!(", biases {bias}") } else { String::new() };
        let others = block.others.iter().map(|(formula, values)| format!("{formula} = {values}"));
        let linears = Some(linears_text(&block.linears)).filter(|text| !text.is_empty());
        let linears = linears.into_iter().chain(others).collect::<Vec<_>>().join(" + ");
        term(
            block.name,
            2.0 * rows as f64 * used * one * passes,
            passes * (read * (one * bits + bias * weights.other_bits) + block.vectors * weights.other_bits)
                / 8.0,
            format!(
                "2 x {rows} tokens x {chosen}{}{layers} layers x ({linears}){bias_text}; {of_experts}",
                self.passes_text(),
            ),
        )
    }

    fn block(&self, block: &Block, layers: u64, terms: &mut Vec<Term>) {
        if block.products() + block.vectors > 0.0 {
            terms.push(self.products(block, layers, self.tokens));
        }
        let passes = self.passes as f64 * layers as f64;
        if block.state > 0.0 {
            let moved = (self.heads + self.resumed) as f64;
            terms.push(term(
                "recurrent state",
                4.0 * passes * self.tokens as f64 * block.state,
                passes * moved * block.state * self.architecture.dtype.bits() / 8.0,
                format!(
                    "4 x {}{} tokens x {layers} layers x {} values",
                    self.passes_text(),
                    self.tokens,
                    block.state
                ),
            ));
        }
        let Some(attention) = block.pairs.filter(|_| self.sequences > 0) else {
            return;
        };
        let added = self.added as f64 * self.passes as f64;
        let tokens = self.added.saturating_mul(self.passes);
        let pairs = looked_at(self.first_look, tokens, attention.window);
        // A prefill writes what it computes; a step of decode reads what was there before and writes its own.
        let read_back = if self.first_look > 1 { pairs - added } else { 0.0 };
        let cached = (pairs, read_back, added);
        terms.push(self.architecture.cache_term(layers, &attention, Some(self.sequences), cached));
    }

    fn norms(&self) -> Term {
        let decoder = &self.architecture.decoder;
        let layers = decoder.groups.iter().map(|group| group.count as f64 * group.norms).sum::<f64>();
        let values = (layers + decoder.final_norm) * self.passes as f64;
        let how = format!("{}{} values", self.passes_text(), layers + decoder.final_norm);
        term("norms", 0.0, values * self.architecture.weights.other_bits / 8.0, how)
    }
}

/// Pairs of tokens that attention looks at, and tokens of the cache that it reads and writes, in all steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cached {
    pairs: f64,
    read: f64,
    written: f64,
    /// The lengths of the sequences that generate are unknown: their cache is left out.
    lengths_unknown: bool,
    /// Prompts are taken to be of equal length and alone in the cache.
    equal_prompts: bool,
}

impl Architecture {
    /// Sums the work of engine steps. Matrix products follow from the tokens exactly; attention is the least that the names allow.
    ///
    /// # Errors
    /// Fails where a name does not give its tokens.
    pub fn engine_work(&self, stage: &str, steps: &[EngineStep]) -> Result<StageWork, NotKnown> {
        let mut sizes: BTreeMap<(u64, u64, u64), u64> = BTreeMap::new();
        let mut tokens_in_all = 0u64;
        for step in steps {
            let (context, generation) = step
                .context
                .tokens
                .zip(step.generation.tokens)
                .ok_or("the step names do not give the number of tokens")?;
            let tokens = context.saturating_add(generation);
            let prompts = step.context.requests.unwrap_or(1).min(context);
            *sizes.entry((tokens, prompts.saturating_add(generation), generation)).or_default() += 1;
            tokens_in_all = tokens_in_all.saturating_add(tokens);
        }
        let mut terms: Vec<Term> = Vec::new();
        for (&(tokens, heads, resumed), &passes) in &sizes {
            // Attention over the cache differs from step to step.
            let pass = Pass {
                architecture: self,
                tokens,
                passes,
                sequences: 0,
                added: 0,
                first_look: 1,
                heads,
                resumed,
            };
            let size_terms = pass.terms();
            if terms.is_empty() {
                terms = size_terms;
                continue;
            }
            for (sum, size_terms) in terms.iter_mut().zip(size_terms) {
                sum.flops += size_terms.flops;
                sum.bytes += size_terms.bytes;
            }
        }
        for term in terms.iter_mut().filter(|_| sizes.len() > 1) {
            term.how = format!(
                "{} steps with {tokens_in_all} tokens in all, added up by size; the smallest: {}",
                steps.len(),
                term.how
            );
        }
        let mut left_out = Cached::default();
        for group in &self.decoder.groups {
            for attention in group.blocks.iter().filter_map(|block| block.pairs.as_ref()) {
                let cached = Cached::in_steps(steps, attention.window);
                left_out.lengths_unknown |= cached.lengths_unknown;
                left_out.equal_prompts |= cached.equal_prompts;
                let cached = (cached.pairs, cached.read, cached.written);
                terms.push(self.cache_term(group.count, attention, None, cached));
            }
        }
        let mut assumptions = self.common_assumptions();
        assumptions.extend(that_hold([
            (
                true,
                "each step reads every weight it uses once; the output head is computed for the last token of each prompt and for \
                 every generated token",
            ),
            (
                left_out.lengths_unknown,
                "the step names do not give the length of the sequences that generate: attention over their cache is left out, so \
                 FLOPs and bytes are lower bounds",
            ),
            (
                left_out.equal_prompts,
                "attention of prompts is the least that their tokens allow: prompts of a step of equal length, nothing of them in \
                 the cache before",
            ),
            (
                self.vision.is_some(),
                "the vision part is left out: step names do not tell the number of images",
            ),
        ]));
        Ok(StageWork::new(stage, terms, Some(steps.len() as u64), assumptions))
    }
}

impl Cached {
    fn in_steps(steps: &[EngineStep], window: Option<u64>) -> Self {
        let mut sum = Self::default();
        for step in steps {
            sum.add_context(step, window);
            sum.add_generation(step, window);
        }
        sum
    }

    /// Adds the prompts of a step.
    fn add_context(&mut self, step: &EngineStep, window: Option<u64>) {
        let tokens = step.context.tokens.unwrap_or(0);
        if tokens == 0 {
            return;
        }
        let requests = step.context.requests.unwrap_or(1).clamp(1, tokens);
        let equal = requests as f64 * looked_at(1, tokens / requests, window);
        // Each new token looks at its sequence, less the new tokens after it.
        let triangle = |n: u64| n as f64 * (n as f64 - 1.0) / 2.0;
        let by_lengths = step.context.query_key_pairs.filter(|_| window.is_none());
        let by_lengths = by_lengths.map(|pairs| pairs as f64 - triangle(tokens));
        self.equal_prompts |= by_lengths.is_none() || requests > 1;
        self.pairs += by_lengths.map_or(equal, |pairs| pairs.max(equal));
        self.written += tokens as f64;
        let lengths = step.context.sequence_tokens.filter(|_| window.is_none());
        self.read += lengths.map_or(0.0, |lengths| lengths.saturating_sub(tokens) as f64);
    }

    /// Adds the requests of a step that generate.
    fn add_generation(&mut self, step: &EngineStep, window: Option<u64>) {
        let tokens = step.generation.tokens.unwrap_or(0);
        if tokens == 0 {
            return;
        }
        self.written += tokens as f64;
        let one_each = step.generation.requests == Some(tokens);
        let lengths = step.generation.sequence_tokens;
        match lengths.filter(|lengths| one_each && window.is_none() && *lengths >= tokens) {
            Some(lengths) => {
                self.pairs += lengths as f64;
                self.read += (lengths - tokens) as f64;
            }
            None => self.lengths_unknown = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::preset;
    use crate::model::work::{DecodeInput, PrefillInput};

    #[test]
    fn pairs_are_the_sum_over_tokens() {
        for (first, count, window) in
            [(1, 5, None), (7, 3, None), (1, 10, Some(4)), (9, 3, Some(4)), (3, 4, Some(4)), (1, 0, Some(4))]
        {
            let slow: u64 = (first..first + count).map(|n| window.map_or(n, |w| n.min(w))).sum();
            assert_eq!(looked_at(first, count, window), slow as f64, "{first} {count} {window:?}");
        }
    }

    #[test]
    fn distinct_experts_grows_from_k_to_all() {
        assert!((distinct_experts(64, 6, 1) - 6.0).abs() < 1e-9);
        // Two tokens: 12 less the 6 x 6 / 64 expected in common.
        assert!((distinct_experts(64, 6, 2) - (12.0 - 36.0 / 64.0)).abs() < 1e-9);
        assert!((distinct_experts(64, 6, 10_000) - 64.0).abs() < 1e-9);
        assert_eq!(distinct_experts(0, 0, 5), 0.0);
        assert_eq!(distinct_experts(4, 8, 1), 4.0);
    }

    fn steps(names: &[&str]) -> Vec<EngineStep> {
        let parse = |name: &&str| EngineStep::parse(name).unwrap();
        names.iter().map(parse).collect()
    }

    fn flops_of(work: &StageWork, cache: bool) -> f64 {
        let of = |term: &&Term| (term.name == "attention over the cache") == cache;
        work.terms.iter().filter(of).map(|term| term.flops).sum()
    }

    #[test]
    fn one_prompt_is_the_prefill_of_that_prompt() {
        for name in ["llama3_8b", "qwen3_30b_a3b"] {
            let model = preset(name).unwrap();
            let engine =
                model.engine_work("prefill", &steps(&["execute_context_1(512)_generation_0(0)"])).unwrap();
            let prefill = model.prefill(&PrefillInput { batch: 1, prompt: 512, views: Vec::new() });
            assert_eq!(engine.flops(), prefill.flops(), "{name}");
            assert_eq!(engine.moved_bytes(), prefill.moved_bytes(), "{name}");
        }
    }

    #[test]
    fn generating_steps_have_the_products_of_decode_and_no_cache() {
        let model = preset("qwen3_30b_a3b").unwrap();
        let name = "execute_context_0(0)_generation_4(4)";
        let engine = model.engine_work("decode", &steps(&[name, name, name])).unwrap();
        let decode = model.decode(&DecodeInput { batch: 4, context: 100, steps: 3 });
        assert_eq!(flops_of(&engine, false), flops_of(&decode, false));
        assert_eq!(flops_of(&engine, true), 0.0);
        assert!(engine.moved_bytes() < decode.moved_bytes());
        assert!(engine.assumptions.iter().any(|text| text.contains("left out")));
        assert_eq!(engine.steps, Some(3));
    }

    #[test]
    fn steps_of_several_sizes_add_up() {
        let model = preset("qwen3_30b_a3b").unwrap();
        let names = ["execute_context_0(0)_generation_4(4)", "execute_context_2(300)_generation_3(3)"];
        let each: f64 =
            names.iter().map(|name| model.engine_work("x", &steps(&[name])).unwrap().flops()).sum();
        let both = model.engine_work("x", &steps(&names)).unwrap();
        assert!((both.flops() / each - 1.0).abs() < 1e-12);
        assert!(both.terms[0].how.starts_with("2 steps with 307 tokens"), "{:?}", both.terms[0]);
    }

    #[test]
    fn tokens_that_no_name_gives_are_a_reason() {
        let model = preset("llama3_8b").unwrap();
        let mut unknown = steps(&["execute_context_0(0)_generation_4(4)"]);
        unknown[0].generation.tokens = None;
        let why = model.engine_work("decode", &unknown).unwrap_err().to_string();
        assert!(why.contains("step names"), "{why}");
    }

    #[test]
    fn known_lengths_are_counted() {
        let model = preset("llama3_8b").unwrap();
        let mut known = steps(&["execute_context_0(0)_generation_4(4)"]);
        known[0].generation.sequence_tokens = Some(404);
        let engine = model.engine_work("decode", &known).unwrap();
        let decode = model.decode(&DecodeInput { batch: 4, context: 100, steps: 1 });
        assert_eq!(engine.flops(), decode.flops());
        assert_eq!(engine.moved_bytes(), decode.moved_bytes());
        assert!(!engine.assumptions.iter().any(|text| text.contains("left out")));
    }
}
