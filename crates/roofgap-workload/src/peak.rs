//! The peak of this machine, measured with the kernels the model itself uses.

use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::ops;
use crate::source::{Source, fill};
use roofgap_wire::account::MeasuredPeak;

/// Columns and depth of the product: small enough that many fit the budget, since the best of many is what a busy machine can still do.
const SIDE: usize = 512;
/// Rows of the product for each thread: two blocks of work.
const ROWS_PER_THREAD: usize = 128;
/// Values of each of the three arrays: 64 MiB, beyond the caches of most machines.
const VALUES: usize = 16 << 20;
/// Values one task moves.
const CHUNK: usize = 1 << 16;

/// Measures arithmetic and memory bandwidth, each for about `budget` and at least three times; the best counts.
pub fn measure(budget: Duration, threads: usize) -> MeasuredPeak {
    let rows = SIDE.max(threads * ROWS_PER_THREAD);
    let (flops_per_s, products) = arithmetic(budget, rows);
    let (bytes_per_s, passes) = bandwidth(budget);
    MeasuredPeak {
        flops_per_s: Some(flops_per_s),
        bytes_per_s: Some(bytes_per_s),
        how: format!(
            "measured on this CPU with {threads} threads: f32 matmul {rows} x {SIDE} x {SIDE}, best of {products}; \
             triad over three arrays of {} MiB, best of {passes}",
            (VALUES * size_of::<f32>()) >> 20
        ),
    }
}

/// Takes the better of two measurements: other load on the machine only ever lowers one.
pub fn improve(peak: &mut MeasuredPeak, again: MeasuredPeak) {
    let better = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    if again.flops_per_s > peak.flops_per_s {
        peak.how.clone_from(&again.how);
    }
    peak.flops_per_s = better(peak.flops_per_s, again.flops_per_s);
    peak.bytes_per_s = better(peak.bytes_per_s, again.bytes_per_s);
}

fn arithmetic(budget: Duration, rows: usize) -> (f64, usize) {
    let mut source = Source::seeded(1);
    let (a, b) = (source.matrix(rows, SIDE), source.matrix(SIDE, SIDE));
    let (best, runs) = best_of(budget, || {
        std::hint::black_box(ops::matmul(a.view(), b.view()));
    });
    let flops = 2.0 * (rows * SIDE * SIDE) as f64;
    (flops / best.as_secs_f64(), runs)
}

fn bandwidth(budget: Duration) -> (f64, usize) {
    let mut a = vec![0.0f32; VALUES];
    let mut b = vec![0.0f32; VALUES];
    let mut c = vec![0.0f32; VALUES];
    for (seed, values) in [&mut a, &mut b, &mut c].into_iter().enumerate() {
        fill(values, seed as u64, 1.0);
    }
    let (best, runs) = best_of(budget, || {
        a.par_chunks_mut(CHUNK).zip(b.par_chunks(CHUNK)).zip(c.par_chunks(CHUNK)).for_each(|((a, b), c)| {
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                *a = b + 3.0 * c;
            }
        });
        std::hint::black_box(&a);
    });
    let bytes = (3 * VALUES * size_of::<f32>()) as f64;
    (bytes / best.as_secs_f64(), runs)
}

fn best_of(budget: Duration, mut run: impl FnMut()) -> (Duration, usize) {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    let mut runs = 0;
    while runs < 3 || begin.elapsed() < budget {
        let start = Instant::now();
        run();
        // A clock that did not move would make the peak infinite.
        best = best.min(start.elapsed().max(Duration::from_nanos(1)));
        runs += 1;
    }
    (best, runs)
}
