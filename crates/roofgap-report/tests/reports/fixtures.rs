//! Traces and analyses for the tests.

use roofgap_analyze::{Analysis, Analyzed, Options, StageIndex, analyze};
use roofgap_report::{Bundle, Context};
use roofgap_trace::{
    Call, CallClass, Device, GpuOp, LaunchShape, MemoryKind, OpKind, Range, RangeStyle, Trace, read,
};
use std::path::PathBuf;

/// A trace, its analysis and its context.
pub(crate) struct Case {
    pub(crate) trace: Trace,
    pub(crate) analysis: Analysis,
    pub(crate) stages: StageIndex,
    pub(crate) context: Context,
}

impl Case {
    pub(crate) fn bundle(&self) -> Bundle<'_> {
        Bundle {
            analysis: &self.analysis,
            stages: &self.stages,
            trace: Some(&self.trace),
            context: &self.context,
        }
    }
}

/// Reads fixtures by their paths under `fixtures`. Tests run in the folder of the crate, so the paths are relative and the reports
/// that name them are the same everywhere.
pub(crate) fn fixture(names: &[&str]) -> Case {
    fixture_with_stages(names, &[])
}

/// Reads fixtures with a model, prompt tokens and generated tokens.
pub(crate) fn fixture_with_model(names: &[&str], model: &str, tokens: (u64, u64)) -> Case {
    let options = Options {
        model: Some(roofgap_analyze::model::preset(model).unwrap()),
        tokens: roofgap_analyze::model::Tokens {
            prompt: Some(tokens.0),
            generated: Some(tokens.1),
            ..Default::default()
        },
        ..Options::default()
    };
    analyzed(names, &[], options)
}

/// Reads fixtures with stages to replace or add, as `NAME=PATTERN`.
pub(crate) fn fixture_with_stages(names: &[&str], stages: &[&str]) -> Case {
    analyzed(names, stages, Options::default())
}

fn analyzed(names: &[&str], stages: &[&str], options: Options) -> Case {
    let paths: Vec<PathBuf> = names.iter().map(|n| PathBuf::from("../../fixtures").join(n)).collect();
    let input = read(&paths).expect("the fixture reads");
    let mut options = Options { counters: input.counters, account: input.account, ..options };
    for stage in stages {
        options.stages.set(stage).unwrap();
    }
    let Analyzed { analysis, stages } = analyze(&input.trace, &options);
    Case {
        analysis,
        stages,
        trace: input.trace,
        context: Context { title: names.join(", "), ..Context::default() },
    }
}

/// Makes a trace of a prefill with one kernel and two decode steps of two kernels each, with the given kernel names.
pub(crate) fn made(names: [&str; 3]) -> Case {
    let mut trace = Trace::default();
    let process = trace.add_process(41, "python");
    let thread = trace.add_thread(process, 42, "main");
    let device = trace.add_device(Device {
        number: 0,
        name: Some("NVIDIA H200".into()),
        compute_capability: Some((9, 0)),
        sms: Some(132),
        memory_bytes: Some(150_109_880_320),
        ..Device::default()
    });
    let llm = trace.names.intern("LLM");
    let range = |trace: &mut Trace, name: &str, start: i64, end: i64| {
        let name = trace.names.intern(name);
        trace.ranges.rows.push(Range {
            start,
            end,
            domain: llm,
            name,
            process,
            thread,
            end_thread: thread,
            style: RangeStyle::PushPop,
            open: false,
        });
    };
    range(&mut trace, "prefill", 1_000, 20_000);
    range(&mut trace, "decode_all", 20_000, 60_000);
    range(&mut trace, "decode_step", 20_000, 40_000);
    range(&mut trace, "decode_step", 40_000, 60_000);
    let launch = trace.names.intern("cudaLaunchKernel");
    let copy = trace.names.intern("[CUDA memcpy Host-to-Device]");
    let shape = trace.ops.intern_shape(LaunchShape {
        grid: [8, 1, 1],
        block: [128, 1, 1],
        registers: 32,
        static_shared: 0,
        dynamic_shared: 1024,
    });
    let ops = [
        (2_000, 5_000, names[0], OpKind::Kernel),
        (21_000, 3_000, names[1], OpKind::Kernel),
        (30_000, 2_000, names[2], OpKind::Kernel),
        (36_000, 1_000, "", OpKind::Copy),
        (41_000, 3_000, names[1], OpKind::Kernel),
        (50_000, 2_000, names[2], OpKind::Kernel),
    ];
    for (i, (at, length, name, kind)) in ops.into_iter().enumerate() {
        let correlation = i as u32 + 1;
        trace.calls.push(Call {
            start: at,
            end: at + 1_500,
            name: launch,
            class: if kind == OpKind::Copy { CallClass::Copy } else { CallClass::Launch },
            process,
            thread,
            correlation,
        });
        let name = if kind == OpKind::Copy { copy } else { trace.names.intern(name) };
        trace.ops.push(GpuOp {
            kind,
            start: at + 2_000,
            end: at + 2_000 + length,
            name,
            device,
            stream: 7,
            process,
            correlation,
            shape,
            bytes: if kind == OpKind::Copy { 4096 } else { 0 },
            graph_node: 0,
            memory: Default::default(),
        });
    }
    if let Some(transfer) = trace.ops.transfers.values_mut().next() {
        transfer.memory = (MemoryKind::Pageable, MemoryKind::Device);
    }
    trace.sort();
    let Analyzed { analysis, stages } = analyze(&trace, &Options::default());
    Case {
        analysis,
        stages,
        trace,
        context: Context {
            title: "made".into(),
            environment: vec![("driver".into(), "580.1".into())],
            ..Context::default()
        },
    }
}

/// Kernel names as a program has them.
pub(crate) const PLAIN: [&str; 3] =
    ["flash_fwd_kernel", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "vectorized_elementwise_kernel"];
