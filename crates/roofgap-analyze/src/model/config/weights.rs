//! Storage of weights: the number format, or a quantisation.

use super::fields::Fields;
use crate::gpu::Dtype;
use crate::model::WeightFormat;

impl WeightFormat {
    /// Every weight in one format.
    pub fn plain(dtype: Dtype) -> Self {
        let bits = dtype.bits();
        Self {
            linear_bits: bits,
            expert_bits: bits,
            other_bits: bits,
            how: format!("all weights in {dtype}"),
        }
    }
}

pub fn read(
    top: &Fields<'_>,
    text: &Fields<'_>,
    dtype: Dtype,
    assumptions: &mut Vec<String>,
) -> WeightFormat {
    let plain = WeightFormat::plain(dtype);
    let Some(quantisation) = top.object("quantization_config").or_else(|| text.object("quantization_config"))
    else {
        return plain;
    };
    let method = quantisation.text("quant_method").unwrap_or_default();
    let bits = quantisation.number("bits").filter(|bits| (1.0..=16.0).contains(bits));
    let group = quantisation.number("group_size").filter(|size| *size >= 1.0);
    match method.as_str() {
        // Blocks of 32 values share an 8-bit scale; the published models quantise the experts alone.
        "mxfp4" => WeightFormat {
            expert_bits: 4.25,
            how: format!("experts in MXFP4 (4 bits and an 8-bit scale for 32 values), the rest in {dtype}"),
            ..plain
        },
        "fp8" | "fbgemm_fp8" => WeightFormat {
            linear_bits: 8.0,
            expert_bits: 8.0,
            how: format!("layers in fp8, embedding, head and norms in {dtype}"),
            ..plain
        },
        "compressed-tensors" => match compressed(&quantisation) {
            Some((bits, group)) => {
                let stored = bits + group.map_or(0.0, |size| 16.0 / size);
                WeightFormat {
                    linear_bits: stored,
                    expert_bits: stored,
                    how: format!("layers in {bits} bits ({stored:.3} with scales), the rest in {dtype}"),
                    ..plain
                }
            }
            None => not_understood(plain, &method, assumptions),
        },
        "gptq" | "awq" => match bits {
            Some(bits) => {
                // A 16-bit scale and a zero point of the weight's own width for each group.
                let stored = bits + group.map_or(0.0, |size| (16.0 + bits) / size);
                WeightFormat {
                    linear_bits: stored,
                    expert_bits: stored,
                    how: format!(
                        "layers in {method} {bits}-bit ({stored:.3} bits with scales), the rest in {dtype}"
                    ),
                    ..plain
                }
            }
            None => not_understood(plain, &method, assumptions),
        },
        "bitsandbytes" => {
            let stored = if quantisation.flag("load_in_4bit") == Some(true) {
                // Blocks of 64 share a scale: 32 bits, or about 8 when the scales are quantised too.
                let scale =
                    if quantisation.flag("bnb_4bit_use_double_quant") == Some(true) { 8.125 } else { 32.0 };
                Some(4.0 + scale / 64.0)
            } else if quantisation.flag("load_in_8bit") == Some(true) {
                Some(8.0)
            } else {
                None
            };
            match stored {
                Some(stored) => WeightFormat {
                    linear_bits: stored,
                    expert_bits: stored,
                    how: format!("layers in bitsandbytes, {stored:.3} bits with scales, the rest in {dtype}"),
                    ..plain
                },
                None => not_understood(plain, &method, assumptions),
            }
        }
        _ => not_understood(plain, &method, assumptions),
    }
}

/// Bits and group size of the weights where all groups of layers have the same.
fn compressed(quantisation: &Fields<'_>) -> Option<(f64, Option<f64>)> {
    let groups = quantisation.object("config_groups")?;
    let mut found = groups.keys().map(|key| {
        let weights = groups.object(key)?.object("weights")?;
        let bits = weights.number("num_bits").filter(|bits| (1.0..=16.0).contains(bits))?;
        Some((bits, weights.number("group_size").filter(|size| *size >= 1.0)))
    });
    let first = found.next()??;
    found.all(|other| other == Some(first)).then_some(first)
}

fn not_understood(plain: WeightFormat, method: &str, assumptions: &mut Vec<String>) -> WeightFormat {
    assumptions.push(format!(
        "the quantisation {method:?} is not understood: weight bytes are counted unquantised, so they are an upper bound"
    ));
    plain
}
