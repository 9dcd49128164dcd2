//! Selects the kernels for ncu within a time budget.
//!
//! - here: launches grouped by stage, kernel, grid and block, because ncu measures one launch, which stands for all with the same;
//!   and mangled kernel names, on which all tools agree, while on readable names they do not;
//! - [`plan`]: the selection and its result, `ncu/plan.json`.

pub mod plan;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use roofgap_analyze::Analyzed;
use roofgap_trace::sqlite::Database;
use roofgap_trace::{NameId, OpKind, ReadError, ShapeId, Trace, native};

pub use plan::{LeftOut, Limits, Measured, Plan, PlannedGroup, Policies, StageCover, choose};

/// Name of the one stage of a program without stages.
pub const WHOLE: &str = "all";

/// The launches of one kernel with one grid and block in one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchGroup {
    /// Stage.
    pub stage: String,
    /// Kernel name in the timeline.
    pub kernel: String,
    /// Grid, blocks.
    pub grid: [u32; 3],
    /// Block, threads.
    pub block: [u32; 3],
    /// Total kernel time, ns.
    pub total_ns: i64,
    /// Number of launches.
    pub launches: u64,
}

/// Stage, kernel, grid and block.
type Key<'a> = (usize, &'a str, [u32; 3], [u32; 3]);

/// Groups the launches of every stage, or of the whole program where there are no stages. Most time first within a stage.
pub fn launch_groups(trace: &Trace, analyzed: &Analyzed) -> Vec<LaunchGroup> {
    let stages = &analyzed.analysis.stages;
    let mut sums: HashMap<(usize, NameId, ShapeId), (i64, u64)> = HashMap::new();
    let ops = &trace.ops;
    for (op, _) in ops.kind.iter().enumerate().filter(|(_, kind)| **kind == OpKind::Kernel) {
        let stage = if stages.is_empty() { Some(0) } else { analyzed.stages.stage_of_op(op) };
        let (Some(stage), Some(name), Some(shape)) = (stage, ops.name.get(op), ops.shape.get(op)) else {
            continue;
        };
        let sum = sums.entry((stage, *name, *shape)).or_default();
        sum.0 += ops.duration(op);
        sum.1 += 1;
    }
    // Launch shapes also differ in registers and shared memory; ncu distinguishes only grid and block.
    let mut merged: HashMap<Key<'_>, (i64, u64)> = HashMap::new();
    for ((stage, name, shape), (total_ns, count)) in sums {
        let launch = ops.shapes.get(shape.index()).copied().unwrap_or_default();
        let sum = merged.entry((stage, trace.names.get(name), launch.grid, launch.block)).or_default();
        sum.0 += total_ns;
        sum.1 += count;
    }
    let mut found: Vec<(usize, LaunchGroup)> = merged
        .into_iter()
        .map(|((stage, kernel, grid, block), (total_ns, launches))| {
            let name = stages.get(stage).map_or(WHOLE, |stage| &stage.name);
            (
                stage,
                LaunchGroup {
                    stage: name.to_owned(),
                    kernel: kernel.to_owned(),
                    grid,
                    block,
                    total_ns,
                    launches,
                },
            )
        })
        .collect();
    found.sort_by(|(a, x), (b, y)| {
        (a, y.total_ns, &x.kernel, x.grid, x.block).cmp(&(b, x.total_ns, &y.kernel, y.grid, y.block))
    });
    found.into_iter().map(|(_, group)| group).collect()
}

/// Maps readable to mangled names of an nsys export. One readable name may have several.
pub fn mangled_in_nsys(sqlite: &Path) -> Result<HashMap<String, Vec<String>>, ReadError> {
    const TABLE: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
    let database = Database::open(sqlite)?;
    let mut names = HashMap::new();
    if !database.has_column(TABLE, "mangledName") {
        return Ok(names);
    }
    let mut pairs: HashSet<(i64, i64)> = HashSet::new();
    database.each(TABLE, &["demangledName", "mangledName"], |row| {
        if let [readable, mangled] = row
            && let (Some(readable), Some(mangled)) = (readable.int(), mangled.int())
        {
            pairs.insert((readable, mangled));
        }
    })?;
    let wanted: HashSet<i64> = pairs.iter().flat_map(|(readable, mangled)| [*readable, *mangled]).collect();
    let mut strings: HashMap<i64, String> = HashMap::new();
    database.each("StringIds", &["id", "value"], |row| {
        if let [id, value] = row
            && let (Some(id), Some(text)) = (id.int().filter(|id| wanted.contains(id)), value.text())
        {
            strings.insert(id, text.into_owned());
        }
    })?;
    for (readable, mangled) in pairs {
        if let (Some(readable), Some(mangled)) = (strings.get(&readable), strings.get(&mangled)) {
            names.entry(readable.clone()).or_insert_with(Vec::new).push(mangled.clone());
        }
    }
    names.values_mut().for_each(|list| list.sort());
    Ok(names)
}

/// Maps readable to mangled names of native captures.
pub fn mangled_in_native(captures: &[PathBuf]) -> Result<HashMap<String, Vec<String>>, ReadError> {
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    for capture in captures {
        for (readable, mangled) in native::kernel_names(capture)? {
            names.entry(readable).or_default().push(mangled);
        }
    }
    for list in names.values_mut() {
        list.sort();
        list.dedup();
    }
    Ok(names)
}
