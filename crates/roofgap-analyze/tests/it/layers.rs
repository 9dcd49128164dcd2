//! Kernels by layer: from ranges of modules, from module calls of a framework, and from the nodes of CUDA graphs.

use roofgap_analyze::{About, Analysis, Options, analyze};
use roofgap_trace::{
    Call, CallClass, DeviceId, GpuOp, Ns, OpKind, ProcessId, Range, RangeStyle, ShapeId, ThreadId, Trace,
};
use std::io::Write;

/// A trace that is put together by hand, on one thread.
struct Program {
    trace: Trace,
    process: ProcessId,
    thread: ThreadId,
    launches: u32,
}

impl Program {
    fn new() -> Self {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "");
        Self { trace, process, thread, launches: 0 }
    }

    fn range(&mut self, name: &str, start: Ns, end: Ns) {
        let range = Range {
            start,
            end,
            domain: self.trace.names.intern(""),
            name: self.trace.names.intern(name),
            process: self.process,
            thread: self.thread,
            end_thread: self.thread,
            style: RangeStyle::PushPop,
            open: false,
        };
        self.trace.ranges.rows.push(range);
    }

    /// Launches kernels of the given graph nodes (0 for none) with one call; each runs as long as it is told.
    fn launch(&mut self, at: Ns, kernels: &[(u64, Ns)]) {
        self.launches += 1;
        let name = self.trace.names.intern("kernel");
        self.trace.calls.push(Call {
            start: at,
            end: at + 1,
            name: self.trace.names.intern("cudaLaunchKernel"),
            class: CallClass::Launch,
            process: self.process,
            thread: self.thread,
            correlation: self.launches,
        });
        for (position, (node, length)) in kernels.iter().enumerate() {
            let start = at + 100 * position as Ns;
            self.trace.ops.push(GpuOp {
                kind: OpKind::Kernel,
                start,
                end: start + length,
                name,
                device: DeviceId(0),
                stream: 7,
                process: self.process,
                correlation: self.launches,
                shape: ShapeId::default(),
                bytes: 0,
                graph_node: *node,
                memory: Default::default(),
            });
        }
    }

    fn node(&mut self, node: u64, ranges: &[&str]) {
        let names: Vec<_> = ranges.iter().map(|name| self.trace.names.intern(name)).collect();
        self.trace.graph_nodes.insert(self.process, node, &names);
    }

    fn analysis(mut self) -> Analysis {
        self.trace.sort();
        analyze(&self.trace, &Options::default()).analysis
    }
}

/// Stage, layer, layers, kernel time, kernels and calls of each row.
type Row<'a> = (&'a str, Option<&'a str>, Option<u64>, i64, u64, Option<u64>);

fn rows(analysis: &Analysis) -> Vec<Row<'_>> {
    let rows = analysis.layers.iter();
    rows.map(|row| {
        (row.stage.as_str(), row.layer.as_deref(), row.layers, row.kernel_ns, row.kernel_count, row.calls)
    })
    .collect()
}

#[test]
fn kernels_belong_to_the_innermost_module_around_their_launch() {
    let mut program = Program::new();
    program.range("decode", 0, 10_000);
    for (layer, at) in [(0, 100), (1, 1_100)] {
        program.range(&format!("layer:model.layers.{layer}"), at, at + 900);
        program.range(&format!("layer:model.layers.{layer}.mlp"), at + 100, at + 500);
        program.launch(at + 200, &[(0, 10 + 20 * layer)]);
        program.launch(at + 300, &[(0, 30)]);
        program.launch(at + 600, &[(0, 5)]);
    }
    program.launch(5_000, &[(0, 7)]);
    let analysis = program.analysis();
    assert_eq!(
        rows(&analysis),
        [
            ("decode", Some("model.layers.*.mlp"), Some(2), 100, 4, Some(2)),
            ("decode", Some("model.layers.*"), Some(2), 10, 2, Some(2)),
            ("decode", None, None, 7, 1, None),
        ]
    );
    let mlp = &analysis.layers[0];
    let spread = mlp.spread.as_ref().unwrap();
    assert_eq!((spread.min_ns, spread.median_ns, spread.max_ns), (40, 50, 60));
    assert_eq!(spread.longest, "model.layers.1.mlp");
    assert!((mlp.share_pct - 100.0 * 100.0 / 117.0).abs() < 1e-9);
    assert!((analysis.layers.iter().map(|row| row.share_pct).sum::<f64>() - 100.0).abs() < 1e-9);
}

#[test]
fn a_module_that_ended_has_no_later_kernels() {
    let mut program = Program::new();
    program.range("decode", 0, 10_000);
    program.range("layer:model.a", 100, 1_000);
    program.range("layer:model.b", 500, 800);
    program.range("layer:model.c", 700, 2_000);
    // In `c` inside all three, after `b`, and after `a`.
    program.launch(750, &[(0, 1)]);
    program.launch(900, &[(0, 2)]);
    program.launch(1_500, &[(0, 4)]);
    // The call outlasts `c`.
    program.launch(2_000, &[(0, 8)]);
    let analysis = program.analysis();
    assert_eq!(
        rows(&analysis),
        [("decode", Some("model.c"), Some(1), 7, 3, Some(1)), ("decode", None, None, 8, 1, None),]
    );
}

#[test]
fn kernels_of_a_replay_belong_to_the_module_of_their_capture() {
    let mut program = Program::new();
    program.node(1, &["warmup", "layer:model", "layer:model.layers.0.attn"]);
    program.node(2, &["warmup", "layer:model", "layer:model.layers.1.attn"]);
    program.node(3, &["warmup"]);
    for step in 0..3 {
        let at = 1_000 * (step + 1);
        program.range("execute_context_0(0)_generation_4(4)", at, at + 500);
        program.launch(at + 100, &[(1, 10), (2, 20), (3, 5), (9, 1)]);
    }
    let analysis = program.analysis();
    assert_eq!(
        rows(&analysis),
        [
            ("decode", Some("model.layers.*.attn"), Some(2), 90, 6, Some(6)),
            ("decode", None, None, 18, 6, None),
        ]
    );
    assert_eq!(
        analysis.reason(&About::Other("layers".into())),
        Some(
            "kernels of CUDA graphs without a layer, because the capture of the graph was not recorded: 3; kernels of CUDA graphs \
             without a layer, because no named module ran when the graph was captured: 3"
        )
    );
}

#[test]
fn a_capture_without_modules_has_no_layers() {
    let mut program = Program::new();
    program.range("decode", 0, 1_000);
    program.launch(100, &[(0, 10)]);
    let analysis = program.analysis();
    assert!(analysis.layers.is_empty());
    assert_eq!(analysis.reason(&About::Other("layers".into())), None);
    let mut program = Program::new();
    program.range("decode", 0, 1_000);
    program.launch(100, &[(4, 10)]);
    let analysis = program.analysis();
    assert!(analysis.layers.is_empty());
    assert_eq!(
        analysis.reason(&About::Other("layers".into())),
        Some("kernels of CUDA graphs without a layer, because the capture of the graph was not recorded: 1")
    );
}

#[test]
fn modules_of_a_torch_profiler_trace_are_named_with_those_around_them() {
    let event = |cat: &str, name: &str, ts: u32, dur: u32, more: &str| {
        format!(r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":{dur}{more}}}"#)
    };
    let mut events = Vec::new();
    let mut correlation = 0;
    let mut launch = |events: &mut Vec<String>, at: u32| {
        correlation += 1;
        let argument = format!(r#","args":{{"correlation":{correlation}}}"#);
        events.push(event("cuda_runtime", "cudaLaunchKernel", at, 1, &argument));
        let argument = format!(r#","args":{{"correlation":{correlation},"device":0,"stream":7}}"#);
        events.push(event("kernel", "gemm", at + 5, 2, &argument));
    };
    for layer in 0..2 {
        let at = 1_000 * layer;
        events.push(event("python_function", "nn.Module: Model_0", at, 900, ""));
        let name = format!("nn.Module: Layer_{layer}");
        events.push(event("python_function", &name, at + 10, 800, ""));
        for part in 0..2 {
            let at = at + 100 + 300 * part;
            let name = format!("nn.Module: Linear_{}", 2 * layer + part);
            events.push(event("python_function", &name, at, 100, ""));
            launch(&mut events, at + 10);
        }
        launch(&mut events, at + 700);
    }
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    write!(file, r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, events.join(",")).unwrap();
    let trace = roofgap_trace::read(&[file.path().to_owned()]).unwrap().trace;
    assert!(trace.ranges.rows.is_empty(), "modules are no ranges of the program");
    let analysis = analyze(&trace, &Options::default()).analysis;
    let stage = analysis.stages[0].name.as_str();
    assert_eq!(
        rows(&analysis),
        [
            (stage, Some("Model_*.Layer_*.Linear_*"), Some(4), 8_000, 4, Some(4)),
            (stage, Some("Model_*.Layer_*"), Some(2), 4_000, 2, Some(2)),
        ]
    );
}
