//! A program that names its own steps, as `roofgap.step` of the Python package does.

use super::step::phases;
use super::{Engine, Grammar};

pub static CUSTOM: Engine = Engine {
    name: "custom",
    grammars: &[Grammar {
        example: "roofgap_context_1(512)_generation_4(4)",
        seen: "the Python package of this project",
        parse: |name| phases(name.strip_prefix("roofgap_context_")?),
    }],
    ..Engine::UNKNOWN
};
