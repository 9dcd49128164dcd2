//! The distance of kernels and stages to the roof of the device: [`RoofDistance`](crate::RoofDistance) has the rule.
//!
//! `sums` adds up launches whose work is known. Their work comes from `counters`, or is `modelled` from the recorded shapes of
//! operators.

mod modelled;
mod sums;
mod work;

pub use modelled::add_modelled;
pub use sums::{RoofSums, RoofTime};

use crate::result::{Analysis, Kernel};

/// Puts the distance to the roof beside every kernel and stage whose work is known.
pub fn attach(analysis: &mut Analysis, sums: &RoofSums) {
    distances(&mut analysis.kernels, None, sums);
    for stage in &mut analysis.stages {
        distances(&mut stage.kernels, Some(&stage.name), sums);
        stage.roof = sums.of_stage(&stage.name).distance();
    }
}

/// Puts the distance beside each kernel of a table. The launches of one name on several devices are not told apart.
fn distances(kernels: &mut [Kernel], stage: Option<&str>, sums: &RoofSums) {
    let mut rows: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    rows.sort_unstable();
    let repeated: Vec<String> =
        rows.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned()).collect();
    for kernel in kernels {
        if repeated.binary_search(&kernel.name).is_err() {
            kernel.roof = sums.of_kernel(stage, &kernel.name).distance();
        }
    }
}
