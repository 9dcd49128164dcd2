//! Vitals beside a program whose power and clock are known.

use crate::programs::{GEMM, Program, US};
use roofgap_analyze::model::Tokens;
use roofgap_analyze::{About, Analysis, EnergyRun, Options, Prices, ThrottleReason, analyze};
use roofgap_trace::account::{Account, Repeat, StageTime};
use roofgap_trace::vitals::{GpuActivity, GpuState, GpuUser, GpuVitals};

const MS: i64 = 1_000 * US;
const ATTENTION: &str = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)";
const ELEMENTWISE: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)";
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
            let user = |pid, own| GpuUser { pid, own: Some(own), sm_pct: Some(30), name: None };
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

#[test]
fn tokens_cost_the_time_of_the_gpu_and_their_energy() {
    let costs = |prices: Prices, tokens: Tokens| {
        let program = program();
        let own = vitals(&program, EPOCH);
        let options = Options { prices, tokens, ..Options::default() };
        let stage = analysed(program, Some(own), EPOCH, options).stages.remove(1);
        (stage.tokens_per_s, stage.vitals.unwrap().energy.unwrap().token_j, stage.cost)
    };
    let prices = Prices { per_gpu_hour: Some(3.6), per_kwh: Some(0.36) };
    let tokens = Tokens { generated: Some(30), batch: Some(1), ..Tokens::default() };
    let (rate, token_j, cost) = costs(prices, tokens);
    let cost = cost.unwrap();
    // A second of the GPU costs 0.001, and so do 10 kJ.
    assert!((cost.gpu.unwrap() - 1e3 / rate.unwrap()).abs() < 1e-9, "{cost:?} {rate:?}");
    assert!((cost.energy.unwrap() - 0.1 * token_j.unwrap()).abs() < 1e-9, "{cost:?} {token_j:?}");
    assert!((cost.million_tokens - cost.gpu.unwrap() - cost.energy.unwrap()).abs() < 1e-9);
    assert!(costs(Prices::default(), tokens).2.is_none() && costs(prices, Tokens::default()).2.is_none());
}

/// Kernels of three families with known powers, and the meter beside them. `mix` gives their times, ms, in each tenth of a second; the
/// meter is wrong by some `error`.
fn of_families(tenths: i64, error: f64, mix: impl Fn(i64) -> [i64; 3]) -> Analysis {
    let mut program = Program::on(1);
    let began = program.now;
    let watts = [500.0, 300.0, 150.0];
    let mut own = GpuVitals { uuid: Some("0".into()), ..GpuVitals::default() };
    let mut joules = 0.0;
    // A second of the idle GPU comes first.
    for tenth in 0..10 + tenths {
        let (start, times) = (began + tenth * 100 * MS, if tenth < 10 { [0; 3] } else { mix(tenth) });
        own.states.push(GpuState { at: start + EPOCH, watts: Some(600.0), ..GpuState::default() });
        own.energy.push((start + EPOCH, joules));
        program.now = start;
        for (name, ms) in [GEMM, ATTENTION, ELEMENTWISE].into_iter().zip(times) {
            (0..ms).for_each(|_| _ = program.kernel(name, 0, MS - 20 * US));
        }
        let dynamic: f64 = times.iter().zip(watts).map(|(ms, watts)| *ms as f64 * 0.98e-3 * watts).sum();
        joules += 10.0 + dynamic * (1.0 + error * (tenth * 7 % 5 - 2) as f64 / 2.0);
    }
    own.energy.push((began + (10 + tenths) * 100 * MS + EPOCH, joules));
    analysed(program, Some(own), EPOCH, Options::default())
}

#[test]
fn families_have_their_powers_and_add_up_to_the_meter() {
    let analysis = of_families(200, 0.01, |at| [at * 37 % 41, at * 13 % 29, at * 11 % 23]);
    let kernels = analysis.vitals.unwrap().kernels.unwrap();
    assert!(kernels.held_out_pct < 5.0, "{kernels:?}");
    for (name, watts) in [("gemm", 600.0), ("attention", 400.0), ("elementwise", 250.0)] {
        for rows in [&kernels.families, &kernels.kernels] {
            // Each family has one kernel.
            let at = kernels.families.iter().position(|own| own.name == name).unwrap();
            let own = &rows[at];
            assert!((own.watts / watts - 1.0).abs() < 0.05 && own.together_with.is_empty(), "{name} {own:?}");
            assert!(own.error_j.unwrap() < 0.05 * own.dynamic_j, "{own:?}");
        }
    }
    let sum: f64 = kernels.families.iter().map(|own| own.joules).sum();
    assert!((sum + kernels.rest_j - kernels.meter_j).abs() < 1e-6, "{kernels:?}");
    let pct: f64 = kernels.families.iter().map(|own| own.pct).sum();
    assert!((pct - 100.0 * sum / kernels.meter_j).abs() < 1e-6, "{pct}");
}

#[test]
fn families_that_always_run_alike_are_one() {
    let kernels = of_families(100, 0.01, |at| if at % 3 == 0 { [0, 0, 30] } else { [40, 20, 0] });
    let kernels = kernels.vitals.unwrap().kernels.unwrap();
    let of = |name: &str| kernels.families.iter().find(|own| own.name == name).unwrap();
    assert_eq!(of("gemm").together_with, ["attention"]);
    assert_eq!(of("attention").together_with, ["gemm"]);
    assert!(of("gemm").error_j.is_none() && of("elementwise").together_with.is_empty(), "{kernels:?}");
    assert!((of("gemm").watts - of("attention").watts).abs() < 1e-6, "{kernels:?}");
    assert!((of("elementwise").watts / 250.0 - 1.0).abs() < 0.05, "{kernels:?}");
}

#[test]
fn the_energy_of_kernels_is_withheld_where_the_meter_does_not_suffice() {
    let why = |analysis: Analysis| {
        let kernels = analysis.vitals.as_ref().unwrap().kernels.is_some();
        assert!(!kernels);
        analysis.reason(&About::Other("vitals.kernels".into())).unwrap().to_owned()
    };
    let few = why(of_families(8, 0.0, |_| [40, 20, 10]));
    assert_eq!(few, "the meter was read 8 times while kernels ran; 20 are needed");
    // What the kernels do is not what the meter counts.
    let other = why(of_families(100, 0.9, |_| [40, 20, 10]));
    assert!(other.starts_with("the powers of kernels predict windows of the meter only within"), "{other}");
}
