//! The numbers of a stage that a comparison has: one table for gates, reports and agents.

use super::comparison::{Change, Judgement, StageChange, TotalsChange};

/// A number of a stage.
#[derive(Debug)]
pub struct Metric {
    /// Field of a stage in the JSON; the ending is the unit.
    pub field: &'static str,
    /// Label of its row in a table.
    pub label: &'static str,
    /// Direction that is better.
    pub better: Better,
    /// True if it compares although the sides did different work.
    pub of_any_work: bool,
    /// Clock that profilers distort.
    pub(super) clock: Clock,
    of: fn(&StageChange) -> Change<f64>,
    judgement: fn(&mut StageChange) -> &mut Judgement,
}

/// The direction that is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// The clock of a number: recordings that differ distort the times of the CPU more than those of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// Times and rates on the CPU.
    Cpu,
    /// Times on the GPU.
    Gpu,
    /// Counts, and times without a profiler.
    None,
}

macro_rules! metrics {
    ($($field:ident $label:literal $better:ident $of_any_work:literal $clock:ident,)*) => {
        &[$(Metric {
            field: stringify!($field),
            label: $label,
            better: Better::$better,
            of_any_work: $of_any_work,
            clock: Clock::$clock,
            of: |stage| stage.$field.map(|value| value as f64),
            judgement: |stage| &mut stage.$field.judgement,
        },)*]
    };
}

/// All metrics, in the order of tables.
pub static METRICS: &[Metric] = metrics![
    wall_ns "wall ms" Lower false Cpu,
    unwatched_ns "unprofiled ms" Lower false None,
    step_ns "step ms" Lower true Cpu,
    busy_ns "GPU busy ms" Lower false Gpu,
    kernel_ns "kernels ms" Lower false Gpu,
    idle_ns "idle ms" Lower false Cpu,
    idle_launch_ns "  not launched yet" Lower false Cpu,
    idle_sync_ns "  waiting for the device" Lower false Cpu,
    idle_copy_ns "  in a copy call" Lower false Cpu,
    idle_other_ns "  other" Lower false Cpu,
    token_ns "per token µs" Lower true Cpu,
    launches "launches" Lower false None,
    launches_per_step "launches per step" Lower true None,
    mfu_pct "MFU %" Higher true Cpu,
    mbu_pct "MBU %" Higher true Cpu,
    mbu_measured_pct "measured MBU %" Higher true Cpu,
];

impl Metric {
    /// Returns the name in a gate: the field without its unit.
    pub fn name(&self) -> &'static str {
        let unit = |ending| self.field.strip_suffix(ending);
        unit("_ns").or_else(|| unit("_pct")).unwrap_or(self.field)
    }

    /// Returns the unit: `ns`, `%` or `count`.
    pub fn unit(&self) -> &'static str {
        match self.field.strip_prefix(self.name()) {
            Some("_ns") => "ns",
            Some("_pct") => "%",
            _ => "count",
        }
    }

    /// Tells whether it is a time.
    pub fn is_time(&self) -> bool {
        self.unit() == "ns"
    }

    /// Reads a name, or the JSON field (`wall_ns`, `mfu_pct`).
    pub(super) fn parse(text: &str) -> Option<&'static Self> {
        let plain = text.replace('.', "_");
        METRICS.iter().find(|metric| [metric.name(), metric.field].contains(&plain.as_str()))
    }

    /// Returns the number of a stage.
    pub fn of(&self, stage: &StageChange) -> Change<f64> {
        (self.of)(stage)
    }

    /// Returns the number of the whole trace; `None` where it is not known of one.
    pub(super) fn of_totals(&self, totals: &TotalsChange) -> Option<Change<f64>> {
        let change = match self.name() {
            "busy" => &totals.busy_ns,
            "kernel" => &totals.kernel_ns,
            _ => return None,
        };
        Some(change.map(|ns| ns as f64))
    }

    /// Withdraws the judgement of the number of a stage.
    pub(super) fn withdraw(&self, stage: &mut StageChange) {
        *(self.judgement)(stage) = Judgement::Unknown;
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.field == other.field
    }
}
