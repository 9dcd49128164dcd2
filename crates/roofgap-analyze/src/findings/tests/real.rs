use super::*;
use crate::counters::{self, Timeline};
use crate::stages::StageSet;
use crate::{Analyzed, Options, analyze};
use roofgap_trace::Trace;
use std::path::PathBuf;

fn at(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn capture(name: &str) -> (Trace, Analysis, Vec<StageEvidence>) {
    let path = at(&format!("../../fixtures/h200/{name}.sqlite.gz"));
    let trace = roofgap_trace::read(&[path]).expect("the fixture reads").trace;
    let Analyzed { analysis, stages } = analyze(&trace, &Options::default());
    let evidence = crate::findings::evidence(&trace, &stages, &stages.members());
    (trace, analysis, evidence)
}

/// DeepSeek-OCR-2 on an H200, eager: decode waits for launches.
#[test]
fn decode_of_dsocr2_is_launch_bound_first() {
    let (_, analysis, evidence) = capture("dsocr2");
    let all = findings(&analysis, &evidence);
    let first = all.first().unwrap();
    assert_eq!((first.id.as_str(), first.stage.as_deref()), ("launch-bound", Some("decode")));
    let stage = analysis.stages.iter().find(|stage| stage.name == "decode").unwrap();
    let idle = stage.idle.unwrap();
    let other = stage.idle_detail.cold_ns + stage.idle_detail.host_first_ns;
    assert_eq!(first.bound_ns, stage.causes().unwrap().launch_ns - other);
    assert!(first.bound_ns <= idle.total_ns());
    assert_eq!(first.evidence["idle_launch_ns"], idle.launch_ns);
    assert!((first.bound_pct - 100.0 * first.bound_ns as f64 / stage.wall_ns as f64).abs() < 1e-9);
    // As the README of the captures has it: 7.5 % busy.
    let busy = first.evidence["busy_pct"].as_f64().unwrap();
    assert!((7.0..9.0).contains(&busy), "{busy}");
    assert_eq!(stage.kernel_count, 7208);
    let leading = to_act_on(&all);
    assert!(leading.len() <= 5, "{:?}", ids(&all));
    for finding in &all {
        assert!(!finding.title.is_empty() && !finding.action.is_empty() && !finding.evidence.is_empty());
        assert!(finding.bound_pct >= 3.0 && finding.bound_pct <= 100.0);
    }
}

/// What a query of the same file by hand gives: 6,464 decode kernels of 13.107 ms with fewer than 132 blocks, one stream,
/// no wait inside a step, no copy from or to the host; prefill has 24 copies from pageable memory.
#[test]
fn evidence_of_dsocr2_equals_a_query_by_hand() {
    let (_, analysis, evidence) = capture("dsocr2");
    let decode = evidence.iter().find(|stage| stage.stage == "decode").unwrap();
    let small: Vec<_> = decode.shapes.iter().filter(|shape| shape.blocks < 132).collect();
    assert_eq!(small.iter().map(|shape| shape.calls).sum::<u64>(), 6464);
    assert_eq!(small.iter().map(|shape| shape.total_ns).sum::<i64>() / 1000, 13_106);
    assert_eq!(decode.host_copies.count, 0);
    assert_eq!(decode.communication, None);
    let prefill = evidence.iter().find(|stage| stage.stage == "prefill").unwrap();
    assert_eq!((prefill.host_copies.count, prefill.host_copies.pageable), (26, 24));
    assert_eq!(prefill.shapes.iter().map(|shape| shape.calls).sum::<u64>(), 2321);
    let all = findings(&analysis, &evidence);
    // They take 2 us each, as long as any kernel.
    assert!(!all.iter().any(|f| f.id == "small-kernels" && f.stage.as_deref() == Some("decode")));
    assert!(!all.iter().any(|f| f.id == "experts-one-by-one"), "its experts are grouped");
}

#[test]
fn both_stages_of_llama4_are_launch_bound() {
    let (_, analysis, evidence) = capture("llama4");
    let all = findings(&analysis, &evidence);
    let first = all.first().unwrap();
    assert_eq!((first.id.as_str(), first.stage.as_deref()), ("launch-bound", Some("decode")));
    // 1,496 kernels in 8 steps.
    let per_step = first.evidence["launches_per_step"].as_f64().unwrap();
    assert!((187.0..200.0).contains(&per_step), "{per_step}");
}

/// The same with counters of another run: decode kernels draw 60 % of DRAM bandwidth and more, which saves little in a
/// stage that waits for launches.
#[test]
fn counters_of_llama4_rank_below_its_launches() {
    let (trace, analysis, evidence) = capture("llama4");
    let file = std::fs::File::open(at("../../fixtures/ncu/llama4_light_raw.csv.gz")).unwrap();
    let set = roofgap_trace::ncu::raw::read(flate2::read::GzDecoder::new(file)).unwrap();
    let timeline = Timeline::of_stages(&trace, &analyze(&trace, &Options::default()).stages);
    let joined = counters::join(&[set], &timeline, &StageSet::default(), None);
    let all = find(Inputs {
        analysis: &analysis,
        evidence: &evidence,
        model: None,
        counters: &joined.measured,
        engine: None,
    });
    assert_eq!(all.first().unwrap().id, "launch-bound");
    let roof = all.iter().find(|found| found.id.starts_with("memory-"));
    assert!(roof.is_none_or(|roof| roof.bound_pct < 2.0), "{roof:?}");
}
