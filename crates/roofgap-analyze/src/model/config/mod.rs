//! From a Hugging Face `config.json` or a preset to an [`Architecture`].
//!
//! `decoder` reads the language model, `vision` the encoders.

mod decoder;
mod table;
mod vision;

#[cfg(test)]
mod tests;

use super::{Architecture, Decoder, WeightFormat};
use crate::gpu::Dtype;
use serde_json::{Map, Value};

/// A configuration without a usable architecture, or a name that is no preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownModel(pub(super) String);

/// Keys under which multi-modal configurations keep the language model.
const TEXT_KEYS: [&str; 4] = ["text_config", "language_config", "llm_config", "thinker_config"];

impl Architecture {
    /// Reads an architecture from a Hugging Face `config.json`.
    ///
    /// # Errors
    /// When a size is missing or not usable, or the kind of model is not one whose work can be counted.
    pub fn from_config(config: &Value) -> Result<Self, UnknownModel> {
        Self::read(config, None)
    }

    /// Returns the fields of the language model by the names that the rules read.
    pub(super) fn fields(config: &Value) -> Map<String, Value> {
        let text = TEXT_KEYS.iter().map(|key| &config[*key]).find(|text| text.is_object());
        let mut map = text.unwrap_or(config).as_object().cloned().unwrap_or_default();
        let kind = map.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
        // What cannot be computed is left out.
        let _ = table::complete(&mut map, [&kind, ""]);
        map
    }

    /// Reads an architecture whose language model is known from elsewhere.
    pub(super) fn read(config: &Value, known: Option<Decoder>) -> Result<Self, UnknownModel> {
        let map = config.as_object().ok_or_else(|| {
            UnknownModel("config is not an object: expected the content of a config.json".to_owned())
        })?;
        let top = Fields { map, path: "config".to_owned() };
        let mut text = TEXT_KEYS.iter().find_map(|key| top.object(key)).unwrap_or_else(|| top.clone());
        // Some multi-modal configurations repeat the sizes above and leave an empty stub below.
        if !text.has("hidden_size") && top.has("hidden_size") && !text.has("num_hidden_layers") {
            text = top.clone();
        }
        let levels = [&top, &text];
        let kind = levels.into_iter().find_map(|fields| fields.text("model_type")).unwrap_or_default();
        let mut assumptions = Vec::new();
        let (decoder, vision) = match known {
            Some(decoder) => (decoder, None),
            None => {
                let decoder = decoder::read(&top, &text, &mut assumptions)?;
                let hidden = decoder.hidden;
                (decoder, vision::read(&top, hidden, &mut assumptions)?)
            }
        };
        let named = levels.into_iter().find_map(|fields| fields.text("dtype").or(fields.text("torch_dtype")));
        let dtype = named.and_then(|name| name.parse().ok()).unwrap_or_else(|| {
            assumptions.push("the configuration names no number format, so bf16 is assumed".to_owned());
            Dtype::Bf16
        });
        let weights = read_weights(levels, dtype, &mut assumptions);
        let kind = if kind.is_empty() { "unnamed model" } else { kind };
        let name = top.text("_name_or_path").filter(|name| !name.is_empty()).unwrap_or(kind).to_owned();
        Ok(Self { name, dtype, weights, decoder, vision, assumptions, replicas: 1 })
    }
}

/// Returns name and configuration of presets, each a file of the folder `presets`.
macro_rules! presets {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../presets/", $name, ".json")))),*]
    };
}

/// Name and configuration of each preset.
const PRESETS: [(&str, &str); 13] = presets![
    "deepseek_ocr",
    "deepseek_ocr2",
    "deepseek_v2_lite",
    "llama3_8b",
    "qwen3_0_6b",
    "qwen3_1_7b",
    "qwen3_4b",
    "qwen3_8b",
    "qwen3_14b",
    "qwen3_32b",
    "qwen3_30b_a3b",
    "gpt_oss_20b",
    "gpt_oss_120b"
];

/// Returns the names of the presets.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// Returns the configuration of a preset, as the text of a Hugging Face `config.json`.
///
/// # Errors
/// When there is no preset of that name.
pub fn preset_config(name: &str) -> Result<&'static str, UnknownModel> {
    find_preset(name).map(|(_, text)| *text)
}

/// Returns the architecture of a preset. Case, dashes, dots and spaces in its name do not matter.
///
/// # Errors
/// When there is no preset of that name.
///
/// ```
/// let model = roofgap_analyze::model::preset("Qwen3-0.6B").unwrap();
/// assert_eq!(model.name(), "qwen3_0_6b");
/// ```
pub fn preset(name: &str) -> Result<Architecture, UnknownModel> {
    let (name, text) = find_preset(name)?;
    let config = serde_json::from_str(text).map_err(|error| UnknownModel(error.to_string()))?;
    let architecture = Architecture::from_config(&config)?;
    Ok(Architecture { name: (*name).to_owned(), ..architecture })
}

fn find_preset(name: &str) -> Result<&'static (&'static str, &'static str), UnknownModel> {
    let wanted = name.trim().to_ascii_lowercase().replace(['-', '.', ' ', '/'], "_");
    PRESETS.iter().find(|(known, _)| *known == wanted).ok_or_else(|| {
        let known = preset_names().collect::<Vec<_>>().join(", ");
        UnknownModel(format!("no model preset {name:?}: known presets are {known}"))
    })
}

/// Largest size taken from a configuration: products of two stay exact, nothing overflows.
const MOST: u64 = 1 << 24;

/// An object of the configuration and where it stands. It is untrusted input.
#[derive(Debug, Clone)]
struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// A nested object.
    fn object(&self, key: &str) -> Option<Fields<'a>> {
        let map = self.map.get(key)?.as_object()?;
        Some(Fields { map, path: format!("{}.{key}", self.path) })
    }

    fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.map.get(key)?.as_str()
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.map.get(key)?.as_bool()
    }

    fn number(&self, key: &str, from: f64, to: f64) -> Option<f64> {
        self.map.get(key)?.as_f64().filter(|number| (from..=to).contains(number))
    }

    fn list(&self, key: &str) -> Option<&'a [Value]> {
        self.map.get(key)?.as_array().map(Vec::as_slice)
    }

    /// A list of sizes.
    fn sizes(&self, key: &str) -> Result<Option<Vec<u64>>, UnknownModel> {
        let list = self.list(key).map(|list| list.iter().map(|value| self.checked(key, value, 0)).collect());
        list.transpose()
    }

    /// The first of these keys that is there, as a size of at least 1. A list of equal sides counts as one.
    fn size(&self, keys: &[&str]) -> Result<Option<u64>, UnknownModel> {
        self.at_least(keys, 1)
    }

    /// The same with a value where none of them is there.
    fn size_or(&self, keys: &[&str], otherwise: u64) -> Result<u64, UnknownModel> {
        Ok(self.size(keys)?.unwrap_or(otherwise))
    }

    /// The same, where 0 means "none".
    fn size_or_zero(&self, keys: &[&str]) -> Result<u64, UnknownModel> {
        Ok(self.at_least(keys, 0)?.unwrap_or(0))
    }

    /// A size that has to be there.
    fn need(&self, keys: &[&str]) -> Result<u64, UnknownModel> {
        self.size(keys)?.ok_or_else(|| {
            UnknownModel(format!(
                "{} has no {}: without it the work of the model cannot be counted",
                self.path,
                keys.first().copied().unwrap_or_default()
            ))
        })
    }

    fn at_least(&self, keys: &[&str], least: u64) -> Result<Option<u64>, UnknownModel> {
        for key in keys {
            let value = match self.map.get(*key) {
                Some(Value::Array(sides)) => sides.first(),
                value => value.filter(|value| !value.is_null()),
            };
            if let Some(value) = value {
                return self.checked(key, value, least).map(Some);
            }
        }
        Ok(None)
    }

    fn checked(&self, key: &str, value: &Value, least: u64) -> Result<u64, UnknownModel> {
        let whole = value.as_u64().or_else(|| {
            value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n <= MOST as f64).map(|n| n as u64)
        });
        whole.filter(|n| (least..=MOST).contains(n)).ok_or_else(|| {
            UnknownModel(format!(
                "{}.{key} is {value}: expected a whole number from {least} to {MOST}",
                self.path
            ))
        })
    }
}

/// Reads how weights are stored: in the number format, or quantised.
fn read_weights(levels: [&Fields<'_>; 2], dtype: Dtype, assumptions: &mut Vec<String>) -> WeightFormat {
    let bits = dtype.bits();
    let how = format!("all weights in {dtype}");
    let plain = WeightFormat { linear_bits: bits, expert_bits: bits, other_bits: bits, how };
    let quantisation = levels.into_iter().find_map(|fields| fields.object("quantization_config"));
    let Some(quantisation) = quantisation else {
        return plain;
    };
    let method = quantisation.text("quant_method").unwrap_or_default();
    // Bits of a stored weight of the layers, and how.
    let layers = match method {
        // Blocks of 32 values share an 8-bit scale; the published models quantise the experts alone.
        "mxfp4" => {
            let how =
                format!("experts in MXFP4 (4 bits and an 8-bit scale for 32 values), the rest in {dtype}");
            return WeightFormat { expert_bits: 4.25, how, ..plain };
        }
        "modelopt" => {
            quantisation.text("quant_algo").and_then(|algorithm| match algorithm.to_ascii_uppercase() {
                // An 8-bit scale for 16 values.
                text if text.contains("FP4") => {
                    Some((4.5, format!("layers in NVFP4 (4.5 bits with scales), the rest in {dtype}")))
                }
                text if text.contains('8') => Some((8.0, format!("layers in {text}, the rest in {dtype}"))),
                text if text.contains("W4") || text.contains("INT4") => Some((
                    4.125,
                    format!("layers in {text} (4.125 bits with scales of 128 values), the rest in {dtype}"),
                )),
                _ => None,
            })
        }
        "fp8" | "fbgemm_fp8" => Some((8.0, format!("layers in fp8, embedding, head and norms in {dtype}"))),
        "compressed-tensors" => compressed(&quantisation).map(|(bits, group)| {
            // Formats of 4-bit floating point have 8-bit scales.
            let scale = if quantisation.text("format").is_some_and(|format| format.contains("fp4")) {
                8.0
            } else {
                16.0
            };
            let stored = bits + group.map_or(0.0, |size| scale / size);
            (stored, format!("layers in {bits} bits ({stored:.3} with scales), the rest in {dtype}"))
        }),
        "gptq" | "awq" | "auto-round" | "hqq" | "quanto" => {
            quantisation.number("bits", 1.0, 16.0).map(|bits| {
                // A 16-bit scale and a zero point as wide as the weight for each group.
                let group = quantisation.number("group_size", 1.0, f64::INFINITY);
                let stored = bits + group.map_or(0.0, |size| (16.0 + bits) / size);
                let how = format!(
                    "layers in {method} {bits}-bit ({stored:.3} bits with scales), the rest in {dtype}"
                );
                (stored, how)
            })
        }
        "bitsandbytes" => {
            let is = |key: &str| quantisation.flag(key) == Some(true);
            // Blocks of 64 share a scale: 32 bits, or about 8 when the scales are quantised too.
            let scale = if is("bnb_4bit_use_double_quant") { 8.125 } else { 32.0 };
            let in_4 = is("load_in_4bit").then_some(4.0 + scale / 64.0);
            let stored = in_4.or(is("load_in_8bit").then_some(8.0));
            stored.map(|stored| {
                let how =
                    format!("layers in bitsandbytes, {stored:.3} bits with scales, the rest in {dtype}");
                (stored, how)
            })
        }
        _ => None,
    };
    let Some((stored, how)) = layers else {
        assumptions.push(format!(
            "the quantisation {method:?} is not understood: weight bytes are counted unquantised, so they are an upper bound"
        ));
        return plain;
    };
    WeightFormat { linear_bits: stored, expert_bits: stored, how, ..plain }
}

/// Bits and group size of the weights where all groups of layers have the same.
fn compressed(quantisation: &Fields<'_>) -> Option<(f64, Option<f64>)> {
    let groups = quantisation.object("config_groups")?;
    let mut formats = groups.map.keys().map(|key| {
        let weights = groups.object(key)?.object("weights")?;
        Some((weights.number("num_bits", 1.0, 16.0)?, weights.number("group_size", 1.0, f64::INFINITY)))
    });
    let first = formats.next()??;
    formats.all(|other| other == Some(first)).then_some(first)
}
