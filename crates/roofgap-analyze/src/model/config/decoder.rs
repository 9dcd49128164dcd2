//! The language model of a configuration.

use super::{Fields, UnknownModel};
use crate::model::{Attention, Decoder, Experts, LayerGroup, Mlp};
use serde_json::Value;

/// Types whose layers are those of Llama up to the differences that `read` knows.
const KNOWN: &str = include_str!("kinds.txt");

/// Keys of layers that are no attention: state spaces, linear attention.
const OTHER_MIXERS: [&str; 8] = [
    "linear_num_key_heads",
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "attn_layer_period",
    "linear_attn_config",
    "rwkv_head_size",
    "lru_width",
];

const MOST_LAYERS: u64 = 4096;

pub fn read(top: &Fields<'_>, text: &Fields<'_>) -> Result<Decoder, UnknownModel> {
    let kind = text.text("model_type").or(top.text("model_type")).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    let unsupported = |why: String| {
        Err(UnknownModel(format!(
            "model type {kind:?} is not understood ({why}): give the sizes of a supported one, or a preset"
        )))
    };
    if let Some(key) = OTHER_MIXERS.iter().find(|key| text.has(key)) {
        return unsupported(format!("it has {key}, so not every layer is attention"));
    }
    if !KNOWN.lines().any(|known| known == kind) {
        return unsupported(
            "its layers are not known here; if they are those of a listed type (llama, qwen3, mixtral, ...), say so by model_type in a \
             copy of the configuration"
                .to_owned(),
        );
    }
    let listed = text.list("layer_types").unwrap_or_default();
    let attends = |kind: &Value| matches!(kind.as_str(), Some("full_attention" | "sliding_attention"));
    if let Some(other) = listed.iter().find(|kind| !attends(kind)) {
        return unsupported(format!("it has layers of type {other}"));
    }
    let layers = text.need(&["num_hidden_layers", "n_layers"])?;
    if layers > MOST_LAYERS {
        return unsupported(format!("it has {layers} layers"));
    }
    let reader = Reader { text, kind: &kind, hidden: text.need(&["hidden_size"])? };
    let mut groups: Vec<LayerGroup> = Vec::new();
    for layer in 0..layers {
        let attention = reader.attention(layer)?;
        let mlp = reader.mlp(layer)?;
        match groups.iter_mut().find(|group| group.attention == attention && group.mlp == mlp) {
            Some(group) => group.count += 1,
            None => groups.push(LayerGroup { count: 1, attention, mlp, norms: reader.norms() }),
        }
    }
    let tied = [text, top].into_iter().find_map(|fields| fields.flag("tie_word_embeddings"));
    Ok(Decoder {
        vocab: text.need(&["vocab_size"])?,
        hidden: reader.hidden,
        // Left out where it is what that kind of model does anyway.
        tied: tied.unwrap_or_else(|| kind.starts_with("gemma") || kind == "smollm3"),
        groups,
    })
}

struct Reader<'r, 'a> {
    text: &'r Fields<'a>,
    kind: &'r str,
    hidden: u64,
}

impl Reader<'_, '_> {
    /// Norm vectors in a layer: before attention and before the feed-forward part, with Gemma 2 and 3 after them too.
    fn norms(&self) -> u64 {
        if matches!(self.kind, "gemma2" | "gemma3_text") { 4 } else { 2 }
    }

    fn attention(&self, layer: u64) -> Result<Attention, UnknownModel> {
        let text = self.text;
        let heads = text.need(&["num_attention_heads"])?;
        let kv_rank = text.size_or_zero(&["kv_lora_rank"])?;
        let nope_dim = text.size_or_zero(&["qk_nope_head_dim"])?;
        if kv_rank > 0 && nope_dim > 0 && text.flag("use_mla") != Some(false) {
            return Ok(Attention::Latent {
                heads,
                q_rank: Some(text.size_or_zero(&["q_lora_rank"])?).filter(|rank| *rank > 0),
                kv_rank,
                nope_dim,
                rope_dim: text.need(&["qk_rope_head_dim"])?,
                v_dim: text.need(&["v_head_dim"])?,
            });
        }
        let bias = text.flag("attention_bias").unwrap_or(self.kind == "gpt_oss");
        Ok(Attention::Grouped {
            heads,
            kv_heads: text.size_or(&["num_key_value_heads"], heads)?,
            head_dim: text.size_or(&["head_dim"], self.hidden / heads)?,
            qkv_bias: bias || self.kind.starts_with("qwen2"),
            output_bias: bias,
            qk_norm: self.kind.starts_with("qwen3") || self.kind == "gemma3_text",
            sinks: self.kind == "gpt_oss",
            window: self.window(layer)?,
        })
    }

    fn window(&self, layer: u64) -> Result<Option<u64>, UnknownModel> {
        let window = Some(self.text.size_or_zero(&["sliding_window"])?).filter(|window| *window > 0);
        if window.is_none() || self.text.flag("use_sliding_window") == Some(false) {
            return Ok(None);
        }
        if let Some(slides) = self.listed("layer_types", layer, "sliding_attention") {
            return Ok(window.filter(|_| slides));
        }
        let slides = match self.kind {
            "gpt_oss" | "gemma2" => layer.is_multiple_of(2),
            "gemma3_text" => {
                let every = self.text.size_or(&["sliding_window_pattern"], 6)?;
                !(layer + 1).is_multiple_of(every)
            }
            // Qwen slides from a given layer on, and only where it says so.
            kind if kind.starts_with("qwen") => {
                self.text.flag("use_sliding_window") == Some(true)
                    && layer >= self.text.size_or_zero(&["max_window_layers"])?
            }
            _ => true,
        };
        Ok(window.filter(|_| slides))
    }

    /// Tells whether a list of the kinds of all layers names this kind for one; `None` without such a list.
    fn listed(&self, key: &str, layer: u64, kind: &str) -> Option<bool> {
        let kinds = self.text.list(key)?;
        Some(kinds.get(layer as usize).and_then(Value::as_str) == Some(kind))
    }

    fn mlp(&self, layer: u64) -> Result<Mlp, UnknownModel> {
        let text = self.text;
        let routed = text.size_or_zero(&["n_routed_experts", "num_experts", "num_local_experts"])?;
        if routed == 0 || !self.sparse(layer)? {
            return Ok(Mlp::Dense {
                inner: text.need(&["intermediate_size"])?,
                bias: text.flag("mlp_bias").unwrap_or(false),
            });
        }
        let inner = text.need(&["moe_intermediate_size", "intermediate_size"])?;
        let shared = match text.at_least(&["shared_expert_intermediate_size"], 0)? {
            Some(width) => width,
            None => text.size_or_zero(&["n_shared_experts"])? * inner,
        };
        Ok(Mlp::Experts(Experts {
            routed,
            per_token: text.need(&["num_experts_per_tok", "experts_per_token"])?.min(routed),
            inner,
            shared_inner: shared,
            shared_gate: self.kind == "qwen2_moe",
            bias: self.kind == "gpt_oss",
            router_bias: self.kind == "gpt_oss" || text.text("topk_method") == Some("noaux_tc"),
        }))
    }

    /// Tells whether this layer has experts; model families say so in different ways.
    fn sparse(&self, layer: u64) -> Result<bool, UnknownModel> {
        let text = self.text;
        if let Some(sparse) = self.listed("mlp_layer_types", layer, "sparse") {
            return Ok(sparse);
        }
        if text.sizes("mlp_only_layers")?.is_some_and(|dense| dense.contains(&layer)) {
            return Ok(false);
        }
        if layer < text.size_or_zero(&["first_k_dense_replace"])? {
            return Ok(false);
        }
        let every = text.size_or(&["moe_layer_freq"], 1)?;
        let step = text.size_or(&["decoder_sparse_step"], 1)?;
        Ok(layer.is_multiple_of(every) && (layer + 1).is_multiple_of(step))
    }
}
