//! The capture: files, devices, sums, losses, profiler overhead, ranges, the workload and the engine.

use super::{Analysis, StageKind};
use roofgap_base::stats::{Confidence, student_t};
use roofgap_trace::{LossKind, SourceFormat};
use std::collections::BTreeMap;

results! {
    /// An input file.
    #[derive(Default)]
    pub struct SourceInfo {
        /// Path as the user gave it.
        pub path: String,
        /// Format it was read as.
        pub format: String,
        /// Version of the tool that made it.
        pub tool_version: Option<String>,
        /// Version of the schema of the file.
        pub schema_version: Option<String>,
    }

    /// A GPU.
    #[derive(Default)]
    pub struct DeviceInfo {
        /// Device number, as in `kernels[].device`.
        pub id: u32,
        /// Marketing name.
        pub name: Option<String>,
        /// Compute capability, such as "9.0".
        pub compute_capability: Option<String>,
        /// Number of multiprocessors.
        pub sms: Option<u32>,
        /// Memory, bytes.
        pub memory_bytes: Option<u64>,
        /// Memory bandwidth as the device reports it, bytes per second.
        pub bandwidth_bytes_per_s: Option<u64>,
    }

    /// The origin of the kernels of an analysis.
    #[derive(Copy, Eq, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum KernelOrigin {
        /// A recorded timeline.
        #[default]
        Timeline,
        /// The totals of a summary table.
        Summary,
        /// Single launches that ncu measured.
        Counters,
    }

    /// Sums over the whole trace.
    #[derive(Default)]
    pub struct Totals {
        /// Number of kernels.
        pub kernel_count: u64,
        /// Total kernel time, ns.
        pub kernel_ns: i64,
        /// Time with at least one GPU operation, summed over devices, ns; null where only totals are known.
        pub busy_ns: Option<i64>,
        /// Total copy time, ns.
        pub memcpy_ns: Option<i64>,
        /// Total memset time, ns.
        pub memset_ns: Option<i64>,
        /// Number of GPU operations without a launch record.
        pub unattributed_count: u64,
        /// Time from the start of the first stage to the end of the last one, ns; null without stages.
        #[serde(default)]
        pub stages_wall_ns: Option<i64>,
        /// Origin of the kernels.
        #[serde(default)]
        pub from: KernelOrigin,
    }

    /// A loss of data.
    #[derive(Default)]
    pub struct LossInfo {
        /// Stable id.
        pub id: String,
        /// Severity: `info`, `warning` or `error`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["info", "warning", "error"])))]
        pub severity: String,
        /// Number of rows.
        pub count: u64,
        /// Effect on the numbers.
        pub meaning: String,
        /// Texts of the recording tool, those on the GPU first, then the most frequent; left out without any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub messages: Vec<LossMessage>,
    }

    /// A text of the recording tool.
    #[derive(Default)]
    pub struct LossMessage {
        /// The text, on one line.
        pub text: String,
        /// Number of times that it occurs.
        pub count: u64,
    }

    /// Sums over the ranges of one name.
    #[derive(Default)]
    pub struct RangeInfo {
        /// NVTX domain; empty is the default domain.
        pub domain: String,
        /// Range name.
        pub name: String,
        /// Style of the ranges: `push_pop` or `start_end`.
        pub style: String,
        /// Number of ranges.
        pub instances: u64,
        /// Total CPU time, ns.
        pub wall_ns: i64,
        /// First start to last end of its GPU work, summed over ranges, ns.
        pub projected_ns: i64,
        /// Number of kernels launched inside.
        pub kernel_count: u64,
        /// Total time of those kernels, ns.
        pub kernel_ns: i64,
        /// Number of kernels, copies, memsets and graphs launched inside.
        pub gpu_op_count: u64,
        /// Number of calls inside that launched GPU work.
        pub launch_count: u64,
    }

    /// The workload, from the program's own account.
    #[derive(Default)]
    pub struct WorkloadInfo {
        /// Model name.
        pub model: Option<String>,
        /// Revision of the weights.
        pub revision: Option<String>,
        /// Number of parameters.
        pub parameters: Option<u64>,
        /// Number of parameters used for one token.
        pub active_parameters: Option<u64>,
        /// Bytes of all weights, as they are stored.
        #[serde(default)]
        pub weight_bytes: Option<u64>,
        /// Number format of the weights.
        pub dtype: Option<String>,
        /// Origin of the weights: `random` or `local`.
        pub weights: Option<String>,
        /// Prompt tokens, vision tokens included.
        pub prompt_tokens: Option<u64>,
        /// Generated tokens of one repeat.
        pub generated_tokens: Option<u64>,
        /// Batch size, sequences.
        pub batch: Option<u64>,
        /// Image tokens of the prompt.
        pub vision_tokens: Option<u64>,
        /// Device name.
        pub device: Option<String>,
        /// Hash of the output tokens.
        pub token_hash: Option<String>,
    }

    /// A serving engine.
    #[derive(Eq, Default)]
    pub struct EngineInfo {
        /// Engine name.
        pub name: String,
        /// Version; null without an account of the program that has it.
        pub version: Option<String>,
        /// Number of parts by kind of parallelism (`tensor`, `pipeline`, `data`, `expert`); null without such an account.
        #[serde(default)]
        pub parallelism: Option<BTreeMap<String, u64>>,
        /// Evidence: `range` (NVTX), `annotation` (PyTorch profiler), `frames` (Python frames) or `account` (the program's own account,
        /// without named steps).
        pub told_by: String,
        /// Evidence that tells prefill from decode; null where the names of the steps do.
        #[serde(default)]
        pub phases_told_by: Option<String>,
    }

    /// The overhead of one profiler on one stage.
    pub struct Overhead {
        /// Profiler.
        pub tool: Profiler,
        /// Stage name.
        pub stage: String,
        /// Time under the profiler divided by time without it; of the recorded steps, where a part of a stage was recorded.
        pub ratio: f64,
        /// Ends of the 95 % confidence interval of `ratio`, over pairs or over the repeats of two runs; left out for single repeats.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub interval: Option<(f64, f64)>,
        /// Number of pairs of runs of steps of one process, with the profiler and without; left out for a comparison of two runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pairs: Option<u64>,
        /// Time of all steps, recorded or not, divided by that of a run without the profiler; left out where all steps were recorded,
        /// and without such a run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub of_runs: Option<f64>,
        /// The time without the profiler is stated (`--unprofiled`), not measured here; left out if false.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub stated: bool,
    }
}

impl LossInfo {
    /// Describes rows that were lost.
    pub(crate) fn new(kind: LossKind, count: u64, messages: Vec<LossMessage>) -> Self {
        Self {
            id: kind.id().into(),
            severity: kind.severity().as_str().into(),
            count,
            meaning: kind.meaning().into(),
            messages,
        }
    }
}

impl StageCoverage {
    /// Returns the recorded share of its steps, 0 to 1.
    pub fn share(&self) -> f64 {
        self.recorded as f64 / self.all.max(1) as f64
    }
}

impl Overhead {
    /// Returns the ratio that is sure: the lower end of the confidence interval of pairs. Two runs have few repeats, and the fastest of
    /// each say more than their interval.
    pub fn sure_ratio(&self) -> f64 {
        self.interval.filter(|_| self.pairs.is_some()).map_or(self.ratio, |(low, _)| low)
    }
}

results! {
    /// Two recordings of a program by different profilers. Of two values, the first is that of the profiler that slowed it less.
    pub struct Agreement {
        /// Profilers.
        pub profilers: [Profiler; 2],
        /// Stage with the steps; null without stages.
        pub stage: Option<String>,
        /// Number of kernels.
        pub kernels: [u64; 2],
        /// Total kernel time, ns.
        pub kernel_ns: [i64; 2],
        /// Time of a step, or of an instance of a stage without steps, ns; null where one has none.
        pub step_ns: Option<[i64; 2]>,
    }
}

impl Agreement {
    /// Compares two recordings. Where their steps do not tell, the first slowed the program less.
    pub fn of(mut sides: [(Profiler, &Analysis); 2]) -> Self {
        let stages = sides[0].1.stages.iter().filter(|stage| stage.steady.is_some());
        let main = stages.max_by_key(|stage| (stage.kind == StageKind::Decode, stage.elapsed_ns()));
        let stage = main.map(|stage| stage.name.clone());
        let step = |analysis: &Analysis| Some(analysis.stage(stage.as_ref()?)?.steady.as_ref()?.time_ns);
        let mut steps = sides.map(|(_, analysis)| step(analysis));
        if steps[1].zip(steps[0]).is_some_and(|(second, first)| second < first) {
            steps.reverse();
            sides.reverse();
        }
        Self {
            profilers: sides.map(|side| side.0),
            kernels: sides.map(|side| side.1.totals.kernel_count),
            kernel_ns: sides.map(|side| side.1.totals.kernel_ns),
            step_ns: steps[0].zip(steps[1]).map(<[i64; 2]>::from),
            stage,
        }
    }
}

words! {
    /// A profiler whose overhead is measured.
    pub enum Profiler {
        /// Nsight Systems.
        Nsys = "nsys",
        /// The native collector.
        Native = "native",
        /// torch.profiler.
        Torch = "torch.profiler",
        /// Nsight Compute.
        Ncu = "ncu",
    }
}

impl Profiler {
    /// Returns the profiler that writes timelines of a format; `None` for a file that is no timeline.
    pub(super) fn of_timeline(format: &str) -> Option<Self> {
        let facts = SourceFormat::named(format)?.facts();
        let mut profilers = [Self::Nsys, Self::Native, Self::Torch].into_iter();
        profilers.find(|profiler| facts.is_timeline && profiler.as_str() == facts.profiler)
    }
}

results! {
    /// The recorded part of a capture with gaps.
    #[derive(Default)]
    #[non_exhaustive]
    pub struct Coverage {
        /// Number of steps that were recorded as a whole; null where no stage has steps.
        pub recorded_steps: Option<u64>,
        /// Number of all steps; null where no stage has steps.
        pub all_steps: Option<u64>,
        /// Recorded time, summed over processes, ns.
        pub recorded_ns: i64,
        /// Time with the gaps, summed over processes, ns.
        pub all_ns: i64,
    }

    /// The recorded part of a stage. Its other numbers are of this part.
    #[derive(Default)]
    #[non_exhaustive]
    pub struct StageCoverage {
        /// Number of steps, or of instances where it has none, that were recorded as a whole.
        pub recorded: u64,
        /// Number of all.
        pub all: u64,
        /// CPU time of all, ns. It is measured: ranges are recorded all the time.
        pub wall_ns: i64,
        /// Kernel time of all, estimated, ns; null where nothing was recorded.
        pub kernel_ns: Option<Estimate>,
    }

    /// An estimate from a sample.
    #[derive(Copy, Eq, Default)]
    pub struct Estimate {
        /// Estimate.
        pub value: i64,
        /// Lower end of the interval of 95 %; null for a single sample.
        pub low: Option<i64>,
        /// Upper end of the interval of 95 %; null for a single sample.
        pub high: Option<i64>,
    }
}

impl Estimate {
    /// Estimates the sum of `all` values. The first `leading` of them are known. The rest of `known` is a sample of the others, taken in
    /// groups of values that are alike because they follow each other; `group` has the group of each value.
    pub fn after(known: &[i64], group: &[usize], leading: u64, all: u64) -> Option<Self> {
        let (first, sample) = known.split_at(known.len().min(leading as usize));
        let mut groups: Vec<(f64, f64)> = Vec::new();
        let mut rest = sample;
        for same in group.get(first.len()..)?.chunk_by(|a, b| a == b) {
            let (values, others) = rest.split_at(rest.len().min(same.len()));
            groups.push(group_of(values));
            rest = others;
        }
        let sum: i64 = first.iter().sum();
        match Self::of_groups(&groups, all.saturating_sub(first.len() as u64)) {
            Some(rest) => Some(Self {
                value: sum + rest.value,
                low: rest.low.map(|low| sum + low),
                high: rest.high.map(|high| sum + high),
            }),
            // Nothing is known of the spread of the others.
            None if first.is_empty() => None,
            None => Self::of_groups(&[group_of(first)], all),
        }
    }

    /// Estimates the sum of `all` values from groups of known ones. Every value counts alike; the spread is that of the groups.
    fn of_groups(groups: &[(f64, f64)], all: u64) -> Option<Self> {
        let known: f64 = groups.iter().map(|(_, count)| count).sum();
        if known <= 0.0 {
            return None;
        }
        let all = (all as f64).max(known);
        let mean = groups.iter().map(|(sum, _)| sum).sum::<f64>() / known;
        let value = mean * all;
        let margin = (groups.len() > 1).then(|| {
            let distance = |(sum, count): &(f64, f64)| (sum - mean * count).powi(2);
            let squares: f64 = groups.iter().map(distance).sum();
            let count = groups.len() as f64;
            let deviation = (squares * count / (count - 1.0)).sqrt() / known;
            let unknown = (1.0 - known / all).max(0.0);
            student_t(groups.len() - 1, Confidence::Pct95) * all * deviation * unknown.sqrt()
        });
        Some(Self {
            value: value.round() as i64,
            low: margin.map(|margin| (value - margin).max(0.0).round() as i64),
            high: margin.map(|margin| (value + margin).round() as i64),
        })
    }
}

/// Sum and number of known values that are alike because they follow each other.
fn group_of(values: &[i64]) -> (f64, f64) {
    (values.iter().map(|&value| value as f64).sum(), values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Estimates a sum from values that are each a group of their own.
    fn of_sample(sample: &[i64], all: u64) -> Option<Estimate> {
        let group: Vec<usize> = (0..sample.len()).collect();
        Estimate::after(sample, &group, 0, all)
    }

    #[test]
    fn the_first_values_are_known_and_no_sample_of_the_others() {
        // Two values of 100, then groups of two values around 10.
        let known = [100, 100, 10, 12, 10, 12];
        let estimate = Estimate::after(&known, &[0, 0, 1, 1, 2, 2], 2, 14).unwrap();
        assert_eq!(
            (estimate.value, estimate.low, estimate.high),
            (332, Some(332), Some(332)),
            "the groups are alike"
        );
        let single = Estimate::after(&known, &[0, 0, 1, 1, 1, 1], 2, 14).unwrap();
        assert_eq!((single.value, single.low), (332, None), "one group has no spread");
        assert_eq!(Estimate::after(&[7, 7], &[0, 0], 2, 10), of_sample(&[7], 10));
        assert_eq!(Estimate::after(&[], &[], 0, 10), None);
    }

    #[test]
    fn a_long_group_counts_more_than_a_short_one() {
        // Nine values of 10 and one of 110: 20 on average.
        let known = [10, 10, 10, 10, 10, 10, 10, 10, 10, 110];
        let group = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let estimate = Estimate::after(&known, &group, 0, 1_000).unwrap();
        assert_eq!(estimate.value, 20_000);
        // Sums of the groups are 90 away from the mean: 12.706 * 1000 * sqrt(2 * 2 * 90^2) / 10 * sqrt(0.99).
        assert_eq!((estimate.low, estimate.high), (Some(0), Some(247_562)));
    }

    #[test]
    fn a_sum_is_estimated_from_a_sample() {
        let single = of_sample(&[7], 10).unwrap();
        assert_eq!((single.value, single.low, single.high), (70, None, None));
        let same = of_sample(&[5, 5, 5], 30).unwrap();
        assert_eq!((same.value, same.low, same.high), (150, Some(150), Some(150)));
        // Mean 20, deviation 10; 4.303 * 100 * 10 / sqrt(3) * sqrt(0.97).
        let spread = of_sample(&[10, 20, 30], 100).unwrap();
        assert_eq!(spread.value, 2000);
        assert_eq!((spread.low, spread.high), (Some(0), Some(4447)));
        let all = of_sample(&[10, 20, 30], 3).unwrap();
        assert_eq!((all.value, all.low, all.high), (60, Some(60), Some(60)));
    }
}
