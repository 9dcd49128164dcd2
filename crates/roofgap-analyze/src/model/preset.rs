//! Architectures that come with the tool.

use super::{Architecture, ConfigError};

/// Names of the presets, with the configuration of each.
const FILES: [(&str, &str); 13] = [
    ("deepseek_ocr", include_str!("../../presets/deepseek_ocr.json")),
    ("deepseek_ocr2", include_str!("../../presets/deepseek_ocr2.json")),
    (
        "deepseek_v2_lite",
        include_str!("../../presets/deepseek_v2_lite.json"),
    ),
    ("llama3_8b", include_str!("../../presets/llama3_8b.json")),
    ("qwen3_0_6b", include_str!("../../presets/qwen3_0_6b.json")),
    ("qwen3_1_7b", include_str!("../../presets/qwen3_1_7b.json")),
    ("qwen3_4b", include_str!("../../presets/qwen3_4b.json")),
    ("qwen3_8b", include_str!("../../presets/qwen3_8b.json")),
    ("qwen3_14b", include_str!("../../presets/qwen3_14b.json")),
    ("qwen3_32b", include_str!("../../presets/qwen3_32b.json")),
    ("qwen3_30b_a3b", include_str!("../../presets/qwen3_30b_a3b.json")),
    ("gpt_oss_20b", include_str!("../../presets/gpt_oss_20b.json")),
    ("gpt_oss_120b", include_str!("../../presets/gpt_oss_120b.json")),
];

/// Names of the presets.
pub const PRESETS: [&str; 13] = [
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
    "gpt_oss_120b",
];

/// Why a preset could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// No such name.
    #[error("no model preset {name:?}: there are {known}")]
    Unknown {
        /// As asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The built-in file is broken, which its tests exclude.
    #[error("the model preset {name:?} cannot be read: {why}")]
    Broken {
        /// The preset.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// Returns the name and the `config.json` of a preset. Case, dashes, dots and spaces in the name are ignored.
///
/// # Errors
/// Returns an error for an unknown name.
pub fn preset_config(name: &str) -> Result<(&'static str, &'static str), PresetError> {
    let wanted = name
        .trim()
        .to_ascii_lowercase()
        .replace(['-', '.', ' ', '/'], "_");
    let found = FILES.iter().find(|(known, _)| *known == wanted);
    found.copied().ok_or_else(|| PresetError::Unknown {
        name: name.to_owned(),
        known: PRESETS.join(", "),
    })
}

/// The architecture of a preset. Case, dashes, dots and spaces in its name do not matter.
///
/// # Errors
/// When there is no preset of that name.
///
/// ```
/// let model = roofgap_analyze::model::preset("Qwen3-0.6B").unwrap();
/// assert_eq!(model.parameters().total, 596_049_920);
/// ```
pub fn preset(name: &str) -> Result<Architecture, PresetError> {
    let (known, text) = preset_config(name)?;
    let broken = |why: String| PresetError::Broken { name: known, why };
    let config: serde_json::Value = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    let mut architecture =
        Architecture::from_config(&config).map_err(|error: ConfigError| broken(error.to_string()))?;
    architecture.name = known.to_owned();
    Ok(architecture)
}
