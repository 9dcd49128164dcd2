//! The work of the steps of a serving engine, from the requests and tokens in their names.

use super::decoder::{Pass, looked_at};
use super::{StageWork, Term, that_hold};
use crate::engines::EngineStep;
use crate::model::Architecture;
use crate::result::NotKnown;
use std::collections::BTreeMap;

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
        let mut sizes: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut tokens_in_all = 0u64;
        for step in steps {
            let (context, generation) = step
                .context
                .tokens
                .zip(step.generation.tokens)
                .ok_or("the step names do not give the number of tokens")?;
            let tokens = context.saturating_add(generation);
            let prompts = step.context.requests.unwrap_or(1).min(context);
            *sizes.entry((tokens, prompts.saturating_add(generation))).or_default() += 1;
            tokens_in_all = tokens_in_all.saturating_add(tokens);
        }
        let mut terms: Vec<Term> = Vec::new();
        for (&(tokens, heads), &passes) in &sizes {
            // Attention over the cache differs from step to step.
            let pass =
                Pass { architecture: self, tokens, passes, sequences: 0, added: 0, first_look: 1, heads };
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
            let cached = Cached::in_steps(steps, group.attention.window());
            left_out.lengths_unknown |= cached.lengths_unknown;
            left_out.equal_prompts |= cached.equal_prompts;
            terms.push(self.cache_term(group, None, (cached.pairs, cached.read, cached.written)));
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
