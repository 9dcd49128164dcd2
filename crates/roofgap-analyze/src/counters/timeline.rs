//! The kernels of a timeline by stage, name and launch shape: what counters are joined with.

use roofgap_base::stats::median_f64;
use roofgap_trace::{NameId, OpKind, Trace};
use rustc_hash::FxHashMap;

use super::names::canonical;
use crate::stages::StageIndex;

/// One kernel with one launch shape in one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineKernel {
    /// The stage; `None` outside of all.
    pub stage: Option<String>,
    /// The name as the timeline has it.
    pub name: String,
    /// Blocks and threads of a block; `None` where the timeline does not say.
    pub shape: Option<([u32; 3], [u32; 3])>,
    /// Median duration.
    pub median_ns: f64,
    /// Launches.
    pub calls: u64,
    /// Time in all.
    pub total_ns: i64,
}

/// The kernels of a timeline, found by any tool's name for them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub kernels: Vec<TimelineKernel>,
    /// Positions by the name as the timeline has it.
    by_name: FxHashMap<String, Shapes>,
    /// Positions by canonical name.
    by_form: FxHashMap<String, Shapes>,
}

/// Positions of kernels by launch shape.
type Shapes = FxHashMap<Option<([u32; 3], [u32; 3])>, Vec<usize>>;

impl Timeline {
    /// Indexes kernels.
    pub fn new(kernels: Vec<TimelineKernel>) -> Self {
        let mut by_name: FxHashMap<String, Shapes> = FxHashMap::default();
        for (index, kernel) in kernels.iter().enumerate() {
            let shapes = match by_name.get_mut(&kernel.name) {
                Some(shapes) => shapes,
                None => by_name.entry(kernel.name.clone()).or_default(),
            };
            shapes.entry(kernel.shape).or_default().push(index);
        }
        let mut by_form: FxHashMap<String, Shapes> = FxHashMap::default();
        for (name, shapes) in &by_name {
            let own = by_form.entry(canonical(name)).or_default();
            for (shape, positions) in shapes {
                own.entry(*shape).or_default().extend(positions);
            }
        }
        // Names come in any order; positions do not.
        let lists = by_form.values_mut().flat_map(|shapes| shapes.values_mut());
        lists.for_each(|positions| positions.sort_unstable());
        Self { kernels, by_name, by_form }
    }

    /// Groups the kernels of a trace; `stage_of` says in which stage the operation of a row is.
    pub fn of<'a>(trace: &Trace, stage_of: impl Fn(usize) -> Option<&'a str>) -> Self {
        type Key<'s> = (Option<&'s str>, NameId, [u32; 3], [u32; 3]);
        let ops = &trace.ops;
        let mut groups: FxHashMap<Key<'_>, Vec<i64>> = FxHashMap::default();
        for row in 0..ops.len() {
            let (Some(OpKind::Kernel), Some(&name)) = (ops.kind.get(row), ops.name.get(row)) else {
                continue;
            };
            let shape = ops.shape_of(row);
            groups.entry((stage_of(row), name, shape.grid, shape.block)).or_default().push(ops.duration(row));
        }
        let mut kernels: Vec<TimelineKernel> = groups
            .into_iter()
            .map(|((stage, name, grid, block), durations)| TimelineKernel {
                stage: stage.map(str::to_owned),
                name: trace.names.get(name).to_owned(),
                shape: (grid != [0; 3]).then_some((grid, block)),
                calls: durations.len() as u64,
                total_ns: durations.iter().sum(),
                median_ns: median_f64(&mut durations.iter().map(|ns| *ns as f64).collect::<Vec<_>>())
                    .unwrap_or_default(),
            })
            .collect();
        kernels.extend(trace.kernel_totals.iter().filter(|_| ops.is_empty()).filter_map(|total| {
            Some(TimelineKernel {
                stage: None,
                name: trace.names.get(total.name).to_owned(),
                shape: None,
                median_ns: total.median_ns?,
                calls: total.calls,
                total_ns: total.total_ns,
            })
        }));
        kernels.sort_by(|a, b| (&a.stage, &a.name, a.shape).cmp(&(&b.stage, &b.name, b.shape)));
        Self::new(kernels)
    }

    /// Groups the kernels of a trace by the stages of its index.
    pub fn of_stages(trace: &Trace, index: &StageIndex) -> Self {
        Self::of(trace, |op| index.stage_of_op(op).map(|stage| index.name(stage)))
    }

    /// Tells whether there are no kernels.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Finds the kernels by name and launch shape. Two kernels may share a canonical name; the one that is spelled the same is meant
    /// then. `None` if the timeline does not have the name.
    pub fn find(
        &self,
        spelled: &str,
        form: &str,
        shape: Option<([u32; 3], [u32; 3])>,
    ) -> Option<Vec<&TimelineKernel>> {
        let shapes = self.by_name.get(spelled).or_else(|| self.by_form.get(form))?;
        let positions = shapes.get(&shape).into_iter().flatten();
        Some(positions.filter_map(|at| self.kernels.get(*at)).collect())
    }
}
