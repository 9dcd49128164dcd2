//! The limit of a stage in one line.

use crate::names::Family;
use crate::numbers::{all_counted, count, counted, size, time};
use crate::result::{CopyKind, GraphRow, HostKind, Idle, Stage, results};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// The limit of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Main limit of the stage.
    pub label: StageLimit,
    /// Share of the stage's time that the cause of its limit takes, %; `None` where the limit is GPU work or not known.
    pub pct: Option<f64>,
    /// The sentence that says why, with its numbers.
    pub why: String,
}

results! {
    /// The main limit of a stage: GPU work, or the largest cause of idle time.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "kebab-case")]
    pub enum StageLimit {
        /// No GPU work was recorded.
        NotMeasured,
        /// The GPU ran too few operations to judge by.
        TooLittle,
        /// The GPU is busy with kernels or graphs.
        Gpu,
        /// The GPU is busy with copies, or waits for a copy call.
        Copy,
        /// The GPU is busy with work launched before the stage.
        Queued,
        /// The CPU had not launched the next operation.
        Launch,
        /// The launching thread was getting data from a data loader.
        DataLoading,
        /// The launching thread waited for the device.
        Sync,
        /// Launched work had not started.
        GpuGaps,
        /// One GPU waited while another worked.
        Uneven,
        /// The CPU did other work: before the first or after the last GPU operation of an instance or a step, or between others.
        Host,
        /// GPUs communicate with one another and run nothing else.
        Communication,
        /// The CPU did what a program does once: it loaded code, or instantiated a graph.
        ColdStart,
        /// The CPU had not launched the next step.
        StepGaps,
    }
}

impl StageLimit {
    /// Returns the limit in a word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotMeasured => "not measured",
            Self::TooLittle => "too little work",
            Self::StepGaps => "gaps between steps",
            Self::Host => "host-bound",
            Self::Launch => "launch-bound",
            Self::DataLoading => "data loading",
            Self::Sync => "sync-bound",
            Self::Copy => "copy-bound",
            Self::GpuGaps => "gaps on the GPU",
            Self::Uneven => "uneven",
            Self::Communication => "communication",
            Self::ColdStart => "cold start",
            Self::Queued => "queued",
            Self::Gpu => "GPU-bound",
        }
    }
}

impl fmt::Display for StageLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The share of wall time from which on the GPU counts as the limit.
const BUSY: f64 = 0.8;

/// The same from which on the rest needs no word.
const MOSTLY: f64 = 0.9;

/// Below this share of the stage's time, in %, a cause of idle time is not what holds the stage back.
pub const LEAST_GAP_PCT: f64 = 20.0;

/// Share of the lost time, in %, from which on the second cause is named too.
const LEAST_SECOND_PCT: f64 = 10.0;

/// Operations from which on the gaps between them show what holds a stage back; of a stage of less than a millisecond, more.
const LEAST_OPERATIONS: u64 = 10;
pub(crate) const LEAST_SHORT_OPERATIONS: u64 = 50;

/// Time of a stage, and of a few operations, from which on they show something, ns.
pub const LEAST_NS: i64 = 1_000_000;

/// Repetitions of the same few operations that show something.
const LEAST_REPEATS: u64 = 3;

/// Share of the wall time from which on a few long operations, or calls that copy, are what the stage does.
const MOST: f64 = 0.5;

/// Time of a few operations from which on they show something though they do not fill the stage, ns.
const LEAST_LONG_NS: i64 = 10_000_000;

/// Shortest stage whose copies show something though they are few, ns.
const LEAST_COPYING_NS: i64 = 2_000_000;

/// Returns the time of copies and of idle time in their calls, ns.
fn copying_ns(stage: &Stage) -> i64 {
    let in_calls = stage.causes().map_or(0, |causes| causes.copy_ns);
    stage.each_device(stage.memcpy_ns.unwrap_or(0) + in_calls).min(stage.elapsed_ns())
}

/// Tells whether the GPU work of a stage is too little for a verdict: a few operations that neither fill the stage, nor take most of it
/// for long, nor repeat, nor wait for long for other work of the CPU or what it does once. A graph counts as many operations.
pub(crate) fn is_too_little(stage: &Stage) -> bool {
    let least = if stage.elapsed_ns() < LEAST_NS { LEAST_SHORT_OPERATIONS } else { LEAST_OPERATIONS };
    let few = (1..least).contains(&stage.gpu_op_count) && stage.graphs.is_empty();
    let repeats = stage.steps.as_ref().map_or(stage.instances, |steps| steps.count);
    let repeated = repeats >= LEAST_REPEATS && stage.gpu_op_count >= 2 * repeats;
    let takes = |part: f64| stage.busy_share().is_some_and(|share| share >= part);
    let lasts = |least: i64| stage.busy_ns.is_some_and(|ns| ns >= least);
    // One such gap may be a start.
    let detail = stage.idle_detail;
    let marked = stage.steps.as_ref().is_some_and(|steps| steps.count > 1);
    let first_ns = if marked { stage.outside().idle_ns + stage.each_device(detail.host_first_ns) } else { 0 };
    let away_ns = stage.each_device(detail.host_work_ns) + first_ns;
    let several = detail.host_gaps > 1 && (marked || 2 * stage.gpu_op_count >= LEAST_OPERATIONS);
    let waits = several && away_ns >= LEAST_LONG_NS && away_ns as f64 >= MOST * stage.elapsed_ns() as f64;
    let cold_ns = stage.each_device(detail.cold_ns + stage.before.cold_ns);
    let is_cold = cold_ns >= LEAST_LONG_NS && cold_ns as f64 >= MOST * stage.elapsed_ns() as f64;
    // Copies of pages of the host hold everything up, however few they are.
    let (copies_ns, all_ns) = (copying_ns(stage), stage.elapsed_ns());
    let copies =
        stage.gpu_op_count > 1 && all_ns >= LEAST_COPYING_NS && copies_ns as f64 >= MOST * all_ns as f64;
    few && !is_cold
        && !copies
        && !((repeated || takes(BUSY)) && lasts(LEAST_NS) || (takes(MOST) || waits) && lasts(LEAST_LONG_NS))
}

/// Returns the limit of a stage whose recorded work does not show where its time goes.
fn unjudged(stage: &Stage, busy: i64, idle: Idle) -> Option<(StageLimit, String)> {
    // A device that copies, or a thread in calls that copy little each.
    let copies_fill = || {
        let in_calls = stage.each_device(idle.copy_ns) as f64 / stage.elapsed_ns().max(1) as f64;
        let fills = stage.busy_share().is_some_and(|share| share >= BUSY) || in_calls >= MOST;
        fills && copies_lead(stage, busy) && !is_too_little(stage)
    };
    if !stage.computes() && !copies_fill() {
        return Some((StageLimit::NotMeasured, only_transfers(stage)));
    }
    // What is missing can only make idle time busy.
    if stage.work_missing && stage.busy_share().is_none_or(|share| share < BUSY) {
        let why = "the GPU work of many launches is not in the capture, so what seems idle may be busy";
        return Some((StageLimit::NotMeasured, why.to_owned()));
    }
    if stage.launch_count == 0 && only_communicates(stage) {
        let why = "only communication between GPUs was recorded, so what seems idle may be other work";
        return Some((StageLimit::NotMeasured, why.to_owned()));
    }
    if is_too_little(stage) {
        let operations = counted(stage.gpu_op_count, "operation");
        let copies_ns = copying_ns(stage);
        let copies = match copies_ns as f64 >= MOST * stage.elapsed_ns() as f64 {
            true => {
                format!("; copies and their calls take {} of {}", time(copies_ns), time(stage.elapsed_ns()))
            }
            false => String::new(),
        };
        return Some((StageLimit::TooLittle, format!("too little GPU work to judge: {operations}{copies}")));
    }
    None
}

/// Judges a stage by where the time of its warm part went.
pub fn verdict(stage: &Stage) -> Verdict {
    let stage = stage.warm();
    let limited = |label, why| Verdict { label, pct: None, why };
    let (Some(busy), Some(idle)) = (stage.busy_ns, stage.causes()) else {
        return limited(StageLimit::NotMeasured, "no GPU work was recorded for this stage".to_owned());
    };
    if let Some((label, why)) = unjudged(stage, busy, idle) {
        return limited(label, why);
    }
    // Work of other ranges and threads, and earlier work, keep the GPU busy too.
    let elapsed = stage.elapsed_ns().max(1) as f64;
    let queued_ns = stage.outside().queued_ns;
    let foreign = stage.each_device(stage.foreign_ns()) as f64 / elapsed;
    let queued = queued_ns as f64 / elapsed;
    let of_stage = stage.busy_share().unwrap_or(0.0);
    let share = (of_stage + foreign + queued).min(1.0_f64.max(of_stage));
    let time = spoken_time(stage);
    let causes = causes(stage, busy, idle);
    let exposed = stage.exposed_communication_ns();
    let lost: i64 = causes.iter().map(|c| c.0).sum::<i64>() - exposed;
    let (ns, label, cause) =
        causes.into_iter().max_by_key(|c| c.0).unwrap_or((0, StageLimit::NotMeasured, ""));
    let leading = label;
    let of_lost = |ns: i64| 100.0 * ns as f64 / lost.max(1) as f64;
    // The next cause where it matters too, so that the shares of a sentence and of a table agree.
    let second =
        causes.into_iter().filter(|c| (c.1, c.2) != (label, cause) && c.1 != StageLimit::Communication);
    let second = second.max_by_key(|c| c.0).filter(|c| of_lost(c.0) >= LEAST_SECOND_PCT);
    if queued_ns > ns && queued > of_stage {
        let why = format!(
            "the GPU works on what came before the stage for {:.1} % of {time}, and on the stage for {:.1} %",
            100.0 * queued,
            100.0 * of_stage
        );
        return limited(StageLimit::Queued, why);
    }
    let busy_for = format!("the GPU is busy {:.1} % of {time}", 100.0 * share);
    let with_copies =
        || (StageLimit::Copy, format!("{busy_for}, most of that with {}", main_copies(stage, busy)));
    let copies_lead = copies_lead(stage, busy);
    let longer_copies = copies_lead && stage.each_device(stage.memcpy_ns.unwrap_or(0)) > ns;
    let ns_share = ns as f64 / elapsed;
    let computing = share - exposed as f64 / elapsed;
    let communicates = computing < BUSY && 100.0 * ns_share >= LEAST_GAP_PCT;
    let (label, why) = if label == StageLimit::Communication && communicates {
        (label, format!("{busy_for}, in {:.1} % of it {cause}{}", 100.0 * ns_share, waits(stage)))
    } else if share >= BUSY && !copies_lead {
        let graphs = mostly_graphs(stage, busy);
        let rest = format!("; in {:.0} % of the rest {cause}", of_lost(ns));
        let matters = graphs.is_empty() && share < MOSTLY && label != StageLimit::Communication && ns > 0;
        (StageLimit::Gpu, if matters { busy_for + &rest } else { busy_for + &graphs })
    } else if share >= BUSY || longer_copies {
        with_copies()
    } else if label == StageLimit::Communication
        || 100.0 * ns_share < LEAST_GAP_PCT && ns_share < share && share >= MOST
    {
        let rest = format!("; in {:.0} % of the rest {cause}", of_lost(ns));
        let known = label != StageLimit::Communication && ns > 0;
        (StageLimit::Gpu, if known { busy_for + &rest } else { busy_for })
    } else {
        // A gap has a cause only if the launch that ended it is known.
        let cause = match label == StageLimit::GpuGaps && stage.launch_count == 0 {
            true => "the cause is unknown, because no launches of its work were recorded".to_owned(),
            false => {
                let second = second
                    .map_or_else(String::new, |(ns, _, why)| format!(", in {:.0} % {why}", of_lost(ns)));
                format!("in {:.0} % of that {cause}{second}", of_lost(ns))
            }
        };
        (label, format!("the GPU is idle {:.1} % of {time}; {cause}", 100.0 * (1.0 - share)))
    };
    let leads = label == leading && !matches!(label, StageLimit::NotMeasured | StageLimit::Gpu);
    let pct = match label {
        StageLimit::Copy if copies_lead => {
            // Copies in both directions overlap.
            Some(100.0 * (stage.each_device(stage.memcpy_ns.unwrap_or(0)) as f64 / elapsed).min(share))
        }
        _ => leads.then_some(100.0 * ns_share),
    };
    Verdict { pct, ..limited(label, why) }
}

/// Says that the kernels of most of the busy time were not recorded; empty where they were.
fn mostly_graphs(stage: &Stage, busy: i64) -> String {
    let (launches, ns) = GraphRow::sum(&stage.graphs);
    match ns > busy / 2 {
        true => format!(
            ", most of that with {} launches of whole CUDA graphs; record their kernels with --cuda-graph-trace=node first",
            count(launches)
        ),
        false => String::new(),
    }
}

/// Names the time of a stage in a sentence.
fn spoken_time(stage: &Stage) -> String {
    // GPU work that ran after the ranges belongs to the stage too.
    let time = if stage.period_ns.is_some() {
        "the time of its steps"
    } else if stage.closes_early() {
        "the time from the start of the stage to the end of its GPU work"
    } else {
        "the wall time"
    };
    match stage.device_count {
        0 | 1 => time.to_owned(),
        devices => format!("{time} on the average of {devices} GPUs"),
    }
}

/// Says how much of the communication is waiting for other GPUs.
fn waits(stage: &Stage) -> String {
    match stage.communication.and_then(|row| Some((row.waiting_ns?, row.exposed_ns))) {
        Some((waiting, exposed)) => {
            format!(
                "; {:.0} % of that is waiting for another GPU",
                100.0 * waiting as f64 / exposed.max(1) as f64
            )
        }
        None => match stage.communication {
            Some(row) if 2 * row.late_ns > row.exposed_ns => format!(
                "; {:.0} % of that is in the first calls of a kind: probably waiting for the other ranks, or setting up",
                100.0 * row.late_ns as f64 / row.exposed_ns.max(1) as f64
            ),
            _ => "; one rank does not tell waiting for the others from transfer".to_owned(),
        },
    }
}

/// Returns the time of a stage of several GPUs in which one had not begun, and the rest of the time in which one had nothing to do, ns.
fn uneven(stage: &Stage, busy: i64, idle: Idle) -> (i64, i64) {
    match stage.projected_ns {
        Some(projected) if stage.devices_per_instance > 1.0 => {
            let all = stage.each_device(busy.saturating_add(idle.total_ns()));
            let before = match stage.period_ns {
                Some(_) => 0,
                None => (stage.elapsed_ns() - projected).max(0),
            };
            let apart = stage.elapsed_ns().saturating_sub(all.saturating_add(before)).max(0);
            let late = (stage.each_device(stage.before.idle_ns) - before).clamp(0, apart);
            (late, apart - late)
        }
        _ => (0, 0),
    }
}

/// Returns the time outside of the GPU work of a stage as a cause of lost time, and the part of it that counts as late launches, ns.
fn around(stage: &Stage) -> ((i64, StageLimit, &'static str), i64) {
    let each = |ns: i64| stage.each_device(ns);
    let (detail, before) = (stage.idle_detail, stage.before);
    let outside = stage.outside().idle_ns;
    match stage.period_ns {
        Some(_) => (
            (outside, StageLimit::StepGaps, "the CPU had not launched the next step yet"),
            each(detail.host_first_ns),
        ),
        None => {
            let known = each(before.data_loading_ns + before.cold_ns + before.after_launch_ns);
            let ns = (outside - known).max(0) + each(detail.host_first_ns);
            let why = "the CPU worked before the first or after the last GPU operation";
            ((ns, StageLimit::Host, why), 0)
        }
    }
}

/// Returns the causes of lost time: its length, ns, the limit that it stands for, and a sentence.
fn causes(stage: &Stage, busy: i64, idle: Idle) -> [(i64, StageLimit, &'static str); 13] {
    let (late, apart) = uneven(stage, busy, idle);
    let each = |ns: i64| stage.each_device(ns);
    let (detail, before) = (stage.idle_detail, stage.before);
    let after_launch_ns = stage.period_ns.map_or(before.after_launch_ns, |_| 0);
    let (after, host_first) = around(stage);
    let other_launch = stage.data_loading_ns + detail.host_first_ns + detail.known_ns();
    let ns_of =
        |kind| stage.host.iter().filter(move |row| row.kind == kind).map(|row| row.self_ns).sum::<i64>();
    let (slept_ns, rate_ns) = (ns_of(HostKind::Sleep), ns_of(HostKind::Rate));
    let away_ns = ns_of(HostKind::Descheduled);
    let share = |ns: i64| ns as f64 / stage.elapsed_ns().max(1) as f64;
    [
        (
            (each(idle.launch_ns - other_launch) + host_first).max(0),
            StageLimit::Launch,
            "the CPU had not launched the next operation yet",
        ),
        (
            each(stage.data_loading_ns + before.data_loading_ns),
            StageLimit::DataLoading,
            "the launching thread was getting data from its data loader",
        ),
        (
            each(detail.cold_ns + before.cold_ns),
            StageLimit::ColdStart,
            "the CPU did what a program does once, such as loading code or a first launch",
        ),
        (
            each(idle.sync_ns),
            StageLimit::Sync,
            "the launching thread was waiting for the device, or late because it had waited",
        ),
        (
            each(idle.copy_ns),
            StageLimit::Copy,
            "the launching thread was inside a copy call, or late because of one",
        ),
        (
            each(detail.host_work_ns),
            StageLimit::Host,
            match detail.host_work_ns {
                ns if 2 * rate_ns >= ns => "the CPU slept until the next turn of a fixed rate",
                ns if 2 * slept_ns >= ns => "the CPU slept and launched nothing",
                ns if 2 * away_ns >= ns => "the launching thread did not run",
                _ => "the CPU did other work and launched nothing",
            },
        ),
        (each(detail.allocation_ns), StageLimit::Host, "the CPU allocated or freed memory"),
        (
            each(detail.paging_ns),
            StageLimit::Copy,
            "managed memory moved between host and device, page by page",
        ),
        (
            each(idle.other_ns - detail.paging_ns + after_launch_ns),
            StageLimit::GpuGaps,
            "work was launched and had not started",
        ),
        // A part of the program on one of them is not idle time of the others.
        (
            late,
            if share(late) < MOST { StageLimit::Gpu } else { StageLimit::Uneven },
            "one GPU had not begun, while another worked",
        ),
        (
            apart,
            StageLimit::Uneven,
            "one GPU had nothing to do before its first or after its last operation, while another worked",
        ),
        (
            stage.exposed_communication_ns(),
            StageLimit::Communication,
            "GPUs communicate and run no other kernel",
        ),
        after,
    ]
}

/// Tells whether every kernel of a stage is communication between GPUs.
fn only_communicates(stage: &Stage) -> bool {
    !stage.kernels.is_empty() && stage.kernels.iter().all(|kernel| kernel.family == Family::Communication)
}

/// Tells whether copies take most of the busy time, and more than kernels.
fn copies_lead(stage: &Stage, busy: i64) -> bool {
    let copies = stage.memcpy_ns.unwrap_or(0);
    copies > stage.kernel_ns.unwrap_or(0) && copies > busy / 2
}

/// Says that a stage has no kernels, and what it has.
fn only_transfers(stage: &Stage) -> String {
    let copies: u64 = stage.copies.iter().map(|row| row.calls).sum();
    let sets = stage.gpu_op_count.saturating_sub(copies);
    let things = all_counted([(copies, "copy", "copies"), (sets, "memory set", "memory sets")]);
    format!("no kernels were recorded, only {things}")
}

/// Describes the kind of copies that takes the most time, such as "host-to-device copies: 25.5 GB at 27.7 GB/s".
fn main_copies(stage: &Stage, busy: i64) -> String {
    // Time of each kind, and bytes and time of the copies whose size is recorded.
    let mut kinds: BTreeMap<CopyKind, (i64, u64, f64)> = BTreeMap::new();
    for row in &stage.copies {
        let sum = kinds.entry(row.kind).or_default();
        sum.0 += row.total_ns;
        if let (Some(bytes), Some(rate)) = (row.bytes, row.bandwidth_bytes_per_s.filter(|rate| *rate > 0.0)) {
            sum.1 = sum.1.saturating_add(bytes);
            sum.2 += bytes as f64 / rate;
        }
    }
    let mut kinds: Vec<(CopyKind, (i64, u64, f64))> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, (ns, ..))| Reverse(*ns));
    // As many kinds as it takes to have most of the time.
    let mut left = busy / 2;
    let named = |(kind, (ns, bytes, seconds)): (CopyKind, (i64, u64, f64))| {
        let rate = match seconds > 0.0 {
            true => format!(": {} at {}/s", size(bytes), size((bytes as f64 / seconds) as u64)),
            false => String::new(),
        };
        let is_needed = left >= 0 && kind != CopyKind::Unknown;
        left -= ns;
        is_needed.then(|| format!("{} copies{rate}", kind.as_str().replace(", ", "-").replace(' ', "-")))
    };
    let names: Vec<String> = kinds.into_iter().filter_map(named).collect();
    if names.is_empty() { "copies".to_owned() } else { names.join(" and ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{CopyRow, ForeignWork, Kernel, Steps};

    fn stage(wall: i64, projected: i64, busy: i64, idle: Idle) -> Stage {
        Stage {
            wall_ns: wall,
            projected_ns: Some(projected),
            busy_ns: Some(busy),
            idle: Some(idle),
            ..Stage::default()
        }
    }

    #[test]
    fn copies_that_take_most_of_the_time_are_named() {
        let row = |kind, ms: i64| CopyRow { kind, total_ns: ms * 1_000_000, ..CopyRow::default() };
        let told = |copies: Vec<CopyRow>| main_copies(&Stage { copies, ..Stage::default() }, 100_000_000);
        let (up, down) = (CopyKind::HostToDevice, CopyKind::DeviceToHost);
        assert_eq!(told(vec![row(down, 30), row(up, 60)]), "host-to-device copies");
        assert_eq!(told(vec![row(down, 30), row(up, 40)]), "host-to-device copies and device-to-host copies");
        assert_eq!(told(vec![row(CopyKind::Unknown, 90)]), "copies");
    }

    #[test]
    fn the_largest_cause_gives_the_label() {
        let launch = Idle { launch_ns: 80, sync_ns: 5, copy_ns: 5, other_ns: 0 };
        assert_eq!(verdict(&stage(100, 98, 8, launch)).label, StageLimit::Launch);
        assert_eq!(verdict(&stage(100, 98, 90, Idle::default())).label, StageLimit::Gpu);
        assert_eq!(
            verdict(&stage(100, 20, 18, Idle { launch_ns: 2, ..Idle::default() })).label,
            StageLimit::Host
        );
        assert_eq!(verdict(&Stage::default()).label, StageLimit::NotMeasured);
        assert!(verdict(&stage(100, 98, 8, launch)).why.contains("idle 92.0 %"));
    }

    #[test]
    fn a_few_operations_are_judged_only_if_they_fill_the_stage_or_repeat() {
        const MS: i64 = 1_000_000;
        let mut few = stage(100 * MS, 98 * MS, 8 * MS, Idle { launch_ns: 90 * MS, ..Idle::default() });
        (few.gpu_op_count, few.kernel_count) = (9, 9);
        let words = verdict(&few);
        assert_eq!(words.label, StageLimit::TooLittle);
        assert_eq!(words.why, "too little GPU work to judge: 9 operations");
        few.graphs = vec![GraphRow::default()];
        assert_eq!(verdict(&few).label, StageLimit::Launch, "a graph is many operations");
        few.graphs.clear();
        few.instances = 4;
        assert_eq!(verdict(&few).label, StageLimit::Launch, "two operations, four times");
        few.instances = 1;
        few.gpu_op_count = 10;
        assert_eq!(verdict(&few).label, StageLimit::Launch);
        // Three kernels of 100 ms are a limit; some of 6 us in 310 us are not.
        let mut large = stage(310 * MS, 305 * MS, 300 * MS, Idle::default());
        (large.gpu_op_count, large.kernel_count) = (3, 3);
        assert_eq!(verdict(&large).label, StageLimit::Gpu);
        // One copy of 51 of 100 ms is what the stage does.
        let mut copy = stage(100 * MS, 98 * MS, 51 * MS, Idle { launch_ns: 47 * MS, ..Idle::default() });
        (copy.gpu_op_count, copy.kernel_count) = (2, 1);
        (copy.kernel_ns, copy.memcpy_ns) = (Some(MS), Some(50 * MS));
        assert_eq!(verdict(&copy).label, StageLimit::Copy);
        // So is work of the CPU for 51 of 100 ms, in two gaps between five operations of 10 ms.
        let waits = |operations: u64, gaps: u64, busy: i64| {
            let mut waits = few.clone();
            (waits.gpu_op_count, waits.busy_ns) = (operations, Some(busy * MS));
            (waits.idle_detail.host_work_ns, waits.idle_detail.host_gaps) = (51 * MS, gaps);
            verdict(&waits).label
        };
        assert_eq!(waits(5, 2, 10), StageLimit::Host);
        for (operations, gaps, busy) in [(4, 2, 10), (5, 1, 10), (5, 2, 9)] {
            assert_eq!(waits(operations, gaps, busy), StageLimit::TooLittle);
        }
        // Of two steps, work before their first operations counts too.
        let mut first = few.clone();
        (first.gpu_op_count, first.busy_ns, first.idle_detail.host_first_ns) = (4, Some(10 * MS), 45 * MS);
        (first.idle_detail.host_work_ns, first.idle_detail.host_gaps) = (5 * MS, 2);
        assert_eq!(verdict(&first).label, StageLimit::TooLittle);
        first.steps = Some(Steps { count: 2, ..Steps::default() });
        assert_eq!(verdict(&first).label, StageLimit::Host);
        let mut tiny = stage(310_000, 305_000, 300_000, Idle::default());
        (tiny.gpu_op_count, tiny.kernel_count) = (49, 49);
        assert_eq!(verdict(&tiny).label, StageLimit::TooLittle);
        tiny.gpu_op_count = 50;
        assert_eq!(verdict(&tiny).label, StageLimit::Gpu);
    }

    #[test]
    fn copies_and_their_calls_are_a_limit_without_kernels() {
        let label = |copy_ns: i64| {
            let idle = Idle { copy_ns, other_ns: 85 - copy_ns, ..Idle::default() };
            let mut copying = stage(100, 100, 15, idle);
            (copying.kernel_count, copying.kernel_ns, copying.memcpy_ns) = (0, Some(0), Some(15));
            copying.gpu_op_count = 3_000;
            verdict(&copying).label
        };
        assert_eq!((label(70), label(40)), (StageLimit::Copy, StageLimit::NotMeasured));
    }

    #[test]
    fn copies_are_named_with_their_rate() {
        let mut loading = stage(1_000, 1_000, 950, Idle::default());
        loading.memcpy_ns = Some(920_000_000);
        loading.busy_ns = Some(950_000_000);
        loading.wall_ns = 1_000_000_000;
        loading.projected_ns = Some(1_000_000_000);
        loading.copies = vec![
            CopyRow {
                kind: CopyKind::HostToDevice,
                bytes: Some(25_484_000_000),
                total_ns: 920_000_000,
                bandwidth_bytes_per_s: Some(27.7e9),
                ..CopyRow::default()
            },
            CopyRow { kind: CopyKind::DeviceToHost, bytes: Some(8), total_ns: 10, ..CopyRow::default() },
        ];
        let words = verdict(&loading);
        assert_eq!(words.label, StageLimit::Copy);
        assert!(words.why.ends_with("host-to-device copies: 25.5 GB at 27.7 GB/s"), "{}", words.why);
        loading.copies[0].bytes = None;
        assert!(verdict(&loading).why.ends_with("with host-to-device copies"));
    }

    /// Copies can be the limit of a stage whose GPU is idle for a while too.
    #[test]
    fn copies_that_take_more_than_any_idle_time() {
        let launch = Idle { launch_ns: 51, ..Idle::default() };
        let mut copies = stage(210, 210, 159, launch);
        (copies.memcpy_ns, copies.kernel_ns) = (Some(150), Some(9));
        let words = verdict(&copies);
        assert_eq!(words.label, StageLimit::Copy);
        assert!(words.why.contains("busy 75.7 %"), "{}", words.why);
        (copies.memcpy_ns, copies.kernel_ns) = (Some(9), Some(150));
        assert_eq!(verdict(&copies).label, StageLimit::Launch);
    }

    #[test]
    fn a_small_cause_is_no_limit() {
        let idle = |launch_ns: i64| Idle { launch_ns, sync_ns: 203 - launch_ns, ..Idle::default() };
        let words = verdict(&stage(1_000, 1_000, 797, idle(195)));
        assert_eq!(words.label, StageLimit::Gpu);
        assert!(
            words.why.contains("busy 79.7 %")
                && words.why.ends_with("in 96 % of the rest the CPU had not launched the next operation yet"),
            "{}",
            words.why
        );
        assert_eq!(verdict(&stage(1_000, 1_000, 797, idle(201))).label, StageLimit::Launch);
        // A GPU that is idle most of the time is no limit.
        let parts = |busy: i64| Idle { launch_ns: 190, sync_ns: 180, other_ns: 630 - busy, copy_ns: 0 };
        assert_eq!(verdict(&stage(1_000, 1_000, 510, parts(510))).label, StageLimit::Gpu);
        assert_eq!(verdict(&stage(1_000, 1_000, 490, parts(490))).label, StageLimit::Launch);
    }

    #[test]
    fn collectives_alone_do_not_show_idle_time() {
        let mut alone = stage(1_000, 1_000, 300, Idle { other_ns: 700, ..Idle::default() });
        alone.kernels = vec![Kernel { family: Family::Communication, ..Kernel::default() }];
        (alone.kernel_count, alone.gpu_op_count) = (84, 84);
        assert_eq!(verdict(&alone).label, StageLimit::NotMeasured);
        alone.launch_count = 84;
        assert_eq!(verdict(&alone).label, StageLimit::GpuGaps);
    }

    #[test]
    fn whole_graphs_are_work() {
        let mut graphs = stage(100, 100, 95, Idle::default());
        graphs.graphs = vec![GraphRow { launches: 1_200, total_ns: 90, ..GraphRow::default() }];
        let words = verdict(&graphs);
        assert_eq!(words.label, StageLimit::Gpu);
        assert!(
            words.why.contains("with 1,200 launches of whole CUDA graphs; record their kernels"),
            "{}",
            words.why
        );
    }

    /// A stage that waits behind earlier work is neither idle nor held up by the CPU.
    #[test]
    fn earlier_work_is_not_idle_time() {
        let mut waits = stage(100, 30, 30, Idle::default());
        waits.queued_ns = 65;
        let words = verdict(&waits);
        assert_eq!(words.label, StageLimit::Queued);
        assert!(words.why.contains("65.0 %") && words.why.contains("30.0 %"), "{}", words.why);
        // Mostly its own work: the GPU is the limit all the same.
        waits.projected_ns = Some(60);
        waits.busy_ns = Some(60);
        waits.queued_ns = 35;
        let words = verdict(&waits);
        assert_eq!(words.label, StageLimit::Gpu);
        assert!(words.why.contains("busy 95.0 %"), "{}", words.why);
    }

    #[test]
    fn work_of_others_after_the_last_operation_is_not_idle_time() {
        let mut early = stage(100, 20, 20, Idle::default());
        assert_eq!(verdict(&early).label, StageLimit::Host);
        early.after_ns = 75;
        early.foreign = Some(ForeignWork { busy_ns: 75, ..ForeignWork::default() });
        assert_eq!(verdict(&early).label, StageLimit::Gpu);
    }
}
