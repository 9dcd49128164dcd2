//! The model: towers, projector, decoder.

mod attention;
mod clip;
mod decoder;
mod experts;
mod layers;
mod sam;
mod whole;

pub(crate) use decoder::KvCache;
pub(crate) use whole::Model;
