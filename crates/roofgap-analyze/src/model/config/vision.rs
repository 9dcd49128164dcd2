//! The vision part of a configuration.

use super::{Fields, UnknownModel};
use crate::model::{Projector, Sam, Tower, Vision, VisionEncoder, Vit};

pub fn read(
    top: &Fields<'_>,
    decoder_hidden: u64,
    assumptions: &mut Vec<String>,
) -> Result<Option<Vision>, UnknownModel> {
    let Some(vision) = top.object("vision_config") else {
        return Ok(None);
    };
    if let Some(width) = vision.object("width") {
        return published_deepseek(top, &vision, &width, decoder_hidden).map(Some);
    }
    if vision.has("sam_config") || vision.has("encoder_config") {
        return transformers_deepseek(&vision, decoder_hidden).map(Some);
    }
    plain(top, &vision, decoder_hidden, assumptions)
}

/// DeepSeek-OCR's own form: towers by name under `vision_config.width`, sizes that its code fixes left out.
fn published_deepseek(
    top: &Fields<'_>,
    vision: &Fields<'_>,
    width: &Fields<'_>,
    decoder_hidden: u64,
) -> Result<Vision, UnknownModel> {
    let image_size = vision.size_or(&["image_size"], 1024)?;
    let mut towers = Vec::new();
    if let Some(fields) = width.object("sam_vit_b") {
        towers.push(Tower::Sam(sam(&fields, vec![512, 1024])?));
    }
    if let Some(fields) = width.object("clip-l-14-224") {
        let hidden = fields.need(&["width"])?;
        towers.push(Tower::Vit(Vit {
            name: "clip",
            hidden,
            layers: fields.need(&["layers"])?,
            inner: inner(&fields, hidden)?,
            // Its patch embedding is stored and never used: SAM's features take its place.
            patch: if fields.flag("patch_embedding") == Some(false) {
                0
            } else {
                fields.size_or(&["patch_size"], 14)?
            },
            class_token: fields.flag("class_token").unwrap_or(true),
            positions: clip_positions(&fields)?,
            fed_by_previous: !towers.is_empty(),
        }));
    }
    if let Some(fields) = width.object("qwen2-0-5b") {
        let hidden = fields.size_or(&["dim", "width", "hidden_size"], 896)?;
        towers.push(Tower::Encoder(VisionEncoder {
            hidden,
            layers: fields.size_or(&["layers"], 24)?,
            heads: fields.size_or(&["heads"], 14)?,
            kv_heads: fields.size_or(&["kv_heads"], 2)?,
            inner: fields.size_or(&["intermediate_size"], 4864)?,
            queries: fields.sizes("queries")?.unwrap_or_else(|| vec![144, 256]),
        }));
    }
    let features = towers.last().map_or(decoder_hidden, Tower::width);
    let projector = match top.object("projector_config") {
        Some(fields) => Projector::Linear {
            inputs: fields.size_or(&["input_dim"], features)?,
            outputs: fields.size_or(&["n_embed"], decoder_hidden)?,
        },
        None => Projector::Unknown,
    };
    Ok(Vision { towers, projector, image_size })
}

/// Learned positions of the CLIP-like tower: its own patches and the class token.
fn clip_positions(fields: &Fields<'_>) -> Result<u64, UnknownModel> {
    let side = fields.size_or(&["image_size"], 224)? / fields.size_or(&["patch_size"], 14)?;
    Ok(side * side + u64::from(fields.flag("class_token").unwrap_or(true)))
}

/// The form of the transformers library: `vision_config.sam_config` and `.encoder_config`.
fn transformers_deepseek(vision: &Fields<'_>, decoder_hidden: u64) -> Result<Vision, UnknownModel> {
    let mut towers = Vec::new();
    let mut image_size = 1024;
    if let Some(fields) = vision.object("sam_config") {
        image_size = fields.size_or(&["image_size"], 1024)?;
        towers.push(Tower::Sam(sam(&fields, vec![512, 896])?));
    }
    if let Some(fields) = vision.object("encoder_config") {
        let heads = fields.need(&["num_attention_heads"])?;
        towers.push(Tower::Encoder(VisionEncoder {
            hidden: fields.need(&["hidden_size"])?,
            layers: fields.need(&["num_hidden_layers"])?,
            heads,
            kv_heads: fields.size_or(&["num_key_value_heads"], heads)?,
            inner: fields.need(&["intermediate_size"])?,
            queries: vec![144, 256],
        }));
    }
    let inputs = towers.last().map_or(decoder_hidden, Tower::width);
    let projector = Projector::Linear { inputs, outputs: decoder_hidden };
    Ok(Vision { towers, projector, image_size })
}

fn sam(fields: &Fields<'_>, downsample: Vec<u64>) -> Result<Sam, UnknownModel> {
    let hidden = fields.size_or(&["width", "hidden_size"], 768)?;
    let layers = fields.size_or(&["layers", "num_hidden_layers"], 12)?;
    let global = fields.sizes("global_attn_indexes")?.unwrap_or_else(|| vec![2, 5, 8, 11]);
    Ok(Sam {
        hidden,
        layers,
        heads: fields.size_or(&["heads", "num_attention_heads"], 12)?,
        inner: match fields.size(&["mlp_dim"])? {
            Some(inner) => inner,
            None => inner(fields, hidden)?,
        },
        patch: fields.size_or(&["patch_size"], 16)?,
        window: fields.size_or(&["window_size"], 14)?,
        global_layers: global.iter().filter(|layer| **layer < layers).count() as u64,
        absolute_positions: fields.flag("use_abs_pos").unwrap_or(true),
        relative_positions: fields.flag("use_rel_pos").unwrap_or(true),
        neck: fields.at_least(&["neck_channels", "output_channels"], 0)?.unwrap_or(256),
        downsample: fields.sizes("downsample_channels")?.unwrap_or(downsample),
        qkv_bias: fields.flag("qkv_bias").unwrap_or(true),
    })
}

/// Inner width of a tower: four times its width unless the tower itself says otherwise.
fn inner(fields: &Fields<'_>, hidden: u64) -> Result<u64, UnknownModel> {
    if let Some(inner) = fields.size(&["intermediate_size"])? {
        return Ok(inner);
    }
    let ratio = fields.number("mlp_ratio", 0.1, 64.0).unwrap_or(4.0);
    Ok((hidden as f64 * ratio) as u64)
}

/// A plain vision transformer in the form that CLIP, SigLIP and ViT share.
fn plain(
    top: &Fields<'_>,
    vision: &Fields<'_>,
    decoder_hidden: u64,
    assumptions: &mut Vec<String>,
) -> Result<Option<Vision>, UnknownModel> {
    let kind = vision.text("model_type").unwrap_or_default();
    let named = |part: &str| kind.contains(part);
    let fixed_size = named("clip") || named("siglip") || kind == "vit";
    let complete = ["hidden_size", "num_hidden_layers", "num_attention_heads", "patch_size", "image_size"]
        .iter()
        .all(|key| vision.has(key));
    if !fixed_size || !complete {
        assumptions.push(format!(
            "the vision part {kind:?} is not understood: its parameters and its work are left out"
        ));
        return Ok(None);
    }
    let hidden = vision.need(&["hidden_size"])?;
    let image_size = vision.need(&["image_size"])?;
    let patch = vision.need(&["patch_size"])?;
    let siglip = named("siglip");
    let side = image_size / patch;
    let vit = Vit {
        name: if siglip {
            "siglip"
        } else if named("clip") {
            "clip"
        } else {
            "vit"
        },
        hidden,
        layers: vision.need(&["num_hidden_layers"])?,
        inner: inner(vision, hidden)?,
        patch,
        class_token: !siglip,
        positions: side * side + u64::from(!siglip),
        fed_by_previous: false,
    };
    let projector = if top.text("model_type").is_some_and(|kind| kind.starts_with("llava")) {
        Projector::TwoLayer { inputs: hidden, outputs: decoder_hidden }
    } else {
        assumptions.push("the projector of the vision part is not described: it is left out".to_owned());
        Projector::Unknown
    };
    Ok(Some(Vision { towers: vec![Tower::Vit(vit)], projector, image_size }))
}
