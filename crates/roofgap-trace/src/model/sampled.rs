//! Hardware counters that were sampled while the program ran.

use super::{DeviceId, Ns};
use roofgap_base::stats::median;

/// A counter that is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampledMetric {
    /// Bytes read from DRAM in a window.
    DramReadBytes,
    /// Bytes written to DRAM in a window.
    DramWrittenBytes,
    /// Reads from DRAM, % of the peak bandwidth.
    DramReadPct,
    /// Writes to DRAM, % of the peak bandwidth.
    DramWrittenPct,
    /// Reads and writes of DRAM together, % of the peak bandwidth.
    DramPct,
    /// Active cycles of the multiprocessors, %.
    SmActivePct,
    /// Issued or executed instructions, % of the peak.
    SmIssuePct,
    /// Active cycles of the tensor pipe, %.
    TensorPct,
    /// Sectors of the L2 cache, % of the peak.
    L2Pct,
}

impl SampledMetric {
    /// Names in ncu and CUPTI, of shares without their rollup, in nsys, and in the Python writers of PyTorch, where each has the counter.
    const NAMES: [(Self, &str, &str, &str); 9] = [
        (Self::DramReadBytes, "dram__bytes_read.sum", "", ""),
        (Self::DramWrittenBytes, "dram__bytes_write.sum", "", ""),
        (Self::DramReadPct, "dram__read_throughput", "DRAM Read Bandwidth", "HBM Read (%)"),
        (Self::DramWrittenPct, "dram__write_throughput", "DRAM Write Bandwidth", "HBM Write (%)"),
        (Self::DramPct, "dram__throughput", "", "HBM BW (%)"),
        (Self::SmActivePct, "sm__cycles_active", "SMs Active", "SM Active (%)"),
        (Self::SmIssuePct, "sm__inst_executed", "SM Issue", ""),
        (Self::TensorPct, "sm__pipe_tensor_cycles_active", "Tensor Active", ""),
        (Self::L2Pct, "lts__t_sectors", "", ""),
    ];

    /// Returns the counter of a name in CUPTI, or in a trace of PyTorch, which names some differently.
    pub(crate) fn of_cupti(name: &str) -> Option<Self> {
        let share = name.strip_suffix(".avg.pct_of_peak_sustained_elapsed");
        let is = |(metric, cupti, _, torch): &&(Self, &str, &str, &str)| match share {
            Some(share) => *cupti == share && !metric.is_count(),
            None => *cupti == name && metric.is_count() || *torch == name && !name.is_empty(),
        };
        Self::NAMES.iter().find(is).map(|row| row.0)
    }

    /// Returns the counter of a name in nsys, such as `SMs Active [Throughput %]`. Where a counter has several rollups, that in % counts.
    pub(crate) fn of_nsys(name: &str) -> Option<Self> {
        let (plain, rollup) = name.split_once(" [").unwrap_or((name, "Throughput %]"));
        let known = Self::NAMES.iter().find(|(_, _, nsys, _)| *nsys == plain && !nsys.is_empty());
        known.filter(|_| rollup == "Throughput %]").map(|(metric, ..)| *metric)
    }

    /// Returns true for a count of a window, and false for a share of a peak.
    pub fn is_count(self) -> bool {
        matches!(self, Self::DramReadBytes | Self::DramWrittenBytes)
    }
}

/// Longest window, in median intervals. Windows beside missing samples are longer.
const MOST_INTERVALS: Ns = 2;

/// The samples of one device, by time. All counters of a sample are of the same window.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledCounters {
    /// Device.
    pub device: DeviceId,
    /// Start and end of each window, ns, in order and apart.
    pub windows: Vec<(Ns, Ns)>,
    /// Values of each counter, one a window; not a number where a window has none.
    pub metrics: Vec<(SampledMetric, Vec<f32>)>,
}

impl SampledCounters {
    /// Makes windows of the values of a device, which are sorted by time: a value is of the time until the next one.
    pub(crate) fn windows(device: DeviceId, rows: &[(Ns, SampledMetric, f32)]) -> Self {
        let mut times: Vec<Ns> = rows.iter().map(|row| row.0).collect();
        times.dedup();
        let mut intervals: Vec<Ns> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let most = median(&mut intervals).map_or(0, |median| median.saturating_mul(MOST_INTERVALS));
        let (mut spans, mut metrics) = (Vec::new(), Vec::<(SampledMetric, Vec<f32>)>::new());
        for (sample, next) in rows.chunk_by(|a, b| a.0 == b.0).zip(times.iter().skip(1)) {
            let at = sample[0].0;
            if next - at > most {
                continue;
            }
            for &(_, metric, value) in sample {
                let column = match metrics.iter().position(|(known, _)| *known == metric) {
                    Some(known) => known,
                    None => {
                        metrics.push((metric, Vec::new()));
                        metrics.len() - 1
                    }
                };
                let values = &mut metrics[column].1;
                values.resize(spans.len(), f32::NAN);
                values.push(value);
            }
            spans.push((at, *next));
        }
        for (_, values) in &mut metrics {
            values.resize(spans.len(), f32::NAN);
        }
        Self { device, windows: spans, metrics }
    }

    /// Returns the values of a counter.
    pub fn values(&self, metric: SampledMetric) -> Option<&[f32]> {
        self.metrics.iter().find(|(known, _)| *known == metric).map(|(_, values)| values.as_slice())
    }

    /// Puts the windows in order, and leaves out those that overlap an earlier one, are outside of two times, or have impossible values.
    /// Returns their number.
    pub(super) fn limit(&mut self, (first, last): (Ns, Ns)) -> u64 {
        let mut order: Vec<usize> = (0..self.windows.len()).collect();
        order.sort_by_key(|&row| self.windows[row]);
        let mut before = first;
        order.retain(|&row| {
            let (start, end) = self.windows[row];
            let possible =
                |(_, values): &(SampledMetric, Vec<f32>)| values[row].is_nan() || values[row] >= 0.0;
            let keep = start >= before && end > start && end <= last && self.metrics.iter().all(possible);
            if keep {
                before = end;
            }
            keep
        });
        let left_out = self.windows.len() - order.len();
        self.windows = order.iter().map(|&row| self.windows[row]).collect();
        for (_, values) in &mut self.metrics {
            *values = order.iter().map(|&row| values[row]).collect();
        }
        left_out as u64
    }
}
