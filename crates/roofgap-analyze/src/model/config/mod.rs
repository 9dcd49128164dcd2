//! From a Hugging Face `config.json` to an [`Architecture`](super::Architecture).
//!
//! `fields` reads numbers with checks, `decoder` the language model, `vision` the encoders, `weights` how weights are stored.

mod decoder;
mod fields;
mod vision;
mod weights;

#[cfg(test)]
mod tests;

pub use fields::ConfigError;

use super::Architecture;
use crate::gpu::Dtype;
use fields::Fields;
use serde_json::Value;

/// Keys under which multi-modal configurations keep the language model.
const TEXT_KEYS: [&str; 4] = ["text_config", "language_config", "llm_config", "thinker_config"];

impl Architecture {
    /// Reads an architecture from a Hugging Face `config.json`.
    ///
    /// # Errors
    /// When a size is missing or not usable, or the kind of model is not one whose work can be counted.
    pub fn from_config(config: &Value) -> Result<Self, ConfigError> {
        let top = Fields::new(config, "config")?;
        let mut text = TEXT_KEYS.iter().find_map(|key| top.object(key)).unwrap_or_else(|| top.clone());
        // Some multi-modal configurations repeat the sizes above and leave an empty stub below.
        if !text.has("hidden_size") && top.has("hidden_size") {
            text = top.clone();
        }
        let model_type = top.text("model_type").or_else(|| text.text("model_type")).unwrap_or_default();
        let mut assumptions = Vec::new();
        let decoder = decoder::read(&top, &text)?;
        let vision = vision::read(&top, decoder.hidden, &mut assumptions)?;
        let dtype = read_dtype(&top, &text, &mut assumptions);
        let weights = weights::read(&top, &text, dtype, &mut assumptions);
        let name = top.text("_name_or_path").filter(|name| !name.is_empty()).unwrap_or_else(|| {
            if model_type.is_empty() { "unnamed model".into() } else { model_type.clone() }
        });
        Ok(Self { name, model_type, dtype, weights, decoder, vision, assumptions })
    }
}

fn read_dtype(top: &Fields<'_>, text: &Fields<'_>, assumptions: &mut Vec<String>) -> Dtype {
    let named = [top, text]
        .into_iter()
        .find_map(|fields| fields.text("dtype").or_else(|| fields.text("torch_dtype")))
        .and_then(|name| name.parse().ok());
    named.unwrap_or_else(|| {
        assumptions.push("the configuration names no number format, so bf16 is assumed".to_owned());
        Dtype::Bf16
    })
}
