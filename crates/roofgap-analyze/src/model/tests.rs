//! Parameter counts of the presets against published ones. They check that a configuration is read right; no program prints them.

use super::{Architecture, matrices, preset};
use roofgap_trace::account::ModuleFacts;
use serde_json::{Value, json};

impl Architecture {
    /// FLOPs of a pass over one sequence as a counter of operations sees them: the head for every token, attention without a mask.
    fn counted_flops(&self, tokens: f64) -> f64 {
        let square = |keys: u64, values: u64| (keys + values) as f64 * tokens * tokens;
        let groups = self.decoder.groups.iter().map(|group| {
            let blocks = group.blocks.iter().map(|block| {
                let times = block.chosen.map_or(1.0, |chosen| chosen.per_token as f64);
                // A counter sees the state of linear attention, which is products, and not that of a state space.
                let state = if block.name == "linear attention" { 2.0 * block.state } else { 0.0 };
                tokens * (times * block.products() + state)
                    + block.pairs.map_or(0.0, |pairs| square(pairs.keys, pairs.values))
            });
            group.count as f64 * blocks.sum::<f64>()
        });
        2.0 * (groups.sum::<f64>() + tokens * (self.decoder.model.products() + self.decoder.head.products()))
    }
}

/// Every causal language model that transformers builds from its default configuration, with its parameters, the FLOPs of 128 tokens and
/// its modules (`tests/manual/models/tables.py`): by the rules, with the modules, and by the modules alone.
#[test]
fn models_of_transformers() {
    let text = match std::env::var("ROOFGAP_TEST_MODELS") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => {
            let packed: &[u8] = include_bytes!("../../tests/models/models.jsonl.gz");
            std::io::read_to_string(flate2::read::GzDecoder::new(packed)).unwrap()
        }
    };
    let (mut right, mut all, mut misses) = ([[0; 2]; 3], [0; 2], Vec::new());
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let modules: Vec<ModuleFacts> = serde_json::from_value(row["modules"].clone()).unwrap();
        // The rules need the size of the vocabulary.
        let mut unsaid = row["config"].clone();
        let at = if unsaid["text_config"].is_object() { &mut unsaid["text_config"] } else { &mut unsaid };
        at["vocab_size"] = json!(0);
        let models = [
            Architecture::from_config(&row["config"]),
            Architecture::from_program(&row["config"], &modules),
            Architecture::from_program(&unsaid, &modules),
        ];
        for (count, key) in all.iter_mut().zip(["parameters", "flops"]) {
            *count += i32::from(row[key].is_number());
        }
        for (way, (model, right)) in ["rules", "both", "modules"].iter().zip(models.iter().zip(&mut right)) {
            let found = model.as_ref().map_or([0.0; 2], |m| [m.parameters().total, m.counted_flops(128.0)]);
            for (which, (key, most)) in [("parameters", 0.1), ("flops", 2.0)].into_iter().enumerate() {
                let off = row[key].as_f64().map(|real| 100.0 * (found[which] / real - 1.0));
                let Some(off) = off else { continue };
                right[which] += i32::from(off.abs() <= most);
                if off.abs() > most {
                    let why = model.as_ref().err().map_or_else(String::new, |why| format!(" ({why})"));
                    misses.push(format!("{} by {way}: {key} {off:+.2} %{why}", row["type"]));
                }
            }
        }
    }
    println!("right by rules, both, modules: {right:?} of {all:?}\n{}", misses.join("\n"));
    let enough = [[150, 140], [155, 140], [150, 135]];
    for (right, enough) in right.iter().zip(enough) {
        assert!(
            right[0] >= enough[0] && right[1] >= enough[1],
            "{right:?} of {all:?}\n{}",
            misses.join("\n")
        );
    }
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
        assert_eq!(preset(name).unwrap().parameters().total as u64, total, "{name}");
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
        let active = preset(name).unwrap().parameters().active / 1e9;
        assert!((active - published).abs() <= digit, "{name}: {active}");
    }
    // Qwen counts the embedding table too: 3.3 B.
    let model = preset("qwen3_30b_a3b").unwrap();
    let table = (model.decoder.vocab * model.decoder.hidden) as f64;
    let active = (model.parameters().active + table) / 1e9;
    assert!((active - 3.3).abs() < 0.06, "{active}");
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
    let model = Architecture::from_config(&config).unwrap();
    let vision = model.vision.as_ref().unwrap();
    // Attention and norms of three layers, a dense one, two with three experts and the shared pair, head, final norm.
    let active = 3 * (4 * 32 * 32 + 2 * 32) + 3 * 32 * 48 + 2 * (8 * 32 + 5 * 3 * 32 * 16) + 211 * 32 + 32;
    assert_eq!(model.parameters().active, f64::from(active));
    // Class token, 2 x 2 + 1 positions, one layer, one norm before it.
    let layer = 24 * 72 + 72 + 24 * 24 + 24 + 2 * 24 * 96 + 96 + 24 + 4 * 24;
    assert_eq!(vision.towers[1].parameters(64), f64::from(24 + 5 * 24 + layer + 48));
    assert_eq!(matrices(&vision.projector), 48.0 * 32.0);
}
