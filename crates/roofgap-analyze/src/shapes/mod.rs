//! Kernels of operators whose shapes were recorded: in the timeline itself, or in another run under torch.profiler, whose kernels are
//! found in the timeline by the order of launches.

mod work;

use crate::attribution::{Contexts, Launches};
use crate::counters::canonical;
use crate::gpu::GpuFacts;
use crate::names::{Family, family};
use crate::result::{Kernel, KernelShape};
use crate::stages::{Span, StageIndex, StageSet};
use crate::timeline::Grouped;
use roofgap_trace::{CallClass, NameId, Ns, OpKind, ProcessId, ShapedOperator, Trace};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::hash::BuildHasher;
use work::{Floats, Inputs, OperatorWork, does_work};

/// An operator with its shapes, and the work that they tell.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownOperator {
    name: String,
    dims: String,
    types: String,
    pub work: OperatorWork,
}

/// The kernels that do the work of operators with known shapes.
#[derive(Debug, Default)]
pub struct ShapedKernels {
    pub operators: Vec<KnownOperator>,
    /// Rows of kernels in `Trace::ops`, each with the position of its operator.
    pub rows: Vec<(usize, usize)>,
}

impl ShapedKernels {
    /// Finds the kernels in a trace. The shapes are its own; without any, those of another run of the program.
    pub fn find(trace: &Trace, index: &StageIndex, other: Option<&Trace>) -> Self {
        let call_of_op = &index.launches().call_of_op;
        match other.filter(|_| trace.shaped.is_empty()) {
            None => Self::of(trace, call_of_op),
            Some(other) => {
                let launches = Launches::join(other, &mut Default::default());
                Self::of(other, &launches.call_of_op)
                    .moved((other, &launches.call_of_op), (trace, call_of_op))
            }
        }
    }

    /// Finds the kernels by the operators around their launches.
    fn of(trace: &Trace, call_of_op: &[u32]) -> Self {
        let mut shaped: Vec<&ShapedOperator> = trace.shaped.iter().collect();
        shaped.sort_by_key(|op| (op.thread, op.start, Reverse(op.end)));
        let floats = Floats::of(trace);
        let text = |id| trace.names.get(id);
        let mut families: FxHashMap<NameId, Family> = FxHashMap::default();
        // `None` where the shapes do not tell the work.
        let mut known: FxHashMap<[NameId; 4], Option<usize>> = FxHashMap::default();
        let (mut operators, mut rows) = (Vec::new(), Vec::new());
        for kernels in launched(trace, &shaped, call_of_op).chunk_by(|a, b| a.0 == b.0) {
            let Some(op) = kernels.first().and_then(|(operator, _)| shaped.get(*operator)) else { continue };
            let does = |row: &usize| {
                let id = trace.ops.name[*row];
                does_work(text(op.name), *families.entry(id).or_insert_with(|| family(text(id))))
            };
            // Others of its kernels prepare the work or put its parts together.
            let main = kernels.iter().map(|(_, row)| *row).filter(does);
            let main = main.max_by_key(|row| trace.ops.duration(*row));
            let Some(row) = main.or((kernels.len() == 1).then(|| kernels[0].1)) else { continue };
            let operator = known.entry([op.name, op.dims, op.types, op.values]).or_insert_with(|| {
                let inputs = Inputs { dims: text(op.dims), types: text(op.types), values: text(op.values) };
                let work = OperatorWork::of(text(op.name), inputs, floats)?;
                let [name, dims, types] = [op.name, op.dims, op.types].map(|id| text(id).to_owned());
                operators.push(KnownOperator { name, dims, types, work });
                Some(operators.len() - 1)
            });
            rows.extend(operator.map(|operator| (row, operator)));
        }
        Self { operators, rows }
    }

    /// Finds the same kernels in another run of the program. A launch there is the same as one here where the launches before it are, as
    /// many as tell the operators of a kernel apart. Kernels that only one of the runs has are left out.
    fn moved(self, (from, from_calls): (&Trace, &[u32]), (to, to_calls): (&Trace, &[u32])) -> Self {
        let operator_of: FxHashMap<usize, usize> = self.rows.iter().copied().collect();
        // One process was under the profiler.
        let known = sequences(from, from_calls, &canonical_names(to)).into_iter();
        let known = known.max_by_key(|known| known.rows.len()).unwrap_or_default();
        let operators: Vec<Option<usize>> =
            known.rows.iter().map(|row| operator_of.get(row).copied()).collect();
        let (known, mut rows) = (known.contexts(), Vec::new());
        for asked in sequences(to, to_calls, &canonical_names(from)) {
            let found = asked.rows.iter().zip(asked.contexts().tell(&known, &operators));
            rows.extend(found.filter_map(|(row, operator)| Some((*row, operator??))));
        }
        Self { rows, ..self }
    }

    /// Puts the operators of each kernel into a table of kernels.
    pub fn attach(&self, kernels: &mut [Kernel], trace: &Trace, gpu: Option<&GpuFacts>) {
        let mut sums: Grouped<(NameId, Option<u32>, usize), (u64, Ns)> = Grouped::default();
        for (row, operator) in &self.rows {
            let device = trace.devices.get(trace.ops.device[*row].index()).map(|device| device.number);
            let at = sums.position((trace.ops.name[*row], device, *operator), Default::default);
            let (calls, ns) = &mut sums.items[at];
            (*calls, *ns) = (*calls + 1, *ns + trace.ops.duration(*row));
        }
        for ((name, device, operator), (calls, total_ns)) in sums.keys.iter().zip(sums.items) {
            let name = trace.names.get(*name);
            let same = |kernel: &&mut Kernel| kernel.name == name && kernel.device == *device;
            let Some(kernel) = kernels.iter_mut().find(same) else { continue };
            let KnownOperator { name, dims, types, work } = &self.operators[*operator];
            let roof_ns = gpu.and_then(|gpu| gpu.roof_ns(work.flops, work.bytes, gpu.peak(work.dtype)));
            kernel.shapes.push(KernelShape {
                operator: name.clone(),
                dims: dims.clone(),
                types: types.clone(),
                dtype: work.dtype.name().to_owned(),
                calls,
                total_ns,
                flops: work.flops,
                bytes: work.bytes,
                roof_ns,
            });
        }
        let longest_first = |kernel: &mut Kernel| kernel.shapes.sort_by_key(|shape| Reverse(shape.total_ns));
        kernels.iter_mut().for_each(longest_first);
    }
}

/// Returns the operators, by their position, with the row of each kernel that they launch, in the order of the operators.
fn launched(trace: &Trace, shaped: &[&ShapedOperator], call_of_op: &[u32]) -> Vec<(usize, usize)> {
    let mut kernels = Vec::new();
    let mut after = 0;
    for row in (0..trace.ops.len()).filter(|row| !shaped.is_empty() && trace.ops.kind[*row] == OpKind::Kernel)
    {
        let call = call_of_op[row] as usize;
        let Some(start) = trace.calls.start.get(call) else { continue };
        let at = (trace.calls.thread[call], *start);
        let is_before = |after: usize| shaped.get(after).is_some_and(|op| (op.thread, op.start) <= at);
        // Mostly launches follow one another.
        after += usize::from(is_before(after));
        if is_before(after) || after.checked_sub(1).is_some_and(|last| !is_before(last)) {
            after = shaped.partition_point(|op| (op.thread, op.start) <= at);
        }
        let is_around = |operator: &usize| shaped[*operator].thread == at.0 && shaped[*operator].end >= at.1;
        kernels.extend(after.checked_sub(1).filter(is_around).map(|operator| (operator, row)));
    }
    kernels.sort_unstable();
    kernels
}

/// The kernels of a process in the order of their launches.
#[derive(Debug, Default)]
struct Sequence {
    rows: Vec<usize>,
    /// Hash of name and launch shape, and true for a kernel of a matrix product, an attention or a convolution.
    keys: Vec<(u64, bool)>,
}

/// Returns the names of the kernels of a trace in the form that all tools share.
fn canonical_names(trace: &Trace) -> FxHashMap<NameId, String> {
    let mut names = FxHashMap::default();
    for name in &trace.ops.name {
        names.entry(*name).or_insert_with(|| canonical(trace.names.get(*name)));
    }
    names
}

/// Returns the kernels of each process, those that another trace has, too.
fn sequences(trace: &Trace, call_of_op: &[u32], others: &FxHashMap<NameId, String>) -> Vec<Sequence> {
    let ops = &trace.ops;
    let others: FxHashSet<&String> = others.values().collect();
    let mut names = canonical_names(trace);
    names.retain(|_, name| others.contains(name));
    let is_common = |row: &usize| ops.kind[*row] == OpKind::Kernel && names.contains_key(&ops.name[*row]);
    let mut rows: Vec<usize> = (0..ops.len()).filter(is_common).collect();
    let launch = |row: usize| trace.calls.start.get(call_of_op[row] as usize).copied();
    rows.sort_by_key(|row| (ops.process[*row], launch(*row).unwrap_or(ops.start[*row]), ops.start[*row]));
    const PRODUCTS: [Family; 4] = [Family::Gemm, Family::Gemv, Family::Attention, Family::Convolution];
    let is_product = |name: &NameId| PRODUCTS.contains(&family(trace.names.get(*name)));
    let products: FxHashSet<NameId> = names.keys().copied().filter(is_product).collect();
    let key = |row: &usize| {
        let (name, shape) = (ops.name[*row], ops.shape_of(*row));
        (FxBuildHasher.hash_one((&names[&name], shape.grid, shape.block)), products.contains(&name))
    };
    let processes = rows.chunk_by(|a, b| ops.process[*a] == ops.process[*b]);
    processes.map(|rows| Sequence { rows: rows.to_vec(), keys: rows.iter().map(key).collect() }).collect()
}

impl Sequence {
    /// Returns the launches before each launch.
    fn contexts(&self) -> LaunchContexts {
        let keys = &self.keys;
        let (mut sums, mut powers) = (vec![0_u64], vec![1_u64]);
        for (sum, (key, _)) in keys.iter().enumerate() {
            sums.push(sums[sum].wrapping_mul(BASE).wrapping_add(*key));
            powers.push(powers[sum].wrapping_mul(BASE));
        }
        let least = |at: usize| {
            let before = keys[..at].iter().rev();
            before
                .zip(1..)
                .find(|((key, is_product), _)| !is_product || *key == keys[at].0)
                .map(|(_, least)| least)
        };
        LaunchContexts { least: (0..keys.len()).map(least).collect(), sums, powers }
    }
}

/// Base of the hashes of several launches: any odd number.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes of each launch with any number of launches before it.
struct LaunchContexts {
    /// Fewest launches before a launch that tell the sizes it works on: back to the last one whose grid follows the number of elements,
    /// which that of a product does not, or to the same launch.
    least: Vec<Option<usize>>,
    /// Hash of all launches before each, and the powers of its base.
    sums: Vec<u64>,
    powers: Vec<u64>,
}

impl LaunchContexts {
    /// Returns the hash of a launch with the fewest launches before it and some more; `None` where there are not so many.
    fn hash(&self, at: usize, more: usize) -> Option<u64> {
        let count = self.least[at]? + more + 1;
        let from = (at + 1).checked_sub(count)?;
        Some(self.sums[at + 1].wrapping_sub(self.sums[from].wrapping_mul(self.powers[count])))
    }

    /// Returns what `told` says of the launches of another run that are the same as those of this one.
    fn tell<T: Copy + PartialEq>(&self, known: &Self, told: &[T]) -> Vec<Option<T>> {
        let mut answers = vec![None; self.least.len()];
        let mut open: Vec<usize> = (0..answers.len()).collect();
        let mut unclear: Vec<usize> = (0..told.len()).collect();
        let mut more = 0;
        while !open.is_empty() && !unclear.is_empty() {
            // `None` where launches with the same launches before them differ.
            let mut same: FxHashMap<u64, Option<T>> = FxHashMap::default();
            for at in &unclear {
                let Some(hash) = known.hash(*at, more) else { continue };
                let all = same.entry(hash).or_insert(Some(told[*at]));
                *all = all.filter(|all| *all == told[*at]);
            }
            open.retain(|at| {
                let found = self.hash(*at, more).and_then(|hash| same.get(&hash));
                answers[*at] = found.copied().flatten();
                found == Some(&None)
            });
            unclear.retain(|at| known.hash(*at, more).is_some_and(|hash| same.get(&hash) == Some(&None)));
            more = (2 * more).max(1);
        }
        answers
    }
}

/// Position of the first and the last instance of a loop whose operators are recorded, and the fewest instances.
const FIRST: usize = 1;
const LAST: usize = 4;

/// Returns the number of launches that a process makes before the second instance of its main loop, and until the end of the fifth; `None`
/// without a loop, or where not all of it was recorded.
pub fn launches_of_window(trace: &Trace, stages: &StageSet) -> Option<(u64, u64)> {
    let launches = Launches::join(trace, &mut Default::default());
    let contexts = Contexts::build(trace, &launches.call_of_op);
    let (index, _) = StageIndex::build(trace, launches, contexts, stages);
    let length = |spans: &[Span]| spans.iter().map(Span::length).sum::<Ns>();
    let loops = (0..index.len()).flat_map(|stage| [&index.spans(stage).steps, &index.spans(stage).instances]);
    let main = loops.filter(|spans| spans.len() > FIRST).max_by_key(|spans| (length(spans), spans.len()))?;
    let (from, to) = (main[FIRST].start, main.get(LAST).or(main.last())?.end);
    let calls = &trace.calls;
    // The driver call of a launch has its number.
    let mut last: FxHashMap<ProcessId, (u32, u64, u64)> = FxHashMap::default();
    for call in (0..calls.len()).take_while(|call| calls.start[*call] < to) {
        if !matches!(calls.class[call], CallClass::Launch | CallClass::GraphLaunch) {
            continue;
        }
        let (id, before, all) = last.entry(calls.process[call]).or_default();
        if calls.correlation[call] == 0 || *id != calls.correlation[call] {
            *before += u64::from(calls.start[call] < from);
            *all += 1;
        }
        *id = calls.correlation[call];
    }
    let (process, (_, before, all)) =
        last.into_iter().max_by_key(|(process, (_, before, all))| (all - before, *process))?;
    let is_whole = trace.recorded.iter().all(|recorded| recorded.process != process);
    (is_whole && all > before).then_some((before, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::{Call, GpuOp, LaunchShape, Range, RangeStyle};

    /// Adds a launch of a kernel, of 8 ns and at a time of its own, by an operator with shapes where there is one.
    fn launch(trace: &mut Trace, name: &str, grid: u32, dims: &str) {
        let at = 10 * trace.ops.len() as Ns;
        if trace.processes.is_empty() {
            let process = trace.add_process(1, "python");
            trace.add_thread(process, 1, "");
            trace.add_device(Default::default());
        }
        let correlation = trace.ops.len() as u32 + 1;
        let shape = LaunchShape { grid: [grid, 1, 1], block: [128, 1, 1], ..LaunchShape::default() };
        let shape = trace.ops.intern_shape(shape);
        let name = trace.names.intern(name);
        let (thread, process) = Default::default();
        trace.ops.push(GpuOp { start: at, end: at + 8, name, correlation, shape, ..GpuOp::default() });
        let class = CallClass::Launch;
        trace.calls.push(Call { start: at + 1, end: at + 2, name, class, process, thread, correlation });
        if !dims.is_empty() {
            let mut intern = |text: &str| trace.names.intern(text);
            let (name, dims, values) = (intern("aten::mm"), intern(dims), intern(""));
            let types = intern(r#"["c10::BFloat16", "c10::BFloat16"]"#);
            trace.shaped.push(ShapedOperator { thread, start: at, end: at + 5, name, dims, types, values });
        }
    }

    /// A layer: two products with one kernel and grid, told apart by what is before them.
    const LAYER: [(&str, u32, &str); 4] = [
        ("norm", 8, ""),
        ("gemm", 4, "[[8, 16], [16, 32]]"),
        ("activation", 16, ""),
        ("gemm", 4, "[[8, 64], [64, 32]]"),
    ];

    fn trace_of(launches: &[(&str, u32, &str)], with_shapes: bool) -> Trace {
        let mut trace = Trace::default();
        for (name, grid, dims) in launches {
            launch(&mut trace, name, *grid, if with_shapes { dims } else { "" });
        }
        trace
    }

    /// Returns the inner dimension of each product of the timeline, as another run tells it.
    fn told(timeline: &Trace, other: &Trace) -> Vec<Option<f64>> {
        let (index, _) = StageIndex::build(
            timeline,
            Launches::join(timeline, &mut Default::default()),
            Contexts::default(),
            &StageSet::default(),
        );
        let found = ShapedKernels::find(timeline, &index, Some(other));
        let rows: FxHashMap<usize, usize> = found.rows.iter().copied().collect();
        let names = timeline.ops.name.iter().map(|name| timeline.names.get(*name));
        let products = names.enumerate().filter(|(_, name)| *name == "gemm");
        let inner = |at: &usize| found.operators[*at].work.flops / (2.0 * 8.0 * 32.0);
        products.map(|(row, _)| rows.get(&row).map(inner)).collect()
    }

    #[test]
    fn kernels_are_told_apart_by_the_launches_before_them() {
        let other = trace_of(&[LAYER, LAYER].concat(), true);
        let timeline = trace_of(&[LAYER, LAYER, LAYER].concat(), false);
        assert_eq!(told(&timeline, &other), [Some(16.0), Some(64.0)].repeat(3));
    }

    #[test]
    fn a_kernel_of_one_run_alone_and_other_sizes() {
        let other = trace_of(&[LAYER, LAYER, LAYER].concat(), true);
        let mut launches = [LAYER, LAYER, LAYER].concat();
        // Between the activation and its product.
        launches.insert(7, ("copy", 1, ""));
        let timeline = trace_of(&launches, false);
        assert_eq!(told(&timeline, &other), [Some(16.0), Some(64.0)].repeat(3));
        // Other sizes: the grid of the kernel before is another one, that of the product is not.
        let mut launches = [LAYER, LAYER].concat();
        for launch in &mut launches[..3] {
            launch.1 = if launch.0 == "gemm" { 4 } else { launch.1 + 1 };
        }
        let timeline = trace_of(&launches, false);
        assert_eq!(told(&timeline, &other), [None, None, Some(16.0), Some(64.0)]);
    }

    #[test]
    fn the_window_is_the_second_to_the_fifth_step() {
        let mut trace = trace_of(&[LAYER; 6].concat(), false);
        let stages = StageSet::default();
        assert_eq!(launches_of_window(&trace, &stages), None, "no loop");
        let domain = trace.names.intern("");
        for step in 0..6 {
            let name = trace.names.intern(&format!("step {step}"));
            let (start, (thread, process)) = (40 * step, Default::default());
            trace.ranges.rows.push(Range {
                start,
                end: start + 39,
                domain,
                name,
                process,
                thread,
                end_thread: thread,
                style: RangeStyle::PushPop,
                open: false,
            });
        }
        assert_eq!(launches_of_window(&trace, &stages), Some((4, 20)));
    }
}
