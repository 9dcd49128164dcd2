//! The plan for ncu on real timelines.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use roofgap_record::select::{LaunchGroup, Limits, Plan, Policies, choose, launch_groups};

fn plan(capture: &str, top_n: usize) -> (Plan, Vec<LaunchGroup>, Vec<(String, i64)>) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/h200")
        .join(format!("{capture}.sqlite.gz"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&packed).unwrap()).read_to_end(&mut bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.sqlite");
    std::fs::write(&path, bytes).unwrap();
    let input = roofgap_trace::read(&[path]).unwrap();
    let options = roofgap_analyze::Options::default();
    let analyzed = roofgap_analyze::analyze(&input.trace, &options);
    let groups = launch_groups(&input.trace, &analyzed);
    let limits = Limits {
        top_n,
        time_pct: 90.0,
        budget: Duration::from_secs(300),
        startup: Duration::from_secs(60),
        per_launch: Duration::from_millis(700),
        passes_per_launch: 17,
        launch_count: 1,
    };
    let stages = analyzed.analysis.stages.iter().map(|s| (s.name.clone(), s.kernel_ns.unwrap())).collect();
    (choose(&groups, &[], &limits, Policies::default()), groups, stages)
}

#[test]
fn strata_add_up_to_the_kernel_time_of_their_stage() {
    for capture in ["llama4", "dsocr2"] {
        let (_, groups, stages) = plan(capture, 20);
        assert_eq!(stages.len(), 2);
        for (name, kernel_ns) in stages {
            let sum: i64 = groups.iter().filter(|s| s.stage == name).map(|s| s.total_ns).sum();
            assert_eq!(sum, kernel_ns, "{capture} {name}");
        }
    }
}

#[test]
fn ninety_percent_of_each_stage_for_few_launches() {
    for capture in ["llama4", "dsocr2"] {
        let (plan, ..) = plan(capture, 40);
        for stage in &plan.stages {
            println!("{capture} {}: {:.1} % of {} groups", stage.name, stage.covered_pct, stage.groups);
            assert!(stage.covered_pct >= 90.0, "{capture} {}: {:.1} %", stage.name, stage.covered_pct);
        }
        println!(
            "{capture}: {} of {} launches, {:.2} %, {:.0} s",
            plan.expected_launches, plan.timeline_launches, plan.replayed_pct, plan.expected_seconds
        );
        assert!(plan.expected_seconds <= 300.0);
    }
}
