//! Hardware counters and stacks that the samplers wrote.

use super::identity::Identity;
use crate::{Device, ForeignSample, FrameId, HostFrame, Ns, SampledCounters, SampledMetric, StackId, Trace};
use roofgap_wire as wire;
use rustc_hash::FxHashMap;

/// Samples of one capture by device number.
#[derive(Debug, Default)]
pub struct Samples(FxHashMap<u32, OfDevice>);

#[derive(Debug, Default)]
struct OfDevice {
    /// Counter at each place of a sample; `None` for one that is not known.
    places: Vec<Option<SampledMetric>>,
    windows: Vec<(Ns, Ns)>,
    /// Values, a column a place.
    columns: Vec<Vec<f32>>,
}

/// Most counters of a device; a larger place means damage.
const MOST_PLACES: usize = 64;

impl Samples {
    /// Names the counter at a place.
    pub fn name(&mut self, metric: &wire::CounterMetric<'_>) {
        let (device, place) = (self.0.entry(metric.device).or_default(), metric.place as usize);
        if place < MOST_PLACES {
            let most = device.places.len().max(place + 1);
            device.places.resize(most, None);
            device.columns.resize(most, Vec::new());
            device.places[place] = SampledMetric::of_cupti(&metric.name.to_str());
        }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &wire::CounterSample<'_>, window: (Ns, Ns)) {
        let device = self.0.entry(sample.device).or_default();
        let mut values = sample.values.0.chunks_exact(4);
        for column in &mut device.columns {
            let bytes = values.next().and_then(|bytes| bytes.try_into().ok());
            column.push(bytes.map_or(f32::NAN, f32::from_le_bytes));
        }
        device.windows.push(window);
    }

    /// Moves the samples into the trace.
    pub fn settle(&mut self, who: &Identity, trace: &mut Trace) {
        let mut devices: Vec<(u32, OfDevice)> = self.0.drain().collect();
        devices.sort_unstable_by_key(|(number, _)| *number);
        for (number, samples) in devices {
            let facts = who.device(number).unwrap_or(Device { number, ..Device::default() });
            let metrics = samples.places.into_iter().zip(samples.columns);
            let metrics = metrics.filter_map(|(metric, values)| Some((metric?, values))).collect();
            let device = trace.add_device(facts);
            trace.sampled.push(SampledCounters { device, windows: samples.windows, metrics });
        }
    }
}

/// Functions of one capture by their numbers.
#[derive(Debug, Default)]
pub struct Stacks(FxHashMap<u32, FrameId>);

impl Stacks {
    /// Names a function.
    pub fn name(&mut self, frame: &wire::StackFrame<'_>, trace: &mut Trace) {
        let (function, file) = (frame.function.to_str(), frame.file.to_str());
        let (function, file) = (trace.names.intern(&function), trace.names.intern(&file));
        self.0.insert(frame.id, trace.stacks.intern(HostFrame { function, file, line: frame.line }));
    }

    /// Adds the stack of a thread.
    pub fn add(&self, sample: &wire::StackSample<'_>, at: Ns, trace: &mut Trace) {
        let ids = sample.frames.0.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let frames = ids.rev().filter_map(|id| self.0.get(&id));
        let stack = frames.fold(StackId::default(), |caller, frame| trace.stacks.call(caller, *frame));
        let tids = [sample.tid, sample.handle];
        trace.stacks.foreign.push(ForeignSample { pid: sample.pid, tids, at, stack });
    }
}
