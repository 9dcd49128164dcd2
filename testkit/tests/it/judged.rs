//! The judged corpus: no capture of the repository is judged wrong, and the bound of a planted cause is near its real gain.

#[path = "../../judged/mod.rs"]
mod corpus;

use corpus::{Grade, worst};
use roofgap_analyze::{Finding, Options, analyze};
use roofgap_testkit::planted::{Cause, Planted};
use std::collections::BTreeSet;

#[test]
fn no_capture_of_the_repository_is_judged_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for case in corpus::corpus().iter().filter(|case| case.is_own() && case.open.is_none()) {
        let answers = case.judge(&case.file(None, folder.path()).unwrap());
        if worst(&answers) == Grade::Wrong {
            let answers = answers.iter().filter(|answer| answer.grade == Grade::Wrong);
            let answers: Vec<String> =
                answers.map(|a| format!("\n  {} {}: {}", a.subject, a.rule, a.text)).collect();
            wrong.push(format!("{}: {}{}", case.id, case.why, answers.concat()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_corpus_is_large_and_its_names_are_unique() {
    let cases = corpus::corpus();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 120, "{}", cases.len());
    assert!(cases.iter().filter(|case| case.unseen).count() >= 30);
}

fn findings(program: &Planted) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("planted.json");
    std::fs::write(&path, program.run().trace.to_string()).unwrap();
    let input = roofgap_trace::read(&[path]).unwrap();
    analyze(&input.trace, &Options::default()).analysis.findings
}

#[test]
fn bounds_reach_the_real_gain_and_not_much_more() {
    let rules = [
        (Cause::Launch, "launch-bound"),
        (Cause::DataLoading, "data-loading"),
        (Cause::Communication, "communication-exposed"),
        (Cause::Fusion, "unfused-elementwise"),
        (Cause::HostFirst, "host-outside"),
        (Cause::Copies, "host-copies"),
        (Cause::Outlier, "step-tail"),
        (Cause::Sync, "sync-in-step"),
        (Cause::HostWork, "host-gaps"),
        (Cause::Compile, "cold-start"),
        (Cause::Allocation, "allocations"),
        (Cause::ManagedMemory, "managed-memory"),
    ];
    for (cause, rule) in rules {
        for scale in 1..=3 {
            let program = Planted::with(cause, scale);
            let gain = program.run().wall_ns - Planted::without(cause, scale).run().wall_ns;
            let found = findings(&program);
            let finding =
                found.iter().find(|finding| finding.id == rule).unwrap_or_else(|| panic!("{rule} {scale}"));
            let percent = 100 * finding.bound_ns / gain;
            // No operation ends the gap after the last step.
            assert!((98..=130).contains(&percent), "{rule} {scale}: {} for {gain}", finding.bound_ns);
            let without = findings(&Planted::without(cause, scale));
            let left = without.iter().filter(|finding| finding.id == rule && finding.bound_pct > 5.0).count();
            assert_eq!(left, 0, "{rule} {scale}");
        }
    }
}

#[test]
fn a_slow_step_has_a_cause() {
    let cause = |program: &Planted| {
        let found = findings(program);
        let tail = found.iter().find(|finding| finding.id == "step-tail").unwrap();
        let text = |key: &str| tail.evidence.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        (text("cause"), text("cause_in"))
    };
    let pause = Planted { item: true, pause_ns: 200_000_000, ..Planted::sound() };
    assert_eq!(cause(&pause), (Some("unknown".to_owned()), None), "nothing says what the CPU did");
    let wait = Planted { pause_in: Some("cudaEventSynchronize"), ..pause.clone() };
    assert_eq!(cause(&wait), (Some("wait".to_owned()), wait.pause_in.map(str::to_owned)));
    let kernel = Planted { pause_ns: 0, slow_ns: 200_000_000, ..pause };
    let (kind, name) = cause(&kernel);
    assert_eq!(kind.as_deref(), Some("slow-kernel"));
    assert!(name.is_some_and(|name| name.starts_with("nvjet")));
}
