//! The model: towers, projector, decoder.

mod attention;
mod clip;
mod decoder;
mod experts;
mod layers;
mod sam;
mod whole;

pub use decoder::KvCache;
pub use whole::Model;
