//! The work of a model from its architecture: FLOPs and bytes, term by term.
//!
//! `config` reads a Hugging Face `config.json` (or a preset) into an [`Architecture`], `work` adds
//! up the work of a prefill or a decode, `utilisation` divides it by what the device can do in the time (MFU and MBU).

mod architecture;
mod config;
mod utilisation;
mod work;

pub use architecture::Architecture;
pub(crate) use architecture::{
    Attention, Decoder, Experts, LayerGroup, Mlp, Projector, Sam, Tower, Vision, VisionEncoder, Vit,
    WeightFormat,
};
pub use config::{UnknownModel, preset, preset_config, preset_names};
pub(crate) use utilisation::WorkFacts;
pub use work::{Tokens, View};
pub(crate) use work::{distinct_experts, unknown_tokens};

#[cfg(test)]
mod tests;
