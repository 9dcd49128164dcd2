//! The phases that a configuration requests.

use roofgap_runs::config::Config;
use roofgap_runs::config::settings::{TimelineTool, WorkloadKind};
use roofgap_runs::run_dir::{PhaseName, RecordWriter};

/// The phases that a configuration requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requested {
    pub baseline: bool,
    pub timeline: bool,
    pub operators: bool,
    pub counters: bool,
}

impl Requested {
    /// Reads the phases from the configuration. The embedded model runs on the CPU, so it requests no GPU phase unless a
    /// recorder is named.
    pub fn of(config: &Config) -> Self {
        let runner = &config.runner;
        let embedded = config.workload.kind == WorkloadKind::Embedded;
        Requested {
            baseline: runner.baseline,
            timeline: runner.timeline && (!embedded || config.profiling.timeline != TimelineTool::Auto),
            operators: runner.operators,
            counters: runner.counters && !embedded,
        }
    }

    /// Returns true where a phase needs nsys, ncu or the native collector.
    pub fn needs_tools(self) -> bool {
        self.timeline || self.counters
    }

    /// Records the requested phases.
    pub fn record(self, record: &mut RecordWriter<'_>) {
        record.requested(PhaseName::Baseline, self.baseline);
        record.requested(PhaseName::Timeline, self.timeline);
        record.requested(PhaseName::Operators, self.operators);
        // The plan only serves the counters, which report what they miss.
        record.requested(PhaseName::Select, false);
        record.requested(PhaseName::Counters, self.counters);
    }
}
