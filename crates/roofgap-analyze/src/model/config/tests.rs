use crate::gpu::Dtype;
use crate::model::{Architecture, Attention, ConfigError, Mlp, Projector, StageKind, Tokens, preset};
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
    for bad in [
        json!(-3),
        json!(0),
        json!(1.5),
        json!("64"),
        json!(1_u64 << 40),
        json!(f64::MAX),
    ] {
        let error = Architecture::from_config(&with("hidden_size", bad)).unwrap_err();
        assert!(matches!(error, ConfigError::OutOfRange { .. }), "{error}");
    }
    assert!(matches!(
        Architecture::from_config(&json!([1])),
        Err(ConfigError::NotAnObject(_))
    ));
}

#[test]
fn models_of_another_kind_are_refused() {
    for (key, value) in [("mamba_d_state", json!(16)), ("linear_num_key_heads", json!(2))] {
        let error = Architecture::from_config(&with(key, value)).unwrap_err();
        assert!(matches!(error, ConfigError::Unsupported { .. }), "{error}");
    }
    let error = Architecture::from_config(&with("model_type", json!("gpt2"))).unwrap_err();
    assert!(matches!(error, ConfigError::Unsupported { .. }), "{error}");
}

#[test]
fn an_unlisted_llama_like_model_is_read_and_said_so() {
    let mut config = with("model_type", json!("newmodel"));
    config["rms_norm_eps"] = json!(1e-6);
    let model = Architecture::from_config(&config).unwrap();
    assert!(
        model.assumptions.iter().any(|text| text.contains("newmodel")),
        "{:?}",
        model.assumptions
    );
}

#[test]
fn the_number_format_is_read_assumed_or_replaced() {
    let model = Architecture::from_config(&llama()).unwrap();
    assert_eq!(model.dtype, Dtype::Fp16);
    let mut config = llama();
    config.as_object_mut().unwrap().remove("dtype");
    let model = Architecture::from_config(&config).unwrap();
    assert_eq!(model.dtype, Dtype::Bf16);
    assert_eq!(model.assumptions.len(), 1);
    let model = model.with_dtype(Dtype::Fp32);
    assert_eq!((model.dtype, model.weights.linear_bits), (Dtype::Fp32, 32.0));
    assert_eq!(model.assumptions, Vec::<String>::new());
}

#[test]
fn quantised_weights_take_their_bits() {
    for (quantisation, bits) in [
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128}),
            4.0 + 20.0 / 128.0,
        ),
        (
            json!({"quant_method": "awq", "bits": 4, "group_size": 64}),
            4.0 + 20.0 / 64.0,
        ),
        (json!({"quant_method": "fp8"}), 8.0),
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
    let windows: Vec<_> = model
        .decoder
        .groups
        .iter()
        .map(|g| (g.count, g.attention.window()))
        .collect();
    assert_eq!(windows, [(12, Some(128)), (12, None)]);
    assert_eq!(model.weights.expert_bits, 4.25);
}

#[test]
fn deepseek_layers_and_attention() {
    let lite = preset("deepseek_v2_lite").unwrap();
    assert!(matches!(
        lite.decoder.groups[0].mlp,
        Mlp::Dense { inner: 10_944, .. }
    ));
    assert_eq!(lite.decoder.groups[1].count, 26);
    assert!(matches!(
        lite.decoder.groups[1].attention,
        Attention::Latent { kv_rank: 512, .. }
    ));
    assert_eq!(lite.decoder.groups[1].attention.cached_values(), 576);
    // DeepSeek-OCR's decoder has no latent attention though its type does.
    let ocr = preset("deepseek_ocr").unwrap();
    assert!(matches!(
        ocr.decoder.groups[0].attention,
        Attention::Grouped {
            kv_heads: 10,
            head_dim: 128,
            ..
        }
    ));
}

#[test]
fn a_llava_like_model_has_a_tower_and_a_projector() {
    let config = json!({"model_type": "llava", "text_config": llama(), "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 336, "patch_size": 14}});
    let model = Architecture::from_config(&config).unwrap();
    let vision = model.vision.unwrap();
    assert_eq!(
        vision.projector,
        Projector::TwoLayer {
            inputs: 1024,
            outputs: 64
        }
    );
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
        views: None,
    };
    let mut read = 0;
    for name in [
        "deepseek_ocr",
        "deepseek_ocr2",
        "deepseek_v2_lite",
        "gpt_oss_20b",
        "qwen3_30b_a3b",
    ] {
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
