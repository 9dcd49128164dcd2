//! The work of the language model: prefill of a prompt, steps of decode.

use super::vision::View;
use super::{StageWork, Term};
use crate::model::architecture::{Architecture, Experts, LayerGroup, Linear, Mlp, feed_forward};
use crate::model::matrices::{biases, linears_text, matrices, router_values};

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
    architecture: &'a Architecture,
    /// Tokens of one pass, all sequences together.
    tokens: u64,
    /// Passes; each reads the weights once.
    passes: u64,
    /// Sequences of a pass; 0 leaves out attention over the cache.
    sequences: u64,
    /// Tokens that one sequence adds in a pass.
    added: u64,
    /// Tokens looked at by the first token of a sequence in the first pass.
    first_look: u64,
    /// Positions of a pass for which the output head is computed.
    heads: u64,
}

impl Architecture {
    /// The work of a prefill, with the vision part where there are images.
    pub fn prefill(&self, input: &PrefillInput) -> StageWork {
        let tokens = input.batch.saturating_mul(input.prompt);
        let mut assumptions = self.common_assumptions();
        assumptions
            .push("prefill computes the output head for the last token of each sequence only".to_owned());
        let mut terms = Vec::new();
        if let Some(vision) = &self.vision
            && !input.views.is_empty()
        {
            self.vision_terms(vision, &input.views, input.batch, &mut terms);
        }
        let pass = Pass {
            architecture: self,
            tokens,
            passes: 1,
            sequences: input.batch,
            added: input.prompt,
            first_look: 1,
            heads: input.batch,
        };
        pass.terms(&mut terms);
        StageWork { terms, steps: None, devices: 1, assumptions }
    }

    /// The work of steps of decode.
    pub fn decode(&self, input: &DecodeInput) -> StageWork {
        let mut terms = Vec::new();
        let pass = Pass {
            architecture: self,
            tokens: input.batch,
            passes: input.steps,
            sequences: input.batch,
            added: 1,
            first_look: input.context.saturating_add(1),
            heads: input.batch,
        };
        pass.terms(&mut terms);
        let mut assumptions = self.common_assumptions();
        assumptions
            .push("each decode step reads every weight it uses once and the whole cache once".to_owned());
        StageWork { terms, steps: Some(input.steps), devices: 1, assumptions }
    }

    pub(crate) fn common_assumptions(&self) -> Vec<String> {
        let mut assumptions = self.assumptions.clone();
        assumptions.push(format!("weights: {}; cache and activations in {}", self.weights.how, self.dtype));
        assumptions.push(
            "matrix products and attention are counted, a multiply-add as two; norms, softmax, positions and activation \
             functions are not"
                .to_owned(),
        );
        assumptions.push("attention is causal: a token looks at itself and those before it".to_owned());
        assumptions.push(
            "bytes that must move are weights and the cache of keys and values; activations are taken to stay on chip"
                .to_owned(),
        );
        let groups = &self.decoder.groups;
        if groups.iter().any(|group| matches!(group.mlp, Mlp::Experts(_))) {
            assumptions.push(
                "tokens choose experts at random and independently: n tokens touch E x (1 - (1 - k/E)^n) of E experts"
                    .to_owned(),
            );
        }
        if groups.iter().any(|g| matches!(g.attention, crate::model::Attention::Latent { .. })) {
            assumptions.push(
                "the cache holds the compressed keys and values; an implementation that caches them expanded moves more"
                    .to_owned(),
            );
        }
        assumptions
    }
}

impl<'a> Pass<'a> {
    /// Describes steps of an engine with a number of tokens and of rows of the output head, without attention over the cache.
    pub fn of_steps(architecture: &'a Architecture, tokens: u64, heads: u64, steps: u64) -> Self {
        Pass { architecture, tokens, passes: steps, sequences: 0, added: 0, first_look: 1, heads }
    }

    pub fn terms(&self, terms: &mut Vec<Term>) {
        let decoder = &self.architecture.decoder;
        let rows = self.tokens as f64 * self.passes as f64;
        let width = decoder.hidden as f64;
        let other = self.architecture.weights.other_bits / 8.0;
        terms.push(Term {
            name: "embedding".to_owned(),
            flops: 0.0,
            weight_bytes: rows * width * other,
            kv_bytes: 0.0,
            activation_bytes: rows * width * self.value_bytes(),
            how: format!("{}{} rows of {}", self.passes_text(), self.tokens, decoder.hidden),
        });
        for group in &decoder.groups {
            self.attention(group, terms);
            match &group.mlp {
                Mlp::Dense { inner, gated, bias } => {
                    let linears = feed_forward(decoder.hidden, *inner, *gated, *bias);
                    let bits = self.architecture.weights.linear_bits;
                    terms.push(self.products("dense feed-forward", group.count, &linears, bits));
                }
                Mlp::Experts(experts) => self.experts(experts, group.count, terms),
            }
        }
        terms.push(self.norms());
        let head = [Linear::new("output head", decoder.hidden, decoder.vocab, false)];
        let mut term =
            self.products_of("output head", 1, &head, self.heads, self.architecture.weights.other_bits);
        if decoder.tied {
            term.how.push_str(" (the embedding table)");
        }
        terms.push(term);
    }

    fn value_bytes(&self) -> f64 {
        self.architecture.dtype.bits() / 8.0
    }

    fn passes_text(&self) -> String {
        if self.passes == 1 { String::new() } else { format!("{} steps x ", self.passes) }
    }

    fn products(&self, name: &str, layers: u64, linears: &[Linear], bits: f64) -> Term {
        self.products_of(name, layers, linears, self.tokens, bits)
    }

    /// Matrix products over a number of rows in each pass.
    fn products_of(&self, name: &str, layers: u64, linears: &[Linear], rows: u64, bits: f64) -> Term {
        let passes = self.passes as f64 * layers as f64;
        let values = matrices(linears);
        let bias = biases(linears);
        let sides: f64 = linears.iter().map(|l| (l.inputs + l.outputs) as f64).sum();
        let text = linears_text(linears);
        let bias_text = if bias > 0.0 { format!(", biases {bias}") } else { String::new() };
        Term {
            name: name.to_owned(),
            flops: 2.0 * rows as f64 * values * passes,
            weight_bytes: passes * (values * bits + bias * self.architecture.weights.other_bits) / 8.0,
            kv_bytes: 0.0,
            activation_bytes: passes * rows as f64 * sides * self.value_bytes(),
            how: format!(
                "2 x {rows} tokens x {}{layers} layers x ({text}){bias_text}; weights at {bits} bits read once a pass",
                self.passes_text()
            ),
        }
    }

    fn attention(&self, group: &LayerGroup, terms: &mut Vec<Term>) {
        let attention = &group.attention;
        let hidden = self.architecture.decoder.hidden;
        let bits = self.architecture.weights.linear_bits;
        let mut projections =
            self.products("attention projections", group.count, &attention.linears(hidden), bits);
        let vectors = attention.vectors() * self.architecture.weights.other_bits / 8.0;
        projections.weight_bytes += vectors * group.count as f64 * self.passes as f64;
        terms.push(projections);
        if self.sequences == 0 {
            return;
        }

        let (keys, values) = attention.pair_widths();
        let cached = attention.cached_values();
        let window = attention.window();
        let layers = group.count as f64;
        let sequences = self.sequences as f64;
        let added = self.added as f64 * self.passes as f64;
        let pairs = looked_at(self.first_look, self.added.saturating_mul(self.passes), window);
        // A prefill writes what it computes; a step of decode reads what was there before and writes its own.
        let read_back = if self.first_look > 1 { pairs - added } else { 0.0 };
        let cache_values = (read_back + added) * cached as f64;
        let value_bytes = self.value_bytes();
        let window_text = window.map_or_else(String::new, |w| format!(", at most {w} back"));
        terms.push(Term {
            name: "attention over the cache".to_owned(),
            flops: 2.0 * layers * sequences * pairs * (keys + values) as f64,
            weight_bytes: 0.0,
            kv_bytes: layers * sequences * cache_values * value_bytes,
            activation_bytes: layers * sequences * added * (2 * keys + values) as f64 * value_bytes,
            how: format!(
                "2 x {} layers x {} sequences x {pairs} pairs of tokens x ({keys} + {values}){window_text}; cache: {} values \
                 of {value_bytes} bytes a token and layer, {read_back} tokens read, {added} written",
                group.count, self.sequences, cached
            ),
        });
    }

    fn experts(&self, experts: &Experts, layers: u64, terms: &mut Vec<Term>) {
        let hidden = self.architecture.decoder.hidden;
        let weights = &self.architecture.weights;
        let linears = feed_forward(hidden, experts.inner, true, experts.bias);
        let passes = self.passes as f64 * layers as f64;
        let one = matrices(&linears);
        let one_bytes = (one * weights.expert_bits + biases(&linears) * weights.other_bits) / 8.0;
        let touched = distinct_experts(experts.routed, experts.per_token, self.tokens);
        let chosen = experts.per_token as f64 * self.tokens as f64;
        let sides: f64 = linears.iter().map(|l| (l.inputs + l.outputs) as f64).sum();
        terms.push(Term {
            name: "routed experts".to_owned(),
            flops: 2.0 * passes * chosen * one,
            weight_bytes: passes * touched * one_bytes,
            kv_bytes: 0.0,
            activation_bytes: passes * chosen * sides * self.value_bytes(),
            how: format!(
                "2 x {} tokens x {} experts x {}{layers} layers x ({}); {touched:.2} of {} experts read a pass, {} bits a weight",
                self.tokens,
                experts.per_token,
                self.passes_text(),
                linears_text(&linears),
                experts.routed,
                weights.expert_bits
            ),
        });
        if experts.shared_inner > 0 {
            let shared = feed_forward(hidden, experts.shared_inner, true, false);
            let mut term = self.products("shared experts", layers, &shared, weights.linear_bits);
            if experts.shared_gate {
                term.flops += 2.0 * self.tokens as f64 * passes * hidden as f64;
                term.weight_bytes += passes * hidden as f64 * weights.other_bits / 8.0;
            }
            terms.push(term);
        }
        let router = [Linear::new("router", hidden, experts.routed, experts.router_bias)];
        let mut term = self.products("router", layers, &router, weights.other_bits);
        term.weight_bytes = passes * router_values(experts, hidden) * weights.other_bits / 8.0;
        terms.push(term);
    }

    fn norms(&self) -> Term {
        let decoder = &self.architecture.decoder;
        let vectors: u64 = decoder.groups.iter().map(|group| group.count * group.norms).sum::<u64>() + 1;
        let values = vectors as f64 * decoder.hidden as f64 * self.passes as f64;
        Term {
            name: "norms".to_owned(),
            flops: 0.0,
            weight_bytes: values * self.architecture.weights.other_bits / 8.0,
            kv_bytes: 0.0,
            activation_bytes: 2.0 * values * self.tokens as f64 * self.value_bytes(),
            how: format!("{}{vectors} vectors of {}", self.passes_text(), decoder.hidden),
        }
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
