//! Kernel names: short name, family and other classes. Names of operators and of modules.

mod family;
mod short;

pub use family::{
    Family, attention_phase, family, is_closed_source, is_expert, is_initialisation, on_cuda_cores,
};
pub use short::{Parts, ShortNames, distinct_short_names, short_name};

use roofgap_trace::frames::MODULE;
use roofgap_trace::{NameId, OpKind, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns the names of all kernels.
pub fn kernel_names(trace: &Trace) -> Vec<NameId> {
    let mut seen = FxHashSet::default();
    let kernels = trace.ops.kind.iter().zip(&trace.ops.name).filter(|(kind, _)| **kind == OpKind::Kernel);
    kernels.map(|(_, name)| *name).filter(|name| seen.insert(*name)).collect()
}

/// Short names and families of the kernels of a trace. Different kernels have different short names.
#[derive(Debug, Default)]
pub struct Naming(FxHashMap<String, (String, Family)>);

impl Naming {
    /// Names the kernels of a trace.
    pub(crate) fn of_trace(trace: &Trace) -> Self {
        let totals = trace.kernel_totals.iter().map(|total| total.name);
        Self::of_names(kernel_names(trace).into_iter().chain(totals).map(|name| trace.names.get(name)))
    }

    /// Names the kernels of a list.
    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let short = distinct_short_names(names, FxHashSet::default());
        let named = short.into_iter().map(|(name, short)| {
            let family = family(&name);
            (name, (short, family))
        });
        Self(named.collect())
    }

    /// Returns the short name and the family of a kernel.
    pub(crate) fn of_kernel(&mut self, name: &str) -> (String, Family) {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let named = (short_name(name), family(name));
        self.0.insert(name.to_owned(), named.clone());
        named
    }
}

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
    let module = if let Some(name) = range.strip_prefix(LAYER) {
        ModuleName::Qualified(name.trim())
    } else if let Some(instance) = range.strip_prefix(MODULE) {
        ModuleName::Instance(instance.trim())
    } else {
        let (name, _) = range.strip_prefix(HOOK)?.split_once('\'')?;
        ModuleName::Qualified(name.trim())
    };
    let (ModuleName::Qualified(text) | ModuleName::Instance(text)) = module;
    (!text.is_empty()).then_some(module)
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

/// Norms, as a block of a model.
pub const NORMS: &str = "norms";
/// Attention to what an encoder gives.
pub const CROSS_ATTENTION: &str = "cross-attention";
/// Experts that a router chooses.
pub const EXPERTS: &str = "routed experts";

/// Blocks of a model by what the places of their modules contain; the first that fits.
const BLOCKS: [(&str, &[&str]); 9] = [
    (CROSS_ATTENTION, &["encoder_attn", "crossattention", "cross_attn"]),
    ("shared experts", &["shared_expert", "shared_mlp"]),
    ("router", &["router", "mlp.gate", "moe.gate", "feed_forward.gate"]),
    (EXPERTS, &["expert"]),
    (
        "state space",
        &["mamba", "mixer", "ssm", "linear_attn", "mlstm", "conv", "lru", "temporal_block.linear"],
    ),
    ("attention", &["attn", "attention"]),
    ("dense feed-forward", &["mlp", "ffn", "feed_forward", "fc1", "fc2", "intermediate", "output.dense"]),
    ("embedding", &["embed", "wte", "wpe"]),
    ("output head", &["lm_head", "logits"]),
];

/// Returns the block of a model that a module is a part of, by its place; `None` where the place does not tell.
pub fn block_of(path: &str) -> Option<&'static str> {
    let path = path.to_ascii_lowercase();
    let last = path.rsplit('.').next().unwrap_or_default();
    let is_gate = |names: &[&str]| names.iter().any(|name| path.ends_with(name));
    if last.contains("norm") || last.starts_with("ln") {
        return Some(NORMS);
    }
    BLOCKS
        .iter()
        .find(|(block, names)| match *block {
            // A gate is also a part of a feed-forward network.
            "router" => path.contains("router") || is_gate(names),
            _ => names.iter().any(|name| path.contains(name)),
        })
        .map(|(block, _)| *block)
}

/// Keys that torch's `emit_nvtx` appends to the name of an operator, each after a comma and before `=`.
const APPENDED: [&str; 6] = ["seq", "stashed seq", "op_id", "sizes", "input_op_ids", "op_ids"];

/// Returns the name of an operator without the ids and sizes that torch's `emit_nvtx` appends to it.
pub fn operator_name(text: &str) -> &str {
    let appended = |rest: &str| {
        APPENDED
            .iter()
            .any(|key| rest.strip_prefix(key).is_some_and(|value| value.trim_start().starts_with('=')))
    };
    text.match_indices(", ")
        .find(|&(at, comma)| appended(&text[at + comma.len()..]))
        .map_or(text, |(at, _)| &text[..at])
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

    #[test]
    fn ids_and_sizes_are_not_part_of_the_name() {
        for (text, name) in [
            ("aten::mm, seq = 1, op_id = 2", "aten::mm"),
            ("aten::empty, op_id = 17", "aten::empty"),
            ("aten::mm, seq = 5", "aten::mm"),
            (
                "aten::add, seq = 3, op_id = 9, sizes = [[2, 3], [2, 3], []], input_op_ids = [(4,0), (5,0)]",
                "aten::add",
            ),
            ("AddmmBackward0, stashed seq=1, seq=12", "AddmmBackward0"),
            (
                "autograd::engine::evaluate_function: MmBackward0, seq = 7, op_id = 90",
                "autograd::engine::evaluate_function: MmBackward0",
            ),
            ("prefill, batch 4", "prefill, batch 4"),
            ("run, sequence = 4", "run, sequence = 4"),
            ("prefill", "prefill"),
            ("", ""),
        ] {
            assert_eq!(operator_name(text), name, "{text}");
        }
    }
}
