//! Names of modules in the names of ranges.

use roofgap_trace::frames::MODULE;

/// Beginning of the ranges that our annotation puts around modules; the qualified name follows.
pub const LAYER: &str = "layer:";

/// Beginning of the ranges of layer-wise NVTX hooks, the text of a Python dictionary.
const HOOK: &str = "{'Module': '";

/// The module that a range stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleName<'a> {
    /// Qualified name within the model, such as `model.layers.3.mlp`.
    Qualified(&'a str),
    /// Class and number of an instance, such as `Linear_3`; only the modules around it tell its place in the model.
    Instance(&'a str),
}

/// Returns the module that a range of this name stands for; `None` for other ranges.
pub fn module_name(range: &str) -> Option<ModuleName<'_>> {
    let found = if let Some(name) = range.strip_prefix(LAYER) {
        ModuleName::Qualified(name.trim())
    } else if let Some(instance) = range.strip_prefix(MODULE) {
        ModuleName::Instance(instance.trim())
    } else {
        let (name, _) = range.strip_prefix(HOOK)?.split_once('\'')?;
        ModuleName::Qualified(name.trim())
    };
    let (ModuleName::Qualified(text) | ModuleName::Instance(text)) = found;
    (!text.is_empty()).then_some(found)
}

/// Returns the kind of a layer: its name with `*` for the numbers of list elements and of instances of a class.
pub fn layer_kind(name: &str) -> String {
    let part = |part: &str| {
        let text = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_class = text.ends_with('_') && text.starts_with(|c: char| c.is_ascii_uppercase());
        match text.len() < part.len() && (text.is_empty() || is_class) {
            true => format!("{text}*"),
            false => part.to_owned(),
        }
    };
    let parts: Vec<String> = name.split('.').map(part).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_recognised_in_three_grammars() {
        use ModuleName::{Instance, Qualified};
        for (range, expected) in [
            ("layer:model.layers.3.mlp", Some(Qualified("model.layers.3.mlp"))),
            ("nn.Module: Linear_12", Some(Instance("Linear_12"))),
            (
                "{'Module': 'Qwen3ForCausalLM.model.layers.0', 'Inputs': [[4, 8]]}",
                Some(Qualified("Qwen3ForCausalLM.model.layers.0")),
            ),
            ("layer:", None),
            ("nn.Module: ", None),
            ("{'Module': 'x", None),
            ("decode_step", None),
            ("aten::mm", None),
        ] {
            assert_eq!(module_name(range), expected, "{range}");
        }
    }

    #[test]
    fn layers_of_a_kind_differ_in_their_numbers() {
        for (name, kind) in [
            ("model.layers.31.mlp.gate_up_proj", "model.layers.*.mlp.gate_up_proj"),
            ("model.layers.3.mlp.experts.17.w2", "model.layers.*.mlp.experts.*.w2"),
            ("DecoderLayer_3.MLP_4.Linear_29", "DecoderLayer_*.MLP_*.Linear_*"),
            ("transformer.h.0.ln_1", "transformer.h.*.ln_1"),
            ("lm_head", "lm_head"),
            ("vision.conv1d", "vision.conv1d"),
            ("vision.conv1", "vision.conv1"),
        ] {
            assert_eq!(layer_kind(name), kind);
        }
    }
}
