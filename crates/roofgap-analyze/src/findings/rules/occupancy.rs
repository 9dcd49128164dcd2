//! Kernels that leave most of the multiprocessors' slots empty.

use crate::counters::{Measured, NEAR_ROOF_PCT};
use crate::findings::evidence::{ShapeUse, blocks_of, threads_of};
use crate::findings::occupancy::{Limit, occupancy};
use crate::findings::rule::{Find, Needs, Rows, Rule, View, percent};
use crate::names::is_closed_source;
use crate::numbers::counted;
use crate::result::{Confidence, Finding};

/// Occupancy, in %, below which latency is hardly hidden.
const LOW_PCT: f64 = 30.0;
/// Share of the stage's kernel time, in %, from which on a kernel is worth a line.
const LEAST_KERNEL_PCT: f64 = 5.0;

/// Kernels whose counters show a low occupancy and no roof near, with the resources that limit it by their launch shape.
/// The bound is their time less what the better of their two throughputs explains.
fn low_occupancy(view: &View<'_>) -> Vec<Finding> {
    view.counters().filter_map(|measured| of_kernel(view, measured)).collect()
}

fn of_kernel(view: &View<'_>, measured: &Measured) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, kernel_ns, row) = (view.evidence?, stage.kernel_ns?, &measured.row);
    let (achieved, roof) = (row.occupancy_pct?, row.sm_pct?.max(row.memory_pct?).min(100.0));
    let share = percent(measured.timeline_total_ns, kernel_ns);
    if achieved >= LOW_PCT || roof >= NEAR_ROOF_PCT || share < LEAST_KERNEL_PCT {
        return None;
    }
    let shape = shape_of(&evidence.shapes, measured)?;
    let (capability, sms) = (shape.compute_capability?, shape.sms?);
    let possible =
        occupancy(capability, sms, shape.blocks, shape.threads, shape.registers, shape.shared_bytes)?;
    let name = view.short_names.get(&row.kernel);
    let names: Vec<&str> = possible.limits.iter().map(|limit| limit.name()).collect();
    let limit = names.join(" and ");
    let title = format!("{name} of {} reaches {achieved:.0} % occupancy, limited by {limit}", stage.spoken());
    let explained = measured.timeline_total_ns as f64 * roof / 100.0;
    view.saves_on_devices(&[
        ("kernel time", measured.timeline_total_ns),
        ("that the busier of compute and memory explains", -(explained.ceil() as i64)),
    ])
    .with("kernel", row.kernel.as_str())
    .with_number("occupancy_pct", achieved)
    .with_number("possible_occupancy_pct", possible.pct)
    .with("limit", limit)
    .with("registers", shape.registers)
    .with("shared_bytes", shape.shared_bytes)
    .with("blocks", shape.blocks)
    .with("threads", shape.threads)
    .with_number("nearest_roof_pct", roof)
    .with("kernel_ns", measured.timeline_total_ns)
    .finish(title, action(&possible.limits, shape, sms))
}

/// The launches that were measured, by kernel and shape.
fn shape_of<'a>(shapes: &'a [ShapeUse], measured: &Measured) -> Option<&'a ShapeUse> {
    let blocks = blocks_of(measured.row.grid);
    let threads = threads_of(measured.row.block);
    shapes.iter().find(|s| s.name == measured.row.kernel && s.blocks == blocks && s.threads == threads)
}

fn action(limits: &[Limit], shape: &ShapeUse, sms: u32) -> String {
    let of_its_code = |limit: &Limit| matches!(limit, Limit::Registers | Limit::SharedMemory | Limit::Blocks);
    if limits.iter().any(of_its_code) && is_closed_source(&shape.name) {
        return "The kernel is part of a library without source code, which chooses its tile and its registers: let the library \
                choose among more of its kernels (autotuning, a larger workspace, sizes that are multiples of 8), change the \
                sizes of the problem, or use another implementation."
            .to_owned();
    }
    let each = limits.iter().map(|limit| of_one(*limit, shape, sms));
    let each = each.collect::<Vec<_>>().join(" ");
    if limits.len() > 1 {
        format!("Each of them alone limits it, so change them together. {each}")
    } else {
        each
    }
}

fn of_one(limit: Limit, shape: &ShapeUse, sms: u32) -> String {
    match limit {
        Limit::Registers => format!(
            "Use fewer than its {} registers a thread: a smaller tile, __launch_bounds__, or another variant of the kernel.",
            shape.registers
        ),
        Limit::SharedMemory => format!(
            "Use less than its {} bytes of shared memory a block: fewer stages or a smaller tile.",
            shape.shared_bytes
        ),
        Limit::Grid => format!(
            "Give it more than {} for {sms} multiprocessors: a larger batch, or a split of the inner dimension.",
            counted(shape.blocks, "block")
        ),
        Limit::Blocks => format!("Use more than {} threads a block.", shape.threads),
        Limit::Warps => {
            "The launch could fill the device, so its warps end unevenly or wait: look at what they stall on."
                .to_owned()
        }
    }
}

pub const LOW_OCCUPANCY: Rule = Rule {
    find: Find::Each(low_occupancy),
    needs: Needs::Counters,
    rows: Rows::Kernels(&[]),
    confidence: Confidence::Bounded,
    id: "low-occupancy",
    remedy: "a higher occupancy",
    meaning: "Few warps run at a time on a multiprocessor, so that it has nothing to issue while they wait for \
              memory.",
    computed: "Kernels of at least 5 % of the stage's kernel time with an occupancy below 30 % and no roof near, by \
              counters. The limit is the scarcest of registers, shared memory, threads and blocks of the launch, or several \
              that are equally scarce; a grid of no more blocks than multiprocessors is the limit itself. \
              The bound is the time that the better of their two throughputs does not explain.",
    fix: "Use fewer registers or less shared memory in a thread block, smaller blocks, or more blocks, \
              whichever the finding names.",
    disproof: "The kernel takes as long with a higher occupancy.",
    links: &["https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#occupancy"],
    ..Rule::BASE
};
