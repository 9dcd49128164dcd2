//! Kernels that torch.compile generates. Their names list the operators that were fused, and many only touch the result of one.

use super::Family;

/// Operators that only move or reinterpret data.
const MOVES: [&str; 30] = [
    "as",
    "cat",
    "clone",
    "constant",
    "copy",
    "empty",
    "expand",
    "flip",
    "full",
    "gather",
    "index",
    "like",
    "nd",
    "pad",
    "permute",
    "put",
    "repeat",
    "roll",
    "scatter",
    "select",
    "slice",
    "split",
    "squeeze",
    "stack",
    "strided",
    "to",
    "transpose",
    "unbind",
    "unsqueeze",
    "view",
];

/// Returns the family of a generated kernel by its lowercase name; `None` for the name of any other kernel.
pub fn family(name: &str) -> Option<Family> {
    let (kind, fused) = name.strip_prefix("triton_")?.split_once('_')?;
    let has = |word: &str| fused.contains(word);
    Some(match kind {
        "poi" | "for" => pointwise(fused),
        "red" | "per" | "spl" if has("layer_norm") || has("rms_norm") || has("rmsnorm") => Family::Norm,
        "red" | "per" | "spl" if has("group_norm") || has("batch_norm") || has("norm_legit") => Family::Norm,
        "red" | "per" | "spl" if has("rsqrt") && (has("mean") || has("var")) => Family::Norm,
        "red" | "per" | "spl" if has("softmax") => Family::Softmax,
        "red" | "per" | "spl" if has("argmax") || has("topk") || has("sort") => Family::Sampling,
        "red" | "per" | "spl" if has("quant") || has("float8") => Family::Quantization,
        "red" | "per" | "spl" => Family::Reduction,
        "tem" | "mm" if has("attention") => Family::Attention,
        "tem" | "mm" if has("convolution") => Family::Convolution,
        "tem" | "mm" => Family::Gemm,
        _ => return None,
    })
}

fn pointwise(fused: &str) -> Family {
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    let mut operators =
        fused.split('_').filter(|word| !is_number(word) && !["fused", "unsafe"].contains(word)).peekable();
    if fused.starts_with("fused_embedding") {
        Family::Embedding
    } else if operators.peek().is_some() && operators.all(|word| MOVES.contains(&word)) {
        Family::CopyLayout
    } else {
        Family::Elementwise
    }
}
