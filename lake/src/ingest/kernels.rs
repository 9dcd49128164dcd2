//! Kernels by stage, name and launch shape, and single events.

use std::collections::HashMap;
use std::sync::Arc;

use roofgap_analyze::{ShortNames, family};
use roofgap_runs::open::Opened;
use roofgap_trace::OpKind;

use crate::tables::rows::{EventRow, KernelRow};

type Text = Arc<str>;

/// Sums of the launches of a kernel.
#[derive(Default)]
struct Sum {
    calls: i64,
    total_ns: i64,
    min_ns: Option<i64>,
    max_ns: Option<i64>,
}

/// Returns the kernels of a run. Where no launches were recorded, they come from the totals of the analysis.
pub fn kernels(key: &Text, opened: &Opened) -> Vec<KernelRow> {
    let ops = &opened.trace.ops;
    let all_ns = opened.analysis.totals.kernel_ns;
    let share = |ns: i64| (all_ns > 0).then(|| ns as f64 / all_ns as f64 * 100.0);
    let mut sums: HashMap<_, Sum> = HashMap::new();
    for row in (0..ops.len()).filter(|row| ops.kind.get(*row) == Some(&OpKind::Kernel)) {
        let (Some(name), Some(device)) = (ops.name.get(row), ops.device.get(row)) else {
            continue;
        };
        let shape = ops.shape_of(row);
        let stage = opened.stages.stage_of_op(row);
        let sum = sums.entry((stage, *name, shape.grid, shape.block, *device)).or_default();
        let ns = ops.duration(row);
        sum.calls += 1;
        sum.total_ns = sum.total_ns.saturating_add(ns);
        sum.min_ns = Some(sum.min_ns.map_or(ns, |least| least.min(ns)));
        sum.max_ns = Some(sum.max_ns.map_or(ns, |most| most.max(ns)));
    }
    if sums.is_empty() {
        let total = |kernel: &roofgap_analyze::Kernel| KernelRow {
            run_key: Arc::clone(key),
            stage: None,
            name: kernel.name.as_str().into(),
            short_name: kernel.short_name.as_str().into(),
            family: kernel.family.as_str().into(),
            grid: None,
            block: None,
            device: kernel.device.map(i64::from),
            calls: i64::try_from(kernel.calls).unwrap_or(i64::MAX),
            total_ns: kernel.total_ns,
            min_ns: kernel.min_ns,
            max_ns: kernel.max_ns,
            share_pct: share(kernel.total_ns),
        };
        return opened.analysis.kernels.iter().map(total).collect();
    }
    let names = Names::of(opened);
    let mut rows: Vec<KernelRow> = Vec::with_capacity(sums.len());
    for ((stage, name, grid, block, device), sum) in sums {
        let (name, short_name, family) = names.of_kernel(opened.trace.names.get(name));
        rows.push(KernelRow {
            run_key: Arc::clone(key),
            stage: stage.and_then(|stage| names.stage(stage)),
            name,
            short_name,
            family,
            grid: shape(grid),
            block: shape(block),
            device: opened.trace.devices.get(device.index()).map(|device| device.number.into()),
            calls: sum.calls,
            total_ns: sum.total_ns,
            min_ns: sum.min_ns,
            max_ns: sum.max_ns,
            share_pct: share(sum.total_ns),
        });
    }
    sort(&mut rows);
    rows
}

/// Sorts kernels. A map has no order, and the same input has to give the same file, also where GPUs of two hosts have one number.
fn sort(rows: &mut [KernelRow]) {
    rows.sort_by(|a, b| {
        let place = |row: &KernelRow| {
            (
                row.name.clone(),
                row.stage.clone(),
                row.grid.clone(),
                row.block.clone(),
                row.device,
                [Some(row.calls), Some(row.total_ns), row.min_ns, row.max_ns],
            )
        };
        place(a).cmp(&place(b))
    });
}

/// Returns every GPU operation of a run.
pub fn events(key: &Text, opened: &Opened) -> Vec<EventRow> {
    let ops = &opened.trace.ops;
    let stages: Vec<Text> = opened.analysis.stages.iter().map(|stage| stage.name.as_str().into()).collect();
    let mut names: HashMap<_, Text> = HashMap::new();
    let event = |row: usize| {
        let id = *ops.name.get(row)?;
        let name = names.entry(id).or_insert_with(|| opened.trace.names.get(id).into());
        let launch = ops.shape_of(row);
        let device = opened.trace.devices.get(ops.device.get(row)?.index());
        Some(EventRow {
            run_key: Arc::clone(key),
            kind: ops.kind.get(row)?.as_str().into(),
            name: Arc::clone(name),
            stage: opened.stages.stage_of_op(row).and_then(|stage| stages.get(stage).cloned()),
            device: device.map(|device| device.number.into()),
            stream: ops.stream.get(row).copied().unwrap_or_default().into(),
            start_ns: *ops.start.get(row)?,
            end_ns: *ops.end.get(row)?,
            grid: shape(launch.grid),
            block: shape(launch.block),
        })
    };
    (0..ops.len()).filter_map(event).collect()
}

/// Formats a launch shape; `None` for an operation without one.
pub fn shape(sizes: [u32; 3]) -> Option<Text> {
    let [x, y, z] = sizes;
    (x > 0).then(|| format!("{x}x{y}x{z}").into())
}

/// Names shared by the rows of a run.
struct Names {
    short: ShortNames,
    stages: Vec<Text>,
}

impl Names {
    fn of(opened: &Opened) -> Self {
        let stages = opened.analysis.stages.iter();
        Self {
            short: ShortNames::of(&opened.analysis),
            stages: stages.map(|stage| stage.name.as_str().into()).collect(),
        }
    }

    fn stage(&self, position: usize) -> Option<Text> {
        self.stages.get(position).cloned()
    }

    fn of_kernel(&self, name: &str) -> (Text, Text, Text) {
        let short: &str = &self.short.get(name);
        (name.into(), short.into(), family(name).as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_with_one_number_have_one_order() {
        let row = |calls, total_ns, max_ns| KernelRow {
            name: "gemm".into(),
            device: Some(0),
            calls,
            total_ns,
            max_ns: Some(max_ns),
            ..KernelRow::default()
        };
        let sorted = vec![row(1, 9, 9), row(2, 5, 3), row(2, 5, 4), row(2, 6, 3)];
        for shift in 0..sorted.len() {
            let mut rows = sorted.clone();
            rows.rotate_left(shift);
            sort(&mut rows);
            assert_eq!(rows, sorted, "{shift}");
        }
    }
}
