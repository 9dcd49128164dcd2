//! The work of a model from its architecture: FLOPs and bytes, term by term.
//!
//! `config` reads a Hugging Face `config.json` (or a preset) into an [`Architecture`], `work` adds
//! up the work of a prefill or a decode, `utilisation` divides it by what the device can do in the time (MFU and MBU).

mod config;
mod utilisation;
mod work;

pub use config::{UnknownModel, preset, preset_config, preset_names};
pub(crate) use utilisation::WorkFacts;
pub use work::{Tokens, View};
pub(crate) use work::{distinct_experts, unknown_tokens};

use crate::gpu::Dtype;

/// A whole model.
#[derive(Debug, Clone, PartialEq)]
pub struct Architecture {
    /// Name for the reader.
    name: String,
    /// Format of activations, and of the matrix products.
    pub(crate) dtype: Dtype,
    /// Storage of the weights.
    weights: WeightFormat,
    /// The language model.
    pub(crate) decoder: Decoder,
    /// The vision part, where there is one.
    vision: Option<Vision>,
    /// Assumptions where the configuration is silent.
    assumptions: Vec<String>,
    /// Replicas of the other layers that share one set of experts.
    replicas: u32,
}

impl Architecture {
    /// Returns the name for the reader.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the model with its experts divided among the ranks of several replicas of the other layers.
    pub fn with_replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas.max(1);
        self
    }

    /// Returns the model with its weights in a number format. One of fewer than 16 bits is that of the layers alone, and activations stay.
    pub fn with_dtype(mut self, dtype: Dtype) -> Self {
        let bits = dtype.bits();
        (self.weights.linear_bits, self.weights.expert_bits) = (bits, bits);
        if bits >= 16.0 {
            (self.dtype, self.weights.other_bits) = (dtype, bits);
            self.weights.how = format!("all weights in {dtype}, as stated");
        } else {
            self.weights.how = format!("layers in {dtype}, as stated, the rest in {}", self.dtype);
        }
        self
    }
}

/// Bits that a stored weight takes, by kind of weight.
#[derive(Debug, Clone, PartialEq)]
struct WeightFormat {
    /// Attention and dense MLP matrices of the decoder.
    linear_bits: f64,
    /// Routed experts.
    expert_bits: f64,
    /// Embedding, output head, norms, biases, router and the vision part.
    other_bits: f64,
    /// In words.
    how: String,
}

/// The language model: embedding, layers, output head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoder {
    /// Rows of the embedding.
    pub vocab: u64,
    /// Width of the hidden state.
    pub hidden: u64,
    /// True if the output head is the embedding.
    pub tied: bool,
    /// Layers, those of one shape together.
    pub groups: Vec<LayerGroup>,
}

/// Layers of one shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerGroup {
    /// Number of layers.
    pub count: u64,
    /// Their attention.
    pub attention: Attention,
    /// Their feed-forward part.
    pub mlp: Mlp,
    /// Norm vectors of the hidden width in a layer.
    pub norms: u64,
}

/// Attention of a layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Attention {
    /// Multi-head or grouped-query attention.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key and value heads.
        kv_heads: u64,
        /// Width of a head.
        head_dim: u64,
        /// Biases on the query, key and value projections.
        qkv_bias: bool,
        /// Bias on the output projection.
        output_bias: bool,
        /// A norm of the head width on queries and on keys.
        qk_norm: bool,
        /// A learned sink for each head.
        sinks: bool,
        /// Tokens that a token can look back on.
        window: Option<u64>,
    },
    /// Multi-head latent attention: keys and values are kept as one compressed vector.
    Latent {
        /// Query heads.
        heads: u64,
        /// Rank of the compressed query.
        q_rank: Option<u64>,
        /// Rank of the compressed keys and values.
        kv_rank: u64,
        /// Width of a head without positions.
        nope_dim: u64,
        /// Width of a head that carries positions.
        rope_dim: u64,
        /// Width of a value head.
        v_dim: u64,
    },
}

/// Feed-forward part of a layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mlp {
    /// One feed-forward network for every token.
    Dense {
        /// Inner width.
        inner: u64,
        /// Biases on all of them.
        bias: bool,
    },
    /// A mixture of experts.
    Experts(Experts),
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Experts {
    /// Experts to choose from.
    pub routed: u64,
    /// Experts a token goes through.
    pub per_token: u64,
    /// Inner width of a routed expert.
    pub inner: u64,
    /// Inner width of the shared experts together (0 without).
    pub shared_inner: u64,
    /// A gate on the shared expert.
    pub shared_gate: bool,
    /// Biases in the experts.
    pub bias: bool,
    /// Bias (or correction) of the router.
    pub router_bias: bool,
}

/// A matrix product of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Linear {
    /// Name in the model.
    name: &'static str,
    /// Inputs.
    inputs: u64,
    /// Outputs.
    outputs: u64,
    /// True if it adds a bias.
    bias: bool,
}

impl Linear {
    fn new(name: &'static str, inputs: u64, outputs: u64, bias: bool) -> Self {
        Self { name, inputs, outputs, bias }
    }
}

/// Lists the four projections of attention, by the widths of all query heads and of all key heads.
fn projections(hidden: u64, queries: u64, keys: u64, qkv_bias: bool, output_bias: bool) -> Vec<Linear> {
    vec![
        Linear::new("q", hidden, queries, qkv_bias),
        Linear::new("k", hidden, keys, qkv_bias),
        Linear::new("v", hidden, keys, qkv_bias),
        Linear::new("o", queries, hidden, output_bias),
    ]
}

impl Attention {
    /// The projections of one layer.
    fn linears(&self, hidden: u64) -> Vec<Linear> {
        match *self {
            Self::Grouped { heads, kv_heads, head_dim, qkv_bias, output_bias, .. } => {
                projections(hidden, heads * head_dim, kv_heads * head_dim, qkv_bias, output_bias)
            }
            Self::Latent { heads, q_rank, kv_rank, nope_dim, rope_dim, v_dim } => {
                let queries = heads * (nope_dim + rope_dim);
                let mut linears = match q_rank {
                    Some(rank) => vec![
                        Linear::new("q_a", hidden, rank, false),
                        Linear::new("q_b", rank, queries, false),
                    ],
                    None => vec![Linear::new("q", hidden, queries, false)],
                };
                linears.extend([
                    Linear::new("kv_a", hidden, kv_rank + rope_dim, false),
                    Linear::new("kv_b", kv_rank, heads * (nope_dim + v_dim), false),
                    Linear::new("o", heads * v_dim, hidden, false),
                ]);
                linears
            }
        }
    }

    /// Small vectors of one layer: norms inside attention, sinks.
    fn vectors(&self) -> f64 {
        match *self {
            Self::Grouped { heads, head_dim, qk_norm, sinks, .. } => {
                let norms = if qk_norm { 2.0 * head_dim as f64 } else { 0.0 };
                norms + if sinks { heads as f64 } else { 0.0 }
            }
            Self::Latent { q_rank, kv_rank, .. } => (q_rank.unwrap_or(0) + kv_rank) as f64,
        }
    }

    /// Values kept in the cache for a token, in one layer.
    fn cached_values(&self) -> u64 {
        match *self {
            Self::Grouped { kv_heads, head_dim, .. } => 2 * kv_heads * head_dim,
            Self::Latent { kv_rank, rope_dim, .. } => kv_rank + rope_dim,
        }
    }

    /// Width of all query heads and of all value heads: what a pair of tokens costs.
    fn pair_widths(&self) -> (u64, u64) {
        match *self {
            Self::Grouped { heads, head_dim, .. } => (heads * head_dim, heads * head_dim),
            Self::Latent { heads, nope_dim, rope_dim, v_dim, .. } => {
                (heads * (nope_dim + rope_dim), heads * v_dim)
            }
        }
    }

    /// Returns the number of tokens that a token attends to, where that is bounded.
    fn window(&self) -> Option<u64> {
        match *self {
            Self::Grouped { window, .. } => window,
            Self::Latent { .. } => None,
        }
    }
}

/// The projections of a feed-forward network.
fn feed_forward(hidden: u64, inner: u64, gated: bool, bias: bool) -> Vec<Linear> {
    let mut linears = Vec::with_capacity(3);
    if gated {
        linears.push(Linear::new("gate", hidden, inner, bias));
    }
    linears.push(Linear::new("up", hidden, inner, bias));
    linears.push(Linear::new("down", inner, hidden, bias));
    linears
}

/// The vision part of a model.
#[derive(Debug, Clone, PartialEq)]
struct Vision {
    /// Encoders, in the order an image goes through them.
    towers: Vec<Tower>,
    /// Matrix products from the encoders to the decoder's width; none where the configuration does not say.
    projector: Vec<Linear>,
    /// Side of an image in pixels unless the run says otherwise.
    image_size: u64,
}

/// One vision encoder: a vision transformer (CLIP, SigLIP, ViT), Segment Anything's with its windows and its neck, or a
/// language-model-like one over the features of the tower before it and learned queries (DeepSeek-OCR-2).
#[derive(Debug, Clone, PartialEq, Default)]
struct Tower {
    /// Name for the reader.
    name: &'static str,
    /// Width.
    hidden: u64,
    /// Layers.
    layers: u64,
    /// Heads.
    heads: u64,
    /// Key and value heads.
    kv_heads: u64,
    /// Inner width of the feed-forward part.
    inner: u64,
    /// True for layers like those of a language model: a gated feed-forward part, norms and an output without bias.
    gated: bool,
    /// Biases on the query, key and value projections.
    qkv_bias: bool,
    /// Side of a patch in pixels; 0: it takes the features of the tower before it.
    patch: u64,
    /// A class token before the patches.
    class_token: bool,
    /// Sizes of the learned query tables that its features come from, smallest first; empty: from its patches.
    queries: Vec<u64>,
    /// Learned positions (0 without).
    positions: u64,
    /// Other vectors of its width: a bias of the patches, a last norm.
    vectors: u64,
    /// Side of an attention window in patches.
    window: u64,
    /// Layers that attend within windows.
    windowed_layers: u64,
    /// Relative position tables in every layer.
    relative_positions: bool,
    /// Channels of the neck (0 without).
    neck: u64,
    /// Channels of the strided convolutions after the neck.
    downsample: Vec<u64>,
}

fn linears_text(linears: &[Linear]) -> String {
    linears.iter().map(|l| format!("{} {}x{}", l.name, l.inputs, l.outputs)).collect::<Vec<_>>().join(" + ")
}

fn matrices(linears: &[Linear]) -> f64 {
    linears.iter().map(|linear| linear.inputs as f64 * linear.outputs as f64).sum()
}

fn biases(linears: &[Linear]) -> f64 {
    linears.iter().filter(|linear| linear.bias).map(|linear| linear.outputs as f64).sum()
}

fn router_values(experts: &Experts, hidden: u64) -> f64 {
    let bias = if experts.router_bias { experts.routed as f64 } else { 0.0 };
    hidden as f64 * experts.routed as f64 + bias
}

impl Tower {
    /// Patches on a side of an image of this many pixels.
    fn grid(&self, image_size: u64) -> u64 {
        image_size / self.patch.max(1)
    }

    /// Width of its features.
    fn width(&self) -> u64 {
        let neck = Some(self.neck).filter(|neck| *neck > 0);
        self.downsample.last().copied().or(neck).unwrap_or(self.hidden)
    }

    /// Returns the products of attention and of the feed-forward part of a layer.
    fn linears(&self) -> (Vec<Linear>, Vec<Linear>) {
        let keys = self.hidden * self.kv_heads / self.heads.max(1);
        let attention = projections(self.hidden, self.hidden, keys, self.qkv_bias, !self.gated);
        (attention, feed_forward(self.hidden, self.inner, self.gated, !self.gated))
    }

    /// Returns the weights of the neck, by the shrinking of the grid before each: a narrow layer and a convolution, then strided ones.
    fn convolutions(&self) -> Vec<(u32, f64)> {
        let nine = |inputs: u64, outputs: u64| 9.0 * inputs as f64 * outputs as f64;
        let mut all = Vec::new();
        let mut inputs = self.hidden;
        if self.neck > 0 {
            all.push((0, self.hidden as f64 * self.neck as f64 + nine(self.neck, self.neck)));
            inputs = self.neck;
        }
        for (halvings, outputs) in (1..).zip(&self.downsample) {
            all.push((halvings, nine(inputs, *outputs)));
            inputs = *outputs;
        }
        all
    }
}

#[cfg(test)]
mod tests;
