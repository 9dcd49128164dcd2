//! The numbers of one stage, and the work of the CPU in its idle time.

use super::{CopyRow, GraphRow, Kernel, NextLimit, Profiler, RoofDistance, StageCoverage, StageVitals};
use crate::verdict::StageLimit;

words! {
    /// The kind of a stage.
    #[derive(Default)]
    pub enum StageKind {
        /// Requests read their prompt.
        Prefill = "prefill",
        /// Requests generate tokens.
        Decode = "decode",
        /// Steps of an engine that do both.
        Mixed = "mixed",
        /// The whole trace, where no stage was found.
        Whole = "whole",
        /// The loop in which the program spends its time. Its steps are the repetitions.
        Loop = "loop",
        /// A stage named by the user.
        #[default]
        Custom = "custom",
    }
}

words! {
    /// The cause of a step that took longer than its work explains.
    #[derive(Hash, Default)]
    pub enum SpikeCause {
        /// The CPU loads or compiles code, captures a graph, or launches a kernel for the first time.
        FirstUse = "first-use",
        /// Memory is allocated or freed.
        Allocation = "allocation",
        /// Python collects garbage.
        GarbageCollection = "garbage-collection",
        /// Data is copied between host and device.
        HostCopy = "host-copy",
        /// The launching thread waits for a lock.
        Lock = "lock",
        /// The system does not run the launching thread: it is stopped, or others have its core.
        Descheduled = "descheduled",
        /// The clock of the GPU is lower than at other times.
        ClockDrop = "clock-drop",
        /// Another program computes on the GPU.
        OtherTenant = "other-tenant",
        /// Communication takes longer: another rank is late, or the link is slow.
        LateRank = "late-rank",
        /// One launch of a kernel takes far longer than in other steps.
        SlowKernel = "slow-kernel",
        /// The kernels take longer than in other steps.
        SlowKernels = "slow-kernels",
        /// The CPU waits for the device, which runs nothing.
        Wait = "wait",
        /// Another call of the driver.
        Call = "call",
        /// Other work of the CPU.
        Code = "host-code",
        /// No cause was recorded.
        #[default]
        Unknown = "unknown",
    }
}

results! {
    /// A count of each phase of a stage.
    #[derive(Copy, Eq, Default)]
    pub struct PhaseCounts {
        /// Requests that read their prompt, or their tokens; null where unknown.
        pub context: Option<u64>,
        /// Requests that generate, or their tokens; null where unknown.
        pub generation: Option<u64>,
    }

    /// Cold instances and steps: the same GPU work in more than twice the time, at the beginning or where code was loaded.
    #[derive(Eq, Default)]
    pub struct ColdStart {
        /// Number of cold instances; 0 where only steps of other instances are cold.
        pub instances: u64,
        /// Mean time of a cold instance, or of a cold step where no instance is, ns.
        pub mean_ns: i64,
        /// Mean time of the other instances or steps, ns.
        pub warm_mean_ns: i64,
        /// Number of cold steps in instances that are not cold.
        #[serde(default)]
        pub steps: u64,
        /// Time of all cold instances and steps, ns.
        #[serde(default)]
        pub total_ns: i64,
        /// True if other instances or steps are left. Limit, steady state and findings are those of the others.
        #[serde(default)]
        pub left_out: bool,
        /// Time before the first step, or before the work that repeats, that limit, findings and headline leave out, ns; 0 where the stage begins with its steps.
        #[serde(default)]
        pub startup_ns: i64,
        /// Causes, most time first; empty where the capture does not show any.
        #[serde(default)]
        pub causes: Vec<ColdCause>,
    }

    /// Calls that make an instance or a step cold.
    #[derive(Eq)]
    pub struct ColdCause {
        /// Kind of work.
        pub kind: ColdKind,
        /// Name of the call with the most time.
        pub call: String,
        /// Number of calls.
        pub calls: u64,
        /// Time in these calls and before them, in which the GPU ran nothing, ns.
        pub ns: i64,
    }

    /// Work that a program does once.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    #[serde(rename_all = "snake_case")]
    pub enum ColdKind {
        /// Code is loaded, and compiled before that.
        ModuleLoad,
        /// A graph is captured or instantiated.
        GraphInstantiation,
        /// The first allocation creates the context of a process, or an allocation takes milliseconds.
        Allocation,
        /// A launch call takes milliseconds while the GPU is idle, because the driver loads what it needs.
        FirstLaunch,
    }

    /// The repeated part of a stage, without cold instances and steps.
    #[derive(Eq)]
    pub struct Steady {
        /// Repeated unit.
        pub unit: SteadyUnit,
        /// Number of units.
        pub count: u64,
        /// Mean time of the units that take about as long as their work explains, ns: the step time of a report. Left out are those that take
        /// 20 % longer and stand out from the spread. The median of three or four units.
        pub time_ns: i64,
        /// Median, ns.
        pub median_ns: i64,
        /// Spread, ns: the median distance from the median, times 1.4826.
        pub spread_ns: i64,
        /// Time of a unit without a profiler, ns; null where no unprofiled run was measured.
        pub unprofiled_ns: Option<i64>,
        /// Units that took longer than their work explains; null without any.
        pub tail: Option<Tail>,
    }

    /// The repeated unit of a stage.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum SteadyUnit {
        /// Steps.
        Step,
        /// Instances, where the stage has no steps.
        Instance,
    }

    /// Units of a stage that took more than twice the time that their tokens, or the size of their kernels, explain.
    #[derive(Copy, Eq, Default)]
    pub struct Tail {
        /// Number of such units.
        pub units: u64,
        /// Their time beyond the expected one, ns.
        pub beyond_ns: i64,
        /// Number of the one furthest beyond, from 1.
        pub slowest: u64,
        /// Its time, ns.
        pub slowest_ns: i64,
        /// Its expected time, ns.
        pub expected_ns: i64,
    }

    /// A step that took more than twice the time that its tokens, or the size of its kernels, explain.
    #[derive(Eq)]
    pub struct Spike {
        /// Number of the step in its stage, from 1.
        pub step: u64,
        /// Start, ns from the first event of the capture; null without GPU work.
        pub start_ns: Option<i64>,
        /// The same, ns since the epoch; null where the capture does not tell.
        pub unix_ns: Option<i64>,
        /// Time, ns.
        pub time_ns: i64,
        /// Time that its work explains, ns.
        pub expected_ns: i64,
        /// Cause of most of the time beyond that.
        pub cause: SpikeCause,
        /// Part of the time beyond the expected one in which the cause was seen, ns; 0 where none has half of it.
        pub evidence_ns: i64,
        /// Call, function, kernel or value that shows the cause; null where there is none.
        pub what: Option<String>,
        /// Part of the program or the GPU that has to be recorded to see the cause; null where a cause was found.
        pub missing: Option<String>,
    }

    /// A stage as it is without the profiler that recorded it: its timeline, replayed with each recorded event shortened by its cost. Shares
    /// and limit are those of its warm part.
    #[derive(Copy)]
    pub struct Corrected {
        /// Profiler whose cost is taken off.
        pub tool: Profiler,
        /// Time of a step, or of an instance where the stage has no steps, ns.
        pub step_ns: i64,
        /// Lower end of its interval, ns: 95 % by what the repeats show, and the differences between processes that `docs/definitions.md`
        /// assumes.
        pub low_ns: i64,
        /// Upper end of it, ns.
        pub high_ns: i64,
        /// Share of the time in which its GPUs run its operations, %.
        pub busy_pct: f64,
        /// Share of the time in which they run none of its operations, %.
        pub idle_pct: f64,
        /// Idle time in which the CPU had not launched the next operation, as in `idle.launch_ns`, ns.
        pub launch_ns: i64,
        /// Main limit.
        pub limit: StageLimit,
        /// Recorded events of a step or an instance: calls, operators of a framework, and operations of a graph after the first.
        pub calls: u64,
        /// Cost of such an event, ns; 0 where the stage is not slower under the profiler.
        pub cost_per_call_ns: i64,
        /// Source of the cost.
        pub source: CostSource,
    }

    /// Times of a stage in the run without a profiler, as the program wrote them.
    #[derive(Copy, Eq)]
    pub struct BaselineTimes {
        /// Number of instances.
        pub repeats: u64,
        /// Mean time of an instance, ns.
        pub mean_ns: i64,
        /// Standard deviation, ns; null for one instance.
        pub std_ns: Option<i64>,
    }

    /// Communication with other GPUs in a stage, summed over devices.
    #[derive(Copy, Eq, Default)]
    pub struct StageCommunication {
        /// Number of kernels.
        pub kernels: u64,
        /// Time with at least one of them, ns.
        pub total_ns: i64,
        /// Part of it in which the GPU runs no other kernel, ns.
        pub exposed_ns: i64,
        /// Part of `exposed_ns` in which the GPU waits for another one to arrive, ns; null where one GPU alone was recorded.
        pub waiting_ns: Option<i64>,
        /// Part of `exposed_ns` in the first collectives of a kind and size where they took more than five times as long as the others,
        /// beyond the time of those, ns, as when another rank arrives later or connections are made.
        #[serde(default)]
        pub late_ns: i64,
        /// Number of these collectives.
        #[serde(default)]
        pub late_calls: u64,
    }

    /// Kernels of engine steps that are in the stage and not in its ranges, or in its ranges and not in the stage: `kernel_ns` without
    /// `launched_after` and with `ran_before` is the time of all kernels that the ranges launched.
    #[derive(Copy, Eq, Default)]
    pub struct BesideRanges {
        /// In the stage: launched between a step's range and the next one, as sampling is.
        pub launched_after: KernelSum,
        /// Not in the stage: launched in the range of the first recorded step and run before the step began, beside work from before the
        /// recording.
        pub ran_before: KernelSum,
    }

    /// Number and time of kernels.
    #[derive(Copy, Eq, Default)]
    pub struct KernelSum {
        /// Number of kernels.
        pub kernel_count: u64,
        /// Their time, ns.
        pub kernel_ns: i64,
    }

    /// GPU work of other ranges and threads in the time of a stage.
    #[derive(Eq, Default)]
    pub struct ForeignWork {
        /// Time in which the GPU ran only such work, ns.
        pub busy_ns: i64,
        /// Number of its kernels.
        pub kernel_count: u64,
        /// Thread that launched most of those kernels; null where unknown.
        pub thread: Option<String>,
        /// Number of kernels launched by that thread.
        pub thread_kernel_count: u64,
    }

    /// A stage of the program, such as prefill or decode.
    #[derive(Default)]
    #[non_exhaustive]
    pub struct Stage {
        /// Stage name.
        pub name: String,
        /// Kind of the stage.
        #[serde(default)]
        pub kind: StageKind,
        /// Names of the ranges that mark it, as `domain@name`.
        pub ranges: Vec<String>,
        /// Number of instances.
        pub instances: u64,
        /// Total CPU time of the instances, ns.
        pub wall_ns: i64,
        /// First start to last end of its GPU work, summed over instances, ns; null without GPU work.
        pub projected_ns: Option<i64>,
        /// Total kernel time, ns.
        pub kernel_ns: Option<i64>,
        /// Time with at least one of its GPU operations, summed over devices, ns.
        pub busy_ns: Option<i64>,
        /// Number of kernels.
        pub kernel_count: u64,
        /// Number of kernels, copies, memsets and graphs.
        pub gpu_op_count: u64,
        /// Number of calls that launched GPU work.
        pub launch_count: u64,
        /// True if the GPU work of a tenth or more of the launches is not in the capture: what seems idle may be busy.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub work_missing: bool,
        /// Number of GPUs with work of the stage.
        #[serde(default)]
        pub device_count: u64,
        /// Mean number of GPUs per instance; less than `device_count` where each process has its own GPU.
        #[serde(default)]
        pub devices_per_instance: f64,
        /// Total copy time, ns; null where only totals are known.
        #[serde(default)]
        pub memcpy_ns: Option<i64>,
        /// Time from the end of an instance on the CPU to the end of its GPU work, summed over instances, ns; above 0
        /// where a range is closed before the GPU has finished.
        #[serde(default)]
        pub late_ns: i64,
        /// Time before its first operation in which the GPU ran earlier work, summed over instances and devices, ns.
        #[serde(default)]
        pub queued_ns: i64,
        /// Part of `foreign.busy_ns` after the last operation of an instance, ns.
        #[serde(default)]
        pub after_ns: i64,
        /// Idle time of the GPU before the first operation of its instances.
        #[serde(default)]
        pub before: BeforeFirst,
        /// Idle time between its first and last operation by cause, per device; overlapping instances count once.
        pub idle: Option<Idle>,
        /// Parts of `idle`.
        #[serde(default)]
        pub idle_detail: IdleDetail,
        /// Part of `idle.launch_ns` that follows a wait or a copy.
        #[serde(default)]
        pub launch_after: LaunchAfter,
        /// Part of `idle.launch_ns` in which the launching thread was getting data from a data loader, ns; left out where there is none.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub data_loading_ns: i64,
        /// Functions of the launching threads in its idle time, by their own time; left out where the capture has no stacks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub host: Vec<HostFunction>,
        /// Idle time that `host` explains; left out where the capture has no stacks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub host_idle: Option<HostIdle>,
        /// Main limit of its warm part; null in an analysis of an earlier version.
        #[serde(default)]
        pub limit: Option<StageLimit>,
        /// The repeated part; null without GPU work.
        #[serde(default)]
        pub steady: Option<Steady>,
        /// Steps that took longer than their work explains, cold ones too, in order; the 32 furthest beyond.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub spikes: Vec<Spike>,
        /// Communication with other GPUs in its warm part; null where there is none.
        #[serde(default)]
        pub communication: Option<StageCommunication>,
        /// The stage without its profiler; left out where its cost is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub corrected: Option<Corrected>,
        /// Step after the change of its first finding, and after those of its first three together; empty where neither can be predicted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub next_limit: Vec<NextLimit>,
        /// Its times in the run without a profiler; left out where the program wrote none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub baseline: Option<BaselineTimes>,
        /// Part of its time in which the profiler worked on threads that call CUDA, by its own account, ns; left out where it gives none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub profiler_overhead_ns: Option<i64>,
        /// Steps (tokens of decode).
        pub steps: Option<Steps>,
        /// Kernels, by total time.
        pub kernels: Vec<Kernel>,
        /// Named parts, such as the vision encoder.
        pub notes: Vec<Note>,
        /// Model FLOPs utilisation.
        pub mfu: Option<Mfu>,
        /// Memory bandwidth utilisation.
        pub mbu: Option<Mbu>,
        /// Memory bandwidth utilisation and activity by sampled counters; null where none were sampled.
        #[serde(default)]
        pub mbu_measured: Option<MbuMeasured>,
        /// Clocks and energy; left out where they were not sampled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vitals: Option<StageVitals>,
        /// Origin of its times.
        #[serde(default)]
        pub from: StageOrigin,
        /// Requests that an engine scheduled, summed over steps; null where the stage has no engine steps.
        #[serde(default)]
        pub requests: Option<PhaseCounts>,
        /// Tokens that an engine scheduled, summed over steps; null where the stage has no engine steps.
        #[serde(default)]
        pub tokens: Option<PhaseCounts>,
        /// Tokens per second of its time, all sequences together.
        #[serde(default)]
        pub tokens_per_s: Option<f64>,
        /// Time per token, ns: its time divided by its tokens, all sequences together.
        #[serde(default)]
        pub token_ns: Option<i64>,
        /// Mean time of an instance, ns.
        #[serde(default)]
        pub mean_ns: Option<i64>,
        /// Standard deviation over instances, ns; null for a single one.
        #[serde(default)]
        pub std_ns: Option<i64>,
        /// Time from the first operation of each engine step to that of the next step, summed, ns.
        #[serde(default)]
        pub period_ns: Option<i64>,
        /// Part of `period_ns` in which the GPU ran nothing after the step's last operation, ns.
        #[serde(default)]
        pub between_ns: i64,
        /// Difference between the stage and its ranges; null where both are the same kernels.
        #[serde(default)]
        pub beside_ranges: Option<BesideRanges>,
        /// GPU work of other ranges and threads in its time; null where there is none.
        #[serde(default)]
        pub foreign: Option<ForeignWork>,
        /// Copies, by total time.
        #[serde(default)]
        pub copies: Vec<CopyRow>,
        /// Graphs that were recorded as one operation, by total time.
        #[serde(default)]
        pub graphs: Vec<GraphRow>,
        /// The recorded part, of which all other numbers are; null where all of it was recorded.
        #[serde(default)]
        pub coverage: Option<StageCoverage>,
        /// Cold instances and steps, which are part of the other numbers; left out where there are none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cold_start: Option<ColdStart>,
        /// The stage without its cold instances and steps; `None` where all of it is warm. See [`Stage::warm`].
        #[serde(skip)]
        pub warm: Option<Box<Stage>>,
        /// What it is called in a sentence, for a loop without a name of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub title: Option<String>,
        /// It is the part of a trace after its start-up.
        #[serde(skip)]
        pub after_startup: bool,
        /// Time in which its only launching thread neither waited for the device nor was in a call that copies, ns; 0 where that is not known.
        #[serde(skip)]
        pub launching_ns: i64,
        /// Distance of its kernels to the roof.
        #[serde(flatten)]
        pub roof: RoofDistance,
    }
}

fn is_zero(ns: &i64) -> bool {
    *ns == 0
}

impl Stage {
    /// Returns the stage without its cold instances and steps; itself if all of it is warm.
    pub fn warm(&self) -> &Self {
        self.warm.as_deref().unwrap_or(self)
    }

    /// Sets its times in the run without a profiler.
    pub fn set_baseline(&mut self, times: &[i64]) {
        let mean_ns = times.iter().sum::<i64>() / times.len().max(1) as i64;
        let std_ns = crate::timeline::time_deviation(times);
        let baseline = BaselineTimes { repeats: times.len() as u64, mean_ns, std_ns };
        self.baseline = Some(baseline).filter(|_| mean_ns > 0);
    }

    /// Gives its warm part what is known of the whole stage alone.
    pub(crate) fn share_with_warm(&mut self) {
        if let Some(mut warm) = self.warm.take() {
            (warm.limit, warm.steady) = (self.limit, self.steady.clone());
            (warm.communication, warm.corrected) = (self.communication, self.corrected);
            (warm.vitals, warm.mbu_measured) = (self.vitals.clone(), self.mbu_measured.clone());
            warm.work_missing = self.work_missing;
            self.warm = Some(warm);
        }
    }

    /// Returns the name of the stage in a sentence.
    pub fn spoken(&self) -> &str {
        match self.kind {
            StageKind::Whole if self.after_startup || self.startup_ns() > 0 => "the trace after its start-up",
            StageKind::Whole => "the whole trace",
            StageKind::Loop => self.title.as_deref().unwrap_or(&self.name),
            _ => &self.name,
        }
    }

    /// Tells whether no name of the program says what it is: the whole trace, or a loop that was found without a name.
    pub fn is_unnamed(&self) -> bool {
        self.kind == StageKind::Whole || self.title.is_some()
    }

    /// Returns the time of a start-up that is left out of its warm part, ns.
    pub fn startup_ns(&self) -> i64 {
        self.cold_start.as_ref().filter(|cold| cold.left_out).map_or(0, |cold| cold.startup_ns)
    }

    /// Tells whether it has kernels or graphs, and not only copies and memory sets; true where its operations are not known.
    pub fn computes(&self) -> bool {
        self.gpu_op_count == 0 || self.kernel_count > 0 || !self.graphs.is_empty()
    }

    /// Returns the time of the stage, ns: the periods of engine steps; otherwise wall time and the GPU work that ran after it.
    pub fn elapsed_ns(&self) -> i64 {
        self.period_ns.unwrap_or_else(|| self.wall_ns.saturating_add(self.late_ns.max(0)))
    }

    /// Returns the part of its idle time before launches, summed over devices, that is the cost of its profiler, 0 to 1.
    pub fn profiler_part(&self) -> f64 {
        let known = self.corrected.zip(self.idle).filter(|(_, idle)| idle.launch_ns > 0);
        known.map_or(0.0, |(corrected, idle)| {
            (idle.launch_ns - corrected.launch_ns).max(0) as f64 / idle.launch_ns as f64
        })
    }

    /// Returns the time of the stage without the cost of its profiler where that is known, ns.
    pub fn own_ns(&self) -> i64 {
        let launch_ns = self.idle.map_or(0, |idle| self.each_device(idle.launch_ns));
        self.elapsed_ns() - (launch_ns as f64 * self.profiler_part()) as i64
    }

    /// Tells whether its ranges end long before its GPU work: by more than 5 % of the wall time.
    pub fn closes_early(&self) -> bool {
        self.period_ns.is_none() && self.late_ns > self.wall_ns / 20
    }

    /// Returns the time in which the GPU ran work of other ranges and threads, ns.
    pub fn foreign_ns(&self) -> i64 {
        self.foreign.as_ref().map_or(0, |foreign| foreign.busy_ns)
    }

    /// Returns the share of the elapsed time in which its GPUs were busy, 0 to 1, averaged over devices.
    pub fn busy_share(&self) -> Option<f64> {
        let busy = self.busy_ns.or(self.kernel_ns)?;
        let elapsed = self.elapsed_ns();
        (elapsed > 0).then(|| self.each_device(busy) as f64 / elapsed as f64)
    }

    /// Returns the idle time by root cause: a gap after a wait or a copy counts as sync or copy, not as launch.
    pub fn causes(&self) -> Option<Idle> {
        let (idle, after) = (self.idle?, self.launch_after);
        Some(Idle {
            launch_ns: idle.launch_ns - after.sync_ns - after.copy_ns,
            sync_ns: idle.sync_ns + after.sync_ns,
            copy_ns: idle.copy_ns + after.copy_ns,
            other_ns: idle.other_ns,
        })
    }

    /// Returns the time before the first and after the last operation of its instances, ns.
    pub fn outside(&self) -> Outside {
        let Some(projected) = self.projected_ns else {
            return Outside::default();
        };
        if self.period_ns.is_some() {
            return Outside { idle_ns: self.between_ns, ..Outside::default() };
        }
        let all = (self.elapsed_ns() - projected).max(0);
        let queued_ns = self.each_device(self.queued_ns).min(all);
        let after = self.each_device(self.after_ns).min(all - queued_ns);
        let idle_ns = all - queued_ns - after;
        let before_ns = self.each_device(self.before.idle_ns + self.before.after_launch_ns).min(idle_ns);
        Outside { queued_ns, idle_ns, before_ns }
    }

    /// Returns the time of a step in the steady state, ns; `None` without steps.
    pub fn step_ns(&self) -> Option<i64> {
        self.steady.as_ref().filter(|steady| steady.unit == SteadyUnit::Step).map(|steady| steady.time_ns)
    }

    /// Returns the time in which communication ran and no other kernel did, averaged over devices, ns.
    pub fn exposed_communication_ns(&self) -> i64 {
        self.communication.map_or(0, |row| self.each_device(row.exposed_ns))
    }

    /// Divides a sum over devices by the number of devices per instance.
    pub fn each_device(&self, ns: i64) -> i64 {
        if self.devices_per_instance > 1.0 { (ns as f64 / self.devices_per_instance) as i64 } else { ns }
    }
}

/// Time of a stage before the first and after the last GPU operation of its instances, averaged over devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outside {
    /// Time before the first operation in which the GPU ran earlier work, ns.
    pub queued_ns: i64,
    /// Time in which the GPU ran nothing, ns; between the steps of an engine where the stage has such steps.
    pub idle_ns: i64,
    /// Part of `idle_ns` before the first operation, ns.
    pub before_ns: i64,
}

words! {
    /// The source of the cost of a profiler.
    pub enum CostSource {
        /// The profiled run against a run without the profiler.
        Baseline = "baseline",
        /// Windows of one process with the profiler and without, in pairs.
        Pairs = "pairs",
        /// A time without the profiler that the user stated (`--unprofiled`).
        Stated = "stated",
    }
}

words! {
    /// The origin of the times of a stage.
    #[derive(Default)]
    pub enum StageOrigin {
        /// A recorded timeline.
        #[default]
        Timeline = "timeline",
        /// The program's own account.
        Workload = "workload",
    }
}

results! {
    /// Idle time in which the CPU launched late because it had waited before.
    #[derive(Copy, Eq, Default)]
    pub struct LaunchAfter {
        /// After a wait for the device, ns.
        pub sync_ns: i64,
        /// After a copy call, ns.
        pub copy_ns: i64,
    }

    /// Idle time of the GPU from the start of an instance on the CPU to its first operation, summed over instances and devices.
    #[derive(Copy, Eq, Default)]
    pub struct BeforeFirst {
        /// All of it until the launch of that operation had reached the GPU, ns.
        pub idle_ns: i64,
        /// Part in which the launching thread was getting data from a data loader, ns.
        pub data_loading_ns: i64,
        /// Part in which the launching thread loaded code, instantiated a graph, or was in the first launch call of a kernel for more than 100 µs, ns.
        pub cold_ns: i64,
        /// Time after that, from the moment at which the launch had reached the GPU, ns.
        #[serde(default)]
        pub after_launch_ns: i64,
    }

    /// Parts of the idle time of a stage, summed over devices.
    #[derive(Copy, Eq, Default)]
    pub struct IdleDetail {
        /// Part of `launch_ns` before the launch call began, ns.
        pub before_launch_ns: i64,
        /// Part of `launch_ns` in the launch call and at most 10 us after it, which a launch takes to reach the GPU, ns.
        pub in_launch_ns: i64,
        /// Part of `other_ns` after the launch call had returned, ns: behind an event, another stream, a copy engine or a full queue.
        pub after_launch_ns: i64,
        /// Part of `launch_ns` before the first operation of a step, without data loading and cold calls, ns.
        pub host_first_ns: i64,
        /// Part of `launch_ns` in which the launching thread loaded code, instantiated a graph, or was in a launch call of more than a
        /// millisecond, ns.
        pub cold_ns: i64,
        /// Part of `launch_ns` in which the launching thread made no call for a millisecond or more, without data loading, cold calls and
        /// the time before the first operation of a step, ns.
        #[serde(default)]
        pub host_work_ns: i64,
        /// Number of gaps of which that is a part.
        #[serde(skip)]
        pub host_gaps: u64,
        /// Part of `launch_ns` in which the launching thread allocated or freed memory, as it does again and again, ns.
        #[serde(default)]
        pub allocation_ns: i64,
        /// Part of `other_ns` before pages of managed memory moved, which no call asks for, ns.
        #[serde(default)]
        pub paging_ns: i64,
    }

    /// Idle time of the GPU by cause.
    #[derive(Copy, Eq, Default)]
    pub struct Idle {
        /// The CPU had not launched the next operation yet, ns.
        pub launch_ns: i64,
        /// The launching thread was waiting for the device, ns.
        pub sync_ns: i64,
        /// The launching thread was in a copy call, ns.
        pub copy_ns: i64,
        /// Launched and not started, or without a known launch, ns.
        pub other_ns: i64,
    }
}

impl IdleDetail {
    /// Returns the parts of `launch_ns` that the CPU spent on one-time work, other work and memory, ns.
    pub(crate) fn known_ns(&self) -> i64 {
        self.cold_ns + self.host_work_ns + self.allocation_ns
    }
}

impl Idle {
    /// Returns the sum of all causes, ns.
    pub fn total_ns(&self) -> i64 {
        self.launch_ns + self.sync_ns + self.copy_ns + self.other_ns
    }
}

/// Fewest steps that show whether they alternate.
const LEAST_ALTERNATING: usize = 5;

impl Steps {
    /// Tells whether short and long steps follow one another, as where two workers load the batches: their median is then that of the short or
    /// of the long ones, by chance.
    pub fn alternate(&self) -> bool {
        let turns = self.each_ns.windows(2).filter(|pair| match pair {
            [before, after] => (*before > self.mean_ns) != (*after > self.mean_ns),
            _ => false,
        });
        self.each_ns.len() >= LEAST_ALTERNATING && 8 * turns.count() >= 7 * (self.each_ns.len() - 1)
    }

    /// Returns the time of a step that a report gives, ns: the median, or the mean of steps that alternate.
    pub fn usual_ns(&self) -> i64 {
        if self.alternate() { self.mean_ns } else { self.p50_ns }
    }
}

results! {
    /// Steps of a stage.
    #[derive(Default)]
    pub struct Steps {
        /// Number of steps.
        pub count: u64,
        /// Mean time, ns: from the first GPU operation of a step, or from its start on the CPU while the GPU runs nothing, to that of the next;
        /// the CPU time without GPU work. A last step that no step follows ends as long after its range, or after its GPU work, as the
        /// others do. Steps of an engine run from first to first operation.
        pub mean_ns: i64,
        /// Median, ns. Of several steps of an engine the last is left out if no step follows it.
        pub p50_ns: i64,
        /// 90th percentile, ns.
        pub p90_ns: i64,
        /// 99th percentile, ns.
        pub p99_ns: i64,
        /// Mean number of launches per step.
        pub launches_per_step: Option<f64>,
        /// Time of each step in order, ns.
        #[serde(default)]
        pub each_ns: Vec<i64>,
        /// Time of the steps on the CPU; null where `each_ns` is that time.
        #[serde(default)]
        pub cpu: Option<CpuSteps>,
    }

    /// Steps as their ranges on the CPU lasted.
    #[derive(Default)]
    pub struct CpuSteps {
        /// Mean, ns.
        pub mean_ns: i64,
        /// Median, ns.
        pub p50_ns: i64,
        /// Each step in order, ns.
        pub each_ns: Vec<i64>,
    }

    /// A named part of a stage.
    #[derive(Default)]
    pub struct Note {
        /// Range name.
        pub name: String,
        /// Number of instances.
        pub instances: u64,
        /// Total CPU time, ns.
        pub wall_ns: i64,
        /// Total kernel time, ns.
        pub kernel_ns: Option<i64>,
        /// Number of kernels.
        pub kernel_count: u64,
    }

    /// The sum of the stages whose work is known.
    #[derive(Default)]
    pub struct Whole {
        /// Total wall time, ns.
        pub wall_ns: i64,
        /// Total busy time, ns.
        pub busy_ns: Option<i64>,
        /// Model FLOPs utilisation.
        pub mfu: Option<Mfu>,
        /// Memory bandwidth utilisation.
        pub mbu: Option<Mbu>,
    }

    /// A term of the work of a stage, with its formula so that a reader can check it.
    #[derive(Default)]
    pub struct Term {
        /// Name of the term.
        pub name: String,
        /// Floating-point operations.
        pub flops: f64,
        /// Bytes that must move.
        pub bytes: f64,
        /// The formula with its numbers.
        pub how: String,
    }

    /// Model FLOPs utilisation of a stage.
    #[derive(Default)]
    pub struct Mfu {
        /// Model FLOPs of all instances.
        pub flops: f64,
        /// Dense peak, FLOPs per second.
        pub peak_flops_per_s: f64,
        /// Number format of the peak.
        pub dtype: String,
        /// Source of the peak.
        pub peak_source: String,
        /// Utilisation over wall time, %.
        pub by_wall_pct: f64,
        /// Utilisation over busy time, %.
        pub by_busy_pct: Option<f64>,
        /// Terms of the FLOPs.
        pub terms: Vec<Term>,
        /// Assumptions.
        pub assumptions: Vec<String>,
    }

    /// Hardware counters of a stage, sampled while the program ran. Samples come in bursts where the device fills its buffer faster than it is
    /// read: rates are those of the sampled part, and sums are scaled to the whole stage by its busy time.
    #[derive(Default)]
    pub struct MbuMeasured {
        /// DRAM traffic of all instances, bytes; null where it was not sampled, or as a share of the peak only, as nsys does.
        pub dram_bytes: Option<f64>,
        /// DRAM traffic of a step, bytes; null without steps.
        pub step_dram_bytes: Option<f64>,
        /// DRAM traffic while its operations run, bytes per second.
        pub bandwidth_bytes_per_s: Option<f64>,
        /// Utilisation of the memory bandwidth over wall time, %; null where the bandwidth of the device is not known.
        pub by_wall_pct: Option<f64>,
        /// Utilisation over busy time, %.
        pub by_busy_pct: Option<f64>,
        /// Active cycles of the multiprocessors while its operations run, %.
        pub sm_active_pct: Option<f64>,
        /// Active cycles of the tensor pipe while its operations run, %.
        pub tensor_active_pct: Option<f64>,
        /// DRAM traffic divided by the bytes that the model must move; null without a model.
        pub to_model: Option<f64>,
        /// Source, where it is not sampled counters: `NVML GPM`, from samples of which 95 % lie in the stage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub source: Option<String>,
        /// Number of samples with its operations.
        pub samples: u64,
        /// Median length of a sample, ns.
        pub interval_ns: i64,
        /// Sampled part of its busy time, %.
        pub covered_pct: f64,
        /// Shift of the samples by which they fit the kernels best, ns; they are shifted by it.
        pub clock_shift_ns: i64,
        /// Error of that shift, ns: half of the difference between the two halves of the samples.
        pub clock_error_ns: i64,
    }

    /// Memory bandwidth utilisation of a stage.
    #[derive(Default)]
    pub struct Mbu {
        /// Bytes that must move in all instances.
        pub bytes: f64,
        /// Memory bandwidth, bytes per second.
        pub bandwidth_bytes_per_s: f64,
        /// Source of the bandwidth.
        pub bandwidth_source: String,
        /// Utilisation over wall time, %.
        pub by_wall_pct: f64,
        /// Utilisation over busy time, %.
        pub by_busy_pct: Option<f64>,
        /// Lower bound of a decode step at that bandwidth, ns.
        pub floor_step_ns: Option<i64>,
        /// Mean time of a step, ns.
        pub step_ns: Option<i64>,
        /// Terms of the bytes.
        pub terms: Vec<Term>,
        /// Assumptions.
        pub assumptions: Vec<String>,
    }
}

words! {
    /// Kind of work that keeps a launching thread from launching.
    #[derive(Hash)]
    pub enum HostKind {
        /// A value is read back from the device: `.item()`, `.cpu()`, `.tolist()`, `nonzero`.
        HiddenSync = "hidden_sync",
        /// Text becomes tokens, or tokens become text.
        Tokenizer = "tokenizer",
        /// Requests are scheduled, and their cache is managed.
        Scheduler = "scheduler",
        /// Python calls operators, and PyTorch dispatches and launches them.
        Dispatch = "dispatch",
        /// Python collects garbage.
        GarbageCollection = "garbage_collection",
        /// The thread waits for a lock, for Python's global lock, or for another thread.
        Lock = "lock",
        /// The thread sleeps.
        Sleep = "sleep",
        /// The thread sleeps until the next turn of a fixed rate.
        Rate = "rate",
        /// Messages are logged or printed.
        Logging = "logging",
        /// Files are read or written.
        FileAccess = "file_access",
        /// Messages go to another process, or come from one.
        Messages = "messages",
        /// The thread waits for another process to end.
        OtherProcess = "other_process",
        /// The thread waits for input, as of a person at a terminal.
        Input = "input",
        /// The system does not run the thread: others have the core.
        Descheduled = "descheduled",
        /// Other Python code.
        Python = "python",
        /// Other native code.
        Native = "native",
    }
}

results! {
    /// Idle time of a stage in a function of its launching thread.
    #[derive(Eq)]
    pub struct HostFunction {
        /// Function, with its class where the capture names it.
        pub function: String,
        /// File, or library of a native function; null where unknown.
        pub file: Option<String>,
        /// Line; PyTorch names the one at which the function begins. Null where unknown.
        pub line: Option<u32>,
        /// Part of a serving engine that the function belongs to; null for other code.
        pub part: Option<String>,
        /// Kind of work.
        pub kind: HostKind,
        /// Idle time in the function itself and in functions without a line that it calls, ns.
        pub self_ns: i64,
        /// Idle time in the function and in all that it calls, ns.
        pub idle_ns: i64,
        /// Part of `self_ns` in which the thread waited for the device or was in a copy call, ns.
        pub device_wait_ns: i64,
        /// Samples behind `self_ns`; null where its time is exact.
        pub samples: Option<u64>,
        /// Limits of the 95 % confidence interval of `self_ns`, ns; null where its time is exact.
        pub interval_ns: Option<[i64; 2]>,
        /// Function without a line that it calls and that has most of `self_ns`; null without any.
        pub mostly: Option<HostCall>,
    }
}

impl HostFunction {
    /// Returns the function with its file and line, as in `Sampler.forward (sampler.py:118)`.
    pub fn spoken(&self) -> String {
        let file = self.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
        match (file, self.line) {
            (Some(file), Some(line)) => format!("{} ({file}:{line})", self.function),
            (Some(file), None) => format!("{} ({file})", self.function),
            _ => self.function.clone(),
        }
    }
}

results! {
    /// A function without a line, such as one of C.
    #[derive(Eq, Default)]
    pub struct HostCall {
        /// Function.
        pub function: String,
        /// Idle time in it, ns.
        pub ns: i64,
    }

    /// Idle time of a stage that its launching threads are responsible for, and how much of it stacks explain. `self_ns` of the functions,
    /// `others_ns` and `unknown_ns` add up to `idle_ns`.
    #[derive(Copy, Eq, Default)]
    pub struct HostIdle {
        /// All of it, ns: launch, sync and copy of `idle`, and `between_ns` of engine steps or `before.idle_ns` of other stages.
        pub idle_ns: i64,
        /// Part in functions that are not listed, ns.
        pub others_ns: i64,
        /// Part without a frame or a sample of the launching thread, ns.
        pub unknown_ns: i64,
        /// Samples in it; null where all times are exact.
        pub samples: Option<u64>,
        /// Part in which the system did not run the thread, ns; null where the capture does not tell.
        pub not_running_ns: Option<i64>,
    }
}
