//! Rules that need counters.

use super::constructed::{MS, analysis, busy};
use super::*;
use crate::counters::testing::{Readings, Work, WorkKind};
use crate::counters::{Bound, Measured};
use crate::result::*;

/// Counters of the one kernel, as the join gives them.
pub(super) fn measured(bound: Option<Bound>, row: CounterRow) -> Measured {
    Measured {
        row: CounterRow {
            stage: Some("decode".into()),
            kernel: "big_gemm".into(),
            grid: [1000, 1, 1],
            block: [384, 1, 1],
            bound: bound.map(|bound| bound.to_string()),
            ..row
        },
        bound,
        reached_pct: Some(92.0),
        representative: Some(true),
        matched: true,
        timeline_calls: 1000,
        timeline_total_ns: 98 * MS,
        readings: Readings::default(),
        advice: Vec::new(),
    }
}

pub(super) fn run_counted(stage: Stage, evidence: &StageEvidence, counters: &[Measured]) -> Vec<Finding> {
    find(Inputs {
        analysis: &analysis(stage),
        evidence: std::slice::from_ref(evidence),
        model: None,
        counters,
        engine: None,
    })
}

#[test]
fn memory_at_and_below_the_roof() {
    let (stage, evidence) = busy();
    let row = |sm: f64, memory: f64, dram: f64| CounterRow {
        sm_pct: Some(sm),
        memory_pct: Some(memory),
        dram_pct: Some(dram),
        ..CounterRow::default()
    };
    let run = |bound, row| run_counted(stage.clone(), &evidence, &[measured(Some(bound), row)]);
    let all = run(Bound::Dram, row(10.0, 92.0, 92.0));
    assert_eq!(ids(&all), ["memory-at-roof"]);
    assert_eq!(all[0].bound_ns, 49 * MS);
    assert!(all[0].action.contains("tiles in shared memory"), "a product of its own");
    // With half the bytes the multiprocessors would be the limit at 70 % of the time.
    assert_eq!(run(Bound::Dram, row(70.0, 92.0, 92.0))[0].bound_ns, 29_400_000);
    let all = run(Bound::Latency, row(10.0, 50.0, 40.0));
    assert_eq!(ids(&all), ["memory-below-roof"]);
    assert_eq!(all[0].bound_ns, 58_800_000);
    let mut narrow = measured(Some(Bound::Latency), row(10.0, 50.0, 40.0));
    narrow.row.block = [31, 1, 1];
    let found = run_counted(stage.clone(), &evidence, &[narrow]);
    assert_ne!(ids(&found), ["memory-below-roof"], "blocks of less than a warp");
    assert_eq!(ids(&run(Bound::Latency, row(50.0, 20.0, 10.0))), ["above-roof"]);
    assert_eq!(ids(&run(Bound::Compute, row(90.0, 20.0, 10.0))), Vec::<&str>::new());
    // What ncu saw has to be what the timeline saw.
    let mut other = measured(Some(Bound::Dram), row(10.0, 92.0, 92.0));
    other.representative = Some(false);
    assert_eq!(ids(&run_counted(stage.clone(), &evidence, &[other.clone()])), Vec::<&str>::new());
    other.representative = Some(true);
    other.row.stage = Some("prefill".into());
    assert_eq!(ids(&run_counted(stage, &evidence, &[other])), Vec::<&str>::new());
}

/// A kernel at 67 % of the bandwidth has a third to gain with the same bytes.
#[test]
fn only_from_80_percent_on_a_kernel_is_at_the_roof() {
    let (stage, evidence) = busy();
    let found = |reached: f64| {
        let mut row =
            measured(Some(Bound::Dram), CounterRow { dram_pct: Some(reached), ..CounterRow::default() });
        row.reached_pct = Some(reached);
        let found = run_counted(stage.clone(), &evidence, &[row]).remove(0);
        (found.id, found.bound_ns)
    };
    assert_eq!(found(80.0), ("memory-at-roof".to_owned(), 49 * MS));
    assert_eq!(found(67.0), ("memory-below-roof".to_owned(), 32_340_000));
}

#[test]
fn fewer_bytes_are_those_of_the_kernel() {
    let (stage, mut evidence) = busy();
    let action = |name: &str| {
        let mut row = measured(Some(Bound::Dram), CounterRow::default());
        row.row.kernel = name.into();
        run_counted(stage.clone(), &evidence, &[row])[0].action.clone()
    };
    assert!(action("nvjet_tst_192x8").contains("weights in 8 or 4 bits"));
    let norm = action("void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)");
    assert!(norm.contains("fuse it") && !norm.contains("weights"), "{norm}");
    assert!(action("void flash::flash_fwd_kernel<1>(Flash_fwd_params)").contains("KV cache in 8 bits"));
    // Random numbers are not what the program is about.
    evidence.shapes.clear();
    let mut row = measured(Some(Bound::Dram), CounterRow::default());
    row.row.kernel = "void at::native::distribution_elementwise_grid_stride_kernel<float, 4>(long)".into();
    assert_eq!(ids(&run_counted(stage.clone(), &evidence, &[row])), Vec::<&str>::new());
}

/// L2 joins what neighbouring warps move of a sector, so that DRAM may move no more than they need.
#[test]
fn bytes_are_wasted_where_dram_moves_more_than_is_needed() {
    let (stage, evidence) = busy();
    let action = |kernel: &str, needed: Option<f64>| {
        let mut row = measured(Some(Bound::Dram), CounterRow::default());
        row.row.kernel = kernel.into();
        row.readings = Readings { dram_bytes: Some(100.0), needed_bytes: needed, ..Readings::default() };
        let rule = NcuRule { rule: "UncoalescedGlobalAccess".into(), ..NcuRule::default() };
        row.advice = vec![NcuRule { speedup_pct: Some(60.0), ..rule }];
        one(&run_counted(stage.clone(), &evidence, &[row]), "memory-at-roof").action.clone()
    };
    assert!(action("own_stencil", Some(70.0)).starts_with("Much of what it moves is not used"));
    for needed in [Some(98.0), None] {
        assert!(action("own_stencil", needed).starts_with("Its speed is that of memory"));
    }
    assert!(action("own_gemm", Some(70.0)).contains("tiles in shared memory"));
}

#[test]
fn a_cache_that_holds_kernels_back() {
    let (mut stage, evidence) = busy();
    let cached = |bound| {
        let row = CounterRow {
            sm_pct: Some(53.0),
            memory_pct: Some(75.0),
            dram_pct: Some(13.0),
            l2_pct: Some(23.0),
            l1_pct: Some(75.0),
            ..CounterRow::default()
        };
        let mut row = measured(Some(bound), row);
        // The share that the verdict counts, which is that of the memory system as a whole.
        row.reached_pct = Some(70.0);
        row
    };
    let all = run_counted(stage.clone(), &evidence, &[cached(Bound::L1)]);
    assert_eq!(ids(&all), ["cache-bound"]);
    // Fewer accesses leave compute, at 53 % of its peak.
    assert_eq!(all[0].bound_ns, 46_060_000);
    assert!(all[0].title.contains("big_gemm at 75 % of the peak of L1"), "{}", all[0].title);
    assert!(all[0].action.contains("registers"), "{}", all[0].action);
    // Only a copy is about the order of its addresses.
    let of = |kernel: &str| {
        let mut row = cached(Bound::L1);
        row.row.kernel = kernel.into();
        run_counted(stage.clone(), &evidence, &[row])[0].action.clone()
    };
    assert!(of("direct_copy_kernel_cuda").starts_with("Each value is used once"));
    assert!(of("vectorized_elementwise_kernel").starts_with("Ask less of L1"));
    // What is moved in vain fills a cache too.
    let mut wasted = cached(Bound::L1);
    let rule = NcuRule { rule: "UncoalescedGlobalAccess".into(), ..NcuRule::default() };
    wasted.advice = vec![NcuRule { speedup_pct: Some(60.0), ..rule }];
    let all = run_counted(stage.clone(), &evidence, &[wasted]);
    assert!(one(&all, "cache-bound").action.contains("Let thread i use element i"));
    // So does L1 where nothing else has work.
    let mut alone = cached(Bound::L1);
    alone.row = CounterRow { sm_pct: Some(12.0), l2_pct: Some(2.0), l1_pct: Some(99.0), ..alone.row };
    let all = run_counted(stage.clone(), &evidence, &[alone]);
    assert!(one(&all, "cache-bound").action.contains("Let thread i use element i"));
    let mut second = cached(Bound::L2);
    second.row.l2_pct = Some(50.0);
    let all = run_counted(stage.clone(), &evidence, &[second]);
    assert!(all[0].title.contains("50 % of the peak of L2"), "{}", all[0].title);
    assert_eq!(all[0].bound_ns, 46_060_000);
    // It saves the time above the roof, where all launches have one.
    stage.kernels[0].roof = RoofDistance {
        above_roof_ns: Some(9 * MS),
        roof_covered_ns: Some(98 * MS),
        ..RoofDistance::default()
    };
    let all = run_counted(stage.clone(), &evidence, &[cached(Bound::L1)]);
    assert_eq!(all[0].bound_ns, 9 * MS);
    stage.kernels[0].roof.roof_covered_ns = Some(50 * MS);
    let all = run_counted(stage, &evidence, &[cached(Bound::L1)]);
    assert_eq!(all[0].bound_ns, 46_060_000);
}

#[test]
fn counters_tell_the_cores_better_than_names() {
    let (stage, evidence) = busy();
    let with_bound = |bound, by_kind: Vec<(WorkKind, f64)>| {
        let mut row = measured(bound, CounterRow::default());
        row.readings.work = Some(Work { by_kind, tensor_uncounted: false });
        row.readings.duration_ns = Some(1e6);
        run_counted(stage.clone(), &evidence, &[row])
    };
    let with = |by_kind| with_bound(None, by_kind);
    let cuda_cores = vec![(WorkKind::Fp32, 1e9), (WorkKind::TensorBf16, 0.0)];
    assert_eq!(ids(&with(cuda_cores.clone())), ["tensor-cores-idle"]);
    // A product that waits for memory takes as long on the tensor cores.
    assert!(!ids(&with_bound(Some(Bound::L1), cuda_cores)).contains(&"tensor-cores-idle"));
    assert_eq!(ids(&with(vec![(WorkKind::Fp32, 1e6), (WorkKind::TensorBf16, 1e9)])), Vec::<&str>::new());
    // Not counted is not zero, and 1 ms for few operations may be work of the tensor cores. For many it is not.
    assert_eq!(ids(&with(vec![(WorkKind::Fp32, 1e9)])), Vec::<&str>::new());
    assert_eq!(ids(&with(vec![(WorkKind::Fp32, 1e10)])), ["tensor-cores-idle"]);
}

#[test]
fn low_occupancy_names_the_limit() {
    let (stage, mut evidence) = busy();
    evidence.shapes[0].name = "scan".into();
    let measured = |bound, row| {
        let mut own = measured(bound, row);
        own.row.kernel = "scan".into();
        own
    };
    let row = |occupancy: f64, sm: f64| CounterRow {
        occupancy_pct: Some(occupancy),
        sm_pct: Some(sm),
        memory_pct: Some(20.0),
        ..CounterRow::default()
    };
    let run = |row| run_counted(stage.clone(), &evidence, &[measured(None, row)]);
    let all = run(row(18.0, 35.0));
    let found = one(&all, "low-occupancy");
    assert_eq!(found.evidence["limit"], "registers");
    assert_eq!(found.bound_ns, 63_700_000);
    // Its registers are not for the user of a library to change.
    assert!(found.action.contains("168 registers"), "{}", found.action);
    let mut closed = evidence.clone();
    let named = |name: &str| {
        closed.shapes[0].name = name.into();
        let mut counted = measured(None, row(18.0, 35.0));
        counted.row.kernel = name.into();
        run_counted(stage.clone(), &closed, &[counted])
    };
    let [library, product] = ["cudnn::ops::scalePackedTensor", "nvjet_tst_192x8"].map(named);
    let found = one(&library, "low-occupancy");
    assert!(!found.action.contains("168 registers"), "{}", found.action);
    assert_eq!(ids(&product), Vec::<&str>::new(), "a product keeps its data in registers");
    // Registers and shared memory both leave room for one block.
    let mut tied = evidence.clone();
    tied.shapes[0].shared_bytes = 200 << 10;
    let all = run_counted(stage.clone(), &tied, &[measured(None, row(18.0, 35.0))]);
    let found = one(&all, "low-occupancy");
    assert_eq!(found.evidence["limit"], "registers and shared memory");
    assert!(found.action.contains("change them together"), "{}", found.action);
    // Most of the warps that could run end early.
    let all = run_counted(stage.clone(), &evidence, &[measured(None, row(4.0, 35.0))]);
    assert_eq!(one(&all, "low-occupancy").evidence["limit"], "warps that end early");
    // Where ncu calls the grid too small, it is the limit at any occupancy, unless a larger one could not reach more.
    let unknown = StageEvidence { shapes: Vec::new(), ..evidence.clone() };
    let mut small = measured(None, row(60.0, 35.0));
    let text = "This kernel grid is too small to fill the available resources on this device.".into();
    small.advice = vec![NcuRule { text, ..NcuRule::default() }];
    let of_grid = |evidence| run_counted(stage.clone(), evidence, std::slice::from_ref(&small));
    assert_eq!(ids(&of_grid(&evidence)), Vec::<&str>::new());
    let all = of_grid(&unknown);
    let found = one(&all, "low-occupancy");
    assert_eq!(found.evidence["limit"], "the size of the grid");
    assert!(found.action.starts_with("Give it more blocks"), "{}", found.action);
    let all = run_counted(stage.clone(), &unknown, &[measured(None, row(18.0, 35.0))]);
    assert!(one(&all, "low-occupancy").action.starts_with("The report does not say what limits it"));
    // Near its roof a kernel needs no occupancy.
    assert_eq!(ids(&run(row(18.0, 85.0))), Vec::<&str>::new());
}

/// The time of a launch of some microseconds is that of any launch.
#[test]
fn a_short_launch_does_not_wait_for_memory() {
    let found = |calls: u64, memory_pct: f64| {
        let (stage, evidence) = busy();
        let row = CounterRow {
            sm_pct: Some(3.0),
            memory_pct: Some(memory_pct),
            dram_pct: Some(0.1),
            occupancy_pct: Some(60.0),
            ..CounterRow::default()
        };
        let row = Measured { timeline_calls: calls, ..measured(Some(Bound::Latency), row) };
        run_counted(stage, &evidence, &[row]).iter().any(|finding| finding.id == "memory-below-roof")
    };
    assert!(found(1_000, 30.0) && !found(24_500, 30.0));
    assert!(!found(1_000, 10.0), "the memory has next to nothing to do");
    let (stage, evidence) = busy();
    let row = CounterRow {
        sm_pct: Some(20.0),
        memory_pct: Some(55.0),
        l1_pct: Some(55.0),
        l2_pct: Some(12.0),
        dram_pct: Some(7.0),
        ..CounterRow::default()
    };
    let row = measured(Some(Bound::Latency), row);
    assert!(!ids(&run_counted(stage, &evidence, &[row])).contains(&"memory-below-roof"), "L1 is busiest");
}

#[test]
fn what_ncu_says_of_a_kernel_comes_first() {
    let action = |sm_pct: f64, rule: &str, text: &str| {
        let (stage, evidence) = busy();
        let row = CounterRow { sm_pct: Some(sm_pct), memory_pct: Some(sm_pct), ..CounterRow::default() };
        let mut row = measured(Some(Bound::Latency), row);
        row.advice = vec![NcuRule { rule: rule.into(), text: text.into(), ..NcuRule::default() }];
        one(&run_counted(stage, &evidence, &[row]), "above-roof").action.clone()
    };
    assert!(action(40.0, "ThreadDivergence", "").starts_with("By ncu's rules threads of a warp take"));
    let stall = action(40.0, "CPIStall", "stalled waiting for sibling warps at a CTA barrier");
    assert!(stall.starts_with("By ncu's rules warps wait at barriers. Begin there."), "{stall}");
    assert!(action(40.0, "SOLBottleneck", "").starts_with("Give its threads more"));
    assert!(action(4.0, "SOLBottleneck", "").starts_with("Its warps are there and do nothing"));
}

#[test]
fn rules_of_ncu_are_carried_in() {
    let (stage, evidence) = busy();
    let say = |stage: &str, percent: Option<f64>, total_ns| {
        let mut row = measured(None, CounterRow::default());
        (row.row.stage, row.row.kernel) = (Some(stage.into()), "scan".into());
        row.timeline_total_ns = total_ns;
        row.advice = vec![NcuRule {
            rule: "AchievedOccupancy".into(),
            section: "Occupancy".into(),
            text: format!(" Look at the block size of {total_ns}. "),
            speedup_pct: percent,
            ..NcuRule::default()
        }];
        row
    };
    let counters = [
        say("decode", Some(20.0), 40 * MS),
        say("decode", Some(50.0), 50 * MS),
        say("prefill", Some(90.0), 50 * MS),
        say("decode", None, 8 * MS),
    ];
    let all = run_counted(stage, &evidence, &counters);
    assert_eq!(ids(&all), ["ncu-achievedoccupancy"]);
    // A fifth of 40 ms and half of 50 ms.
    assert_eq!(all[0].bound_ns, 33 * MS);
    assert_eq!(all[0].evidence["estimated_speedup_pct"], 50.0);
    // Text and number are of the same launch shape.
    assert_eq!(all[0].action, format!("Look at the block size of {}.", 50 * MS));
    assert_eq!(all[0].evidence["kernel_ns"], 90 * MS);
}

/// The rule of ncu has a result for each unit; the kernel cannot save the sum of them, nor what its busiest unit needs.
#[test]
fn a_rule_of_ncu_counts_once_for_all_units() {
    let (stage, evidence) = busy();
    let result = |pct: f64| NcuRule {
        rule: "WorkloadImbalance".into(),
        text: format!("{pct}"),
        speedup_pct: Some(pct),
        ..NcuRule::default()
    };
    let mut row = measured(None, CounterRow { sm_pct: Some(10.0), ..CounterRow::default() });
    row.advice = [22.0, 20.0, 16.0, 12.0].map(result).to_vec();
    let all = run_counted(stage.clone(), &evidence, std::slice::from_ref(&row));
    assert_eq!((ids(&all), all[0].bound_ns), (vec!["ncu-workloadimbalance"], 21_560_000));
    row.row.sm_pct = Some(90.0);
    let all = run_counted(stage, &evidence, &[row]);
    assert_eq!(all[0].bound_ns, 9_800_000);
}
