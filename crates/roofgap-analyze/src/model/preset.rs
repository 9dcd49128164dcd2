//! Built-in architectures: the one list of model presets.

use super::{Architecture, ConfigError};

/// Name and configuration of each preset.
const FILES: [(&str, &str); 13] = [
    ("deepseek_ocr", include_str!("../../presets/deepseek_ocr.json")),
    ("deepseek_ocr2", include_str!("../../presets/deepseek_ocr2.json")),
    ("deepseek_v2_lite", include_str!("../../presets/deepseek_v2_lite.json")),
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

/// Returns the names of the presets.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Returns the configuration of a preset, as the text of a Hugging Face `config.json`.
pub fn preset_config(name: &str) -> Result<&'static str, PresetError> {
    find(name).map(|(_, text)| *text)
}

/// An error of a preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// No preset has this name.
    #[error("no model preset {name:?}: known presets are {known}")]
    Unknown {
        /// Requested name.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// The built-in file cannot be parsed; tests exclude it.
    #[error("the model preset {name:?} cannot be read: {why}")]
    Broken {
        /// Preset name.
        name: &'static str,
        /// Parse error.
        why: String,
    },
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
pub fn preset(name: &str) -> Result<Architecture, PresetError> {
    let (known, text) = find(name)?;
    let broken = |why: String| PresetError::Broken { name: known, why };
    let config: serde_json::Value = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    let mut architecture =
        Architecture::from_config(&config).map_err(|error: ConfigError| broken(error.to_string()))?;
    architecture.name = (*known).to_owned();
    Ok(architecture)
}

fn find(name: &str) -> Result<&'static (&'static str, &'static str), PresetError> {
    let wanted = name.trim().to_ascii_lowercase().replace(['-', '.', ' ', '/'], "_");
    let found = FILES.iter().find(|(known, _)| *known == wanted);
    found.ok_or_else(|| PresetError::Unknown {
        name: name.to_owned(),
        known: preset_names().collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
