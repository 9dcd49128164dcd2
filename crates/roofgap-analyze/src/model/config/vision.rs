//! The vision part of a configuration.

use super::{Fields, UnknownModel};
use crate::model::{Linear, Tower, Vision};

pub fn read(
    top: &Fields<'_>,
    decoder_hidden: u64,
    assumptions: &mut Vec<String>,
) -> Result<Option<Vision>, UnknownModel> {
    let Some(vision) = top.object("vision_config") else {
        return Ok(None);
    };
    // DeepSeek-OCR has towers by name: in its published form under `width`, with sizes that its code fixes left out.
    let published = vision.object("width");
    let by_name = published.as_ref().unwrap_or(&vision);
    let named = |keys: [&str; 2]| keys.into_iter().find_map(|key| by_name.object(key));
    let first = named(["sam_vit_b", "sam_config"])
        .or_else(|| vision.has("global_attn_indexes").then(|| vision.clone()));
    let second = match named(["clip-l-14-224", "clip_config"]) {
        Some(fields) => Some(clip(&fields, first.is_some())?),
        None => named(["qwen2-0-5b", "encoder_config"]).map(|fields| encoder(&fields)).transpose()?,
    };
    if first.is_none() && second.is_none() {
        return plain(top, &vision, decoder_hidden, assumptions);
    }
    // Only the published form has the image size beside the towers.
    let sized = first.as_ref().filter(|_| published.is_none()).unwrap_or(&vision);
    let image_size = sized.size_or(&["image_size"], 1024)?;
    let next = second.as_ref().map_or(1024, |tower| tower.hidden);
    let first = first.map(|fields| sam(&fields, next)).transpose()?;
    let towers: Vec<Tower> = first.into_iter().chain(second).collect();
    let features = towers.last().map_or(decoder_hidden, Tower::width);
    let projector = match top.object("projector_config") {
        Some(fields) => {
            let inputs = fields.size_or(&["input_dim"], features)?;
            vec![Linear::new("projector", inputs, fields.size_or(&["n_embed"], decoder_hidden)?, true)]
        }
        None if published.is_some() => Vec::new(),
        None => vec![Linear::new("projector", features, decoder_hidden, true)],
    };
    Ok(Some(Vision { towers, projector, extra: 0.0, image_size }))
}

/// Reads the sizes that every kind of tower has. A size of 0 in `usual` has to be there.
fn tower(fields: &Fields<'_>, usual: Tower) -> Result<Tower, UnknownModel> {
    let size = |keys: &[&str], usual: u64| match usual {
        0 => fields.need(keys),
        usual => fields.size_or(keys, usual),
    };
    let hidden = size(&["width", "hidden_size", "dim"], usual.hidden)?;
    let heads = size(&["heads", "num_attention_heads"], usual.heads)?;
    let inner = match (fields.size(&["mlp_dim", "intermediate_size"])?, usual.inner) {
        (Some(inner), _) => inner,
        // Four times the width unless the tower itself says otherwise.
        (None, 0) => (hidden as f64 * fields.number("mlp_ratio", 0.1, 64.0).unwrap_or(4.0)) as u64,
        (None, inner) => inner,
    };
    let kv_heads = if usual.kv_heads > 0 { usual.kv_heads } else { heads };
    Ok(Tower {
        hidden,
        heads,
        inner,
        layers: size(&["layers", "num_hidden_layers"], usual.layers)?,
        kv_heads: fields.size_or(&["kv_heads", "num_key_value_heads"], kv_heads)?,
        ..usual
    })
}

/// The second tower of DeepSeek-OCR. Its patch embedding is stored and never used where SAM's features take its place.
fn clip(fields: &Fields<'_>, is_second: bool) -> Result<Tower, UnknownModel> {
    let patch = fields.size_or(&["patch_size"], 14)?;
    let side = fields.size_or(&["image_size"], 224)? / patch;
    let class_token = fields.flag("class_token").unwrap_or(true);
    let usual = Tower {
        name: "clip",
        heads: 16,
        qkv_bias: true,
        patch: if is_second { 0 } else { patch },
        class_token,
        positions: side * side + u64::from(class_token),
        ..Tower::default()
    };
    tower(fields, usual)
}

/// The second tower of DeepSeek-OCR-2.
fn encoder(fields: &Fields<'_>) -> Result<Tower, UnknownModel> {
    let usual = Tower {
        name: "vision_encoder",
        hidden: 896,
        layers: 24,
        heads: 14,
        kv_heads: 2,
        inner: 4864,
        gated: true,
        qkv_bias: true,
        queries: fields.sizes("queries")?.unwrap_or_else(|| vec![144, 256]),
        vectors: 1,
        ..Tower::default()
    };
    tower(fields, usual)
}

fn sam(fields: &Fields<'_>, next: u64) -> Result<Tower, UnknownModel> {
    let usual = Tower { name: "sam", hidden: 768, layers: 12, heads: 12, ..Tower::default() };
    let tower = tower(fields, usual)?;
    let global = fields.sizes("global_attn_indexes")?.unwrap_or_else(|| vec![2, 5, 8, 11]);
    let global = global.iter().filter(|layer| **layer < tower.layers).count() as u64;
    Ok(Tower {
        qkv_bias: fields.flag("qkv_bias").unwrap_or(true),
        patch: fields.size_or(&["patch_size"], 16)?,
        // Interpolated for an image of another size.
        positions: if fields.flag("use_abs_pos") == Some(false) { 0 } else { u64::MAX },
        vectors: 1,
        window: fields.size_or(&["window_size"], 14)?,
        windowed_layers: tower.layers.saturating_sub(global),
        relative_positions: fields.flag("use_rel_pos").unwrap_or(true),
        neck: fields.at_least(&["neck_channels", "output_channels"], 0)?.unwrap_or(256),
        downsample: fields.sizes("downsample_channels")?.unwrap_or_else(|| vec![512, next]),
        ..tower
    })
}

/// A plain vision transformer in the form that CLIP, SigLIP and ViT share.
fn plain(
    top: &Fields<'_>,
    vision: &Fields<'_>,
    decoder_hidden: u64,
    assumptions: &mut Vec<String>,
) -> Result<Option<Vision>, UnknownModel> {
    let kind = vision.text("model_type").unwrap_or_default();
    let name = [("siglip", "siglip"), ("clip", "clip"), ("git", "clip")]
        .iter()
        .find(|(part, _)| kind.contains(part));
    let name = name.map(|(_, name)| *name).or((kind == "vit").then_some("vit"));
    let sizes = ["hidden_size", "num_hidden_layers", "num_attention_heads", "patch_size", "image_size"];
    let Some(name) = name.filter(|_| sizes.iter().all(|key| vision.has(key))) else {
        assumptions.push(format!(
            "the vision part {kind:?} is not understood: its parameters and its work are left out"
        ));
        return Ok(None);
    };
    let (patch, image_size) = (vision.need(&["patch_size"])?, vision.need(&["image_size"])?);
    let class_token = name != "siglip";
    let usual = Tower {
        name,
        qkv_bias: true,
        patch,
        class_token,
        positions: (image_size / patch).pow(2) + u64::from(class_token),
        ..Tower::default()
    };
    let tower = tower(vision, usual)?;
    let layer = |name, inputs, bias| Linear::new(name, inputs, decoder_hidden, bias);
    let mut extra = 0.0;
    if name == "siglip" && vision.flag("vision_use_head") != Some(false) {
        // Pooling by attention of one learned query, stored whether a decoder uses it or not.
        let (width, inner) = (tower.hidden as f64, tower.inner as f64);
        extra += width * (4.0 * width + 2.0 * inner + 8.0) + inner;
    }
    let kind = top.text("model_type").unwrap_or_default();
    let projector = if kind.starts_with("llava") {
        vec![layer("first", tower.hidden, true), layer("second", decoder_hidden, true)]
    } else if top.has("mm_tokens_per_image") {
        vec![layer("projector", tower.hidden, false)]
    } else if kind == "git" {
        vec![layer("projector", tower.hidden, true)]
    } else {
        assumptions.push("the projector of the vision part is not described: it is left out".to_owned());
        Vec::new()
    };
    Ok(Some(Vision { towers: vec![tower], projector, extra, image_size }))
}
