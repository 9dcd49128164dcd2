//! Names of framework operators.

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
