//! Counters that were sampled while a program ran: mixtures whose truth is known.

use crate::programs::{Program, US, decode};
use roofgap_analyze::{Analysis, CounterRow, CounterSource, MbuMeasured, RoofSource};
use roofgap_trace::{DeviceId, RecordedWindows, SampledCounters, SampledMetric};

/// A generator of numbers between 0 and 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number around 0, with a deviation of about 1.
    fn around(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// A program of steps, with the true traffic of each of its kernels.
struct Mixture {
    program: Program,
    /// Start, end and rate of each launch, bytes per ns.
    launches: Vec<(i64, i64, f64)>,
    /// Bytes of a launch of each kernel, at the mean of its rate.
    truth: Vec<f64>,
    random: Random,
}

const KERNELS: usize = 12;
const STEPS: usize = 150;

impl Mixture {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..10).for_each(|_| _ = random.next());
        let kinds: Vec<(f64, f64)> =
            (0..KERNELS).map(|_| (3e3 + 5e4 * random.next(), 50.0 + 3_500.0 * random.next())).collect();
        let (mut launches, mut truth) = (Vec::new(), vec![0.0; KERNELS]);
        let mut program = Program::on(1);
        program.decode(STEPS, |p| {
            p.now += (3e5 * random.next()) as i64;
            for (kernel, (duration, mean)) in kinds.iter().enumerate() {
                let lasts = (duration * (1.0 + 0.03 * random.around())) as i64;
                let rate = mean * (1.0 + 0.05 * random.around());
                let end = p.kernel(&format!("kernel_{kernel}"), 0, lasts);
                launches.push((end - lasts, end, rate));
                truth[kernel] += lasts as f64 * mean / STEPS as f64;
            }
            p.wait();
        });
        Self { program, launches, truth, random }
    }

    /// Samples the launches; `late` is the error of the clock of the samples, and `other` the traffic of another program, bytes per ns.
    fn sampled(mut self, interval: i64, late: i64, other: f64) -> (Analysis, Vec<f64>) {
        let (first, last) = (self.launches[0].0, self.launches[self.launches.len() - 1].1);
        let (mut windows, mut bytes, mut active) = (Vec::new(), Vec::new(), Vec::new());
        let (mut at, mut from) = (first - 10 * interval - (interval as f64 * self.random.next()) as i64, 0);
        while at < last + 10 * interval {
            let end = at + interval;
            let (mut sum, mut busy) = (other * interval as f64, 0);
            while self.launches.get(from).is_some_and(|launch| launch.1 <= at) {
                from += 1;
            }
            for launch in self.launches[from..].iter().take_while(|launch| launch.0 < end) {
                let ns = launch.1.min(end) - launch.0.max(at);
                sum += ns as f64 * launch.2;
                busy += ns;
            }
            // The device moves a little by itself.
            let noise = 1.0 + 0.01 * self.random.around();
            windows.push((at + late, end + late));
            bytes.push((sum * noise + 5.0 * interval as f64) as f32);
            active.push((100.0 * busy as f64 / interval as f64) as f32);
            at = end;
        }
        let nothing = vec![0.0; bytes.len()];
        let metrics = vec![
            (SampledMetric::DramReadBytes, bytes),
            (SampledMetric::DramWrittenBytes, nothing.clone()),
            (SampledMetric::TensorPct, nothing.clone()),
            (SampledMetric::SmIssuePct, nothing),
            (SampledMetric::SmActivePct, active),
        ];
        self.program.trace.sampled.push(SampledCounters { device: DeviceId(0), windows, metrics });
        (self.program.analysis(), self.truth)
    }
}

fn row(analysis: &Analysis, kernel: usize) -> Option<&CounterRow> {
    let name = format!("kernel_{kernel}");
    analysis.counters.iter().find(|row| row.kernel == name)
}

fn measured(analysis: &Analysis) -> &MbuMeasured {
    decode(analysis).mbu_measured.as_ref().unwrap()
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let (mut held, mut all, mut errors) = (0, 0, Vec::new());
    for seed in 1..=40 {
        let (analysis, truth) = Mixture::new(seed).sampled(10 * US, 0, 0.0);
        for (kernel, truth) in truth.iter().enumerate() {
            let row = row(&analysis, kernel).unwrap();
            assert_eq!(row.source, CounterSource::Sampled);
            let interval = row.sampled.as_ref().unwrap();
            if let (Some([low, high]), Some(bytes)) = (interval.dram_bytes, row.dram_bytes) {
                held += usize::from((low..=high).contains(truth));
                all += 1;
                errors.push((bytes as f64 / truth - 1.0).abs());
            }
        }
    }
    let share = held as f64 / all as f64;
    assert!(all > 460, "{all} of 480 have an interval");
    assert!((0.90..=0.97).contains(&share), "{held} of {all}");
    errors.sort_by(f64::total_cmp);
    let (median, p90) = (errors[errors.len() / 2], errors[errors.len() * 9 / 10]);
    assert!(median < 0.01 && p90 < 0.03, "{median} {p90}");
}

#[test]
fn a_stage_has_its_traffic_and_its_kernels_a_roof() {
    let mixture = Mixture::new(7);
    let total: f64 = mixture.launches.iter().map(|(start, end, rate)| (end - start) as f64 * rate).sum();
    let (analysis, _) = mixture.sampled(10 * US, 0, 0.0);
    let stage = decode(&analysis);
    let own = measured(&analysis);
    assert!((own.dram_bytes.unwrap() / total - 1.0).abs() < 0.01, "{own:?} {total}");
    assert!((own.step_dram_bytes.unwrap() * STEPS as f64 / total - 1.0).abs() < 0.01);
    assert!(own.covered_pct > 99.0 && own.sm_active_pct.unwrap() > 99.0, "{own:?}");
    assert_eq!((own.interval_ns, own.tensor_active_pct), (10 * US, Some(0.0)));
    let seconds = stage.busy_ns.unwrap() as f64 * 1e-9;
    assert!((own.by_busy_pct.unwrap() - 100.0 * total / seconds / 4.8e12).abs() < 1.0, "{own:?}");
    assert_eq!(stage.roof.roof_source, Some(RoofSource::Sampled));
    let roof = stage.roof.roof_pct.unwrap();
    assert!((roof - own.by_busy_pct.unwrap()).abs() < 3.0, "{roof} {own:?}");
    let with_counters = stage.kernels.iter().filter(|kernel| kernel.counters.is_some()).count();
    assert_eq!(with_counters, KERNELS);
    assert!(analysis.counters.iter().all(|row| row.timeline_ratio.is_none() && row.flops.is_none()));
}

#[test]
fn the_clock_of_the_samples_is_corrected() {
    for late in [-13 * US, 7 * US] {
        let (analysis, truth) = Mixture::new(3).sampled(10 * US, late, 0.0);
        let own = measured(&analysis);
        assert!((own.clock_shift_ns + late).abs() <= own.clock_error_ns + 400, "{late}: {own:?}");
        let error = row(&analysis, 0).unwrap().dram_bytes.unwrap() as f64 / truth[0] - 1.0;
        assert!(error.abs() < 0.05, "{error}");
    }
    let (analysis, _) = Mixture::new(3).sampled(10 * US, 0, 0.0);
    assert!(measured(&analysis).clock_shift_ns.abs() < 400, "{:?}", measured(&analysis));
}

#[test]
fn another_program_on_the_device_leaves_no_counters() {
    let (analysis, _) = Mixture::new(5).sampled(10 * US, 0, 2_000.0);
    assert!(analysis.counters.is_empty() && decode(&analysis).mbu_measured.is_none());
    assert!(analysis.losses.iter().any(|loss| loss.id == "samples_of_other_work"), "{:?}", analysis.losses);
    assert!(analysis.reasons.iter().any(|reason| reason.why.contains("another program")));
}

/// A recording that begins in a running program sees the end of work that was launched before it.
#[test]
fn work_from_before_a_recording_is_no_other_program() {
    let mut program = Program::on(1);
    let base = 10_000 * US;
    let began: Vec<i64> = (0..10).map(|at| base + at * 1_600 * US).collect();
    for start in &began {
        program.blocked_until(start + 190 * US);
        program.range("decode_all", |p| {
            for step in 0..15 {
                p.blocked_until(start + (200 + step * 40) * US);
                p.kernel("product", 0, 25 * US);
            }
            p.wait();
        });
    }
    let windows: Vec<(i64, i64)> =
        (0..1_600).map(|at| (base + at * 10 * US, base + (at + 1) * 10 * US)).collect();
    // Busy all the time but in the gaps between the recorded steps.
    let bytes = |start: i64| {
        let at = (start - base) / US % 1_600;
        if (200..800).contains(&at) && at % 40 == 30 { 0.0 } else { 1e6 }
    };
    let bytes: Vec<f32> = windows.iter().map(|window| bytes(window.0)).collect();
    let nothing = vec![0.0; bytes.len()];
    let metrics = vec![(SampledMetric::DramReadBytes, bytes), (SampledMetric::DramWrittenBytes, nothing)];
    program.trace.sampled.push(SampledCounters { device: DeviceId(0), windows, metrics });
    let process = program.trace.ops.process[0];
    let recorded = began.iter().map(|start| (*start, start + 800 * US)).collect();
    let span = (base, base + 16_000 * US);
    program.trace.recorded.push(RecordedWindows { process, windows: recorded, span });
    let analysis = program.analysis();
    let stages = &analysis.stages;
    assert!(stages.iter().any(|stage| stage.mbu_measured.is_some()), "{stages:?}");
}

/// Two kernels that lie in one sample in every step, at the same time of it, are one to the samples.
#[test]
fn kernels_that_the_samples_do_not_tell_apart_are_together() {
    let mut program = Program::on(1);
    let base = 10_000 * US;
    program.range("decode_all", |p| {
        for step in 0..200 {
            p.blocked_until(base + step * 40 * US);
            p.kernel("first", 0, 4 * US);
            p.kernel("second", 0, 3 * US);
            p.kernel("third", 0, 12 * US);
        }
        p.wait();
    });
    let windows: Vec<(i64, i64)> =
        (0..800).map(|at| (base + at * 10 * US, base + (at + 1) * 10 * US)).collect();
    let bytes: Vec<f32> = windows
        .iter()
        .map(|(start, _)| [12e6, 5e6, 1e6, 0.0][((start - base) / (10 * US) % 4) as usize])
        .collect();
    let nothing = vec![0.0; bytes.len()];
    let metrics = vec![(SampledMetric::DramReadBytes, bytes), (SampledMetric::DramWrittenBytes, nothing)];
    program.trace.sampled.push(SampledCounters { device: DeviceId(0), windows, metrics });
    let analysis = program.analysis();
    let row = |name: &str| analysis.counters.iter().find(|row| row.kernel == name).unwrap();
    let first = row("first");
    assert_eq!(first.sampled.as_ref().unwrap().together_with, ["second"]);
    assert_eq!((first.dram_bytes, first.dram_pct, &first.bound), (None, None, &None));
    assert!(first.reason.starts_with("the samples do not tell it apart from second"), "{}", first.reason);
    let third = row("third");
    assert!(third.sampled.as_ref().unwrap().together_with.is_empty(), "{third:?}");
    assert!(third.dram_bytes.is_some());
}
