//! The windows of a device beside its operations: which can be used, when each operation runs in them, and whether the clocks agree.

use super::fit::{Design, Overlap};
use roofgap_base::stats::median;
use roofgap_trace::{DeviceId, Ns, ProcessId, SampledCounters, Trace};

/// Operations of a device in the order of their starts, each with its column.
pub struct DeviceOps {
    /// Start, end and column.
    pub rows: Vec<(Ns, Ns, u32)>,
    /// Number of columns.
    pub columns: usize,
    /// Processes that launched them.
    processes: Vec<ProcessId>,
}

impl DeviceOps {
    /// Lists the operations of a device; `column` numbers the kernel of a row.
    pub fn of(trace: &Trace, device: DeviceId, mut column: impl FnMut(usize) -> u32) -> Self {
        let ops = &trace.ops;
        let (mut rows, mut processes) = (Vec::new(), Vec::new());
        for row in (0..ops.len()).filter(|row| ops.device[*row] == device) {
            rows.push((ops.start[row], ops.end[row], column(row)));
            processes.push(ops.process[row]);
        }
        processes.sort_unstable();
        processes.dedup();
        Self { processes, ..Self::new(rows) }
    }

    /// Takes rows in the order of their starts.
    pub fn new(rows: Vec<(Ns, Ns, u32)>) -> Self {
        let columns = rows.iter().map(|row| row.2 as usize + 1).max().unwrap_or(0);
        Self { rows, columns, processes: Vec::new() }
    }

    /// Returns the first start and the last end.
    pub fn span(&self) -> Option<(Ns, Ns)> {
        Some((self.rows.iter().map(|row| row.0).min()?, self.rows.iter().map(|row| row.1).max()?))
    }

    /// Returns the time that each column takes, ns.
    pub fn total_ns(&self) -> Vec<Ns> {
        let mut total = vec![0; self.columns];
        self.rows.iter().for_each(|(start, end, column)| total[*column as usize] += end - start);
        total
    }
}

/// Positions of the windows while the operations of the device were recorded: one recording holds the window, an operation before it
/// and one after it. Work that was launched before a recording and runs into it is not in the trace.
pub fn usable(trace: &Trace, ops: &DeviceOps, counters: &SampledCounters) -> Vec<usize> {
    let last = ops.span().map_or(Ns::MIN, |span| span.1);
    let recorded = |(start, end): (Ns, Ns)| {
        let next = ops.rows.partition_point(|row| row.0 <= start);
        let Some(before) = next.checked_sub(1).map(|at| ops.rows[at].0) else { return false };
        let after = ops.rows.get(next).map_or(end, |row| row.0.max(end));
        let whole = |process: &ProcessId| trace.window_of(*process, before, after).is_some();
        end <= last && ops.processes.iter().all(whole)
    };
    (0..counters.windows.len()).filter(|at| recorded(counters.windows[*at])).collect()
}

/// Computes the time of each column in each window, in the order of the windows. `shift` is added to the windows.
pub fn overlaps(ops: &DeviceOps, windows: &[(Ns, Ns)], shift: Ns) -> Vec<Overlap> {
    let mut list: Vec<Overlap> = Vec::with_capacity(ops.rows.len());
    let mut first = 0;
    for &(start, end, kernel) in &ops.rows {
        let (start, end) = (start - shift, end - shift);
        while windows.get(first).is_some_and(|window| window.1 <= start) {
            first += 1;
        }
        for (at, window) in windows.iter().enumerate().skip(first).take_while(|(_, window)| window.0 < end) {
            let ns = end.min(window.1) - start.max(window.0);
            if ns > 0 {
                list.push(Overlap { window: at as u32, kernel, ns: ns as f64 });
            }
        }
    }
    list.sort_by_key(|overlap| (overlap.window, overlap.kernel));
    list.dedup_by(|next, kept| {
        let same = (next.window, next.kernel) == (kept.window, kept.kernel);
        if same {
            kept.ns += next.ns;
        }
        same
    });
    list
}

/// The shift of the windows by which they fit the operations best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alignment {
    /// Shift, ns.
    pub shift: Ns,
    /// Error, ns.
    pub error: Ns,
    /// Median length of a window, ns.
    pub interval: Ns,
}

/// Largest shift that is tried, and its steps, in windows: a coarse search, then a fine one around the best.
const MOST_SHIFT: Ns = 2;
const COARSE: Ns = 4;
const FINE: Ns = 32;

/// Columns of the fits that are compared: the kernels with the most time, and all others together.
const COMPARED: usize = 12;

/// Windows of each half that are compared.
const MOST_WINDOWS: usize = 50_000;

/// Share of the residual by which a shift must improve the fit.
const IMPROVEMENT: f64 = 0.02;

/// Finds the shift of the windows by which the operations explain a counter best, in each half of the samples. The difference of the two is
/// the error.
pub fn align(ops: &DeviceOps, windows: &[(Ns, Ns)], values: &[f64]) -> Alignment {
    let mut lengths: Vec<Ns> = windows.iter().map(|(start, end)| end - start).collect();
    let interval = median(&mut lengths).unwrap_or(0);
    if interval <= 0 || windows.len() < 100 {
        return Alignment { interval, ..Alignment::default() };
    }
    let total = ops.total_ns();
    let mut order: Vec<usize> = (0..ops.columns).collect();
    order.sort_by_key(|column| std::cmp::Reverse(total[*column]));
    let mut place = vec![COMPARED as u32; ops.columns];
    order.iter().zip(0..).take(COMPARED).for_each(|(column, at)| place[*column] = at);
    let rows = ops.rows.iter().map(|row| (row.0, row.1, place[row.2 as usize])).collect();
    let fewer = DeviceOps { rows, columns: COMPARED + 1, processes: Vec::new() };
    let middle = windows.len() / 2;
    let half = |from: usize, to: usize| {
        let to = to.min(from + MOST_WINDOWS);
        best_shift(&fewer, &windows[from..to], &values[from..to], interval)
    };
    let (first, second) = (half(0, middle), half(middle, windows.len()));
    let error = ((first - second).abs() / 2).max(interval / FINE);
    Alignment { shift: (first + second) / 2, error, interval }
}

fn best_shift(ops: &DeviceOps, windows: &[(Ns, Ns)], values: &[f64], interval: Ns) -> Ns {
    let from = windows[0].0 - (MOST_SHIFT + 1) * interval;
    let to = windows[windows.len() - 1].1 + (MOST_SHIFT + 1) * interval;
    let rows = ops.rows.iter().filter(|row| row.1 > from && row.0 < to).copied().collect();
    let near = DeviceOps { rows, columns: ops.columns, processes: Vec::new() };
    let residual = |shift: Ns| {
        let overlaps = overlaps(&near, windows, shift);
        let mut explained = vec![0.0; windows.len()];
        let fit = Design::new(&overlaps, near.columns, windows.len()).fit(values);
        for overlap in &overlaps {
            explained[overlap.window as usize] += overlap.ns * fit.rates[overlap.kernel as usize].value;
        }
        explained.iter().zip(values).map(|(part, value)| (value - part) * (value - part)).sum::<f64>()
    };
    let best = |shifts: Vec<Ns>| {
        let compared = shifts.into_iter().map(|shift| (shift, residual(shift)));
        compared.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    };
    let coarse =
        best((-MOST_SHIFT * COARSE..=MOST_SHIFT * COARSE).map(|step| step * interval / COARSE).collect());
    let steps = FINE / COARSE;
    let fine = best((1 - steps..steps).map(|step| coarse.0 + step * interval / FINE).collect());
    if fine.1 < residual(0) * (1.0 - IMPROVEMENT) { fine.0 } else { 0 }
}
