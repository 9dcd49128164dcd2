//! The work of a model from its architecture: FLOPs and bytes, term by term.
//!
//! `config` reads a Hugging Face `config.json` (or a preset) into an [`Architecture`], `matrices` lists its matrices, `work` adds
//! up the work of a prefill or a decode, `utilisation` divides it by what the device can do in the time (MFU and MBU).

mod architecture;
mod config;
mod matrices;
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
pub(crate) use work::{Misfit, distinct_experts};
pub use work::{Tokens, View};

#[cfg(test)]
mod tests;
