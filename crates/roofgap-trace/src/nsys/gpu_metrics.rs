//! Hardware counters that nsys sampled (`--gpu-metrics-devices`).

use super::identity::Identity;
use crate::sqlite::{Tables, ints};
use crate::{Ns, ReadError, SampledCounters, SampledMetric, Trace};
use rustc_hash::FxHashMap;

const TABLE: &str = "GPU_METRICS";

/// Lower bits of a type, which number the GPU.
const GPU_BITS: i64 = 0xff;

/// Time around the GPU work of which samples are kept, ns.
const MARGIN: Ns = 1_000_000;

/// A value before it is placed: type, time, counter, value.
type Row = (i64, Ns, SampledMetric, f32);

/// Reads the samples around the GPU work of the trace, which is read before.
pub fn samples(db: &impl Tables, who: &Identity, trace: &mut Trace) -> Result<(), ReadError> {
    let mut known: FxHashMap<(i64, i64), SampledMetric> = FxHashMap::default();
    db.each("TARGET_INFO_GPU_METRICS", &["typeId", "metricId", "metricName"], |row| {
        if let (Some([kind, id]), Some(name)) = (ints(row), row[2].text())
            && let Some(metric) = SampledMetric::of_nsys(&name)
        {
            known.insert((kind, id), metric);
        }
    })?;
    let first = trace.ops.start.iter().min().copied();
    let last = trace.ops.end.iter().max().copied();
    let (Some((first, last)), false) = (first.zip(last), known.is_empty()) else {
        return Ok(());
    };
    let span = first.saturating_sub(MARGIN)..=last.saturating_add(MARGIN);
    let columns = ["timestamp", "typeId", "metricId", "value"];
    let parts = db.scan(
        TABLE,
        &columns,
        |_| Vec::<Row>::new(),
        |rows, row| {
            if let Some([at, kind, id, value]) = ints(row)
                && let Some(metric) = known.get(&(kind, id)).filter(|_| span.contains(&at))
            {
                rows.push((kind, at, *metric, value as f32));
            }
        },
    )?;
    let mut rows: Vec<Row> = parts.into_iter().flatten().collect();
    rows.sort_unstable_by_key(|&(kind, at, metric, _)| (kind, at, metric));
    for of_gpu in rows.chunk_by(|a, b| a.0 == b.0) {
        let number = of_gpu.first().map_or(0, |row| (row.0 & GPU_BITS) as u32);
        let device = trace.add_device(who.gpu(number));
        let values: Vec<_> = of_gpu.iter().map(|&(_, at, metric, value)| (at, metric, value)).collect();
        trace.sampled.push(SampledCounters::windows(device, &values));
    }
    Ok(())
}
