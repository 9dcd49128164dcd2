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

pub use architecture::{
    Architecture, Attention, Decoder, Experts, LayerGroup, Linear, Mlp, Projector, Sam, Tower, Vision,
    VisionEncoder, Vit, WeightFormat,
};
pub use config::ConfigError;
pub use parameters::{ParameterCount, ParameterPart};
pub use preset::{PRESETS, PresetError, preset, preset_config};
pub use utilisation::{StageTime, mbu, mfu};
pub use work::{
    DecodeInput, Misfit, PrefillInput, StageKind, StageWork, Term, Tokens, View, distinct_experts,
};
