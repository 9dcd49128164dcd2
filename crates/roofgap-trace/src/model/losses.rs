//! Every row that was dropped, clipped, unmatched or not understood, counted under a name.

use std::collections::BTreeMap;

/// Severity of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; no number is wrong because of it.
    Info,
    /// Some numbers miss a part.
    Warning,
    /// Some numbers cannot be trusted.
    Error,
}

impl Severity {
    /// Returns the word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! losses {
    ($($variant:ident, $id:literal, $severity:ident, $meaning:literal;)*) => {
        /// The losses that a reader or the analysis may declare.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LossKind {
            $(#[doc = $meaning] $variant,)*
        }

        impl LossKind {
            /// Returns the stable name used in JSON.
            pub fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// Returns the severity.
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// Returns the effect on the numbers.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

losses! {
    OpNegative, "op_negative_duration", Warning, "GPU operations that end before they start; left out of every number";
    OpNoLaunch, "op_without_launch", Warning, "GPU operations without a launch record; in the totals, in no stage";
    LaunchNoKernel, "launch_without_kernel", Warning, "launches of kernels, outside graph capture, and of graphs whose GPU work is not in the capture: the launch failed or its work was not recorded; the totals miss it";
    OpNoDevice, "op_unknown_device", Info, "GPU operations on a device that the capture does not describe";
    CallNegative, "call_negative_duration", Warning, "API calls that end before they start; left out";
    CallDuplicate, "call_duplicate_correlation", Info, "API calls that share process and correlation id with an earlier one; operations go to the earliest";
    RangeOpen, "range_left_open", Warning, "ranges still open when the capture ended; they end with the capture";
    RangeBegunBefore, "range_begun_before", Info, "ends of ranges whose start is not in the capture, as of ranges that were open when it began; left out";
    RangeNegative, "range_negative_duration", Warning, "ranges that end before they start; left out";
    RangeCrossThread, "range_crosses_threads", Info, "ranges opened on one thread and closed on another; they enclose the launches of both threads";
    RangeNoName, "range_without_name", Info, "ranges without a name; kept, they match no stage";
    RangeNoDomain, "range_unknown_domain", Warning, "ranges whose domain has no name in the capture; taken as the default domain";
    NvtxUnknown, "nvtx_event_not_understood", Info, "NVTX rows of a kind that is not read";
    NameMissing, "name_missing", Warning, "rows whose name id has no string";
    GraphWhole, "graph_without_nodes", Warning, "graph launches recorded whole; their kernels are not in the capture (record with --cuda-graph-trace=node)";
    NoRuntime, "no_api_calls", Error, "the capture holds GPU work but no API calls; nothing can be attributed to ranges";
    SummaryOnly, "summary_only", Warning, "kernel totals of a summary table; no times of single launches, so no stages, no busy and no idle time";
    ClockEarly, "gpu_clock_early", Warning, "operations of GPUs whose clock is early: they were recorded as beginning before the calls that launched them, and are moved so that they do not; the time from a call to its operation is not known";
    TimeRounded, "time_rounded", Warning, "GPU operations whose times the input gives with fewer digits than nanoseconds; their totals are off by the rounding";
    TimeOutOfRange, "time_out_of_range", Warning, "events more than a year away from the others, which no clock gives; left out";
    ValueOutOfRange, "value_out_of_range", Warning, "launch shapes, sizes, device facts and times of a summary that no GPU can have; left out, the rest of the row stays";
    EventUnknown, "event_not_understood", Info, "trace events of a kind that is not read";
    OtherDevice, "other_device", Warning, "events of an accelerator that is no GPU; they are not read as GPU work, so the CPU side is all there is";
    EventMalformed, "event_malformed", Warning, "trace events without the fields their kind needs; left out";
    StacksRecorded, "profiler_with_stack", Info, "the profiler recorded Python stacks (with_stack); CPU times and the idle time they cause include that profiler overhead";
    ShapesRecorded, "profiler_record_shapes", Info, "the profiler recorded the shapes of operators (record_shapes); CPU times and the idle time they cause include that profiler overhead";
    AllocationsRecorded, "profiler_profile_memory", Info, "the profiler recorded memory allocations (profile_memory); CPU times and the idle time they cause include that profiler overhead";
    ToolDropped, "tool_dropped_records", Error, "records that the recording tool itself says it lost";
    ToolError, "tool_error", Error, "errors that the recording tool reported; records may be missing";
    ToolWarning, "tool_warning", Warning, "warnings of the recording tool; some numbers may miss a part";
    ToolNote, "tool_note", Info, "notes of the recording tool; no number depends on them";
    GpuNotRecorded, "gpu_not_recorded", Error, "processes whose GPU work is not in the capture: CUPTI was missing, refused, or served another profiler";
    KindNotRecorded, "activity_not_recorded", Warning, "kinds of activity that CUPTI would not record";
    ForkNotRecorded, "forked_child", Info, "children made by fork; what they did is not in their parent's capture";
    PartlyRecorded, "recorded_in_windows", Warning, "times in which GPU work was not recorded, as requested; sums over the trace leave it out";
    WindowEdge, "graph_at_window_edge", Info, "kernels of CUDA graphs that ran while recording began or ended; CUPTI mixes their times with those of another launch, so they are left out";
    CaptureCut, "capture_cut", Error, "the capture ends in the middle; what came after is not there";
    EndMissing, "capture_without_end", Warning, "captures without an end: the program was killed or skipped its exit handlers (_exit, exec); what it did after the last flush is not there";
    TableNotRead, "table_not_read", Info, "rows of tables in the capture that are not read; no number uses them";
    UnitUnknown, "counter_unit_unknown", Info, "counter values with an unknown unit; left out, and where a number needs one it is missing with a reason";
    CounterMalformed, "counter_malformed", Warning, "counter rows and values that could not be read; left out";
    CounterFailed, "counter_kernel_failed", Warning, "kernels that failed while counters were measured: no blocks in the grid, or no counter with a value; left out";
    SampleMalformed, "sample_malformed", Warning, "samples of counters that overlap an earlier one, or with values that no counter has; left out";
    SamplesDropped, "samples_dropped", Info, "times in which samples of counters were lost because the buffer of the device was full, or sampling ended early; kernels of these times are not in the sampled counters";
    SamplesForeign, "samples_of_other_work", Warning, "the GPU moved data while no recorded work ran: another program used it, or work was not recorded; no counters are derived from these samples";
    SampledContradicts, "sampled_contradicts_model", Warning, "stages whose measured DRAM traffic is less than 0.8 of what their model must move, or more than 3 times of it; check the model, its data type and the tokens";
    Inconsistent, "inconsistent_numbers", Error, "numbers of this analysis that contradict each other; the ones named here, and what follows from them, are not reliable";
    CounterUnmatched, "counter_unmatched", Info, "counter rows whose kernel and launch shape are not in the timeline; shown without a ratio";
}

/// One declared loss with its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Kind of loss.
    pub kind: LossKind,
    /// Number of rows.
    pub count: u64,
}

/// Most messages that are kept of a kind, and most characters of one.
const MOST_MESSAGES: usize = 32;
const MOST_CHARACTERS: usize = 300;

/// The losses of a trace.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    counts: BTreeMap<LossKind, u64>,
    /// Texts of the recording tool and names of tables, with the number of times each occurred or of rows.
    messages: BTreeMap<LossKind, BTreeMap<String, u64>>,
}

impl Losses {
    /// Counts `count` rows under `kind`.
    pub fn add(&mut self, kind: LossKind, count: u64) {
        if count > 0 {
            let known = self.counts.entry(kind).or_default();
            *known = known.saturating_add(count);
        }
    }

    /// Counts rows under `kind` and keeps the text that belongs to them.
    pub fn add_message(&mut self, kind: LossKind, text: &str, count: u64) {
        self.add(kind, count);
        let words: Vec<&str> = text.split_whitespace().collect();
        let line: String = words.join(" ").chars().take(MOST_CHARACTERS).collect();
        self.keep_message(kind, line, count);
    }

    fn keep_message(&mut self, kind: LossKind, line: String, count: u64) {
        let known = self.messages.entry(kind).or_default();
        if !line.is_empty() && (known.len() < MOST_MESSAGES || known.contains_key(&line)) {
            let times = known.entry(line).or_default();
            *times = times.saturating_add(count);
        }
    }

    /// Iterates over the texts kept under `kind`, each with the number of times it occurred.
    pub fn messages(&self, kind: LossKind) -> impl Iterator<Item = (&str, u64)> {
        let kept = self.messages.get(&kind).into_iter().flatten();
        kept.map(|(text, count)| (text.as_str(), *count))
    }

    /// Returns the number of rows counted under `kind`.
    pub fn count(&self, kind: LossKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Adds all of another list.
    pub fn merge(&mut self, other: &Losses) {
        for loss in other.iter() {
            self.add(loss.kind, loss.count);
        }
        for (kind, texts) in &other.messages {
            for (text, count) in texts {
                self.keep_message(*kind, text.clone(), *count);
            }
        }
    }

    /// Iterates over the losses that occurred.
    pub fn iter(&self) -> impl Iterator<Item = Loss> + '_ {
        self.counts.iter().map(|(&kind, &count)| Loss { kind, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_tool_are_kept_once_each() {
        let mut losses = Losses::default();
        losses.add_message(LossKind::ToolWarning, "No CUDA events\n  collected.", 1);
        losses.add_message(LossKind::ToolWarning, "No CUDA events collected.", 1);
        losses.add_message(LossKind::ToolWarning, "", 1);
        losses.add(LossKind::ToolError, 1);
        let mut all = Losses::default();
        all.merge(&losses);
        all.merge(&losses);
        assert_eq!(all.count(LossKind::ToolWarning), 6);
        let texts: Vec<_> = all.messages(LossKind::ToolWarning).collect();
        assert_eq!(texts, [("No CUDA events collected.", 4)]);
        assert_eq!(all.messages(LossKind::ToolError).count(), 0);
    }

    #[test]
    fn different_texts_are_limited() {
        let mut losses = Losses::default();
        for number in 0..100 {
            losses.add_message(LossKind::ToolWarning, &format!("{number}: {}", "x".repeat(1000)), 1);
        }
        assert_eq!(losses.count(LossKind::ToolWarning), 100);
        let texts: Vec<_> = losses.messages(LossKind::ToolWarning).collect();
        assert_eq!(texts.len(), MOST_MESSAGES);
        assert!(texts.iter().all(|(text, _)| text.len() <= MOST_CHARACTERS));
    }
}
