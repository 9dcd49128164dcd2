//! Steps of an engine by its Python frames, for a trace without any annotation of steps.
//!
//! A frame says where a step begins and ends, not what it scheduled. Prefill and decode are told apart by the order of the calls, by
//! the names of the attention kernels, or by how much larger some steps are; where none of these decides, they are one stage.

use super::instances::Warmup;
use super::span::Span;
use crate::engines::{Engine, EngineStep};
use crate::names::{Family, family};
use crate::result::StageKind;
use roofgap_trace::frames::{FRAME_DOMAIN, FrameRole};
use roofgap_trace::{NameId, Ns, OpKind, Range, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Factor between two steps from which on they differ in kind.
const LARGER: f64 = 4.0;

/// Row and range of a frame, and its meaning.
type KeptFrame<'a> = (u32, &'a Range, FrameRole);

/// Steps found by frames.
pub struct FrameSteps {
    pub engine: &'static Engine,
    /// Rows of `Trace::ranges` in the order of start, with the position of the call in its generation where known.
    steps: Vec<(u32, Option<Call>)>,
}

/// A call of the model inside a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Reads the prompt.
    First,
    /// Generates a token.
    Later,
}

/// The steps with their kind.
pub struct Phases {
    /// Row, kind and description of each step that has GPU work.
    pub steps: Vec<(u32, StageKind, EngineStep)>,
    /// Evidence for the kinds, for people.
    pub told_by: String,
}

/// GPU work of one step.
#[derive(Debug, Clone, Copy, Default)]
struct StepWork {
    operations: u64,
    kernel_ns: Ns,
    /// Blocks of its largest normalization, which has about one for each token.
    rows: u64,
    /// An attention kernel for prompts ran.
    context: bool,
    /// An attention kernel for single tokens ran.
    generation: bool,
}

impl FrameSteps {
    /// Finds the outermost steps of an engine, or the calls of the model inside a generation.
    pub fn find(trace: &Trace, warmup: &Warmup) -> Option<Self> {
        let domain = trace.names.find(FRAME_DOMAIN)?;
        let mut known: FxHashMap<NameId, Option<(&'static Engine, FrameRole)>> = FxHashMap::default();
        let mut frames: Vec<KeptFrame<'_>> = Vec::new();
        let mut first: Option<(&'static Engine, bool)> = None;
        for (row, range) in trace.ranges.rows.iter().enumerate() {
            if range.domain != domain {
                continue;
            }
            let of_frame = || Engine::of_frame(trace.names.get(range.name));
            if let Some((engine, role)) = *known.entry(range.name).or_insert_with(of_frame) {
                // The engine of the first step, else of the first frame.
                let is_step = role == FrameRole::Step;
                if first.is_none_or(|(_, known_step)| is_step && !known_step) {
                    first = Some((engine, is_step));
                }
                frames.push((row as u32, range, role));
            }
        }
        let (engine, has_steps) = first?;
        let steps = if has_steps {
            let steps = frames.iter().filter(|(_, _, role)| *role == FrameRole::Step);
            outermost(steps.map(|(row, range, _)| (*row, *range))).map(|row| (row, None)).collect()
        } else {
            calls(&frames)
        };
        let counts = |(row, _): &(u32, Option<Call>)| {
            let range = trace.ranges.rows.get(*row as usize);
            range.is_some_and(|range| !warmup.holds(range))
        };
        let steps: Vec<_> = steps.into_iter().filter(counts).collect();
        (!steps.is_empty()).then_some(Self { engine, steps })
    }

    /// Returns the time spans of the steps.
    pub fn rows(&self) -> Vec<u32> {
        self.steps.iter().map(|(row, _)| *row).collect()
    }

    /// Tells the kind of each step. `spans` are the spans of `rows()`, and `step_of_op` is the position of the step of an operation.
    pub fn phases(
        &self,
        trace: &Trace,
        spans: &[Span],
        step_of_op: impl Fn(usize) -> Option<usize>,
    ) -> Phases {
        let works = works(trace, spans.len(), step_of_op);
        let with_work: Vec<(u32, Option<Call>, StepWork)> = self
            .steps
            .iter()
            .zip(&works)
            .filter(|(_, work)| work.operations > 0)
            .map(|((row, call), work)| (*row, *call, *work))
            .collect();
        let (kinds, told_by) = kinds(&with_work);
        let steps = with_work.iter().zip(kinds);
        let steps = steps.map(|((row, call, work), kind)| {
            // A step that is only larger than the others may generate too.
            let certain = call.is_some() || work.context || work.generation;
            (*row, kind, EngineStep::of_kind(self.engine, kind, certain))
        });
        Phases { steps: steps.collect(), told_by }
    }
}

/// Returns the rows of the ranges that are not inside another one of their thread.
fn outermost<'a>(ranges: impl Iterator<Item = (u32, &'a Range)>) -> impl Iterator<Item = u32> {
    let mut open: FxHashMap<ThreadId, Ns> = FxHashMap::default();
    ranges.filter_map(move |(row, range)| {
        let end = open.entry(range.thread).or_insert(Ns::MIN);
        if range.end <= *end {
            return None;
        }
        *end = range.end;
        Some(row)
    })
}

/// Returns the outermost calls of the model inside generations. The first one of a generation reads the prompt; so do all inside a
/// prefill frame.
fn calls(frames: &[KeptFrame<'_>]) -> Vec<(u32, Option<Call>)> {
    #[derive(Default)]
    struct Open {
        generation: Option<Ns>,
        prefill: Option<Ns>,
        call: Option<Ns>,
        /// A call of the generation was seen.
        begun: bool,
    }
    let mut threads: FxHashMap<ThreadId, Open> = FxHashMap::default();
    let mut found = Vec::new();
    for (row, range, role) in frames {
        let open = threads.entry(range.thread).or_default();
        let inside = |end: Option<Ns>| end.is_some_and(|end| range.end <= end);
        match role {
            FrameRole::Generation if !inside(open.generation) => {
                *open = Open { generation: Some(range.end), ..Open::default() };
            }
            FrameRole::Prefill => open.prefill = Some(range.end),
            FrameRole::ModelCall if inside(open.generation) && !inside(open.call) => {
                let first = !open.begun || inside(open.prefill);
                found.push((*row, Some(if first { Call::First } else { Call::Later })));
                (open.call, open.begun) = (Some(range.end), true);
            }
            _ => {}
        }
    }
    found
}

fn works(trace: &Trace, steps: usize, step_of_op: impl Fn(usize) -> Option<usize>) -> Vec<StepWork> {
    let ops = &trace.ops;
    let mut families: FxHashMap<NameId, (Family, Option<StageKind>)> = FxHashMap::default();
    let mut works = vec![StepWork::default(); steps];
    for op in 0..ops.len() {
        let Some(work) = step_of_op(op).and_then(|step| works.get_mut(step)) else {
            continue;
        };
        work.operations += 1;
        if ops.kind[op] != OpKind::Kernel {
            continue;
        }
        work.kernel_ns += ops.duration(op);
        let (family, phase) = *families.entry(ops.name[op]).or_insert_with(|| {
            let name = trace.names.get(ops.name[op]);
            let family = family(name);
            let phase = (family == Family::Attention).then(|| attention_phase(name));
            (family, phase.flatten())
        });
        work.context |= phase == Some(StageKind::Prefill);
        work.generation |= phase == Some(StageKind::Decode);
        if family == Family::Norm {
            let blocks = ops.shape_of(op).grid.iter().map(|n| u64::from(*n)).product();
            work.rows = work.rows.max(blocks);
        }
    }
    works
}

/// Returns the phase that an attention kernel is made for, where its name says it. Kernels for prompts that some libraries use for
/// single tokens too (FlashInfer's paged prefill) say nothing.
fn attention_phase(name: &str) -> Option<StageKind> {
    const GENERATION: [&str; 8] = [
        "decode",
        "paged_attention_v",
        "paged_attention_ll4mi",
        "unified_attention_3d",
        "forgen",
        "splitkv_mla",
        "_fwd_grouped_kernel_stage1",
        "_fwd_kernel_stage1",
    ];
    let name = name.to_ascii_lowercase();
    let has = |word: &&str| name.contains(word);
    if GENERATION.iter().any(has) {
        return Some(StageKind::Decode);
    }
    let context = (has(&"fmhasm") && has(&"context"))
        || has(&"context_attention")
        || has(&"fmhabatchprefill")
        || (has(&"prefill") && !has(&"batchprefillwithpaged"));
    context.then_some(StageKind::Prefill)
}

/// Returns the kind of each step and the evidence.
fn kinds(steps: &[(u32, Option<Call>, StepWork)]) -> (Vec<StageKind>, String) {
    let by_call: Option<Vec<StageKind>> = steps
        .iter()
        .map(|(_, call, _)| {
            Some(match (*call)? {
                Call::First => StageKind::Prefill,
                Call::Later => StageKind::Decode,
            })
        })
        .collect();
    if let Some(kinds) = by_call {
        return (kinds, "the first call of the model in each generation is the prefill".into());
    }
    let by_name: Option<Vec<StageKind>> = steps
        .iter()
        .map(|(_, _, work)| match (work.context, work.generation) {
            (true, false) => Some(StageKind::Prefill),
            (false, true) => Some(StageKind::Decode),
            (true, true) => Some(StageKind::Mixed),
            (false, false) => None,
        })
        .collect();
    if let Some(kinds) = by_name {
        return (kinds, "the names of the attention kernels say what each step runs".into());
    }
    by_size(steps)
}

/// Tells the steps apart by size: most are alike, and those that are several times larger read prompts.
fn by_size(steps: &[(u32, Option<Call>, StepWork)]) -> (Vec<StageKind>, String) {
    let has_rows = steps.iter().all(|(_, _, work)| work.rows > 0);
    let (what, size): (_, fn(&StepWork) -> f64) = if has_rows {
        ("largest normalization grid", |work| work.rows as f64)
    } else {
        ("kernel time", |work| work.kernel_ns as f64)
    };
    let mut sizes: Vec<f64> = steps.iter().map(|(_, _, work)| size(work)).collect();
    sizes.sort_by(f64::total_cmp);
    let gaps = sizes.windows(2).enumerate().filter_map(|(at, pair)| match pair {
        [below, above] if *below > 0.0 && above / below >= LARGER => Some((at + 1, above / below)),
        _ => None,
    });
    let widest = gaps.max_by(|a, b| a.1.total_cmp(&b.1));
    match widest {
        Some((below, _)) if below >= 2 && 2 * below >= sizes.len() => {
            let least = sizes.get(below).copied().unwrap_or(f64::INFINITY);
            let kind = |(_, _, work): &(u32, Option<Call>, StepWork)| {
                if size(work) >= least { StageKind::Prefill } else { StageKind::Decode }
            };
            let told_by = format!(
                "steps whose {what} is at least {LARGER:.0} times that of all others are prefill, and may also generate"
            );
            (steps.iter().map(kind).collect(), told_by)
        }
        _ => (
            vec![StageKind::Custom; steps.len()],
            "nothing in the capture tells prefill and decode apart, so all steps are one stage".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_kernels_of_one_phase_are_known() {
        let (context, generation) = (Some(StageKind::Prefill), Some(StageKind::Decode));
        for (name, phase) in [
            ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", context),
            ("void ck_tile::kentry<(int)2, ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel<>>()", context),
            ("void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<>>()", context),
            ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<>>()", None),
            ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<2, 4>()", generation),
            ("void vllm::paged_attention_v2_kernel<__half, __half, 128, 16>()", generation),
            ("void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>()", generation),
            ("kernel_unified_attention_3d", generation),
            ("kernel_unified_attention_2d", None),
            ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>()", None),
        ] {
            assert_eq!(attention_phase(name), phase, "{name}");
        }
    }
}
