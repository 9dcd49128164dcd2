//! What a model has to compute and to move, from its architecture: parameters, FLOPs and bytes, term by term.
//!
//! `config` reads a Hugging Face `config.json` (or a preset) into an [`Architecture`]; `parameters` counts it; `work` says
//! what a prefill or a decode of it costs; `utilisation` sets that against the time it took (MFU and MBU).

mod architecture;
mod config;
mod parameters;
mod preset;
mod utilisation;
mod work;

pub use architecture::Architecture;
pub(crate) use architecture::{
    Attention, Decoder, Experts, LayerGroup, Mlp, Projector, Sam, Tower, Vision, VisionEncoder, Vit,
    WeightFormat,
};
pub use config::ConfigError;
pub use preset::{PresetError, preset, preset_config, preset_names};
pub(crate) use utilisation::add_utilisation;
pub(crate) use work::distinct_experts;
pub use work::{Tokens, View};
