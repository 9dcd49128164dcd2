//! The work of the language model: prefill of a prompt, steps of decode.

use super::vision::View;
use super::{StageWork, Term, term, that_hold};
use crate::model::{
    Architecture, Attention, Experts, LayerGroup, Linear, Mlp, biases, feed_forward, linears_text, matrices,
    router_values,
};

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
        };
        let once = "each decode step reads every weight it uses once and the whole cache once";
        StageWork::new("decode", pass.terms(), Some(input.steps), self.common_assumptions())
            .noting(Some(once.to_owned()))
    }

    pub(super) fn common_assumptions(&self) -> Vec<String> {
        let any = |holds: fn(&LayerGroup) -> bool| self.decoder.groups.iter().any(holds);
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
                true,
                "bytes that must move are weights and the cache of keys and values; activations are taken to stay on chip",
            ),
            (
                any(|group| matches!(group.mlp, Mlp::Experts(_))),
                "tokens choose experts at random and independently: n tokens touch E x (1 - (1 - k/E)^n) of E experts",
            ),
            (
                self.replicas > 1,
                "every replica sends as many tokens to the experts as this one, and each rank gets an even share",
            ),
            (
                any(|group| matches!(group.attention, Attention::Latent { .. })),
                "the cache holds the compressed keys and values; an implementation that caches them expanded moves more",
            ),
        ]));
        assumptions
    }

    /// The term of attention over the cache in layers of one shape: the pairs of tokens that it looks at, and the tokens of the cache
    /// that it reads and writes, for each of a number of sequences or for all.
    pub(super) fn cache_term(
        &self,
        group: &LayerGroup,
        sequences: Option<u64>,
        (pairs, read, written): (f64, f64, f64),
    ) -> Term {
        let (keys, values) = group.attention.pair_widths();
        let cached = group.attention.cached_values();
        let value_bytes = self.dtype.bits() / 8.0;
        let layers = group.count as f64 * sequences.map_or(1.0, |sequences| sequences as f64);
        let each = sequences.map_or_else(String::new, |sequences| format!("{sequences} sequences x "));
        let window = group.attention.window().filter(|_| sequences.is_some());
        let window = window.map_or_else(String::new, |window| format!(", at most {window} back"));
        term(
            "attention over the cache",
            2.0 * layers * pairs * (keys + values) as f64,
            layers * ((read + written) * cached as f64) * value_bytes,
            format!(
                "2 x {} layers x {each}{pairs} pairs of tokens x ({keys} + {values}){window}; cache: {cached} values of {value_bytes} \
                 bytes a token and layer, {read} tokens read, {written} written",
                group.count
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
            rows * decoder.hidden as f64 * (weights.other_bits / 8.0),
            format!("{}{} rows of {}", self.passes_text(), self.tokens, decoder.hidden),
        )];
        for group in &decoder.groups {
            self.attention(group, &mut terms);
            match &group.mlp {
                Mlp::Dense { inner, bias } => {
                    let linears = feed_forward(decoder.hidden, *inner, true, *bias);
                    terms.push(self.products(
                        "dense feed-forward",
                        group.count,
                        &linears,
                        self.tokens,
                        weights.linear_bits,
                    ));
                }
                Mlp::Experts(experts) => self.experts(experts, group.count, &mut terms),
            }
        }
        terms.push(self.norms());
        let head = [Linear::new("output head", decoder.hidden, decoder.vocab, false)];
        let mut head = self.products("output head", 1, &head, self.heads, weights.other_bits);
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
    fn products(&self, name: &str, layers: u64, linears: &[Linear], rows: u64, bits: f64) -> Term {
        let passes = self.passes as f64 * layers as f64;
        let (values, bias) = (matrices(linears), biases(linears));
        let bias_text = if bias > 0.0 { format!(", biases {bias}") } else { String::new() };
        term(
            name,
            2.0 * rows as f64 * values * passes,
            passes * (values * bits + bias * self.architecture.weights.other_bits) / 8.0,
            format!(
                "2 x {rows} tokens x {}{layers} layers x ({}){bias_text}; weights at {bits} bits read once a pass",
                self.passes_text(),
                linears_text(linears)
            ),
        )
    }

    fn attention(&self, group: &LayerGroup, terms: &mut Vec<Term>) {
        let weights = &self.architecture.weights;
        let linears = group.attention.linears(self.architecture.decoder.hidden);
        let mut projections =
            self.products("attention projections", group.count, &linears, self.tokens, weights.linear_bits);
        let vectors = group.attention.vectors() * weights.other_bits / 8.0;
        projections.bytes += vectors * group.count as f64 * self.passes as f64;
        terms.push(projections);
        if self.sequences > 0 {
            let added = self.added as f64 * self.passes as f64;
            let tokens = self.added.saturating_mul(self.passes);
            let pairs = looked_at(self.first_look, tokens, group.attention.window());
            // A prefill writes what it computes; a step of decode reads what was there before and writes its own.
            let read_back = if self.first_look > 1 { pairs - added } else { 0.0 };
            let cached = (pairs, read_back, added);
            terms.push(self.architecture.cache_term(group, Some(self.sequences), cached));
        }
    }

    fn experts(&self, experts: &Experts, layers: u64, terms: &mut Vec<Term>) {
        let hidden = self.architecture.decoder.hidden;
        let weights = &self.architecture.weights;
        let linears = feed_forward(hidden, experts.inner, true, experts.bias);
        let passes = self.passes as f64 * layers as f64;
        let one = matrices(&linears);
        let one_bytes = (one * weights.expert_bits + biases(&linears) * weights.other_bits) / 8.0;
        // The experts of a rank get tokens of all replicas, and a rank has that much fewer of them.
        let replicas = self.architecture.replicas;
        let tokens = self.tokens.saturating_mul(replicas.into());
        let touched = distinct_experts(experts.routed, experts.per_token, tokens) / f64::from(replicas);
        let chosen = experts.per_token as f64 * self.tokens as f64;
        terms.push(term(
            "routed experts",
            2.0 * passes * chosen * one,
            passes * touched * one_bytes,
            format!(
                "2 x {} tokens x {} experts x {}{layers} layers x ({}); {touched:.2} of {} experts read a pass, {} bits a weight",
                self.tokens,
                experts.per_token,
                self.passes_text(),
                linears_text(&linears),
                experts.routed,
                weights.expert_bits
            ),
        ));
        if experts.shared_inner > 0 {
            let shared = feed_forward(hidden, experts.shared_inner, true, false);
            let mut term = self.products("shared experts", layers, &shared, self.tokens, weights.linear_bits);
            if experts.shared_gate {
                term.flops += 2.0 * self.tokens as f64 * passes * hidden as f64;
                term.bytes += passes * hidden as f64 * weights.other_bits / 8.0;
            }
            terms.push(term);
        }
        let router = [Linear::new("router", hidden, experts.routed, experts.router_bias)];
        let mut term = self.products("router", layers, &router, self.tokens, weights.other_bits);
        term.bytes = passes * router_values(experts, hidden) * weights.other_bits / 8.0;
        terms.push(term);
    }

    fn norms(&self) -> Term {
        let decoder = &self.architecture.decoder;
        let vectors: u64 = decoder.groups.iter().map(|group| group.count * group.norms).sum::<u64>() + 1;
        let values = vectors as f64 * decoder.hidden as f64 * self.passes as f64;
        let how = format!("{}{vectors} vectors of {}", self.passes_text(), decoder.hidden);
        term("norms", 0.0, values * self.architecture.weights.other_bits / 8.0, how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
