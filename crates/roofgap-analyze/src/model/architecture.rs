//! The shape of a model: the sizes that its work and its memory traffic follow from.

use crate::gpu::Dtype;
use serde::Serialize;

/// A whole model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Architecture {
    /// Name for the reader.
    pub(crate) name: String,
    /// `model_type` of its configuration.
    pub(crate) model_type: String,
    /// Format of activations, and of the matrix products.
    pub(crate) dtype: Dtype,
    /// Storage of the weights.
    pub(crate) weights: WeightFormat,
    /// The language model.
    pub(crate) decoder: Decoder,
    /// The vision part, where there is one.
    pub(crate) vision: Option<Vision>,
    /// Assumptions where the configuration is silent.
    pub(crate) assumptions: Vec<String>,
}

impl Architecture {
    /// Returns the name for the reader.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Bits that a stored weight takes, by kind of weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WeightFormat {
    /// Attention and dense MLP matrices of the decoder.
    pub(crate) linear_bits: f64,
    /// Routed experts.
    pub(crate) expert_bits: f64,
    /// Embedding, output head, norms, biases, router and the vision part.
    pub(crate) other_bits: f64,
    /// In words.
    pub(crate) how: String,
}

/// The language model: embedding, layers, output head.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decoder {
    /// Rows of the embedding.
    pub(crate) vocab: u64,
    /// Width of the hidden state.
    pub(crate) hidden: u64,
    /// True if the output head is the embedding.
    pub(crate) tied: bool,
    /// Layers, those of one shape together.
    pub(crate) groups: Vec<LayerGroup>,
}

/// Layers of one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerGroup {
    /// Number of layers.
    pub(crate) count: u64,
    /// Their attention.
    pub(crate) attention: Attention,
    /// Their feed-forward part.
    pub(crate) mlp: Mlp,
    /// Norm vectors of the hidden width in a layer.
    pub(crate) norms: u64,
}

/// Attention of a layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Attention {
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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Mlp {
    /// One feed-forward network for every token.
    Dense {
        /// Inner width.
        inner: u64,
        /// Gate and up projection rather than one.
        gated: bool,
        /// Biases on all of them.
        bias: bool,
    },
    /// A mixture of experts.
    Experts(Experts),
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Experts {
    /// Experts to choose from.
    pub(crate) routed: u64,
    /// Experts a token goes through.
    pub(crate) per_token: u64,
    /// Inner width of a routed expert.
    pub(crate) inner: u64,
    /// Inner width of the shared experts together (0 without).
    pub(crate) shared_inner: u64,
    /// A gate on the shared expert.
    pub(crate) shared_gate: bool,
    /// Biases in the experts.
    pub(crate) bias: bool,
    /// Bias (or correction) of the router.
    pub(crate) router_bias: bool,
}

/// A matrix product of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linear {
    /// Name in the model.
    pub(crate) name: &'static str,
    /// Inputs.
    pub(crate) inputs: u64,
    /// Outputs.
    pub(crate) outputs: u64,
    /// True if it adds a bias.
    pub(crate) bias: bool,
}

impl Linear {
    pub(crate) fn new(name: &'static str, inputs: u64, outputs: u64, bias: bool) -> Self {
        Self { name, inputs, outputs, bias }
    }

    /// Weights without the bias.
    pub(crate) fn matrix(&self) -> f64 {
        self.inputs as f64 * self.outputs as f64
    }

    /// Bias values.
    pub(crate) fn bias_values(&self) -> f64 {
        if self.bias { self.outputs as f64 } else { 0.0 }
    }
}

impl Attention {
    /// The projections of one layer.
    pub(crate) fn linears(&self, hidden: u64) -> Vec<Linear> {
        match *self {
            Self::Grouped { heads, kv_heads, head_dim, qkv_bias, output_bias, .. } => vec![
                Linear::new("q", hidden, heads * head_dim, qkv_bias),
                Linear::new("k", hidden, kv_heads * head_dim, qkv_bias),
                Linear::new("v", hidden, kv_heads * head_dim, qkv_bias),
                Linear::new("o", heads * head_dim, hidden, output_bias),
            ],
            Self::Latent { heads, q_rank, kv_rank, nope_dim, rope_dim, v_dim } => {
                let queries = heads * (nope_dim + rope_dim);
                let mut linears = match q_rank {
                    Some(rank) => {
                        vec![
                            Linear::new("q_a", hidden, rank, false),
                            Linear::new("q_b", rank, queries, false),
                        ]
                    }
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
    pub(crate) fn vectors(&self) -> f64 {
        match *self {
            Self::Grouped { heads, head_dim, qk_norm, sinks, .. } => {
                let norms = if qk_norm { 2.0 * head_dim as f64 } else { 0.0 };
                norms + if sinks { heads as f64 } else { 0.0 }
            }
            Self::Latent { q_rank, kv_rank, .. } => (q_rank.unwrap_or(0) + kv_rank) as f64,
        }
    }

    /// Values kept in the cache for a token, in one layer.
    pub(crate) fn cached_values(&self) -> u64 {
        match *self {
            Self::Grouped { kv_heads, head_dim, .. } => 2 * kv_heads * head_dim,
            Self::Latent { kv_rank, rope_dim, .. } => kv_rank + rope_dim,
        }
    }

    /// Width of all query heads and of all value heads: what a pair of tokens costs.
    pub(crate) fn pair_widths(&self) -> (u64, u64) {
        match *self {
            Self::Grouped { heads, head_dim, .. } => (heads * head_dim, heads * head_dim),
            Self::Latent { heads, nope_dim, rope_dim, v_dim, .. } => {
                (heads * (nope_dim + rope_dim), heads * v_dim)
            }
        }
    }

    /// Returns the number of tokens that a token attends to, where that is bounded.
    pub(crate) fn window(&self) -> Option<u64> {
        match *self {
            Self::Grouped { window, .. } => window,
            Self::Latent { .. } => None,
        }
    }
}

/// The projections of a feed-forward network.
pub fn feed_forward(hidden: u64, inner: u64, gated: bool, bias: bool) -> Vec<Linear> {
    let mut linears = Vec::with_capacity(3);
    if gated {
        linears.push(Linear::new("gate", hidden, inner, bias));
    }
    linears.push(Linear::new("up", hidden, inner, bias));
    linears.push(Linear::new("down", inner, hidden, bias));
    linears
}

/// The vision part of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vision {
    /// Encoders, in the order an image goes through them.
    pub(crate) towers: Vec<Tower>,
    /// From the encoders to the decoder's width.
    pub(crate) projector: Projector,
    /// Learned vectors of the decoder's width (line break, view separator).
    pub(crate) loose_vectors: u64,
    /// Side of an image in pixels unless the run says otherwise.
    pub(crate) image_size: u64,
}

/// One vision encoder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Tower {
    /// Segment Anything's image encoder with its neck.
    Sam(Sam),
    /// A plain vision transformer (CLIP, SigLIP, ViT).
    Vit(Vit),
    /// A language-model-like encoder over patches and learned queries (DeepSeek-OCR-2).
    Encoder(VisionEncoder),
}

/// Segment Anything's image encoder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sam {
    /// Width.
    pub(crate) hidden: u64,
    /// Layers.
    pub(crate) layers: u64,
    /// Heads.
    pub(crate) heads: u64,
    /// Inner width of the feed-forward part.
    pub(crate) inner: u64,
    /// Side of a patch in pixels.
    pub(crate) patch: u64,
    /// Side of the image the position tables are made for.
    pub(crate) image_size: u64,
    /// Side of an attention window in patches.
    pub(crate) window: u64,
    /// Layers that attend to the whole image.
    pub(crate) global_layers: u64,
    /// A table of absolute positions.
    pub(crate) absolute_positions: bool,
    /// Relative position tables in every layer.
    pub(crate) relative_positions: bool,
    /// Channels of the neck (0 without).
    pub(crate) neck: u64,
    /// Channels of the strided convolutions after the neck.
    pub(crate) downsample: Vec<u64>,
    /// Biases on the query, key and value projection.
    pub(crate) qkv_bias: bool,
}

/// A plain vision transformer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vit {
    /// Name for the reader (`clip`, `vit`).
    pub(crate) name: &'static str,
    /// Width.
    pub(crate) hidden: u64,
    /// Layers.
    pub(crate) layers: u64,
    /// Heads.
    pub(crate) heads: u64,
    /// Inner width of the feed-forward part.
    pub(crate) inner: u64,
    /// Gate and up projection rather than one.
    pub(crate) gated: bool,
    /// Side of a patch in pixels (0 without a patch embedding).
    pub(crate) patch: u64,
    /// A class token before the patches.
    pub(crate) class_token: bool,
    /// Bias on the patch embedding.
    pub(crate) patch_bias: bool,
    /// Norms of the hidden width outside the layers (with bias).
    pub(crate) outer_norms: u64,
    /// Learned positions (0 without).
    pub(crate) positions: u64,
    /// Takes the features of the tower before it instead of patches of its own.
    pub(crate) fed_by_previous: bool,
}

/// An encoder over patches of the tower before it and learned queries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VisionEncoder {
    /// Width.
    pub(crate) hidden: u64,
    /// Layers.
    pub(crate) layers: u64,
    /// Heads.
    pub(crate) heads: u64,
    /// Key and value heads.
    pub(crate) kv_heads: u64,
    /// Inner width of the gated feed-forward part.
    pub(crate) inner: u64,
    /// Sizes of the learned query tables, smallest first.
    pub(crate) queries: Vec<u64>,
}

/// The projection of vision features to the decoder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Projector {
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
