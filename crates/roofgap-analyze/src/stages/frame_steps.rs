//! Steps of an engine by its Python frames, for a trace without any annotation of steps.
//!
//! A frame says where a step begins and ends, not what it scheduled. Prefill and decode are told apart by the order of the calls, by
//! the names of the attention kernels, or by how much larger some steps are; where none of these decides, they are one stage.

use super::ranges::{EngineStage, Warmup, outermost};
use crate::engines::{Engine, EngineStep};
use crate::names::{Family, attention_phase, family};
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
    /// Rows of `Trace::ranges` in the order of start, and for a call of the model in a generation what it
    /// does: the first ones read the prompt.
    steps: Vec<(u32, Option<StageKind>)>,
}

/// Row of a step, what it does where the order of the calls tells, and its GPU work.
type StepWithWork = (u32, Option<StageKind>, StepWork);

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
            let mut is_outermost = outermost(false);
            let steps = frames.iter().filter(|(_, _, role)| *role == FrameRole::Step);
            steps.filter(|(_, range, _)| is_outermost(range)).map(|(row, ..)| (*row, None)).collect()
        } else {
            calls(&frames)
        };
        let counts = |(row, _): &(u32, Option<StageKind>)| {
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

    /// Returns the steps that have GPU work, by kind, and the evidence for the kinds, for people. `step_of_op` is the position in
    /// `rows()` of the step of an operation.
    pub fn stages(
        &self,
        trace: &Trace,
        step_of_op: impl Fn(usize) -> Option<usize>,
    ) -> (Vec<EngineStage>, String) {
        let works = works(trace, self.steps.len(), step_of_op);
        let with_work: Vec<StepWithWork> = self
            .steps
            .iter()
            .zip(works)
            .filter(|(_, work)| work.operations > 0)
            .map(|((row, call), work)| (*row, *call, work))
            .collect();
        let (kinds, told_by) = kinds(&with_work);
        let mut steps: Vec<_> = with_work.iter().zip(kinds).collect();
        // The sort keeps the order of start within a kind.
        steps.sort_by_key(|(_, kind)| match kind {
            StageKind::Prefill => 0,
            StageKind::Mixed => 1,
            StageKind::Decode => 2,
            StageKind::Whole | StageKind::Loop | StageKind::Custom => 3,
        });
        let steps = steps.into_iter().map(|((row, call, work), kind)| {
            // A step that is only larger than the others may generate too.
            let certain = call.is_some() || work.context || work.generation;
            (*row, kind, EngineStep::of_kind(self.engine, kind, certain))
        });
        (EngineStage::collect(trace, steps), told_by)
    }
}

/// Returns the outermost calls of the model inside generations. The first one of a generation reads the prompt; so do all inside a
/// prefill frame.
fn calls(frames: &[KeptFrame<'_>]) -> Vec<(u32, Option<StageKind>)> {
    #[derive(Default)]
    struct Open {
        generation: Option<Ns>,
        prefill: Option<Ns>,
        call: Option<Ns>,
        /// A call of the generation was seen.
        begun: bool,
    }
    let mut threads: FxHashMap<ThreadId, Open> = FxHashMap::default();
    let mut steps = Vec::new();
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
                steps.push((*row, Some(if first { StageKind::Prefill } else { StageKind::Decode })));
                (open.call, open.begun) = (Some(range.end), true);
            }
            _ => {}
        }
    }
    steps
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

/// Returns the kind of each step and the evidence.
fn kinds(steps: &[StepWithWork]) -> (Vec<StageKind>, String) {
    let by_call = steps.iter().map(|(_, call, _)| *call).collect();
    if let Some(kinds) = by_call {
        return (kinds, "the first call of the model in each generation is the prefill".into());
    }
    let by_name = |(_, _, work): &StepWithWork| match (work.context, work.generation) {
        (true, false) => Some(StageKind::Prefill),
        (false, true) => Some(StageKind::Decode),
        (true, true) => Some(StageKind::Mixed),
        (false, false) => None,
    };
    if let Some(kinds) = steps.iter().map(by_name).collect() {
        return (kinds, "the names of the attention kernels say what each step runs".into());
    }
    by_size(steps)
}

/// Tells the steps apart by size: most are alike, and those that are several times larger read prompts.
fn by_size(steps: &[StepWithWork]) -> (Vec<StageKind>, String) {
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
            let kind = |(_, _, work): &StepWithWork| {
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
