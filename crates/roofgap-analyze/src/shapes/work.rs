//! FLOPs and bytes of an operator, from the shapes and types of its inputs.

use crate::gpu::Dtype;
use crate::names::Family;
use roofgap_trace::Trace;
use serde_json::Value;
use std::ops::Range;

/// FLOPs and bytes of an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorWork {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes, with every input and output moved once.
    pub bytes: f64,
    /// Format of the inputs, as the GPU computes with it.
    pub dtype: Dtype,
}

/// Formats in which a program computes with inputs of 32 bits; `None` where the capture does not say whether TF32 is allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Floats {
    products: Option<Dtype>,
    convolutions: Option<Dtype>,
}

/// Start of the range in which the operators phase says whether matrix products and convolutions may use TF32.
const TF32: &str = "roofgap.tf32 ";

impl Floats {
    /// Reads what the operators phase says about a program.
    pub fn of(trace: &Trace) -> Self {
        let mut names = trace.ranges.rows.iter().map(|range| trace.names.get(range.name));
        let said = names.find_map(|name| name.strip_prefix(TF32)).unwrap_or_default();
        let format = |key: &str| {
            let value = said.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
            Some(if value == "1" { Dtype::Tf32 } else { Dtype::Fp32 })
        };
        Self { products: format("matmul"), convolutions: format("convolution") }
    }
}

/// Inputs of an operator as the profiler writes them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inputs<'a> {
    pub dims: &'a str,
    pub types: &'a str,
    /// Values of inputs that are no tensors; empty where they are not recorded.
    pub values: &'a str,
}

/// FLOPs, elements and the inputs whose type they have.
type Work = (f64, f64, Range<usize>);

impl OperatorWork {
    /// Returns the work of an operator; `None` where name, shapes, types or values do not tell it.
    pub fn of(operator: &str, inputs: Inputs<'_>, floats: Floats) -> Option<Self> {
        let dims: Vec<Vec<u64>> =
            serde_json::from_str::<Vec<Value>>(inputs.dims).ok()?.iter().map(shape).collect();
        let types: Vec<String> = serde_json::from_str(inputs.types).ok()?;
        let values: Vec<Value> = serde_json::from_str(inputs.values).unwrap_or_default();
        let input = |at: usize| dims.get(at).map(Vec::as_slice);
        let value = |at: usize| values.get(at).and_then(Value::as_str);
        let mut float = floats.products;
        let (flops, elements, typed) = match operator {
            "aten::mm" => product(1, input(0)?, input(1)?, 0..2)?,
            "aten::bmm" => batched(input(0)?, input(1)?, 0..2)?,
            "aten::addmm" | "aten::_addmm_activation" | "aten::baddbmm" => {
                let product = match operator {
                    "aten::baddbmm" => batched(input(1)?, input(2)?, 0..3)?,
                    _ => product(1, input(1)?, input(2)?, 0..3)?,
                };
                // With a factor of 0 the first input is not read.
                let is_read = value(3).is_none_or(|beta| beta.parse() != Ok(0.0));
                (product.0, product.1 + if is_read { count(input(0)?) } else { 0.0 }, product.2)
            }
            "aten::_grouped_mm" => match (input(0)?, input(1)?) {
                // The rows are divided between the groups.
                ([m, k], [groups, same, n]) if k == same => {
                    let (flops, elements, inputs) = product(1, &[*m, *k], &[*k, *n], 0..2)?;
                    (flops, elements + count(&[groups.saturating_sub(1), *k, *n]), inputs)
                }
                (left, right) => batched(left, right, 0..2)?,
            },
            "aten::_scaled_dot_product_flash_attention" => {
                attention(input(0)?, input(1)?, input(2)?, value(4))?
            }
            "aten::_scaled_dot_product_efficient_attention" | "aten::_scaled_dot_product_cudnn_attention" => {
                let (flops, elements, inputs) = attention(input(0)?, input(1)?, input(2)?, value(6))?;
                (flops, elements + count(input(3).unwrap_or_default()), inputs)
            }
            "aten::convolution" => {
                float = floats.convolutions;
                let list = |at| serde_json::from_str::<Vec<u64>>(value(at)?).ok();
                let sizes = [list(3)?, list(4)?, list(5)?];
                let is_transposed = value(6)? != "False";
                let (flops, elements) =
                    convolution(input(0)?, input(1)?, sizes).filter(|_| !is_transposed)?;
                (flops, elements + count(input(2)?), 0..2)
            }
            "aten::embedding" => {
                let ([_, width], rows) = (input(0)?, input(1)?) else { return None };
                let (rows, dtype) = (count(rows), dtype(types.get(..1)?, Some(Dtype::Fp32))?);
                let index = if types.get(1)? == "int" { 4.0 } else { 8.0 };
                let bytes = rows * (2.0 * *width as f64 * dtype.bits() / 8.0 + index);
                return (rows > 0.0).then_some(Self { flops: 0.0, bytes, dtype });
            }
            _ => return None,
        };
        let dtype = dtype(types.get(typed)?, float)?;
        (flops > 0.0).then_some(Self { flops, bytes: elements * dtype.bits() / 8.0, dtype })
    }
}

/// Tells whether a kernel of a family can do the work of an operator.
pub fn does_work(operator: &str, family: Family) -> bool {
    match family {
        Family::Gemm | Family::Gemv => !operator.contains("attention") && operator != "aten::embedding",
        Family::Attention => operator.contains("attention"),
        Family::Convolution => operator == "aten::convolution",
        _ => false,
    }
}

/// Returns the work of `batch` products of a matrix of M x K and one of K x N.
fn product(batch: u64, left: &[u64], right: &[u64], inputs: Range<usize>) -> Option<Work> {
    let ([m, k], [same, n]) = (left, right) else {
        return None;
    };
    let [batch, m, k, n] = [batch, *m, *k, *n].map(|size| size as f64);
    let elements = batch * (m * k + k * n + m * n);
    (*same as f64 == k).then_some((2.0 * batch * m * n * k, elements, inputs))
}

/// Returns the work of the products of two batches of matrices.
fn batched(left: &[u64], right: &[u64], inputs: Range<usize>) -> Option<Work> {
    match (left, right) {
        ([batch, left @ ..], [other, right @ ..]) if batch == other => product(*batch, left, right, inputs),
        _ => None,
    }
}

/// Returns the work of an attention. That of several tokens depends on whether each sees only those before it.
fn attention(query: &[u64], key: &[u64], value: &[u64], is_causal: Option<&str>) -> Option<Work> {
    let ([batch, heads, tokens, size], [_, _, length, _], [_, _, _, value_size]) = (query, key, value) else {
        return None;
    };
    let [batch, heads, tokens, size, length, value_size] =
        [*batch, *heads, *tokens, *size, *length, *value_size].map(|size| size as f64);
    let pairs = match is_causal {
        Some("True") => {
            let before = tokens.min(length);
            before * (before + 1.0) / 2.0 + (tokens - before) * length
        }
        None if tokens > 1.0 => return None,
        _ => tokens * length,
    };
    let flops = 2.0 * batch * heads * pairs * (size + value_size);
    let output = batch * heads * tokens * value_size;
    Some((flops, count(query) + count(key) + count(value) + output, 0..3))
}

/// Returns FLOPs and elements of a convolution without its bias, by stride, padding and dilation. One value stands for all dimensions.
fn convolution(input: &[u64], weight: &[u64], sizes: [Vec<u64>; 3]) -> Option<(f64, f64)> {
    let ([batch, _, lengths @ ..], [channels, _, kernel @ ..]) = (input, weight) else { return None };
    let mut output = *batch as f64 * *channels as f64;
    for (dimension, (length, kernel)) in lengths.iter().zip(kernel).enumerate() {
        let at = |list: &[u64]| Some(*list.get(dimension).or(list.first())? as f64);
        let (stride, padding, dilation) = (at(&sizes[0])?, at(&sizes[1])?, at(&sizes[2])?);
        let reach = dilation * (*kernel as f64 - 1.0) + 1.0;
        output *= ((*length as f64 + 2.0 * padding - reach) / stride).floor() + 1.0;
    }
    // Each element of the output needs the weights of its channel.
    let flops = 2.0 * output * count(weight) / *channels as f64;
    Some((flops, count(input) + count(weight) + output))
}

/// Returns the number of elements; 0 for an input that is not a tensor.
fn count(shape: &[u64]) -> f64 {
    if shape.is_empty() { 0.0 } else { shape.iter().map(|size| *size as f64).product() }
}

/// Reads the shape of an input; empty for one that is not a tensor.
fn shape(value: &Value) -> Vec<u64> {
    let sizes = value.as_array().map(Vec::as_slice).unwrap_or_default();
    sizes.iter().filter_map(Value::as_u64).collect()
}

/// Returns the format that all inputs share. That of `float` depends on whether TF32 is allowed.
fn dtype(types: &[String], float: Option<Dtype>) -> Option<Dtype> {
    let first = types.first()?;
    if types.iter().any(|other| other != first) {
        return None;
    }
    match first.as_str() {
        "c10::BFloat16" => Some(Dtype::Bf16),
        "c10::Half" => Some(Dtype::Fp16),
        "float" => float,
        "double" => Some(Dtype::Fp64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BF16: &str = r#"["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]"#;

    fn with_values(operator: &str, dims: &str, values: &str) -> Option<(f64, f64)> {
        let work = OperatorWork::of(operator, Inputs { dims, types: BF16, values }, Floats::default());
        work.map(|work| (work.flops, work.bytes))
    }

    fn work(operator: &str, dims: &str) -> Option<(f64, f64)> {
        with_values(operator, dims, "")
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
        // The matrix that is added is read where its factor is not 0.
        let dims = "[[5, 2, 4], [5, 2, 3], [5, 3, 4], [], []]";
        let beta =
            |beta: &str| with_values("aten::baddbmm", dims, &format!(r#"["", "", "", "{beta}", "1"]"#));
        assert_eq!((beta("1"), beta("0")), (Some((240.0, 340.0)), Some((240.0, 260.0))));
        // 6 rows of 3 in 2 groups, each with 3 x 4 weights.
        assert_eq!(work("aten::_grouped_mm", "[[6, 3], [2, 3, 4], [2]]"), Some((144.0, 132.0)));
    }

    /// A layer of a decoder with 4096 dimensions, 32 heads of 128, 8 of keys, 14336 in between; 512 tokens.
    #[test]
    fn the_products_of_a_decoder_by_hand() {
        let (tokens, width, inner) = (512.0, 4096.0, 14336.0);
        for (n, k) in [(width, width), (1024.0, width), (inner, width), (width, inner)] {
            let dims = format!("[[512, {k}], [{k}, {n}]]").replace(".0", "");
            let bytes = 2.0 * (tokens * k + k * n + tokens * n);
            assert_eq!(work("aten::mm", &dims), Some((2.0 * tokens * n * k, bytes)), "{dims}");
        }
        let dims = "[[1, 32, 512, 128], [1, 8, 512, 128], [1, 8, 512, 128], [], [], [], []]";
        let causal = |causal: &str| {
            let values = format!(r#"["", "", "", "0.", "{causal}", "False", ""]"#);
            with_values("aten::_scaled_dot_product_flash_attention", dims, &values)
        };
        // Query and output of 32 heads, keys and values of 8.
        let bytes = 2.0 * 512.0 * 128.0 * (2.0 * 32.0 + 2.0 * 8.0);
        assert_eq!(causal("False"), Some((4.0 * 32.0 * 512.0 * 512.0 * 128.0, bytes)));
        assert_eq!(causal("True"), Some((4.0 * 32.0 * (512.0 * 513.0 / 2.0) * 128.0, bytes)));
    }

    #[test]
    fn attention_of_one_token_by_hand() {
        let operator = "aten::_scaled_dot_product_flash_attention";
        // 1 sequence, 4 heads of 8, 2 heads of keys, 10 tokens: 2 * 4 * 10 * 16 operations; 32 + 160 + 160 + 32 elements.
        let decode = "[[1, 4, 1, 8], [1, 2, 10, 8], [1, 2, 10, 8]]";
        assert_eq!(work(operator, decode), Some((1280.0, 768.0)));
        // Without values, the mask of several tokens is not known.
        assert_eq!(work(operator, "[[1, 4, 10, 8], [1, 4, 10, 8], [1, 4, 10, 8]]"), None);
    }

    #[test]
    fn convolutions_by_hand() {
        let convolution = |dims: &str, stride, padding, transposed, groups| {
            let values = format!(
                r#"["", "", "", "[{stride}, {stride}]", "[{padding}]", "[1, 1]", "{transposed}", "[0, 0]", "{groups}"]"#
            );
            with_values("aten::convolution", dims, &values)
        };
        // 2 images of 3 x 8 x 8, 4 outputs of 3 x 3 x 3, padded: 2 * 4 * 64 outputs of 27 products; 384 + 108 + 512 + 4 elements.
        let dims = "[[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], [], [], []]";
        assert_eq!(convolution(dims, 1, 1, "False", 1), Some((27_648.0, 2016.0)));
        // Every second: 4 x 4 outputs.
        assert_eq!(convolution(dims, 2, 1, "False", 1), Some((6912.0, 1248.0)));
        // By channel: each of 4 channels has its 3 x 3 weights, and no bias. 256 + 36 + 256 elements.
        let dims = "[[1, 4, 8, 8], [4, 1, 3, 3], [], [], [], [], [], [], []]";
        assert_eq!(convolution(dims, 1, 1, "False", 4), Some((4608.0, 1096.0)));
        assert_eq!(convolution(dims, 1, 1, "True", 4), None);
        assert_eq!(work("aten::convolution", dims), None);
    }

    #[test]
    fn a_lookup_moves_its_rows() {
        let inputs = Inputs {
            dims: "[[1000, 64], [2, 5], [], [], []]",
            types: r#"["c10::Half", "long int", "Scalar", "Scalar", "Scalar"]"#,
            values: "",
        };
        let work = OperatorWork::of("aten::embedding", inputs, Floats::default()).unwrap();
        // 10 rows of 128 bytes, read and written, and 10 indices.
        assert_eq!((work.flops, work.bytes, work.dtype), (0.0, 2640.0, Dtype::Fp16));
    }

    #[test]
    fn types_must_tell_the_peak() {
        let with = |types: &str, floats| {
            let inputs = Inputs { dims: "[[2, 3], [3, 4]]", types, values: "" };
            OperatorWork::of("aten::mm", inputs, floats).map(|work| (work.dtype, work.bytes))
        };
        let of = |types: &str| with(types, Floats::default());
        assert_eq!(of(r#"["float", "float"]"#), None);
        assert_eq!(of(r#"["c10::Half", "c10::BFloat16"]"#), None);
        assert_eq!(of(r#"["c10::Half", "c10::Half"]"#), Some((Dtype::Fp16, 52.0)));
        assert_eq!(of("[]"), None);
        let floats = Floats { products: Some(Dtype::Fp32), convolutions: Some(Dtype::Tf32) };
        assert_eq!(with(r#"["float", "float"]"#, floats), Some((Dtype::Fp32, 104.0)));
    }
}
