//! The kernels of a timeline by stage, name and launch shape: what counters are joined with.

use super::names::CanonicalNames;
use crate::stages::StageIndex;
use roofgap_base::stats::median_f64;
use roofgap_trace::{NameId, OpKind, Trace};
use rustc_hash::FxHashMap;

/// Blocks of a grid, and threads of a block.
pub type Shape = ([u32; 3], [u32; 3]);

/// One kernel with one launch shape in one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineKernel {
    /// The stage; `None` outside of all.
    pub stage: Option<String>,
    /// The name as the timeline has it.
    pub name: String,
    /// Launch shape; `None` where the timeline does not say.
    pub shape: Option<Shape>,
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
    by_name: FxHashMap<String, Vec<usize>>,
    /// Positions by canonical name.
    by_form: FxHashMap<String, Vec<usize>>,
}

impl Timeline {
    /// Indexes kernels.
    pub fn new(kernels: Vec<TimelineKernel>) -> Self {
        let mut forms = CanonicalNames::default();
        let (mut by_name, mut by_form) = (FxHashMap::default(), FxHashMap::default());
        for (at, kernel) in kernels.iter().enumerate() {
            position(&mut by_name, &kernel.name, at);
            position(&mut by_form, &forms.of(&kernel.name), at);
        }
        Self { by_name, by_form, kernels }
    }

    /// Groups the kernels of a trace; `stage_of` says in which stage the operation of a row is.
    pub fn of<'a>(trace: &Trace, stage_of: impl Fn(usize) -> Option<&'a str>) -> Self {
        type Key<'s> = (Option<&'s str>, NameId, Shape);
        let ops = &trace.ops;
        let mut groups: FxHashMap<Key<'_>, Vec<i64>> = FxHashMap::default();
        for row in 0..ops.len() {
            let (Some(OpKind::Kernel), Some(&name)) = (ops.kind.get(row), ops.name.get(row)) else {
                continue;
            };
            let shape = ops.shape_of(row);
            let shape = (shape.grid, shape.block);
            groups.entry((stage_of(row), name, shape)).or_default().push(ops.duration(row));
        }
        let mut kernels: Vec<TimelineKernel> = groups
            .into_iter()
            .map(|((stage, name, shape), durations)| TimelineKernel {
                stage: stage.map(str::to_owned),
                name: trace.names.get(name).to_owned(),
                shape: Some(shape).filter(|(grid, _)| *grid != [0; 3]),
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
    pub fn find(&self, spelled: &str, form: &str, shape: Option<Shape>) -> Option<Vec<&TimelineKernel>> {
        let positions = self.by_name.get(spelled).or_else(|| self.by_form.get(form))?;
        let kernels = positions.iter().filter_map(|at| self.kernels.get(*at));
        Some(kernels.filter(|kernel| kernel.shape == shape).collect())
    }
}

fn position(positions: &mut FxHashMap<String, Vec<usize>>, name: &str, at: usize) {
    match positions.get_mut(name) {
        Some(list) => list.push(at),
        None => {
            positions.insert(name.to_owned(), vec![at]);
        }
    }
}
