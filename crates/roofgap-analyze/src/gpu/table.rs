//! The table of GPUs: data in `gpus.json`, read once.

use super::GpuFacts;
use std::sync::OnceLock;

/// The built-in table could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the built-in table of GPUs cannot be read: {0}")]
pub struct TableError(String);

static TABLE: OnceLock<Result<Vec<GpuFacts>, TableError>> = OnceLock::new();

/// Every GPU in the table.
///
/// # Errors
/// When the data file built into the library does not parse, which its tests exclude.
pub fn all() -> Result<&'static [GpuFacts], TableError> {
    let parsed = TABLE.get_or_init(|| {
        serde_json::from_str(include_str!("gpus.json")).map_err(|error| TableError(error.to_string()))
    });
    match parsed {
        Ok(rows) => Ok(rows),
        Err(error) => Err(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Dtype;

    #[test]
    fn every_row_names_its_source_and_how_it_is_reported() {
        let rows = all().unwrap();
        assert!(rows.len() > 45);
        for row in rows {
            assert!(row.source.contains("NVIDIA"), "{}", row.name);
            assert!(!row.reported.is_empty(), "{}", row.name);
            assert!(row.bandwidth_gbs.is_some() && row.memory_gb.is_some(), "{}", row.name);
            assert!(row.compute_capability.is_some(), "{}", row.name);
            assert_eq!(row.clock_ratio, 1.0);
        }
    }

    /// Two lanes' operations a clock: 64 fp32 lanes a multiprocessor on Volta, Turing and GA100, 128 on the rest.
    #[test]
    fn fp32_follows_from_multiprocessors_and_clock() {
        let mut checked = 0;
        for row in all().unwrap() {
            let (Some(sms), Some(mhz), Some(fp32)) = (row.sms, row.clock_mhz, row.dense_tflops.fp32) else {
                continue;
            };
            let lanes = match row.compute_capability.unwrap() {
                (7, _) | (8, 0) => 64.0,
                _ => 128.0,
            };
            let expected = f64::from(sms) * lanes * 2.0 * mhz / 1e6;
            assert!((fp32 / expected - 1.0).abs() < 0.012, "{}: {fp32} against {expected}", row.name);
            checked += 1;
        }
        assert!(checked > 30, "{checked}");
    }

    #[test]
    fn sparse_is_twice_dense() {
        for row in all().unwrap() {
            for dtype in [Dtype::Tf32, Dtype::Fp16, Dtype::Bf16, Dtype::Int8, Dtype::Fp8] {
                if let (Some(dense), Some(sparse)) =
                    (row.dense_tflops.tflops(dtype), row.sparse_tflops.tflops(dtype))
                {
                    assert!((sparse / dense / 2.0 - 1.0).abs() < 0.015, "{} {dtype}", row.name);
                }
            }
        }
    }

    #[test]
    fn sixteen_bit_formats_have_one_rate() {
        for row in all().unwrap() {
            if let (Some(fp16), Some(bf16)) = (row.dense_tflops.fp16, row.dense_tflops.bf16) {
                assert_eq!(fp16, bf16, "{}", row.name);
            }
        }
    }
}
