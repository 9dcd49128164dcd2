//! The work of an operator by the shapes of its inputs.

use crate::gpu::Dtype;

/// FLOPs and bytes of an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorWork {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes, with every input and output moved once.
    pub bytes: f64,
    /// Type of the inputs.
    pub dtype: Dtype,
}

impl OperatorWork {
    /// Returns the work of an operator; `None` where name, shapes or types do not tell it.
    pub fn of(operator: &str, dims: &str, types: &str) -> Option<Self> {
        let dims: Vec<Vec<u64>> =
            serde_json::from_str::<Vec<serde_json::Value>>(dims).ok()?.iter().map(shape).collect();
        let types: Vec<String> = serde_json::from_str(types).ok()?;
        let input = |at: usize| dims.get(at).map(Vec::as_slice);
        let (flops, elements, inputs) = match operator {
            "aten::mm" => product(1, input(0)?, input(1)?, 0..2)?,
            "aten::addmm" => {
                let (flops, elements, inputs) = product(1, input(1)?, input(2)?, 0..3)?;
                (flops, elements + count(input(0)?), inputs)
            }
            "aten::bmm" => match (input(0)?, input(1)?) {
                ([batch, left @ ..], [other, right @ ..]) if batch == other => {
                    product(*batch, left, right, 0..2)?
                }
                _ => return None,
            },
            "aten::_scaled_dot_product_flash_attention"
            | "aten::_scaled_dot_product_efficient_attention"
            | "aten::_scaled_dot_product_cudnn_attention" => attention(input(0)?, input(1)?, input(2)?)?,
            _ => return None,
        };
        let dtype = dtype(types.get(inputs)?)?;
        (flops > 0.0).then_some(Self { flops, bytes: elements * dtype.bits() / 8.0, dtype })
    }
}

type Work = (f64, f64, std::ops::Range<usize>);

/// Returns FLOPs and elements of `batch` products of a matrix of M x K and one of K x N.
fn product(batch: u64, left: &[u64], right: &[u64], inputs: std::ops::Range<usize>) -> Option<Work> {
    let ([m, k], [same, n]) = (left, right) else {
        return None;
    };
    let [batch, m, k, n] = [batch, *m, *k, *n].map(|size| size as f64);
    let elements = batch * (m * k + k * n + m * n);
    (*same as f64 == k).then_some((2.0 * batch * m * n * k, elements, inputs))
}

/// Returns FLOPs and elements of the attention of one new token for each sequence. For several tokens the work depends on the mask,
/// which the shapes do not tell.
fn attention(query: &[u64], key: &[u64], value: &[u64]) -> Option<Work> {
    let ([batch, heads, 1, size], [_, _, length, _], [_, _, _, value_size]) = (query, key, value) else {
        return None;
    };
    let [batch, heads, size, length, value_size] =
        [*batch, *heads, *size, *length, *value_size].map(|size| size as f64);
    let flops = 2.0 * batch * heads * length * (size + value_size);
    let output = batch * heads * value_size;
    Some((flops, count(query) + count(key) + count(value) + output, 0..3))
}

fn count(shape: &[u64]) -> f64 {
    shape.iter().map(|size| *size as f64).product()
}

/// Reads the shape of an input; empty for one that is not a tensor.
fn shape(value: &serde_json::Value) -> Vec<u64> {
    let sizes = value.as_array().map(Vec::as_slice).unwrap_or_default();
    sizes.iter().filter_map(serde_json::Value::as_u64).collect()
}

/// Returns the type that all inputs share. That of `float` is left out: whether TF32 is allowed is not recorded.
fn dtype(types: &[String]) -> Option<Dtype> {
    let first = types.first()?;
    if types.iter().any(|other| other != first) {
        return None;
    }
    match first.as_str() {
        "c10::BFloat16" => Some(Dtype::Bf16),
        "c10::Half" => Some(Dtype::Fp16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BF16: &str = r#"["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]"#;

    fn work(operator: &str, dims: &str) -> Option<(f64, f64)> {
        OperatorWork::of(operator, dims, BF16).map(|work| (work.flops, work.bytes))
    }

    #[test]
    fn products_by_hand() {
        // 2 x 3 times 3 x 4: 2 * 2 * 4 * 3 operations; 6 + 12 + 8 elements of two bytes.
        assert_eq!(work("aten::mm", "[[2, 3], [3, 4]]"), Some((48.0, 52.0)));
        assert_eq!(work("aten::addmm", "[[4], [2, 3], [3, 4], [], []]"), Some((48.0, 60.0)));
        assert_eq!(work("aten::bmm", "[[5, 2, 3], [5, 3, 4]]"), Some((240.0, 260.0)));
        assert_eq!(work("aten::mm", "[[2, 3], [5, 4]]"), None);
        assert_eq!(work("aten::bmm", "[[5, 2, 3], [6, 3, 4]]"), None);
        assert_eq!(work("aten::mul", "[[2, 3], [3, 4]]"), None);
        assert_eq!(work("aten::mm", "nonsense"), None);
    }

    #[test]
    fn attention_of_one_token_by_hand() {
        let operator = "aten::_scaled_dot_product_flash_attention";
        // 1 sequence, 4 heads of 8, 2 heads of keys, 10 tokens: 2 * 4 * 10 * 16 operations; 32 + 160 + 160 + 32 elements.
        let decode = "[[1, 4, 1, 8], [1, 2, 10, 8], [1, 2, 10, 8]]";
        assert_eq!(work(operator, decode), Some((1280.0, 768.0)));
        // The mask of several tokens is not known.
        assert_eq!(work(operator, "[[1, 4, 10, 8], [1, 4, 10, 8], [1, 4, 10, 8]]"), None);
    }

    #[test]
    fn types_must_tell_the_peak() {
        let with = |types: &str| OperatorWork::of("aten::mm", "[[2, 3], [3, 4]]", types);
        assert_eq!(with(r#"["float", "float"]"#), None);
        assert_eq!(with(r#"["c10::Half", "c10::BFloat16"]"#), None);
        assert_eq!(with(r#"["c10::Half", "c10::Half"]"#).map(|work| work.dtype), Some(Dtype::Fp16));
        assert_eq!(with("[]"), None);
    }
}
