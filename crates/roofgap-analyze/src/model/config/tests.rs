use crate::gpu::Dtype;
use crate::model::{Architecture, LayerGroup, Linear, Pairs, Tokens, preset, preset_names};
use crate::result::StageKind;
use serde_json::{Value, json};

fn llama() -> Value {
    json!({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100, "dtype": "float16"})
}

fn with(key: &str, value: Value) -> Value {
    let mut config = llama();
    config[key] = value;
    config
}

#[test]
fn a_missing_or_senseless_size_is_named() {
    let mut config = llama();
    config.as_object_mut().unwrap().remove("hidden_size");
    let error = Architecture::from_config(&config).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config has no hidden_size: without it the work of the model cannot be counted"
    );
    for bad in [json!(-3), json!(0), json!(1.5), json!("64"), json!(1_u64 << 40), json!(f64::MAX)] {
        let error = Architecture::from_config(&with("hidden_size", bad)).unwrap_err();
        assert!(error.to_string().contains("expected a whole number"), "{error}");
    }
    let error = Architecture::from_config(&json!([1])).unwrap_err();
    assert!(error.to_string().contains("not an object"), "{error}");
}

#[test]
fn layers_follow_from_their_fields() {
    let names = |config: &Value| -> Vec<Vec<&str>> {
        let model = Architecture::from_config(config).unwrap();
        model
            .decoder
            .groups
            .iter()
            .map(|group| group.blocks.iter().map(|block| block.name).collect())
            .collect()
    };
    let dense = "dense feed-forward";
    assert_eq!(names(&llama()), [["attention projections", dense]]);
    let mut hybrid = with("layer_types", json!(["linear_attention", "full_attention"]));
    for (key, value) in
        [("linear_num_key_heads", 2), ("linear_key_head_dim", 8), ("linear_value_head_dim", 8)]
    {
        hybrid[key] = json!(value);
    }
    assert_eq!(names(&hybrid), [["linear attention", dense], ["attention projections", dense]]);
    let mut space =
        json!({"model_type": "mamba", "n_embd": 64, "n_layer": 3, "vocab_size": 100, "state_size": 16});
    assert_eq!(names(&space), [["state space"]]);
    space["state_size"] = json!(1_u64 << 40);
    let error = Architecture::from_config(&space).unwrap_err().to_string();
    assert!(error.contains("ssm_state"), "{error}");
}

#[test]
fn what_is_assumed_or_not_understood_is_named() {
    let assumed = |config: &Value| Architecture::from_config(config).unwrap().assumptions.join("; ");
    assert_eq!(assumed(&llama()), "");
    let mut config = with("model_type", json!("newmodel"));
    config["rms_norm_eps"] = json!(1e-6);
    config["attention_dropout"] = json!(0.5);
    let text = assumed(&config);
    assert!(text.contains("newmodel") && !text.contains("not understood"), "{text}");
    config["memory_heads"] = json!(4);
    config["memory_gate"] = json!(false);
    let text = assumed(&config);
    assert!(text.contains("memory_heads") && !text.contains("memory_gate"), "{text}");
}

#[test]
fn formulas_of_the_exceptions() {
    let map = llama();
    for formula in ["2*(3+1)-6/2", "hidden_size/2-27", "missing?+5"] {
        assert_eq!(super::table::evaluate(formula, map.as_object().unwrap()).unwrap(), 5.0, "{formula}");
    }
    for formula in ["missing", "2*", "2)"] {
        assert!(super::table::evaluate(formula, map.as_object().unwrap()).is_err(), "{formula}");
    }
}

/// Sizes as the published configurations have them, parameters as their cards state them.
#[test]
fn parameters_of_published_models() {
    let llama = |hidden: u64, layers: u64, heads: u64, kv: u64, inner: u64, vocab: u64| {
        json!({"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "intermediate_size": inner, "vocab_size": vocab, "tie_word_embeddings": false})
    };
    let and = |mut config: Value, more: Value| {
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    let billions = [
        // Llama 3.1 8B and 70B, Llama 3.2 1B.
        (llama(4096, 32, 32, 8, 14336, 128_256), 8.03, 8.03),
        (llama(8192, 80, 64, 8, 28672, 128_256), 70.55, 70.55),
        (
            and(llama(2048, 16, 32, 8, 8192, 128_256), json!({"head_dim": 64, "tie_word_embeddings": true})),
            1.24,
            1.24,
        ),
        // Mistral 7B v0.1, with a window.
        (
            and(
                llama(4096, 32, 32, 8, 14336, 32_000),
                json!({"model_type": "mistral", "sliding_window": 4096}),
            ),
            7.24,
            7.24,
        ),
        // Mixtral 8x7B.
        (
            and(
                llama(4096, 32, 32, 8, 14336, 32_000),
                json!({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}),
            ),
            46.70,
            12.88,
        ),
        // Qwen2.5 7B, and the same inside Qwen2.5-VL, whose sizes stand at the top; Qwen1.5-MoE-A2.7B.
        (and(llama(3584, 28, 28, 4, 18944, 152_064), json!({"model_type": "qwen2"})), 7.62, 7.62),
        (and(llama(3584, 28, 28, 4, 18944, 152_064), json!({"model_type": "qwen2_5_vl"})), 7.62, 7.62),
        (
            and(
                llama(2048, 24, 16, 16, 5632, 151_936),
                json!({"model_type": "qwen2_moe", "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                    "shared_expert_intermediate_size": 5632}),
            ),
            14.32,
            2.69,
        ),
        // Qwen3-235B-A22B.
        (
            and(
                llama(4096, 94, 64, 4, 12288, 151_936),
                json!({"model_type": "qwen3_moe", "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
                    "moe_intermediate_size": 1536}),
            ),
            235.09,
            22.19,
        ),
        // Phi-3 mini; Gemma 2 9B, which ties its head and does not say so.
        (and(llama(3072, 32, 32, 32, 8192, 32_064), json!({"model_type": "phi3"})), 3.82, 3.82),
        (
            json!({"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "num_attention_heads": 16,
                "num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256_000}),
            9.24,
            9.24,
        ),
        // Llama 2 7B, whose first configurations have neither num_key_value_heads nor head_dim.
        (
            json!({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "intermediate_size": 11008, "vocab_size": 32_000}),
            6.74,
            6.74,
        ),
    ];
    for (config, total, active) in billions {
        let model = Architecture::from_config(&config).unwrap();
        let count = model.parameters();
        // The cards count the whole embedding as active; a token needs one row of it, which is left out here.
        let embedding = if model.decoder.tied { 0 } else { model.decoder.vocab * model.decoder.hidden };
        let close = |found: f64, published: f64| (found / 1e9 - published).abs() < 0.006;
        assert!(
            close(count.total, total) && close(count.active + embedding as f64, active),
            "{}: {} of {}",
            config["model_type"],
            count.active,
            count.total
        );
    }
}

#[test]
fn the_number_format_is_read_or_assumed() {
    let model = Architecture::from_config(&llama()).unwrap();
    assert_eq!(model.dtype, Dtype::Fp16);
    let mut config = llama();
    config.as_object_mut().unwrap().remove("dtype");
    let model = Architecture::from_config(&config).unwrap();
    assert_eq!(model.dtype, Dtype::Bf16);
    assert_eq!(model.assumptions.len(), 1);
}

#[test]
fn quantised_weights_take_their_bits() {
    for (quantisation, bits) in [
        (json!({"quant_method": "gptq", "bits": 4, "group_size": 128}), 4.0 + 20.0 / 128.0),
        (json!({"quant_method": "awq", "bits": 4, "group_size": 64}), 4.0 + 20.0 / 64.0),
        (json!({"quant_method": "fp8"}), 8.0),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}),
            4.125,
        ),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}),
            8.0,
        ),
        (json!({"quant_method": "bitsandbytes", "load_in_8bit": true}), 8.0),
        (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), 4.5),
    ] {
        let model = Architecture::from_config(&with("quantization_config", quantisation.clone())).unwrap();
        assert_eq!(model.weights.linear_bits, bits, "{quantisation}");
        assert_eq!(model.weights.other_bits, 16.0);
    }
    let model =
        Architecture::from_config(&with("quantization_config", json!({"quant_method": "new"}))).unwrap();
    assert_eq!(model.weights.linear_bits, 16.0);
    assert!(model.assumptions.iter().any(|text| text.contains("upper bound")));
}

#[test]
fn gpt_oss_alternates_windows_and_keeps_experts_in_four_bits() {
    let model = preset("gpt_oss_20b").unwrap();
    let windows: Vec<_> = model.decoder.groups.iter().map(|g| (g.count, pairs(g).window)).collect();
    assert_eq!(windows, [(12, Some(128)), (12, None)]);
    assert_eq!(model.weights.expert_bits, 4.25);
}

#[test]
fn deepseek_layers_and_attention() {
    let lite = preset("deepseek_v2_lite").unwrap();
    let block = |layer: usize, at: usize| &lite.decoder.groups[layer].blocks[at];
    assert_eq!(block(0, 1).linears[0].outputs, 10_944);
    assert_eq!(lite.decoder.groups[1].count, 26);
    assert_eq!(block(1, 1).chosen.unwrap().routed, 64);
    assert!(pairs(&lite.decoder.groups[1]).latent);
    assert_eq!(pairs(&lite.decoder.groups[1]).cached, 576);
    // DeepSeek-OCR's decoder has no latent attention though its type does.
    let ocr = preset("deepseek_ocr").unwrap();
    assert_eq!(pairs(&ocr.decoder.groups[0]).cached, 2 * 10 * 128);
}

fn pairs(group: &LayerGroup) -> Pairs {
    group.blocks.iter().find_map(|block| block.pairs).unwrap()
}

#[test]
fn a_llava_like_model_has_a_tower_and_a_projector() {
    let config = json!({"model_type": "llava", "text_config": llama(), "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 336, "patch_size": 14}});
    let model = Architecture::from_config(&config).unwrap();
    let vision = model.vision.unwrap();
    assert_eq!(vision.projector, [Linear::new("first", 1024, 64, true), Linear::new("second", 64, 64, true)]);
    assert_eq!(vision.features(336), 576);
}

#[test]
fn an_unknown_vision_part_is_left_out_and_said_so() {
    let mut config = llama();
    config["vision_config"] = json!({"model_type": "exotic", "depth": 4});
    let model = Architecture::from_config(&config).unwrap();
    assert_eq!(model.vision, None);
    assert!(model.assumptions.iter().any(|text| text.contains("left out")));
}

/// Every number of a preset replaced by others, as a broken or hostile file might: an answer or an error, never a panic.
#[test]
fn no_number_makes_it_panic() {
    fn numbers(value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
        match value {
            Value::Object(map) => map.values_mut().for_each(|inner| numbers(inner, change)),
            Value::Array(list) => list.iter_mut().for_each(|inner| numbers(inner, change)),
            Value::Number(_) => change(value),
            _ => {}
        }
    }
    let odd = [
        json!(0),
        json!(1),
        json!(3),
        json!(1 << 24),
        json!(u64::MAX),
        json!(-1),
        json!(0.5),
        json!(1e300),
        json!([7]),
        json!(null),
    ];
    let tokens = Tokens {
        prompt: Some(u64::MAX),
        generated: Some(u64::MAX),
        batch: Some(u64::MAX),
        vision: Some(u64::MAX),
    };
    let mut read = 0;
    for name in ["deepseek_ocr", "deepseek_ocr2", "deepseek_v2_lite", "gpt_oss_20b", "qwen3_30b_a3b"] {
        let text =
            std::fs::read_to_string(format!("{}/presets/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        let mut count = 0;
        numbers(&mut whole.clone(), &mut |_| count += 1);
        for position in 0..count {
            for value in &odd {
                let mut config = whole.clone();
                let mut at = 0;
                numbers(&mut config, &mut |number| {
                    if at == position {
                        *number = value.clone();
                    }
                    at += 1;
                });
                let Ok(model) = Architecture::from_config(&config) else {
                    continue;
                };
                read += 1;
                assert!(model.parameters().active <= model.parameters().total);
                for kind in [StageKind::Prefill, StageKind::Decode] {
                    if let Ok(work) = model.stage_work(kind, &tokens, u64::MAX, None) {
                        assert!(!work.flops().is_nan() && !work.moved_bytes().is_nan());
                    }
                }
            }
        }
    }
    assert!(read > 200, "{read}");
}

#[test]
fn the_list_names_every_file_of_the_folder() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
    let files = std::fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    let mut files: Vec<String> = names.collect();
    files.sort();
    let mut listed: Vec<String> = preset_names().map(|name| format!("{name}.json")).collect();
    listed.sort();
    assert_eq!(files, listed);
}
