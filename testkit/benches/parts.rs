//! The parts of an analysis, each by itself, on a made-up capture: `cargo bench -p roofgap-testkit`.
//!
//! `ROOFGAP_BENCH_KERNELS` sets its size (200,000).
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use roofgap_analyze::{Contexts, IntervalSet, Launches, Options, analyze};
use roofgap_report::{Bundle, Context};
use roofgap_testkit::{Program, Spec, kineto, nsys};
use roofgap_trace::sqlite::{Database, Tables, Value};
use roofgap_trace::{Losses, Names, Trace};
use std::fs::File;
use std::hint::black_box;
use std::path::PathBuf;

struct Made {
    _folder: tempfile::TempDir,
    kernels: u64,
    export: PathBuf,
    shuffled: PathBuf,
    pytorch: PathBuf,
}

fn made() -> Made {
    let kernels = std::env::var("ROOFGAP_BENCH_KERNELS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let folder = tempfile::tempdir().unwrap();
    let (export, shuffled, pytorch) =
        (folder.path().join("a.sqlite"), folder.path().join("b.sqlite"), folder.path().join("c.json"));
    let program = Program::run(&Spec::simple(kernels));
    nsys::write(&program, &export).unwrap();
    kineto::write(&program, File::create(&pytorch).unwrap()).unwrap();
    nsys::write(&Program::run(&Spec::tangled(kernels)), &shuffled).unwrap();
    Made { _folder: folder, kernels, export, shuffled, pytorch }
}

const KERNEL_COLUMNS: [&str; 17] = [
    "start",
    "end",
    "deviceId",
    "streamId",
    "correlationId",
    "globalPid",
    "demangledName",
    "graphNodeId",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
];

fn sum_of_all(db: &Database) -> i64 {
    let add = |sum: &mut i64, row: &[Value<'_>]| {
        for value in row {
            *sum = sum.wrapping_add(value.int().unwrap_or(0));
        }
    };
    let parts = db.scan("CUPTI_ACTIVITY_KIND_KERNEL", &KERNEL_COLUMNS, |_| 0, add).unwrap();
    parts.iter().fold(0, |a, b| a.wrapping_add(*b))
}

fn trace(path: &PathBuf) -> Trace {
    roofgap_trace::read(std::slice::from_ref(path)).unwrap().trace
}

fn parts(c: &mut Criterion) {
    let made = made();
    let mut group = c.benchmark_group("parts");
    group.sample_size(10).throughput(Throughput::Elements(made.kernels));

    let pages = Database::open(&made.export).unwrap();
    group.bench_function("scan kernels", |b| b.iter(|| sum_of_all(black_box(&pages))));

    group.bench_function("read an export", |b| b.iter(|| trace(black_box(&made.export))));
    group.bench_function("read an export in no order", |b| b.iter(|| trace(black_box(&made.shuffled))));
    group.bench_function("read a PyTorch trace", |b| b.iter(|| trace(black_box(&made.pytorch))));

    let trace = trace(&made.export);
    let rows: Vec<&str> = trace.ops.name.iter().map(|&name| trace.names.get(name)).collect();
    group.bench_function("intern the name of every kernel", |b| {
        b.iter(|| {
            let mut names = Names::default();
            rows.iter().map(|text| names.intern(text).0 as u64).sum::<u64>()
        });
    });
    group.bench_function("join operations with calls", |b| {
        b.iter(|| Launches::join(black_box(&trace), &mut Losses::default()));
    });
    let launches = Launches::join(&trace, &mut Losses::default());
    group.bench_function("attribute calls to ranges", |b| {
        b.iter(|| Contexts::build(black_box(&trace), &launches.call_of_op));
    });
    let busy: Vec<(i64, i64)> = trace.ops.start.iter().copied().zip(trace.ops.end.iter().copied()).collect();
    group.bench_function("union of all operations", |b| {
        b.iter_batched(|| busy.clone(), |busy| IntervalSet::of(busy).length(), BatchSize::LargeInput);
    });
    group.bench_function("analyse", |b| b.iter(|| analyze(black_box(&trace), &Options::default())));
    let analyzed = analyze(&trace, &Options::default());
    let context = Context::default();
    let bundle = Bundle {
        analysis: &analyzed.analysis,
        stages: &analyzed.stages,
        trace: Some(&trace),
        context: &context,
    };
    group.bench_function("write all reports", |b| b.iter(|| roofgap_report::files(black_box(bundle))));
    group.finish();
}

criterion_group!(benches, parts);
criterion_main!(benches);
