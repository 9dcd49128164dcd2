//! The work of a model from its architecture: FLOPs and bytes, term by term.
//!
//! `config` reads a Hugging Face `config.json` (or a preset) into an [`Architecture`], `work` adds
//! up the work of a prefill or a decode, `utilisation` divides it by what the device can do in the time (MFU and MBU).

mod config;
mod modules;
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
    /// Width of the embedding.
    pub embedding: u64,
    /// True if the output head is the embedding.
    pub tied: bool,
    /// Layers, those of one shape together.
    pub groups: Vec<LayerGroup>,
    /// Products outside of the layers for every token, and tables beside the embedding.
    pub model: Block,
    /// Products for every answer.
    pub head: Block,
    /// Values of the last norm.
    pub final_norm: f64,
}

/// Layers of one shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerGroup {
    /// Number of layers.
    pub count: u64,
    /// Parts of a layer.
    pub blocks: Vec<Block>,
    /// Values of the norms of a layer.
    pub norms: f64,
}

/// Part of a layer: attention, a state, a feed-forward network, experts.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Block {
    /// Name of its term.
    pub name: &'static str,
    /// Matrix products of a token.
    pub linears: Vec<Linear>,
    /// Products that only a formula gives, and their weights.
    pub others: Vec<(&'static str, f64)>,
    /// Values of norms, sinks and the like that every pass reads.
    pub vectors: f64,
    /// Values that are stored and take part in no product.
    pub stored: f64,
    /// The choice among copies of it, where it is one of experts.
    pub chosen: Option<Chosen>,
    /// Attention over earlier tokens.
    pub pairs: Option<Pairs>,
    /// Values of the state that a sequence keeps instead of keys and values.
    pub state: f64,
    /// Storage of its weights.
    pub precision: Precision,
}

/// Experts, and how many of them a token goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Experts to choose from.
    pub routed: u64,
    /// Experts a token goes through.
    pub per_token: u64,
}

/// Attention of a token over others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pairs {
    /// Width of all query heads.
    pub keys: u64,
    /// Width of all value heads.
    pub values: u64,
    /// Values kept in the cache for a token.
    pub cached: u64,
    /// Tokens that a token can look back on.
    pub window: Option<u64>,
    /// True if the cache holds compressed keys and values.
    pub latent: bool,
}

/// Storage of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Precision {
    /// That of the layers.
    #[default]
    Layers,
    /// That of the experts.
    Experts,
    /// That of embedding, head, norms and router.
    Full,
}

/// Number of parameters of a model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parameters {
    /// All.
    pub total: f64,
    /// Those that a decoded token uses: without embedding table, vision and experts that are not chosen.
    pub active: f64,
    /// Bytes of all, as they are stored.
    pub bytes: f64,
}

impl Block {
    /// Weights of its products, of one expert where there are several.
    fn products(&self) -> f64 {
        matrices(&self.linears) + self.others.iter().map(|(_, values)| values).sum::<f64>()
    }

    /// Number of its parameters.
    pub fn parameters(&self) -> f64 {
        let copies = self.chosen.map_or(1.0, |chosen| chosen.routed as f64);
        copies * (self.products() + biases(&self.linears)) + self.vectors + self.stored
    }

    /// Number of its parameters that a token uses.
    fn active(&self) -> f64 {
        let copies = self.chosen.map_or(1.0, |chosen| chosen.per_token as f64);
        copies * (self.products() + biases(&self.linears)) + self.vectors
    }
}

impl WeightFormat {
    fn bits(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Layers => self.linear_bits,
            Precision::Experts => self.expert_bits,
            Precision::Full => self.other_bits,
        }
    }
}

impl Architecture {
    /// Counts the parameters.
    pub fn parameters(&self) -> Parameters {
        let decoder = &self.decoder;
        let mut sum = Parameters::default();
        let mut add = |count: f64, total: f64, active: f64, bits: f64| {
            sum.total += count * total;
            sum.active += count * active;
            sum.bytes += count * total * bits / 8.0;
        };
        let other = self.weights.other_bits;
        for group in &decoder.groups {
            let count = group.count as f64;
            for block in &group.blocks {
                add(count, block.parameters(), block.active(), self.weights.bits(block.precision));
            }
            add(count, group.norms, group.norms, other);
        }
        let table = decoder.vocab as f64 * decoder.embedding as f64;
        let head = decoder.head.parameters() - if decoder.tied { table } else { 0.0 };
        add(1.0, table, 0.0, other);
        add(1.0, head, decoder.head.active(), other);
        add(1.0, decoder.final_norm, decoder.final_norm, other);
        add(1.0, decoder.model.parameters(), decoder.model.active(), other);
        add(1.0, self.vision.as_ref().map_or(0.0, Vision::parameters), 0.0, other);
        sum
    }

    /// Tells whether some layers have experts to choose from.
    pub(crate) fn has_experts(&self) -> bool {
        self.decoder.groups.iter().flat_map(|group| &group.blocks).any(|block| block.chosen.is_some())
    }
}

/// A matrix product of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Linear {
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
    /// Parameters beside these.
    extra: f64,
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

impl Vision {
    /// Number of parameters.
    fn parameters(&self) -> f64 {
        let towers = self.towers.iter().map(|tower| tower.parameters(self.image_size)).sum::<f64>();
        // The first DeepSeek-OCR learns a line break and a view separator, the second the separator alone.
        let separators = match self.towers.last() {
            Some(tower) if !tower.queries.is_empty() => 1.0,
            Some(tower) if tower.patch == 0 => 2.0,
            _ => 0.0,
        };
        let width = self.projector.last().map_or(0.0, |linear| linear.outputs as f64);
        towers + matrices(&self.projector) + biases(&self.projector) + self.extra + separators * width
    }
}

impl Tower {
    /// Number of parameters, for images of this size.
    fn parameters(&self, image_size: u64) -> f64 {
        let hidden = self.hidden as f64;
        let grid = self.grid(image_size) as f64;
        let patches = 3.0 * (self.patch * self.patch) as f64 * hidden;
        let positions =
            self.positions.min(if self.positions == u64::MAX { (grid * grid) as u64 } else { u64::MAX });
        let (attention, network) = self.linears();
        let norms = if self.gated { 2.0 } else { 4.0 } * hidden;
        let layer =
            [&attention, &network].map(|linears| matrices(linears) + biases(linears)).iter().sum::<f64>()
                + norms;
        let head_dim = hidden / self.heads.max(1) as f64;
        let tables = |side: f64| 2.0 * (2.0 * side - 1.0) * head_dim;
        let local = self.windowed_layers as f64;
        let global = self.layers as f64 - local;
        let relative = if self.relative_positions {
            global * tables(grid) + local * tables(self.window as f64)
        } else {
            0.0
        };
        let neck = self.convolutions().iter().map(|(_, values)| values).sum::<f64>() + 4.0 * self.neck as f64;
        let queries = self.queries.iter().sum::<u64>() as f64;
        // CLIP has no bias on the patches; by itself it has a norm before and after its layers, after SAM one before them.
        let outer = match self.name {
            "clip" if self.patch == 0 => 2.0,
            "clip" => 4.0,
            "siglip" | "vit" => 3.0,
            _ => 0.0,
        };
        let rows =
            positions as f64 + queries + outer + self.vectors as f64 + f64::from(u8::from(self.class_token));
        patches + self.layers as f64 * layer + relative + neck + rows * hidden
    }

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
