use super::*;
use crate::result::{Mbu, Note, PhaseCounts, Stage, StageKind, Steps, WorkloadInfo};

const PROMPT: i64 = 64;
const STEPS: i64 = 48;
const POSITION_NS: i64 = 10_000;

/// Three instances of prefill and decode; `step_ns` gives the time of a step at a number of positions.
pub(super) fn analysis(step_ns: impl Fn(i64) -> i64) -> Analysis {
    let each_ns: Vec<i64> = (0..3).flat_map(|_| (PROMPT..PROMPT + STEPS).map(&step_ns)).collect();
    let vision = Note { name: "sam".to_owned(), instances: 3, wall_ns: 3 * 5_000_000, ..Note::default() };
    let prefill = Stage {
        name: "prefill".to_owned(),
        kind: StageKind::Prefill,
        instances: 3,
        wall_ns: 3 * (5_000_000 + PROMPT * POSITION_NS),
        notes: vec![vision],
        ..Stage::default()
    };
    let decode = Stage {
        name: "decode".to_owned(),
        kind: StageKind::Decode,
        instances: 3,
        wall_ns: each_ns.iter().sum(),
        steps: Some(Steps { count: each_ns.len() as u64, p50_ns: 1, each_ns, ..Steps::default() }),
        ..Stage::default()
    };
    Analysis {
        stages: vec![prefill, decode],
        workload: Some(WorkloadInfo { prompt_tokens: Some(PROMPT as u64), ..WorkloadInfo::default() }),
        ..Analysis::default()
    }
}

fn found(analysis: &Analysis) -> Vec<Finding> {
    let mut all = findings(analysis, &[]);
    all.retain(|finding| finding.id == "context-recomputed");
    all
}

#[test]
fn a_step_that_reads_its_context_again_is_found() {
    let analysis = analysis(|positions| positions * POSITION_NS);
    let finding = &found(&analysis)[0];
    let decode = &analysis.stages[1];
    assert_eq!(finding.evidence["prefill_ns"], PROMPT * POSITION_NS);
    assert_eq!(finding.evidence["mean_context_tokens"], 87.5);
    // With a cache, each step computes one of its 87.5 positions.
    let least = (decode.wall_ns as f64 / 87.5) as i64;
    assert_eq!(finding.bound_ns, decode.wall_ns - least);
    assert!(finding.title.contains("prefill of 64 tokens 640 µs"), "{}", finding.title);
    assert!(finding.title.contains("from 715 µs to 1.03 ms within 48 steps"), "{}", finding.title);
}

#[test]
fn the_bound_leaves_the_time_of_the_models_bytes() {
    let mut analysis = analysis(|positions| positions * POSITION_NS);
    analysis.stages[1].mbu = Some(Mbu { floor_step_ns: Some(100_000), ..Mbu::default() });
    let decode_ns = analysis.stages[1].wall_ns;
    assert_eq!(found(&analysis)[0].bound_ns, decode_ns - 3 * STEPS * 100_000);
}

#[test]
fn a_cached_decode_is_not_found() {
    // A step of 5 % of the prefill, with some attention to its context.
    assert!(found(&analysis(|positions| 30_000 + positions * 20)).is_empty());
    // Launch-bound: as long as the prefill, and the same for every context.
    assert!(found(&analysis(|_| PROMPT * POSITION_NS)).is_empty());
    // Memory-bound: as long as the prefill, a quarter of it attention.
    assert!(found(&analysis(|positions| 480_000 + positions * 2_500)).is_empty());
    // Steps that grow, and are short against the prefill.
    assert!(found(&analysis(|positions| positions * POSITION_NS / 10)).is_empty());
}

#[test]
fn one_instance_that_does_not_grow_is_enough_to_doubt() {
    let mut analysis = analysis(|positions| positions * POSITION_NS);
    let steps = analysis.stages[1].steps.as_mut().unwrap();
    steps.each_ns[..STEPS as usize].fill(PROMPT * POSITION_NS);
    assert!(found(&analysis).is_empty());
}

#[test]
fn steps_of_an_engine_and_unknown_prompts_are_left_out() {
    let grows = |positions: i64| positions * POSITION_NS;
    let mut engine = analysis(grows);
    engine.stages[1].requests = Some(PhaseCounts::default());
    assert!(found(&engine).is_empty());
    let mut unknown = analysis(grows);
    unknown.workload = None;
    assert!(found(&unknown).is_empty());
    let mut without_prefill = analysis(grows);
    without_prefill.stages.remove(0);
    assert!(found(&without_prefill).is_empty());
}
