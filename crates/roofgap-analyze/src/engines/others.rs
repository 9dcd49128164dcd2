//! Programs that name their own steps, and engines of which only the metrics are known.

use super::step::phases;
use super::{Engine, Grammar};

/// A program that names its own steps, as `roofgap.step` of the Python package does.
pub static CUSTOM: Engine = Engine {
    name: "custom",
    grammars: &[Grammar {
        example: "roofgap_context_1(512)_generation_4(4)",
        seen: "the Python package of this project",
        parse: |name| phases(name.strip_prefix("roofgap_context_")?),
    }],
    ..Engine::UNKNOWN
};

/// llama.cpp. Its server exports metrics; its steps have no names.
pub static LLAMA_CPP: Engine = Engine { name: "llama.cpp", metrics: Some("llamacpp:"), ..Engine::UNKNOWN };
