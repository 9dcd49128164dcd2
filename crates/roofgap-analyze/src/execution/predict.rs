//! Predictions: the time of a step with changes, its interval, and what limits it then.

use super::edits::{Edit, Editor};
use super::graph::{Graph, NONE};
use super::replay::{Plan, replay};
use super::window::Window;
use crate::result::{Analysis, Binding, EdgeCounts, Prediction, SavingBasis, Stage, WhatIf};
use crate::stages::StageIndex;
use crate::timeline::LAUNCH_LATENCY_NS;
use roofgap_trace::{Ns, Trace};

/// Factor by which the time after a change is missed at most, as a rule: of 38 programs whose cause was removed on an H200, 29 were within.
const MISSED: f64 = 1.25;

/// Waiting that no edge explains, in % of a step, from which on a replay says nothing.
const UNEXPLAINED_PCT: f64 = 5.0;

/// A small change of the CPU or GPU time, to see which of them a step follows.
const PROBE: f64 = 0.9;

/// A reason why there is no prediction for a stage.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unpredicted {
    /// No calls, or no operations of them.
    #[error("the capture does not hold the calls that launched the work")]
    NoCalls,
    /// The replay is not the recording.
    #[error("not predictable from this recording: its replay differs from it by {0} ns")]
    Differs(Ns),
    /// Nothing explains so many % of a step.
    #[error("not predictable from this recording: nothing explains {0:.0} % of a step")]
    Unexplained(f64),
    /// The changes touch nothing.
    #[error("the change finds nothing to change")]
    Nothing,
}

/// Steps of a stage to try changes on.
#[derive(Debug)]
struct Trial {
    window: Window,
    /// The recorded steps.
    plan: Plan,
}

/// The graph of a trace with the stages of its index, to try changes on.
#[derive(Debug)]
pub struct Engine<'a> {
    graph: Graph<'a>,
    trials: Vec<Result<Trial, Unpredicted>>,
}

impl<'a> Engine<'a> {
    /// Builds the graph and chooses the steps of each stage. A stage whose replay is not its recording has no prediction.
    pub fn new(trace: &'a Trace, index: &StageIndex) -> Self {
        let graph = Graph::new(trace, &index.launches().call_of_op);
        let trial = |stage| {
            let window = Window::of_stage(&graph, index, stage).ok_or(Unpredicted::NoCalls)?;
            let plan = Plan::of(&graph, window.calls.clone());
            checked(&graph, &window, &plan)?;
            Ok(Trial { window, plan: Plan { is_steady: true, ..plan } })
        };
        let trials = (0..index.len()).map(trial).collect();
        Self { graph, trials }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph<'a> {
        &self.graph
    }

    /// Counts the edges that are not program order.
    pub fn edges(&self) -> EdgeCounts {
        EdgeCounts { recorded: self.graph.recorded, inferred: self.graph.inferred }
    }

    /// Predicts the time of a step of a stage, by its number in the index, with changes. The time before is that without the profiler, where
    /// it is known.
    pub fn predict(&self, (at, stage): (usize, &Stage), edits: &[Edit]) -> Result<Prediction, Unpredicted> {
        let trial = self.trials.get(at).ok_or(Unpredicted::NoCalls)?.as_ref().map_err(Clone::clone)?;
        let Trial { window, plan } = trial;
        let steady = stage.warm().steady.as_ref();
        let cost = stage.corrected.map_or(0, |corrected| corrected.cost_per_call_ns);
        let recorded = (window.span.1 - window.span.0) / window.starts.len().max(1) as Ns;
        let unprofiled = steady.and_then(|steady| steady.unprofiled_ns);
        let corrected = stage.corrected.map(|corrected| corrected.step_ns);
        let now_ns = unprofiled.or(corrected).or(steady.map(|steady| steady.time_ns)).unwrap_or(recorded);
        let plan = Plan { cost_ns: cost, ..plan.clone() };
        let base = self.time(window, &plan);
        let mut editor = Editor::new(&self.graph, window, plan);
        let mut unused = Vec::new();
        for edit in edits {
            if !editor.apply(edit) {
                unused.push(edit.to_string());
            }
        }
        if unused.len() == edits.len() {
            return Err(Unpredicted::Nothing);
        }
        let plan = editor.plan;
        let after = now_ns as f64 * self.time(window, &plan) as f64 / base.max(1) as f64;
        let limit = self.binding(window, &plan);
        let inferred = self.graph.recorded == 0 && self.graph.inferred > 0;
        let how = match inferred {
            _ if edits.iter().any(Edit::is_modelled) => SavingBasis::Modelled,
            true => SavingBasis::ReplayedInferred,
            false => SavingBasis::Replayed,
        };
        Ok(Prediction {
            now_ns,
            after_ns: after.round() as Ns,
            low_ns: (after / MISSED).round() as Ns,
            // A change that helps does not slow the program down.
            high_ns: ((after * MISSED).round() as Ns).min(now_ns.max(after as Ns)),
            unprofiled: unprofiled.is_some() || corrected.is_some(),
            how,
            limit,
            unused,
        })
    }

    fn time(&self, window: &Window, plan: &Plan) -> Ns {
        window.time(&self.graph, plan, &replay(&self.graph, plan))
    }

    /// Tells whether a step follows the CPU or the GPU: which of them, a little faster, shortens it more.
    fn binding(&self, window: &Window, plan: &Plan) -> Binding {
        let faster = |list: &mut [Ns]| list.iter_mut().for_each(|ns| *ns = (*ns as f64 * PROBE) as Ns);
        let (mut cpu, mut gpu) = (plan.clone(), plan.clone());
        faster(&mut cpu.before_ns);
        faster(&mut cpu.own_ns);
        faster(&mut gpu.op_ns);
        let [cpu, gpu] = [cpu, gpu].map(|plan| self.time(window, &plan));
        if cpu < gpu { Binding::Cpu } else { Binding::Gpu }
    }
}

/// Predicts the time of a step of each stage with changes.
pub fn what_if(trace: &Trace, index: &StageIndex, analysis: &Analysis, edits: &[Edit]) -> Vec<WhatIf> {
    let engine = Engine::new(trace, index);
    let after = |(at, stage): (usize, &Stage)| {
        let predicted = engine.predict((at, stage), edits);
        let why = predicted.as_ref().err().map(ToString::to_string);
        let edits = edits.iter().map(ToString::to_string).collect();
        WhatIf { stage: stage.name.clone(), edits, step: predicted.ok(), why }
    };
    analysis.stages.iter().enumerate().take(index.len()).map(after).collect()
}

/// Checks that the replay of a window is its recording, and that its edges explain the times of its operations.
fn checked(graph: &Graph<'_>, window: &Window, plan: &Plan) -> Result<(), Unpredicted> {
    if plan.ops.is_empty() {
        return Err(Unpredicted::NoCalls);
    }
    let times = replay(graph, plan);
    let calls = graph.calls[window.calls.clone()].iter().map(|call| (call.start, call.end));
    let ops = graph.ops[plan.ops.clone()].iter().map(|op| (graph.op_start(op), graph.op_end(op)));
    let pairs = calls.zip(&times.calls).chain(ops.zip(&times.ops));
    let off = pairs.map(|(own, new)| (own.0 - new.0).abs().max((own.1 - new.1).abs())).max().unwrap_or(0);
    if off > 0 {
        return Err(Unpredicted::Differs(off));
    }
    let unexplained = |op: &super::graph::OpNode| {
        let lags = [
            (graph.calls[op.call as usize].row != NONE).then_some(op.latency),
            (op.before != NONE).then_some(op.gap),
            (op.other != NONE).then_some(op.other_gap),
        ];
        let least = lags.iter().flatten().map(|(lag, least)| lag - least).min();
        least.filter(|ns| *ns > LAUNCH_LATENCY_NS).unwrap_or(0)
    };
    let all: Ns = graph.ops[plan.ops.clone()].iter().map(unexplained).sum();
    let devices = graph.device_of_stream.iter().max().map_or(1, |most| i64::from(*most) + 1);
    let pct = 100.0 * all as f64 / ((window.span.1 - window.span.0) * devices).max(1) as f64;
    if pct > UNEXPLAINED_PCT { Err(Unpredicted::Unexplained(pct)) } else { Ok(()) }
}
