use super::*;
use crate::gpu::Dtype;
use crate::model::{Architecture, preset};

fn term<'a>(work: &'a StageWork, name: &str) -> &'a Term {
    work.terms.iter().find(|term| term.name == name).unwrap()
}

/// Llama 3 8B by hand, one sequence.
#[test]
fn prefill_of_a_dense_model() {
    let work = preset("llama3_8b").unwrap().prefill(&PrefillInput { batch: 1, prompt: 512, views: vec![] });
    // q and o 4096 x 4096, k and v 4096 x 1024.
    let projections = 2.0 * 512.0 * 32.0 * (2.0 * 4096.0 * 4096.0 + 2.0 * 4096.0 * 1024.0);
    assert_eq!(term(&work, "attention projections").flops, projections);
    assert_eq!(term(&work, "dense feed-forward").flops, 2.0 * 512.0 * 32.0 * 3.0 * 4096.0 * 14_336.0);
    let pairs = 512.0 * 513.0 / 2.0;
    let attention = term(&work, "attention over the cache");
    assert_eq!(attention.flops, 2.0 * 32.0 * pairs * 2.0 * 4096.0);
    // Written once: keys and values of 1024 each, two bytes.
    assert_eq!(attention.bytes, 32.0 * 512.0 * 2048.0 * 2.0);
    assert_eq!(term(&work, "output head").flops, 2.0 * 4096.0 * 128_256.0);
}

/// A step of one sequence reads every active parameter once, and one row of the embedding.
#[test]
fn a_decode_step_reads_the_active_parameters() {
    for name in ["llama3_8b", "qwen3_30b_a3b", "deepseek_v2_lite", "deepseek_ocr"] {
        let model = preset(name).unwrap();
        let work = model.decode(&DecodeInput { batch: 1, context: 100, steps: 1 });
        let expected = 2.0 * (model.parameters().active + model.decoder.hidden as f64);
        assert!((work.weight_bytes() / expected - 1.0).abs() < 1e-12, "{name}");
    }
}

#[test]
fn decode_reads_the_cache_before_it_and_writes_its_own() {
    let model = preset("llama3_8b").unwrap();
    let work = model.decode(&DecodeInput { batch: 2, context: 100, steps: 3 });
    // Steps look at 101, 102, 103 tokens: 100, 101, 102 read and one written each.
    let attention = term(&work, "attention over the cache");
    assert_eq!(attention.bytes, 32.0 * 2.0 * (306.0) * 2048.0 * 2.0);
    assert_eq!(attention.flops, 2.0 * 32.0 * 2.0 * 306.0 * 2.0 * 4096.0);
    assert_eq!(work.steps, Some(3));
    // A batch shares the weights.
    let one = model.decode(&DecodeInput { batch: 1, context: 100, steps: 3 });
    assert_eq!(term(&work, "dense feed-forward").bytes, term(&one, "dense feed-forward").bytes);
    assert_eq!(term(&work, "dense feed-forward").flops, 2.0 * term(&one, "dense feed-forward").flops);
}

#[test]
fn a_latent_cache_holds_the_compressed_vector() {
    let work = preset("deepseek_v2_lite").unwrap().decode(&DecodeInput { batch: 1, context: 999, steps: 1 });
    assert_eq!(work.kv_bytes(), 27.0 * 1000.0 * 576.0 * 2.0);
}

#[test]
fn a_window_bounds_attention() {
    let work = preset("gpt_oss_20b").unwrap().decode(&DecodeInput { batch: 1, context: 999, steps: 1 });
    // Half of the layers look at 1000 tokens, half at 128.
    assert_eq!(work.kv_bytes(), 12.0 * (1000.0 + 128.0) * 1024.0 * 2.0);
}

#[test]
fn a_batch_touches_more_experts() {
    let model = preset("deepseek_ocr").unwrap();
    let bytes = |batch| {
        let work = model.decode(&DecodeInput { batch, context: 10, steps: 1 });
        term(&work, "routed experts").bytes
    };
    let one_expert = 3.0 * 1280.0 * 896.0 * 2.0;
    assert!((bytes(1) / (11.0 * 6.0 * one_expert) - 1.0).abs() < 1e-12);
    assert!((bytes(2) / (11.0 * (12.0 - 36.0 / 64.0) * one_expert) - 1.0).abs() < 1e-12);
    assert!((bytes(100_000) / (11.0 * 64.0 * one_expert) - 1.0).abs() < 1e-12);
}

/// SAM's encoder at 1024 pixels is published at about 370 G multiply-adds with its neck (ViT-B).
#[test]
fn vision_of_deepseek_ocr() {
    let model = preset("deepseek_ocr").unwrap();
    let vision = model.vision.as_ref().unwrap();
    assert_eq!(vision.features(1024), 256);
    assert_eq!(vision.features(640), 100);
    let work = model.prefill(&PrefillInput {
        batch: 1,
        prompt: 300,
        views: vec![View { image_size: 1024, count: 1 }],
    });
    let sum = |prefix: &str| -> f64 {
        work.terms.iter().filter(|term| term.name.starts_with(prefix)).map(|term| term.flops).sum()
    };
    // Projections and feed-forward over 4096 tokens, windows padded to 25 x 196.
    let products =
        2.0 * ((8.0 * 4900.0 + 4.0 * 4096.0) * 4.0 * 768.0 * 768.0 + 12.0 * 4096.0 * 8.0 * 768.0 * 768.0);
    assert_eq!(term(&work, "sam: products").flops, products);
    let tera = sum("sam") / 1e12;
    assert!((0.9..1.1).contains(&tera), "{tera}");
    // 24 layers over 257 tokens: 2 x 12 x 1024^2 a token and layer, and attention.
    let clip = 2.0 * 257.0 * 24.0 * 12.0 * 1024.0 * 1024.0 + 4.0 * 24.0 * 1024.0 * 257.0 * 257.0;
    assert_eq!(sum("clip"), clip);
    assert_eq!(sum("projector"), 2.0 * 256.0 * 2048.0 * 1280.0);
    // The towers' weights are read once each, however many views.
    let more = model.prefill(&PrefillInput {
        batch: 1,
        prompt: 900,
        views: vec![View { image_size: 1024, count: 1 }, View { image_size: 640, count: 6 }],
    });
    let weights = |work: &StageWork| -> f64 {
        work.terms.iter().filter(|term| term.name.contains("sam")).map(|term| term.bytes).sum()
    };
    assert_eq!(weights(&more), weights(&work));
}

#[test]
fn images_follow_from_their_tokens_or_are_unknown() {
    let first = preset("deepseek_ocr").unwrap();
    let second = preset("deepseek_ocr2").unwrap();
    let views = |model: &Architecture, tokens| model.vision.as_ref().unwrap().views_for(tokens);
    let whole = |count| Some(vec![View { image_size: 1024, count }]);
    assert_eq!(views(&first, 0), Some(vec![]));
    assert_eq!(views(&first, 256), whole(1));
    // 16 rows with a line break each, and a separator.
    assert_eq!(views(&first, 273), whole(1));
    assert_eq!(views(&first, 512), whole(2));
    assert_eq!(views(&first, 100), None);
    assert_eq!(views(&first, 300), None);
    assert_eq!(views(&second, 257), whole(1));
    assert_eq!(
        views(&second, 257 + 6 * 144),
        Some(vec![View { image_size: 1024, count: 1 }, View { image_size: 768, count: 6 }])
    );
}

#[test]
fn tokens_have_to_fit_the_trace() {
    let model = preset("qwen3_0_6b").unwrap();
    let tokens = Tokens { prompt: Some(64), generated: Some(8), batch: Some(1), ..Tokens::default() };
    let decode =
        |tokens: &Tokens, instances, steps| model.stage_work(StageKind::Decode, tokens, instances, steps);
    assert_eq!(decode(&tokens, 1, Some(8)).unwrap().steps, Some(8));
    assert_eq!(decode(&tokens, 1, Some(7)).unwrap().steps, Some(7));
    assert_eq!(decode(&tokens, 3, Some(24)).unwrap().steps, Some(24));
    assert_eq!(
        decode(&tokens, 3, Some(24)).unwrap().flops(),
        3.0 * decode(&tokens, 1, Some(8)).unwrap().flops()
    );
    for (instances, steps) in [(1, 9), (1, 6), (3, 23), (1, 0)] {
        let error = decode(&tokens, instances, Some(steps)).unwrap_err().to_string();
        assert!(error.contains("do not fit the trace"), "{instances} {steps}: {error}");
    }
    assert_eq!(decode(&Tokens::default(), 1, Some(8)), Err(unknown_tokens("prompt tokens").into()));
    let silent = Tokens { generated: None, ..tokens };
    assert_eq!(decode(&silent, 1, None), Err(unknown_tokens("generated tokens").into()));
    assert_eq!(decode(&silent, 2, Some(16)).unwrap().steps, Some(16));
    assert_eq!(decode(&tokens, 0, Some(8)), Err("the stage has no instance".into()));
    let prefill = model.stage_work(StageKind::Prefill, &tokens, 2, None).unwrap();
    assert_eq!(prefill.terms[0].how, "2 times: 64 rows of 1024");
}

#[test]
fn a_vision_model_without_its_vision_tokens_has_no_prefill_work() {
    let model = preset("deepseek_ocr2").unwrap();
    let tokens = Tokens { prompt: Some(512), generated: Some(8), batch: Some(1), ..Tokens::default() };
    let prefill = |tokens: &Tokens| model.stage_work(StageKind::Prefill, tokens, 1, None);
    let unknown = unknown_tokens("vision tokens");
    assert!(
        unknown.contains("(--set workload.vision_tokens=N") && !unknown.contains("workload.tokens"),
        "{unknown}"
    );
    assert_eq!(prefill(&tokens), Err(unknown.into()));
    let no_layout = prefill(&Tokens { vision: Some(300), ..tokens }).unwrap_err().to_string();
    assert!(no_layout.starts_with("300 vision tokens fit no known layout"), "{no_layout}");
    let work = prefill(&Tokens { vision: Some(257), ..tokens }).unwrap();
    assert!(work.terms.iter().any(|term| term.name == "vision_encoder: products"));
    assert!(work.assumptions.iter().any(|text| text.contains("1 of 1024 x 1024 pixels")));
}

#[test]
fn stages_together_keep_their_terms() {
    let model = preset("llama3_8b").unwrap();
    let prefill = model.prefill(&PrefillInput { batch: 1, prompt: 16, views: vec![] });
    let decode = model.decode(&DecodeInput { batch: 1, context: 16, steps: 4 });
    let whole = StageWork::together("whole", &[&prefill, &decode]);
    assert_eq!(whole.flops(), prefill.flops() + decode.flops());
    assert_eq!(whole.terms.len(), prefill.terms.len() + decode.terms.len());
    assert_eq!(whole.terms[0].name, "prefill: embedding");
    assert_eq!(whole.steps, None);
}

#[test]
fn a_stated_format_is_that_of_the_weights() {
    let model = preset("llama3_8b").unwrap();
    let bits = |model: &Architecture| {
        let weights = &model.weights;
        (model.dtype, weights.linear_bits, weights.expert_bits, weights.other_bits)
    };
    assert_eq!(bits(&model.clone().with_dtype(Dtype::Fp32)), (Dtype::Fp32, 32.0, 32.0, 32.0));
    // Embedding, head, norms and activations are not quantised.
    let own = bits(&model);
    assert_eq!(bits(&model.with_dtype(Dtype::Fp8)), (own.0, 8.0, 8.0, own.3));
}

impl StageWork {
    fn weight_bytes(&self) -> f64 {
        self.moved_bytes() - self.kv_bytes()
    }

    fn kv_bytes(&self) -> f64 {
        let cache = self.terms.iter().filter(|term| term.name == "attention over the cache");
        cache.map(|term| term.bytes).sum()
    }
}

/// 8 ranks, each a replica of attention, share 128 experts: a step of 4 sequences a rank touches experts as 32 sequences do.
#[test]
fn experts_of_several_replicas_are_divided() {
    let one = preset("qwen3_30b_a3b").unwrap();
    let input = DecodeInput { batch: 4, context: 100, steps: 1 };
    let (alone, divided) = (one.decode(&input), one.clone().with_replicas(8).decode(&input));
    let experts = |work: &StageWork| (term(work, "routed experts").flops, term(work, "routed experts").bytes);
    let as_32 = one.decode(&DecodeInput { batch: 32, ..input });
    assert_eq!(experts(&divided).0, experts(&alone).0, "as many tokens come as go");
    assert_eq!(experts(&divided).1, experts(&as_32).1 / 8.0);
    assert!(experts(&divided).1 < experts(&alone).1);
    let others = |work: &StageWork| work.moved_bytes() - experts(work).1;
    assert_eq!(others(&divided), others(&alone));
    assert!(divided.assumptions.iter().any(|text| text.contains("even share")));
}
