//! Facts about the program that decide which advice fits it.

use crate::engines::{Advice, Engine};
use crate::result::{Analysis, StageKind};

/// Facts about a program, as far as its operators, ranges and kernels tell them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Program {
    /// Serving engine or framework.
    pub(super) engine: Option<&'static Engine>,
    /// PyTorch launches its kernels.
    pub(super) is_torch: bool,
    /// A compiler made its kernels of OpenACC or OpenMP directives.
    pub(super) has_directives: bool,
    /// torch.compile made kernels that take some of its time.
    pub(super) is_compiled: bool,
    /// An optimizer takes some of its time.
    optimizes: bool,
    /// It computes gradients.
    pub(super) trains: bool,
    /// It generates tokens.
    pub(super) generates: bool,
    /// Its GPU is Hopper or later.
    pub(super) is_hopper: bool,
    /// Its GPU has tensor cores for bf16, as all do since Ampere.
    pub(super) has_bf16: bool,
}

/// Beginnings of names that PyTorch gives to operators and ranges of training.
const OF_TRAINING: [&str; 5] =
    ["autograd::engine::evaluate_function", "Optimizer.", "## backward", "backward", "train_step"];

/// Parts of the names of kernels that only training has, beside those of its optimizer.
const TRAINING_KERNELS: [&str; 3] = ["_bwd", "backward", "wgrad"];

/// Parts of the names of kernels of optimizers, and the beginning of the names of their operators.
const OPTIMIZER_KERNELS: [&str; 2] = ["adam", "multi_tensor_apply"];
const OPTIMIZER: &str = "Optimizer.";

/// Tells whether a compiler made a kernel of an OpenACC or OpenMP directive, or it is one of their runtime.
fn is_of_directive(kernel: &str) -> bool {
    let base = kernel.strip_suffix("__red").unwrap_or(kernel);
    let line = base.strip_suffix("_gpu").and_then(|base| base.rsplit('_').next());
    ["nvkernel_", "__omp_offloading_"].iter().any(|start| kernel.starts_with(start))
        || kernel.contains("__pgi_uacc")
        || line.is_some_and(|line| line.parse::<u32>().is_ok())
}

/// Part of the kernel time, 1 in so many, from which on a part of the program matters.
const MATTERS: i64 = 20;

/// Beginnings of names that torch.compile gives to operators and ranges.
const OF_COMPILER: [&str; 3] = ["Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph"];

/// Tells whether torch.compile made a kernel out of all the elementwise ones that it could.
pub(super) fn is_fused(kernel: &str) -> bool {
    ["triton_poi_fused", "triton_red_fused", "triton_per_fused"].iter().any(|start| kernel.starts_with(start))
}

impl Program {
    /// Collects the facts.
    pub(super) fn of(analysis: &Analysis) -> Self {
        let operators = || analysis.operators.iter().map(|operator| operator.name.as_str());
        let named = || operators().chain(analysis.ranges.iter().map(|range| range.name.as_str()));
        let kernels = || analysis.kernels.iter().map(|kernel| kernel.name.as_str());
        let begins = |name: &str, with: &[&str]| with.iter().any(|start| name.starts_with(start));
        let has = |kernel: &str, parts: &[&str]| {
            let kernel = kernel.to_ascii_lowercase();
            parts.iter().any(|part| kernel.contains(part))
        };
        let is_optimizer = |range: &str| range.to_ascii_lowercase().starts_with("optimizer");
        let optimizes = |kernel: &str| has(kernel, &OPTIMIZER_KERNELS);
        let trains = |kernel: &str| has(kernel, &TRAINING_KERNELS) || optimizes(kernel);
        let all_ns: i64 = analysis.kernels.iter().map(|kernel| kernel.total_ns).sum();
        let matters = |ns: i64| ns > 0 && ns.saturating_mul(MATTERS) >= all_ns;
        let kernels_ns = |is: &dyn Fn(&str) -> bool| -> i64 {
            analysis.kernels.iter().filter(|kernel| is(&kernel.name)).map(|kernel| kernel.total_ns).sum()
        };
        let operator_ns = |with: &[&str]| {
            let named = analysis.operators.iter().filter(|operator| begins(&operator.name, with));
            named.filter_map(|operator| operator.total_gpu_ns).max().unwrap_or(0)
        };
        let engine = Engine::of_analysis(analysis.engine.as_ref());
        let generates = |kind| matches!(kind, StageKind::Prefill | StageKind::Decode | StageKind::Mixed);
        let major = |capability: &str| capability.split('.').next()?.parse::<u32>().ok();
        let capabilities = analysis.devices.iter().filter_map(|device| device.compute_capability.as_deref());
        let newest = capabilities.filter_map(major).max();
        let since = |least| newest.is_some_and(|major| major >= least);
        Self {
            engine,
            is_torch: operators().any(|name| name.starts_with("aten::"))
                || kernels().any(|name| name.contains("at::native") || name.starts_with("triton_")),
            has_directives: kernels().any(is_of_directive),
            is_compiled: matters(kernels_ns(&is_fused))
                || matters(operator_ns(&OF_COMPILER))
                || analysis.ranges.iter().any(|range| begins(&range.name, &OF_COMPILER)),
            optimizes: matters(kernels_ns(&optimizes))
                || matters(operator_ns(&[OPTIMIZER]))
                || analysis.ranges.iter().any(|range| is_optimizer(&range.name) && matters(range.kernel_ns)),
            trains: named().any(|name| begins(name, &OF_TRAINING)) || kernels().any(trains),
            generates: engine.is_some() || analysis.stages.iter().any(|stage| generates(stage.kind)),
            is_hopper: since(9),
            has_bf16: since(8),
        }
    }

    /// Tells whether it neither uses PyTorch nor generates tokens: a program of its own kernels.
    pub(super) fn is_plain(&self) -> bool {
        !self.is_torch && !self.generates
    }

    /// Returns the advice of its engine.
    pub(super) fn advice(&self) -> &'static Advice {
        Advice::for_engine(self.engine)
    }

    /// Says how to fuse elementwise kernels in it.
    pub(super) fn fusing(&self) -> &'static str {
        match (self.engine, self.is_torch) {
            (Some(engine), _) if engine.uses_graphs && self.is_compiled => {
                "the compiler of the engine leaves them apart: turn on its fusion passes, or use fused kernels"
            }
            (Some(engine), _) if engine.uses_graphs => self.advice().compile,
            (_, true) if self.is_compiled => {
                "they are outside of what torch.compile got, or it leaves them apart: compile that part too, and look for graph breaks (TORCH_LOGS=graph_breaks)"
            }
            (_, true) if self.trains && self.optimizes => {
                "compile the model with torch.compile, and use a fused optimizer (fused=True)"
            }
            (_, true) if self.generates => {
                "compile the model with torch.compile, or use fused norms, rotary embeddings and activations"
            }
            (_, true) => "compile the model with torch.compile, or use fused norms and activations",
            (_, false) => "write them as one kernel, or use a library that has them fused",
        }
    }
}
