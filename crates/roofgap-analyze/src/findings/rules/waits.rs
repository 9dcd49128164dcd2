//! The CPU waits for the GPU, or copies, in the middle of the work.

use super::words::{self, is_dispatch};
use crate::execution::Edit;
use crate::findings::evidence::PagingUse;
use crate::findings::rule::{LEAST_PCT, View, fill, percent};
use crate::numbers::{count, size, time, times};
use crate::result::{CopyKind, CopyRow, Finding, Stage, StageKind};
use crate::timeline::LAUNCH_LATENCY_NS;
use crate::verdict::{LEAST_GAP_PCT, LEAST_NS, StageLimit, verdict};

/// Up to so many waits in a step are the one that ends it.
const ONCE_A_STEP: f64 = 1.5;

/// Calls that wait for the device inside a step (or inside a stage without steps), with the idle time they cause: while the
/// thread waits, and after, until it has launched again what it could have launched meanwhile.
pub fn synchronisation(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, idle) = (view.evidence?, stage.idle?);
    let syncs = &evidence.syncs;
    let gaps_ns = idle.sync_ns + stage.launch_after.sync_ns;
    if syncs.inside == 0 {
        return None;
    }
    // A whole trace has waits that belong to no step, and a loop ends with one; only a loss that leads is told. One wait per kernel differs.
    let causes = stage.causes().unwrap_or_default();
    let throughout = stage.steps.is_some() || 2 * syncs.inside > stage.kernel_count;
    let least = if throughout { LEAST_COPIES_PCT } else { LEAST_GAP_PCT };
    let leads =
        gaps_ns >= causes.launch_ns.max(causes.copy_ns).max(causes.other_ns) && view.pct(gaps_ns) >= least;
    let steps = stage.steps.as_ref().map_or(0, |steps| steps.count);
    let per_step = (steps > 0).then(|| syncs.inside as f64 / steps as f64);
    // What a replay without several of them gives is known however small the gaps are.
    let several = per_step.is_some_and(|count| count > ONCE_A_STEP) && stage.devices_per_instance <= 1.0;
    let replayed =
        several.then(|| view.predicted_pct(Edit::NoWait)).flatten().filter(|pct| *pct >= LEAST_PCT);
    if matches!(stage.kind, StageKind::Whole | StageKind::Loop) && !leads && replayed.is_none() {
        return None;
    }
    let call = syncs.most_common.as_deref().unwrap_or("a synchronising call");
    let draft = view
        .saves_on_devices(&[
            ("idle time inside synchronising calls", idle.sync_ns),
            ("idle time after them until the next launch", stage.launch_after.sync_ns),
        ])
        .with("sync_calls", syncs.inside)
        .with("sync_call_ns", syncs.ns)
        .with("idle_sync_ns", idle.sync_ns)
        .with("idle_after_sync_ns", stage.launch_after.sync_ns)
        .with("most_common_call", call)
        .with_number("sync_calls_per_step", per_step);
    let bound_pct = percent(draft.bound_ns(), stage.own_ns());
    let rate = per_step.map_or_else(String::new, |per_step| format!(" ({per_step:.1} a step)"));
    let title = format!(
        "{} waits for the device {} inside its work{rate}, which leaves the GPU idle for {}{}",
        stage.spoken(),
        times(syncs.inside),
        view.time(gaps_ns),
        words::waiting_line(stage)
    );
    let action = if per_step.is_some_and(|count| count <= ONCE_A_STEP) {
        let each = gaps_ns as f64 / syncs.inside as f64;
        let early = match view.program.engine {
            Some(engine) if engine.uses_graphs => view.program.advice().overlap,
            _ if view.program.generates => view.action("next token"),
            _ => view.action("next step"),
        };
        fill(view.action("one wait"), &[&call, &time(each as i64), &early])
    } else if view.program.has_directives {
        view.action("end of constructs").to_owned()
    } else {
        let find = match (view.program.is_plain(), view.program.generates) {
            (true, _) => view.action("value read back"),
            (false, true) => view.action("value of a token"),
            (false, false) => view.action("value of a step"),
        };
        fill(find, &[&call])
    };
    draft.finish_with(replayed.unwrap_or(bound_pct), title, action)
}

/// Share of the stage's time, in %, from which on pinned copies that nothing hides are worth a line.
const LEAST_EXPOSED_PCT: f64 = 10.0;

/// Share of the stage's time, in %, from which on copies and the gaps that they leave, and waits in the steps of a whole trace, are worth
/// a line.
const LEAST_COPIES_PCT: f64 = 5.0;

/// Calls that allocate or free memory throughout the work, which wait for the device or take long.
pub fn allocations(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let ns = stage.idle_detail.allocation_ns;
    let title = format!(
        "{} allocates or frees memory again and again, which leaves the GPU idle for {}",
        stage.spoken(),
        view.time(ns)
    );
    let action = match view.program.is_torch {
        true => view.action("caching allocator"),
        false => view.action("memory kept"),
    };
    view.saves_on_devices(&[("idle time in calls that allocate or free memory", ns)])
        .with("allocation_ns", ns)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

/// Managed memory that moves page by page, when one side touches what the other has.
pub fn managed_memory(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let managed = |row: &&CopyRow| matches!(row.kind, CopyKind::ManagedToDevice | CopyKind::ManagedToHost);
    let rows: Vec<&CopyRow> = stage.copies.iter().filter(managed).collect();
    let moved: u64 = rows.iter().map(|row| row.calls).sum();
    let bytes: u64 = rows.iter().filter_map(|row| row.bytes).sum();
    let (PagingUse { back_ns, evicted_ns, faulting_ns }, paging_ns) =
        (view.evidence?.paging, stage.idle_detail.paging_ns);
    let ns = stage.each_device(back_ns + paging_ns + faulting_ns).min(stage.elapsed_ns());
    if percent(ns, stage.elapsed_ns()) < LEAST_EXPOSED_PCT {
        return None;
    }
    let action = match faulting_ns > back_ns + paging_ns && evicted_ns > back_ns {
        true => view.action("too large"),
        false => view.action("prefetch"),
    };
    let title = format!(
        "{} moves {} of managed memory between host and device in {} pieces; that, the gaps between them and kernels that wait for them take {}",
        stage.spoken(),
        size(bytes),
        count(moved),
        time(ns)
    );
    view.saves_on_devices(&[
        ("idle time before pieces of managed memory", paging_ns),
        ("pieces on their way to the host beside no kernel", back_ns),
        ("kernels beside pieces, beyond the usual time of the same kernels", faulting_ns),
    ])
    .with("pieces", moved)
    .with("bytes", bytes)
    .with("paging_ns", paging_ns)
    .finish(title, action)
}

/// Memory that is filled with one value for much of the time.
pub fn memsets(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (sets, ns) = view.evidence?.memsets;
    // Beside kernels and copies they cost nothing.
    let alone_ns = stage.busy_ns? - stage.kernel_ns? - stage.memcpy_ns.unwrap_or(0);
    let ns = ns.min(alone_ns);
    if view.pct(ns) < LEAST_EXPOSED_PCT {
        return None;
    }
    let title = format!(
        "{} fills memory with one value {}, which takes {}",
        stage.spoken(),
        times(sets),
        view.time(ns)
    );
    view.saves_on_devices(&[("memsets beside no kernel or copy", ns)])
        .with("memsets", sets)
        .with("wall_ns", stage.wall_ns)
        .finish(title, view.action("clear less"))
}

/// Waits from which on the late starts after them are a pattern, and the longest such start, ns: a time slice of another program takes
/// milliseconds.
const MANY_WAITS: u64 = 20;
const LONGEST_WAKE_NS: i64 = 1_000_000;

/// Work that was launched in time and does not start, where that is the limit of the stage.
pub fn late_start(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let before_ns = stage.period_ns.map_or(stage.before.after_launch_ns, |_| 0);
    let ns = stage.idle_detail.after_launch_ns + before_ns;
    if stage.launch_count == 0 || is_dispatch(stage, ns) || verdict(stage).label != StageLimit::GpuGaps {
        return None;
    }
    let title = format!(
        "launched work of {} waits {} in all before it starts, and nothing that was recorded runs meanwhile",
        stage.spoken(),
        view.time(ns)
    );
    // A device that sleeps while the CPU waits takes as long to begin after each wait.
    let waits = view.evidence.map_or(0, |evidence| evidence.syncs.count);
    let each_ns = stage.each_device(ns) / waits.max(1) as i64;
    let after_waits = waits >= MANY_WAITS && (LAUNCH_LATENCY_NS..LONGEST_WAKE_NS).contains(&each_ns);
    view.saves_on_devices(&[("idle time between launches and starts", ns)])
        .with("after_launch_ns", ns)
        .with("launches", stage.launch_count)
        .with("waits", after_waits.then_some(waits))
        .finish(title, if after_waits { view.action("fewer waits") } else { view.action("alone") })
}

/// Fewest copies to the host, and their mean size at most, that indicate polling a flag.
const MANY_FLAGS: u64 = 16;
const FLAG_BYTES: u64 = 64;

/// Up to so many copies may be those of the input and of the result.
const FEW_COPIES: u64 = 4;

/// Returns the time that the link needs for the copies of a stage, ns: those of the busier direction, at its peak where that is known, else
/// as long as they took from or to pinned memory.
fn least_copy_ns(stage: &Stage) -> i64 {
    let least = |row: &CopyRow| match row.bytes.zip(row.peak_bytes_per_s) {
        Some((bytes, peak)) => ((bytes as f64 / peak * 1e9) as i64).min(row.total_ns),
        None if row.pinned == Some(true) => row.total_ns,
        None => 0,
    };
    let of = |kind| stage.copies.iter().filter(|row| row.kind == kind).map(least).sum::<i64>();
    of(CopyKind::HostToDevice).max(of(CopyKind::DeviceToHost))
}

/// Copies between host and device inside the stage: pageable ones block the CPU, one for each token adds up, and large ones take
/// time of their own.
pub fn host_copies(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, idle) = (view.evidence?, stage.idle?);
    let copies = evidence.host_copies;
    let steps = stage.steps.as_ref().map_or(0, |steps| steps.count);
    let each_step = steps > 0 && copies.count >= steps;
    let exposed_pct = view.pct(copies.exposed_ns);
    if copies.pageable == 0 && !each_step && exposed_pct < LEAST_EXPOSED_PCT {
        return None;
    }
    let bound = copies.exposed_ns + idle.copy_ns + stage.launch_after.copy_ns;
    // What a program of its own kernels copies is its input and output, which the link has to carry.
    let is_plain = view.program.is_plain() && stage.device_count <= 1;
    let needed_ns = if is_plain { (bound + least_copy_ns(stage) - stage.elapsed_ns()).max(0) } else { 0 };
    let bound = bound - needed_ns;
    // However little it moves, a copy takes some microseconds, which are much of a short run.
    let least = if stage.elapsed_ns() < LEAST_NS { LEAST_GAP_PCT } else { LEAST_COPIES_PCT };
    if view.pct(bound) < least {
        return None;
    }
    let draft = view
        .saves_on_devices(&[
            ("copies that no kernel overlaps", copies.exposed_ns),
            ("idle time inside copy calls", idle.copy_ns),
            ("idle time after them until the next launch", stage.launch_after.copy_ns),
            ("what the link needs for them", -needed_ns),
        ])
        .with("host_copies", copies.count)
        .with("pageable_copies", copies.pageable)
        .with("bytes", copies.bytes)
        .with("copy_ns", copies.ns)
        .with("exposed_copy_ns", copies.exposed_ns)
        .with("copies_to_host", copies.to_host)
        .with("idle_copy_ns", idle.copy_ns)
        .with("idle_after_copy_ns", stage.launch_after.copy_ns)
        .with_number("copies_per_step", (steps > 0).then(|| copies.count as f64 / steps as f64));
    let pageable = match copies.pageable {
        0 => String::new(),
        1 if copies.count == 1 => ", from or to pageable memory".to_owned(),
        all if all == copies.count => ", all of them from or to pageable memory".to_owned(),
        some => format!(", {} of them from or to pageable memory", count(some)),
    };
    let title = format!(
        "{} copies {} between host and device{pageable}; that and the gaps it leaves take {}",
        stage.spoken(),
        times(copies.count),
        view.time(bound + needed_ns)
    );
    let read_back = 2 * copies.to_host > copies.count;
    let mostly_pageable = 2 * copies.pageable_bytes >= copies.bytes;
    let is_pinned = copies.pageable_bytes < copies.bytes.div_ceil(100);
    let are_flags = read_back && copies.count >= MANY_FLAGS && copies.bytes <= FLAG_BYTES * copies.count;
    let action = match (read_back, mostly_pageable) {
        _ if view.program.is_plain() && are_flags => view.action("flags"),
        _ if view.program.is_plain() && is_pinned && copies.streams > 1 => view.action("copies in turn"),
        _ if view.program.is_plain() && is_pinned => view.action("pinned copies"),
        _ if view.program.is_plain() && copies.count <= FEW_COPIES => view.action("few copies"),
        _ if view.program.is_plain() => view.action("copies of a program"),
        (false, _) if view.program.trains => view.action("batches"),
        (true, true) => view.action("pageable read-back"),
        (true, false) => view.action("read-back"),
        (false, true) => view.action("pageable"),
        (false, false) => view.action("in steps"),
    };
    draft.finish(title, action)
}
