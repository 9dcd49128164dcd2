//! Knobs of findings, and changes that were tried.

use crate::fixtures::{Case, PLAIN, made};
use roofgap_analyze::{
    Finding, Knob, KnobChange, MeasuredTime, OutputCheck, OutputEffect, TRY_SCHEMA, TimeChange, Trial,
    TrialRow, TrialState, TrialVerdict, Winner,
};
use roofgap_report::{json, markdown, page, text};

fn knob(id: &str, changes: Vec<KnobChange>) -> Knob {
    Knob {
        id: id.into(),
        title: "replay each decode step as a CUDA graph".into(),
        changes,
        output: OutputEffect::Rounding,
        applies: "decode on a CUDA device".into(),
    }
}

fn graphs() -> Knob {
    let setting = KnobChange::Setting { key: "workload.cuda_graphs".into(), value: "true".into() };
    knob("hf.cuda_graphs", vec![setting])
}

/// A run with a knob of every kind of change.
fn with_knobs() -> Case {
    let mut case = made(PLAIN);
    case.context.title = "20261115-120000".into();
    let changes = vec![
        KnobChange::AddFlag { flag: "--max-num-seqs".into(), value: Some("64".into()) },
        KnobChange::AddFlag { flag: "--async-scheduling".into(), value: None },
        KnobChange::RemoveFlag { flag: "--enforce-eager".into(), takes_value: false },
        KnobChange::Environment { name: "MODE".into(), value: "fast".into() },
    ];
    // The capture is too small for a finding of its own.
    let mut finding = Finding::default();
    (finding.id, finding.stage) = ("launch-bound".into(), Some("decode".into()));
    (finding.bound_ns, finding.bound_pct) = (19_000, 47.5);
    (finding.title, finding.action) = ("decode is launch-bound".into(), "Launch less often.".into());
    finding.knobs = vec![graphs(), knob("vllm.all", changes)];
    case.analysis.findings = vec![finding];
    case
}

fn row(knob: Knob, verdict: TrialVerdict, ratio: f64) -> TrialRow {
    let time = |of| TimeChange {
        of,
        before_ns: vec![80_000_000, 82_000_000],
        after_ns: vec![10_000_000, 10_200_000],
        ratio: Some(ratio),
        interval: Some((ratio * 0.98, ratio * 1.02)),
        bound_ratio: Some(12.4),
        within_bound: Some(true),
    };
    TrialRow {
        knobs: vec![knob.id.clone()],
        knob: Some(knob),
        findings: vec!["launch-bound".into()],
        verdict,
        reason: None,
        log_tail: None,
        runs: 5,
        times: vec![time(MeasuredTime::Run), time(MeasuredTime::Stage("decode".into()))],
        output: OutputCheck::Identical,
        device_memory_bytes: Some(1_500_000_000),
        clocks_mhz: None,
        command: "roofgap profile workload.cuda_graphs=true".into(),
    }
}

fn tried() -> Case {
    let mut case = with_knobs();
    let mut worse = row(knob("hf.<b>", Vec::new()), TrialVerdict::Refused, 1.2);
    worse.output = OutputCheck::Different;
    worse.reason = Some("the tokens differ | from <script>".into());
    case.context.trial = Some(Trial {
        schema: TRY_SCHEMA.into(),
        run_id: "20261115-120000".into(),
        state: TrialState::Done,
        spent_ns: 95_000_000_000,
        rows: vec![row(graphs(), TrialVerdict::Kept, 8.1), worse],
        winner: Some(Winner {
            knobs: vec!["hf.cuda_graphs".into()],
            row: 0,
            command: "roofgap profile workload.cuda_graphs=true".into(),
        }),
        ..Trial::default()
    });
    case
}

#[test]
fn knobs_keep_to_the_schema_and_read_back() {
    let case = with_knobs();
    let schema = serde_json::from_str(json::SCHEMA).unwrap();
    let document: serde_json::Value = serde_json::from_str(&json::pretty(&case.analysis)).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let again: roofgap_analyze::Analysis = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(again.findings, case.analysis.findings);
    let mut wrong = document;
    wrong["findings"][0]["knobs"][0]["output"] = "perhaps".into();
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn a_finding_names_the_command_that_tries_it() {
    let case = with_knobs();
    let changes = "workload.cuda_graphs=true; --max-num-seqs 64, --async-scheduling, without --enforce-eager, MODE=fast";
    let id = &case.analysis.findings[0].id;
    let line = |run: &str| format!("try: roofgap try {run} {id} ({changes})");
    assert!(markdown::report(case.bundle()).contains(&line("20261115-120000")));
    let page = page::render(case.bundle());
    assert!(page.contains(&format!("<span>roofgap try 20261115-120000 {id}</span>")));
    assert!(page.contains(&format!("({changes})")));
    let text = text::render(&case.analysis, text::TextOptions::default());
    assert!(text.contains(&line("RUN")), "{text}");
    let without = made(PLAIN);
    assert!(!markdown::report(without.bundle()).contains("try: "));
    assert!(!markdown::report(without.bundle()).contains("## Tried"));
}

#[test]
fn reports_show_what_was_tried() {
    let case = tried();
    let report = markdown::report(case.bundle());
    let (_, section) = report.split_once("## Tried\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    insta::assert_snapshot!("tried", section);
    let summary = markdown::stakeholder_summary(case.bundle());
    assert!(
        summary.contains(
            "Tried: 8.10 times as fast (whole run; 95 % interval 7.94 to 8.26) by 1 change; the output is identical"
        ),
        "{summary}"
    );
    let page = page::render(case.bundle());
    let (_, section) = page.split_once("<section id=\"tried\">").unwrap();
    let (section, _) = section.split_once("</section>").unwrap();
    for part in ["8.10", "12.4", "hf.cuda_graphs", "hf.&lt;b&gt;", "refused", "1.5 GB"] {
        assert!(section.contains(part), "no {part} in {section}");
    }
    assert!(!section.contains("<script>"));
}
