//! Vitals beside a program whose power and clock are known.

use crate::programs::{GEMM, Program, US};
use roofgap_analyze::{Analysis, EnergyRun, Options, ThrottleReason, analyze};
use roofgap_trace::account::{Account, Repeat, StageTime};
use roofgap_trace::vitals::{GpuActivity, GpuState, GpuUser, GpuVitals};

const MS: i64 = 1_000 * US;
const EPOCH: i64 = 1_790_000_000_000_000_000;

/// A prefill of a second and a decode of three, with a pause of a second in between.
fn program() -> Program {
    let mut program = Program::on(1);
    program.range("prefill", |p| {
        (0..10).for_each(|_| _ = p.kernel(GEMM, 0, 100 * MS));
        p.wait();
    });
    program.now += 1_000 * MS;
    program.decode(30, |p| {
        p.kernel(GEMM, 0, 100 * MS);
        p.wait();
    });
    program
}

/// 100 W while nothing runs, 700 W in the first second of work, 300 W in the rest. The clock is capped in the prefill.
fn vitals(program: &Program, offset: i64) -> GpuVitals {
    let ops = &program.trace.ops;
    let busy = |from: i64, to: i64| -> [i64; 2] {
        let part = |row: usize| (ops.end[row].min(to) - ops.start[row].max(from)).max(0);
        [(0..10).map(part).sum(), (10..ops.len()).map(part).sum()]
    };
    let mut vitals = GpuVitals { uuid: Some("0".into()), max_sm_mhz: Some(1980.0), ..GpuVitals::default() };
    let mut joules = 0.0;
    for tick in -20..140 {
        let (from, at) = ((tick - 1) * 50 * MS + 7 * MS, tick * 50 * MS + 7 * MS);
        let [first, second] = busy(from, at);
        joules += 0.05 * 100.0 + first as f64 / 1e9 * 600.0 + second as f64 / 1e9 * 200.0;
        if tick % 2 == 0 {
            vitals.energy.push((at + offset, joules));
        }
        let capped = first > 0;
        let sm_mhz = Some(if capped { 1575.0 } else { 1980.0 });
        let reasons = if capped { 4 } else { 0 };
        vitals.states.push(GpuState { at: at + offset, sm_mhz, reasons, ..GpuState::default() });
        if tick % 20 == 0 {
            let user =
                |pid, of_session| GpuUser { pid, of_session: Some(of_session), sm_pct: Some(30), name: None };
            vitals.processes.push((at + offset, vec![user(1, false), user(7, false), user(8, true)]));
        }
    }
    vitals
}

fn analysed(mut program: Program, vitals: Option<GpuVitals>, offset: i64, options: Options) -> Analysis {
    program.trace.vitals.extend(vitals);
    program.trace.utc_offset = offset;
    program.trace.sort();
    analyze(&program.trace, &options).analysis
}

#[test]
fn stages_have_their_clocks_and_the_parts_add_up_to_the_meter() {
    let program = program();
    let own = vitals(&program, EPOCH);
    let metered = own.energy[own.energy.len() - 1].1 - own.energy[0].1;
    let analysis = analysed(program, Some(own), EPOCH, Options::default());
    let [prefill, decode] = [0, 1].map(|at| analysis.stages[at].vitals.clone().unwrap());
    assert_eq!((prefill.sm_mhz, decode.sm_mhz), (Some(1575.0), Some(1980.0)));
    assert_eq!(prefill.throttle[0].reason, ThrottleReason::PowerCap);
    assert!(prefill.throttle[0].pct > 90.0 && decode.throttle.is_empty(), "{prefill:?}");
    let energy = analysis.vitals.as_ref().unwrap().energy.clone().unwrap();
    assert_eq!(energy.run, EnergyRun::Profiled);
    assert!((energy.meter_j - metered).abs() < 1e-6 && (energy.idle_w - 100.0).abs() < 1e-6, "{energy:?}");
    let [prefill, decode] = [prefill, decode].map(|own| own.energy.unwrap());
    assert!((prefill.dynamic_j / 600.0 - 1.0).abs() < 0.02, "{prefill:?}");
    assert!((decode.dynamic_j / 600.0 - 1.0).abs() < 0.02, "{decode:?}");
    let parts = prefill.joules + decode.joules + energy.outside_idle_j + energy.outside_dynamic_j;
    assert!((parts - metered).abs() < 1e-6, "{parts} of {metered}");
    // Process 1 is the program, 8 was started by the session.
    let others = &analysis.vitals.as_ref().unwrap().gpus[0].others;
    assert_eq!(others.iter().map(|other| (other.pid, other.sm_pct)).collect::<Vec<_>>(), [(7, 30.0)]);
}

#[test]
fn the_energy_of_the_unprofiled_run_counts_where_its_stages_are_known() {
    let program = program();
    let own = vitals(&program, EPOCH);
    // An hour earlier, the same at half the energy.
    let hour = 3_600_000 * MS;
    let earlier = own.energy.iter().map(|(at, joules)| (at - hour, joules / 2.0)).collect();
    let baseline = GpuVitals { energy: earlier, ..own.clone() };
    let stage = |name: &str, from: usize, to: usize| {
        let (start, end) = (program.trace.ops.start[from], program.trace.ops.end[to]);
        let start_ns = Some(start + EPOCH - hour);
        StageTime { name: name.into(), wall_ns: end - start, start_ns, ..StageTime::default() }
    };
    let repeat = Repeat { warmup: false, stages: vec![stage("prefill", 0, 9), stage("decode", 10, 39)] };
    let account = Account { repeats: vec![repeat], ..Account::default() };
    let options = Options { account: Some(account), baseline_vitals: vec![baseline], ..Options::default() };
    let analysis = analysed(program, Some(own), EPOCH, options);
    let energy = analysis.stages[1].vitals.clone().unwrap().energy.unwrap();
    assert_eq!(energy.run, EnergyRun::Baseline);
    // The idle power is that of the recorded run; what half of the energy leaves beyond it is dynamic.
    assert!((energy.joules / 450.0 - 1.0).abs() < 0.05, "{energy:?}");
}

#[test]
fn vitals_of_another_time_or_none_leave_nothing() {
    for own in [None, Some(vitals(&program(), 0))] {
        let analysis = analysed(program(), own, EPOCH, Options::default());
        assert!(analysis.vitals.is_none() && analysis.stages.iter().all(|stage| stage.vitals.is_none()));
    }
}

#[test]
fn activity_by_nvml_stands_in_for_sampled_counters() {
    let program = program();
    let mut own = vitals(&program, EPOCH);
    let spans =
        [(0, 9), (10, 39)].map(|(first, last)| (program.trace.ops.start[first], program.trace.ops.end[last]));
    // Windows of 110 ms: the DRAM is busy for 20 % of prefill and 80 % of decode, tensor pipes for 60 % of prefill.
    for tick in 0..55 {
        let span = (tick * 110 * MS, (tick + 1) * 110 * MS);
        let part =
            spans.map(|(start, end)| (end.min(span.1) - start.max(span.0)).max(0) as f64 / (110 * MS) as f64);
        let pct = [None, Some(60.0 * part[0]), Some(20.0 * part[0] + 80.0 * part[1])];
        own.activity.push(GpuActivity { span: (span.0 + EPOCH, span.1 + EPOCH), pct });
    }
    let analysis = analysed(program, Some(own), EPOCH, Options::default());
    let [prefill, decode] = [0, 1].map(|at| analysis.stages[at].mbu_measured.clone().unwrap());
    assert_eq!(prefill.source.as_deref(), Some("NVML GPM"));
    let near = |value: Option<f64>, wanted: f64| {
        assert!((value.unwrap() - wanted).abs() < 1.0, "{value:?} {wanted}")
    };
    near(prefill.by_wall_pct, 20.0);
    near(prefill.tensor_active_pct, 60.0);
    near(decode.by_wall_pct, 80.0);
    near(decode.tensor_active_pct, 0.0);
    assert!(decode.sm_active_pct.is_none() && decode.covered_pct > 80.0, "{decode:?}");
}
