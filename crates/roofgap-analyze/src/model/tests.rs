//! Parameter counts of the presets against published ones. They check that a configuration is read right; no program prints them.

use super::{
    Architecture, Experts, LayerGroup, Linear, Mlp, Tower, biases, feed_forward, linears_text, matrices,
    preset, preset_names, router_values,
};
use serde_json::json;

/// Parameters of a model, part by part.
#[derive(Debug)]
pub struct ParameterCount {
    pub total: u64,
    pub active: u64,
    parts: Vec<ParameterPart>,
}

/// Parameters of one part.
#[derive(Debug)]
struct ParameterPart {
    name: String,
    count: u64,
    active: u64,
    how: String,
}

impl ParameterPart {
    fn new(name: &str, count: f64, active: f64, how: String) -> Self {
        Self { name: name.to_owned(), count: count as u64, active: active as u64, how }
    }
}

fn all_values(linears: &[Linear]) -> f64 {
    matrices(linears) + biases(linears)
}

impl Architecture {
    pub(crate) fn parameters(&self) -> ParameterCount {
        let decoder = &self.decoder;
        let table = decoder.vocab as f64 * decoder.hidden as f64;
        let table_text = format!("{} x {}", decoder.vocab, decoder.hidden);
        let mut parts = Vec::new();
        if decoder.tied {
            parts.push(ParameterPart::new("embedding, also the output head", table, table, table_text));
        } else {
            parts.push(ParameterPart::new("embedding", table, 0.0, table_text.clone()));
            parts.push(ParameterPart::new("output head", table, table, table_text));
        }
        for group in &decoder.groups {
            group_parts(group, decoder.hidden, &mut parts);
        }
        let hidden = decoder.hidden as f64;
        parts.push(ParameterPart::new("final norm", hidden, hidden, decoder.hidden.to_string()));
        if let Some(vision) = &self.vision {
            for tower in &vision.towers {
                parts.push(tower_part(tower, vision.image_size));
            }
            let how = format!("projector {}", linears_text(&vision.projector));
            parts.push(ParameterPart::new("projector", all_values(&vision.projector), 0.0, how));
            // The first DeepSeek-OCR learns a line break and a view separator, the second the separator alone.
            let loose_vectors = match vision.towers.last() {
                Some(tower) if !tower.queries.is_empty() => 1,
                Some(tower) if tower.patch == 0 => 2,
                _ => 0,
            };
            if loose_vectors > 0 {
                let how = format!("{loose_vectors} x {}", decoder.hidden);
                let count = f64::from(loose_vectors) * hidden;
                parts.push(ParameterPart::new("separators between image tokens", count, 0.0, how));
            }
        }
        ParameterCount {
            total: parts.iter().fold(0, |sum, part| sum.saturating_add(part.count)),
            active: parts.iter().fold(0, |sum, part| sum.saturating_add(part.active)),
            parts,
        }
    }
}

fn group_parts(group: &LayerGroup, hidden: u64, parts: &mut Vec<ParameterPart>) {
    let layers = group.count as f64;
    let linears = group.attention.linears(hidden);
    let vectors = group.attention.vectors();
    let attention = layers * (all_values(&linears) + vectors);
    let how = format!(
        "{} layers x ({} + biases {} + norms and sinks {vectors})",
        group.count,
        linears_text(&linears),
        biases(&linears)
    );
    parts.push(ParameterPart::new("attention", attention, attention, how));
    match &group.mlp {
        Mlp::Dense { inner, bias } => {
            let linears = feed_forward(hidden, *inner, true, *bias);
            let count = layers * all_values(&linears);
            let how = format!(
                "{} layers x ({} + biases {})",
                group.count,
                linears_text(&linears),
                biases(&linears)
            );
            parts.push(ParameterPart::new("dense feed-forward", count, count, how));
        }
        Mlp::Experts(experts) => expert_parts(experts, group.count, hidden, parts),
    }
    let norms = layers * group.norms as f64 * hidden as f64;
    let how = format!("{} layers x {} x {hidden}", group.count, group.norms);
    parts.push(ParameterPart::new("layer norms", norms, norms, how));
}

fn expert_parts(experts: &Experts, layers: u64, hidden: u64, parts: &mut Vec<ParameterPart>) {
    let count = layers as f64;
    let linears = feed_forward(hidden, experts.inner, true, experts.bias);
    let one = all_values(&linears);
    let how = format!(
        "{layers} layers x {} experts ({} a token) x ({} + biases {})",
        experts.routed,
        experts.per_token,
        linears_text(&linears),
        biases(&linears)
    );
    parts.push(ParameterPart::new(
        "routed experts",
        count * experts.routed as f64 * one,
        count * experts.per_token.min(experts.routed) as f64 * one,
        how,
    ));
    if experts.shared_inner > 0 {
        let linears = feed_forward(hidden, experts.shared_inner, true, false);
        let gate = if experts.shared_gate { hidden as f64 } else { 0.0 };
        let shared = count * (all_values(&linears) + gate);
        let how = format!("{layers} layers x ({} + gate {gate})", linears_text(&linears));
        parts.push(ParameterPart::new("shared experts", shared, shared, how));
    }
    let router = count * router_values(experts, hidden);
    let bias = if experts.router_bias { format!(" + {}", experts.routed) } else { String::new() };
    let how = format!("{layers} layers x ({hidden} x {}{bias})", experts.routed);
    parts.push(ParameterPart::new("router", router, router, how));
}

fn tower_part(tower: &Tower, image_size: u64) -> ParameterPart {
    let hidden = tower.hidden as f64;
    let grid = tower.grid(image_size) as f64;
    let patches = 3.0 * (tower.patch * tower.patch) as f64 * hidden;
    let positions = tower.positions.min((grid * grid) as u64) as f64;
    let positions = if tower.name == "sam" { positions } else { tower.positions as f64 } * hidden;
    let (attention, network) = tower.linears();
    let norms = if tower.gated { 2.0 } else { 4.0 } * hidden;
    let layer = all_values(&attention) + all_values(&network) + norms;
    let head_dim = hidden / tower.heads.max(1) as f64;
    let tables = |side: f64| 2.0 * (2.0 * side - 1.0) * head_dim;
    let local = tower.windowed_layers as f64;
    let relative = if tower.relative_positions {
        (tower.layers as f64 - local) * tables(grid) + local * tables(tower.window as f64)
    } else {
        0.0
    };
    let neck = tower.convolutions().iter().map(|(_, values)| values).sum::<f64>() + 4.0 * tower.neck as f64;
    let queries = tower.queries.iter().sum::<u64>() as f64 * hidden;
    // CLIP has no bias on the patches; by itself it has a norm before and after its layers, after SAM one before them.
    let outer = match tower.name {
        "clip" if tower.patch == 0 => 2.0,
        "clip" => 4.0,
        "siglip" | "vit" => 3.0,
        _ => 0.0,
    };
    let outer = (outer + tower.vectors as f64 + f64::from(u8::from(tower.class_token))) * hidden;
    let total = patches + positions + tower.layers as f64 * layer + relative + neck + queries + outer;
    let how = format!(
        "patches {patches} + positions {positions} + {} layers x {layer} + relative positions {relative} + neck {neck} + queries \
         {queries} + class token, norms and biases {outer}",
        tower.layers
    );
    ParameterPart::new(tower.name, total, 0.0, how)
}

/// Totals as the hub counts the tensors of the published checkpoints (tied heads counted once).
#[test]
fn totals_equal_the_published_ones() {
    for (name, total) in [
        // Without the patch embedding of CLIP, which is stored and never used.
        ("deepseek_ocr", 3_336_106_240 - 3 * 14 * 14 * 1024),
        ("deepseek_ocr2", 3_389_119_360),
        ("deepseek_v2_lite", 15_706_484_224),
        ("llama3_8b", 8_030_261_248),
        ("qwen3_0_6b", 596_049_920),
        ("qwen3_1_7b", 1_720_574_976),
        ("qwen3_4b", 4_022_468_096),
        ("qwen3_8b", 8_190_735_360),
        ("qwen3_14b", 14_768_307_200),
        ("qwen3_32b", 32_762_123_264),
        ("qwen3_30b_a3b", 30_532_122_624),
        ("gpt_oss_20b", 20_914_757_184),
        ("gpt_oss_120b", 116_829_156_672),
    ] {
        assert_eq!(preset(name).unwrap().parameters().total, total, "{name}");
    }
}

/// Active parameters as published, in billions, to the digits published.
#[test]
fn active_parameters_are_the_published_ones() {
    for (name, published, digit) in [
        ("deepseek_ocr", 0.57, 0.01),
        ("deepseek_v2_lite", 2.4, 0.1),
        ("gpt_oss_20b", 3.61, 0.005),
        ("gpt_oss_120b", 5.13, 0.005),
    ] {
        let active = preset(name).unwrap().parameters().active as f64 / 1e9;
        assert!((active - published).abs() <= digit, "{name}: {active}");
    }
    // Qwen counts the embedding table too: 3.3 B.
    let count = preset("qwen3_30b_a3b").unwrap().parameters();
    let table = count.parts.iter().find(|part| part.name == "embedding").unwrap().count;
    let active = (count.active + table) as f64 / 1e9;
    assert!((active - 3.3).abs() < 0.06, "{active}");
}

#[test]
fn parts_add_up_and_say_how() {
    for name in preset_names() {
        let count = preset(name).unwrap().parameters();
        assert_eq!(count.parts.iter().map(|part| part.count).sum::<u64>(), count.total, "{name}");
        assert!(count.parts.iter().all(|part| part.active <= part.count && !part.how.is_empty()));
    }
}

/// Other families, from the sizes of their published configurations.
#[test]
fn configurations_of_other_families() {
    for (config, total) in [
        (
            // Qwen2-0.5B: biases on queries, keys and values, tied head.
            json!({"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
                "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151_936,
                "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false,
                "sliding_window": 32768}),
            494_032_768,
        ),
        (
            // Mistral-7B-v0.1: a window in every layer.
            json!({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 32_000, "sliding_window": 4096,
                "tie_word_embeddings": false, "torch_dtype": "bfloat16"}),
            7_241_732_096,
        ),
        (
            // Mixtral-8x7B.
            json!({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 32_000, "sliding_window": null,
                "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": false,
                "torch_dtype": "bfloat16"}),
            46_702_792_704,
        ),
        (
            // Llama-3-70B.
            json!({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
                "num_key_value_heads": 8, "intermediate_size": 28_672, "vocab_size": 128_256,
                "tie_word_embeddings": false, "torch_dtype": "bfloat16"}),
            70_553_706_496,
        ),
        (
            // Gemma-2-2B: tied, four norms a layer, heads wider than the hidden state shared out.
            json!({"model_type": "gemma2", "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8,
                "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "vocab_size": 256_000,
                "sliding_window": 4096, "torch_dtype": "float32"}),
            2_614_341_888,
        ),
    ] {
        let model = Architecture::from_config(&config).unwrap();
        assert_eq!(model.parameters().total, total, "{}", config["model_type"]);
        assert_eq!(model.assumptions, Vec::<String>::new());
    }
}

#[test]
fn deepseek_v3_is_671_billion_with_37_active() {
    let config = json!({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
        "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18_432,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129_280, "topk_method": "noaux_tc",
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8"}});
    let model = Architecture::from_config(&config).unwrap();
    let count = model.parameters();
    assert_eq!((count.total as f64 / 1e9).round(), 671.0);
    assert_eq!((count.active as f64 / 1e9).round(), 37.0);
    assert_eq!(model.weights.expert_bits, 8.0);
}

/// The form in which the embedded model describes itself: no patch embedding in the second tower.
#[test]
fn a_scaled_down_deepseek_ocr() {
    let config = json!({"model_type": "deepseek_ocr", "torch_dtype": "float32", "hidden_size": 32,
        "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 48,
        "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "first_k_dense_replace": 1, "use_mla": false, "tie_word_embeddings": false, "vocab_size": 211,
        "projector_config": {"projector_type": "linear", "input_dim": 48, "n_embed": 32},
        "vision_config": {"image_size": 64, "mlp_ratio": 4, "width": {
            "clip-l-14-224": {"width": 24, "layers": 1, "heads": 2, "image_size": 2, "patch_size": 1,
                "patch_embedding": false},
            "sam_vit_b": {"width": 16, "layers": 2, "heads": 2, "patch_size": 8, "window_size": 3,
                "global_attn_indexes": [1], "neck_channels": 8, "downsample_channels": [16, 24]}}}});
    let count = Architecture::from_config(&config).unwrap().parameters();
    let part = |name: &str| count.parts.iter().find(|part| part.name == name).unwrap().count;
    // Attention and norms of three layers, a dense one, two with three experts and the shared pair, head, final norm.
    assert_eq!(
        count.active,
        3 * (4 * 32 * 32 + 2 * 32) + 3 * 32 * 48 + 2 * (8 * 32 + 5 * 3 * 32 * 16) + 211 * 32 + 32
    );
    // Class token, 2 x 2 + 1 positions, one layer, one norm before it.
    let layer = 24 * 72 + 72 + 24 * 24 + 24 + 2 * 24 * 96 + 96 + 24 + 4 * 24;
    assert_eq!(part("clip"), 24 + 5 * 24 + layer + 48);
    assert_eq!(part("projector"), 48 * 32 + 32);
}
