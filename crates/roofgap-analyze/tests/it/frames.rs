//! Steps by the Python frames of a trace without step names.

use roofgap_analyze::{Analyzed, Options, StageKind, analyze};
use std::fmt::Write;

const WORKER: &str =
    "/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py(512): execute_model";
const RUNNER: &str = "vllm/v1/worker/gpu_model_runner.py(2907): execute_model";
const NORM: &str = "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*)";

/// A trace in the making. Times are whole microseconds.
#[derive(Default)]
struct Capture {
    events: String,
    now: u32,
    launches: u32,
}

impl Capture {
    fn event(&mut self, category: &str, name: &str, start: u32, length: u32, arguments: &str) {
        let tid = if category == "kernel" { 7 } else { 1 };
        let pid = if category == "kernel" { 0 } else { 100 };
        let comma = if self.events.is_empty() { "" } else { "," };
        let _ = write!(
            self.events,
            r#"{comma}{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": {start}.000, "dur": {length}.500, "args": {{{arguments}}}}}"#
        );
    }

    /// Runs `inside` in a frame or a range.
    fn within(&mut self, category: &str, name: &str, inside: impl FnOnce(&mut Self)) {
        let start = self.now;
        self.now += 1;
        inside(self);
        self.now += 1;
        self.event(category, name, start, self.now - start, "");
        self.now += 1;
    }

    fn frame(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        self.within("python_function", name, inside);
    }

    fn kernel(&mut self, name: &str, blocks: u32, length: u32) {
        self.launches += 1;
        let correlation = format!(r#""correlation": {}"#, self.launches);
        self.event("cuda_runtime", "cudaLaunchKernel", self.now, 2, &correlation);
        let shape = format!(
            r#"{correlation}, "device": 0, "stream": 7, "grid": [{blocks}, 1, 1], "block": [128, 1, 1]"#
        );
        self.event("kernel", name, self.now + 1, length, &shape);
        self.now += 3 + length;
    }

    fn analyzed(&self) -> Analyzed {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let head = r#""schemaVersion": 1, "with_stack": 1"#;
        let text = format!(r#"{{{head}, "traceEvents": [{}]}}"#, self.events);
        std::fs::write(&path, text).unwrap();
        let input = roofgap_trace::read(&[path]).unwrap();
        analyze(&input.trace, &Options::default())
    }
}

fn stages(analyzed: &Analyzed) -> Vec<(&str, StageKind, u64, u64)> {
    let stages = analyzed.analysis.stages.iter();
    stages.map(|stage| (stage.name.as_str(), stage.kind, stage.instances, stage.kernel_count)).collect()
}

fn evidence(analyzed: &Analyzed) -> (&str, &str, &str) {
    let engine = analyzed.analysis.engine.as_ref().unwrap();
    let phases = engine.phases_told_by.as_deref().unwrap();
    (&engine.name, &engine.told_by, phases)
}

/// A step of vLLM: the worker calls the runner, which has a frame of the same function.
fn vllm_step(capture: &mut Capture, kernels: &[(&str, u32)]) {
    capture.frame(WORKER, |capture| {
        capture.frame(RUNNER, |capture| {
            capture.frame("vllm/v1/worker/gpu_model_runner.py(753): _update_states", |_| {});
            for (name, blocks) in kernels {
                capture.kernel(name, *blocks, 20);
            }
        });
    });
}

#[test]
fn larger_steps_of_an_engine_are_prefill() {
    let mut capture = Capture::default();
    vllm_step(&mut capture, &[(NORM, 888), ("gemm", 64), (NORM, 888)]);
    for batch in [8, 8, 7, 6] {
        vllm_step(&mut capture, &[(NORM, batch), ("gemm", 64)]);
    }
    // A step without GPU work scheduled nothing.
    vllm_step(&mut capture, &[]);
    capture.kernel("outside", 1, 5);
    let analyzed = capture.analyzed();
    assert_eq!(
        stages(&analyzed),
        [("prefill", StageKind::Prefill, 1, 3), ("decode", StageKind::Decode, 4, 8)]
    );
    let (engine, told_by, phases) = evidence(&analyzed);
    assert_eq!((engine, told_by), ("vLLM", "frames"));
    assert_eq!(
        phases,
        "steps whose largest normalization grid is at least 4 times that of all others are prefill, and may also generate"
    );
    let prefill = &analyzed.analysis.stages[0];
    assert_eq!(prefill.requests.unwrap().generation, None, "not known");
    assert_eq!(prefill.ranges, ["python@vllm/v1/worker/gpu_worker.py: execute_model"]);
    assert_eq!(analyzed.analysis.stages[1].steps.as_ref().unwrap().count, 4);
}

#[test]
fn steps_that_are_alike_are_one_stage() {
    let mut capture = Capture::default();
    for rows in [512, 700, 640] {
        vllm_step(&mut capture, &[(NORM, rows)]);
    }
    let analyzed = capture.analyzed();
    assert_eq!(stages(&analyzed), [("step", StageKind::Custom, 3, 3)]);
    assert!(evidence(&analyzed).2.starts_with("nothing in the capture tells"));
}

#[test]
fn prompts_of_different_lengths_are_not_decode() {
    let mut capture = Capture::default();
    for rows in [128, 2048, 4096] {
        vllm_step(&mut capture, &[(NORM, rows)]);
    }
    assert_eq!(stages(&capture.analyzed()), [("step", StageKind::Custom, 3, 3)]);
}

#[test]
fn attention_kernels_say_the_phase() {
    let context = "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext";
    let generation = "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ8Kv128StaticSwapsAbForGen";
    let run_batch = "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py(2919): run_batch";
    let mut capture = Capture::default();
    for kernels in [vec![context], vec![generation, context], vec![generation], vec![generation]] {
        capture.frame(run_batch, |capture| {
            for kernel in kernels {
                capture.kernel(kernel, 16, 10);
            }
        });
    }
    let analyzed = capture.analyzed();
    assert_eq!(
        stages(&analyzed),
        [
            ("prefill", StageKind::Prefill, 1, 1),
            ("mixed", StageKind::Mixed, 1, 2),
            ("decode", StageKind::Decode, 2, 2)
        ]
    );
    let (engine, told_by, phases) = evidence(&analyzed);
    assert_eq!((engine, told_by), ("SGLang", "frames"));
    assert!(phases.contains("attention kernels"));
    let decode = analyzed.analysis.stages[2].requests.unwrap();
    assert_eq!((decode.context, decode.generation), (Some(0), None));
}

#[test]
fn the_first_call_of_a_generation_is_the_prefill() {
    let generate = "transformers/generation/utils.py(2300): generate";
    let sample = "transformers/generation/utils.py(2711): _sample";
    let model = "nn.Module: Qwen2ForConditionalGeneration_0";
    let inner = "nn.Module: Qwen2ForCausalLM_0";
    let mut capture = Capture::default();
    // A call of the model by itself is no step.
    capture.frame(model, |capture| capture.kernel("gemm", 64, 10));
    for _ in 0..2 {
        capture.frame(generate, |capture| {
            capture.frame(sample, |capture| {
                for _ in 0..3 {
                    capture.frame(model, |capture| {
                        capture.frame(inner, |capture| capture.kernel("gemm", 64, 10));
                    });
                }
            });
        });
    }
    let analyzed = capture.analyzed();
    assert_eq!(
        stages(&analyzed),
        [("prefill", StageKind::Prefill, 2, 2), ("decode", StageKind::Decode, 4, 4)]
    );
    assert_eq!(
        evidence(&analyzed),
        ("transformers", "frames", "the first call of the model in each generation is the prefill")
    );
}

#[test]
fn names_of_steps_come_before_frames() {
    let mut capture = Capture::default();
    for name in ["execute_context_1(888)_generation_0(0)", "execute_context_0(0)_generation_1(1)"] {
        capture.frame(WORKER, |capture| {
            capture.within("user_annotation", name, |capture| capture.kernel(NORM, 888, 10));
        });
    }
    let analyzed = capture.analyzed();
    let engine = analyzed.analysis.engine.as_ref().unwrap();
    assert_eq!((engine.told_by.as_str(), &engine.phases_told_by), ("annotation", &None));
    assert_eq!(analyzed.analysis.stages.len(), 2);
    assert_eq!(analyzed.analysis.stages[0].tokens.unwrap().context, Some(888));
}
