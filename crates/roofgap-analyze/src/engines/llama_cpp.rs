//! llama.cpp. Its server exports metrics; its steps have no names.

use super::Engine;

pub static LLAMA_CPP: Engine = Engine { name: "llama.cpp", metrics: Some("llamacpp:"), ..Engine::UNKNOWN };
