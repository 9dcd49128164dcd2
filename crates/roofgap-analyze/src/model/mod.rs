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
    /// From the encoders to the decoder's width.
    projector: Projector,
    /// Side of an image in pixels unless the run says otherwise.
    image_size: u64,
}

/// One vision encoder.
#[derive(Debug, Clone, PartialEq)]
enum Tower {
    /// Segment Anything's image encoder with its neck.
    Sam(Sam),
    /// A plain vision transformer (CLIP, SigLIP, ViT).
    Vit(Vit),
    /// A language-model-like encoder over patches and learned queries (DeepSeek-OCR-2).
    Encoder(VisionEncoder),
}

/// Segment Anything's image encoder.
#[derive(Debug, Clone, PartialEq)]
struct Sam {
    /// Width.
    hidden: u64,
    /// Layers.
    layers: u64,
    /// Heads.
    heads: u64,
    /// Inner width of the feed-forward part.
    inner: u64,
    /// Side of a patch in pixels.
    patch: u64,
    /// Side of an attention window in patches.
    window: u64,
    /// Layers that attend to the whole image.
    global_layers: u64,
    /// A table of absolute positions.
    absolute_positions: bool,
    /// Relative position tables in every layer.
    relative_positions: bool,
    /// Channels of the neck (0 without).
    neck: u64,
    /// Channels of the strided convolutions after the neck.
    downsample: Vec<u64>,
    /// Biases on the query, key and value projection.
    qkv_bias: bool,
}

/// A plain vision transformer.
#[derive(Debug, Clone, PartialEq)]
struct Vit {
    /// Name for the reader (`clip`, `vit`).
    name: &'static str,
    /// Width.
    hidden: u64,
    /// Layers.
    layers: u64,
    /// Inner width of the feed-forward part.
    inner: u64,
    /// Side of a patch in pixels (0 without a patch embedding).
    patch: u64,
    /// A class token before the patches.
    class_token: bool,
    /// Learned positions (0 without).
    positions: u64,
    /// Takes the features of the tower before it instead of patches of its own.
    fed_by_previous: bool,
}

/// An encoder over patches of the tower before it and learned queries.
#[derive(Debug, Clone, PartialEq)]
struct VisionEncoder {
    /// Width.
    hidden: u64,
    /// Layers.
    layers: u64,
    /// Heads.
    heads: u64,
    /// Key and value heads.
    kv_heads: u64,
    /// Inner width of the gated feed-forward part.
    inner: u64,
    /// Sizes of the learned query tables, smallest first.
    queries: Vec<u64>,
}

/// The projection of vision features to the decoder.
#[derive(Debug, Clone, PartialEq)]
enum Projector {
    /// One matrix product with a bias.
    Linear {
        /// Width of the features.
        inputs: u64,
        /// Width of the decoder.
        outputs: u64,
    },
    /// Two matrix products with biases and an activation between them.
    TwoLayer {
        /// Width of the features.
        inputs: u64,
        /// Width of the decoder.
        outputs: u64,
    },
    /// The configuration does not say.
    Unknown,
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
    /// Width of its features.
    fn width(&self) -> u64 {
        match self {
            Self::Sam(sam) if sam.downsample.is_empty() && sam.neck == 0 => sam.hidden,
            Self::Sam(sam) => sam.downsample.last().copied().unwrap_or(sam.neck),
            Self::Vit(vit) => vit.hidden,
            Self::Encoder(encoder) => encoder.hidden,
        }
    }
}

impl Sam {
    /// Patches on a side of an image of this many pixels.
    fn grid(&self, image_size: u64) -> u64 {
        image_size / self.patch.max(1)
    }

    fn linears(&self) -> Vec<Linear> {
        vec![
            Linear::new("qkv", self.hidden, 3 * self.hidden, self.qkv_bias),
            Linear::new("proj", self.hidden, self.hidden, true),
            Linear::new("lin1", self.hidden, self.inner, true),
            Linear::new("lin2", self.inner, self.hidden, true),
        ]
    }

    /// Input and output channels of each strided convolution after the neck.
    fn downsample_steps(&self) -> Vec<(u64, u64)> {
        let first = if self.neck > 0 { self.neck } else { self.hidden };
        let inputs = std::iter::once(first).chain(self.downsample.iter().copied());
        inputs.zip(self.downsample.iter().copied()).collect()
    }
}

/// Weights of a three by three convolution without bias.
fn conv3x3(inputs: u64, outputs: u64) -> f64 {
    9.0 * inputs as f64 * outputs as f64
}

impl Vit {
    /// Patches of an image of this many pixels a side.
    fn patches(&self, image_size: u64) -> u64 {
        let side = image_size / self.patch.max(1);
        side * side
    }

    fn linears(&self) -> Vec<Linear> {
        let mut linears = vec![
            Linear::new("qkv", self.hidden, 3 * self.hidden, true),
            Linear::new("proj", self.hidden, self.hidden, true),
        ];
        linears.extend(feed_forward(self.hidden, self.inner, false, true));
        linears
    }
}

impl VisionEncoder {
    fn linears(&self) -> Vec<Linear> {
        let head_dim = self.hidden / self.heads.max(1);
        let (queries, keys) = (self.heads * head_dim, self.kv_heads * head_dim);
        let mut linears = projections(self.hidden, queries, keys, true, false);
        linears.extend(feed_forward(self.hidden, self.inner, true, false));
        linears
    }
}

/// Weights and biases of the projector, and how.
fn projector_values(projector: &Projector) -> (f64, String) {
    match *projector {
        Projector::Linear { inputs, outputs } => {
            (inputs as f64 * outputs as f64 + outputs as f64, format!("{inputs} x {outputs} + {outputs}"))
        }
        Projector::TwoLayer { inputs, outputs } => (
            (inputs as f64 + outputs as f64) * outputs as f64 + 2.0 * outputs as f64,
            format!("{inputs} x {outputs} + {outputs} x {outputs} + 2 x {outputs}"),
        ),
        Projector::Unknown => (0.0, "not described by the configuration, left out".to_owned()),
    }
}

#[cfg(test)]
mod tests;
