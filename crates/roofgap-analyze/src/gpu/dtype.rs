//! Number formats of a computation.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number format that GPUs have a peak for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 64-bit floating point.
    Fp64,
    /// 32-bit floating point, on the CUDA cores.
    Fp32,
    /// 19-bit TensorFloat, stored in 32 bits.
    Tf32,
    /// 16-bit IEEE floating point.
    Fp16,
    /// 16-bit brain floating point.
    Bf16,
    /// 8-bit floating point, either layout.
    Fp8,
    /// 8-bit integer.
    Int8,
    /// 4-bit floating point.
    Fp4,
}

/// Name in reports, bits of a stored value, and the names that torch, safetensors and Hugging Face configurations use; in the order of the
/// formats.
const FORMATS: [(Dtype, &str, f64, &[&str]); 8] = [
    (Dtype::Fp64, "fp64", 64.0, &["float64", "double", "f64"]),
    (Dtype::Fp32, "fp32", 32.0, &["float32", "float", "f32"]),
    (Dtype::Tf32, "tf32", 32.0, &[]),
    (Dtype::Fp16, "fp16", 16.0, &["float16", "half", "f16"]),
    (Dtype::Bf16, "bf16", 16.0, &["bfloat16"]),
    (Dtype::Fp8, "fp8", 8.0, &["float8", "float8_e4m3fn", "float8_e5m2", "f8_e4m3", "f8_e5m2"]),
    (Dtype::Int8, "int8", 8.0, &["i8"]),
    (Dtype::Fp4, "fp4", 4.0, &["mxfp4", "nvfp4"]),
];

/// A name that no known number format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown number format {0:?}: expected one of fp64, fp32, tf32, fp16, bf16, fp8, int8, fp4")]
pub struct UnknownDtype(pub String);

impl Dtype {
    /// The name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        FORMATS[self as usize].1
    }

    /// Bits that one stored value takes.
    #[must_use]
    pub fn bits(self) -> f64 {
        FORMATS[self as usize].2
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        let wanted = lower.strip_prefix("torch.").unwrap_or(&lower);
        let found = FORMATS.iter().find(|(_, name, _, others)| *name == wanted || others.contains(&wanted));
        found.map(|(dtype, ..)| *dtype).ok_or_else(|| UnknownDtype(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_and_short_names_mean_the_same() {
        for text in ["bf16", "bfloat16", "torch.bfloat16", "BF16", " bf16 "] {
            assert_eq!(text.parse(), Ok(Dtype::Bf16), "{text}");
        }
        assert_eq!("half".parse(), Ok(Dtype::Fp16));
        assert_eq!("bf17".parse::<Dtype>(), Err(UnknownDtype("bf17".into())));
    }

    #[test]
    fn the_table_is_in_the_order_of_the_formats() {
        for (at, (dtype, name, ..)) in FORMATS.iter().enumerate() {
            assert_eq!((*dtype as usize, serde_json::to_string(dtype).unwrap()), (at, format!("\"{name}\"")));
        }
    }

    #[test]
    fn json_uses_the_report_name() {
        assert_eq!(serde_json::to_string(&Dtype::Bf16).unwrap(), "\"bf16\"");
    }
}
