//! Several ranks of a job in every report.

use crate::fixtures::{Case, PLAIN, made};
use roofgap_analyze::{
    About, ExpertBalance, ExpertTime, Idle, Job, MatchedCollectives, MatchedTransfers, OtherProcess,
    RankActivity, RankInfo, Reason, StageUtilisation, Straggler,
};
use roofgap_report::{json, markdown, page, text};

fn two_ranks() -> Case {
    let mut case = made(PLAIN);
    let rank = |rank: u32| RankInfo {
        rank,
        world_size: Some(3),
        devices: vec![0],
        told_by: "file_name".into(),
        sources: vec![format!("rank{rank}.json")],
        kernel_count: 10,
        kernel_ns: 5_000_000,
        busy_ns: Some(4_000_000),
        communication_ns: 1_500_000,
        exposed_ns: 1_000_000,
        idle: Some(Idle { launch_ns: 7_000, sync_ns: 6_000, copy_ns: 5_000, other_ns: 4_000 }),
        clock_offset_ns: Some(-2_500 * i64::from(rank)),
        clock_error_ns: Some(800),
        clock_reference: Some(0),
        waited_ns: Some(300_000),
        last_count: Some(12),
        waited_for_ns: Some(200_000),
        utilisation: vec![StageUtilisation { stage: "decode".into(), mfu_pct: Some(1.5), mbu_pct: None }],
        activity: Some(RankActivity {
            begin_ns: 1_000 * i64::from(rank),
            part_ns: 100_000,
            compute_pct: vec![90, 40],
            exposed_pct: vec![10, 0],
        }),
        ..RankInfo::default()
    };
    case.analysis.ranks = vec![rank(0), rank(1)];
    case.analysis.job = Some(Job {
        world_size: Some(3),
        shown_rank: 0,
        missing: vec![2],
        clock_error_ns: Some(800),
        collectives: vec![MatchedCollectives {
            group: Some("0 (default_pg)".into()),
            collective: "all_reduce".into(),
            ranks: vec![0, 1],
            count: 40,
            matched_by: "order".into(),
            bytes: Some(4_000_000),
            latency_ns: 400_000,
            skew_mean_ns: None,
            skew_max_ns: Some(9_000),
            waited_ns: 300_000,
            last_rank: Some(1),
            last_count: 12,
        }],
        stragglers: vec![Straggler {
            rank: 1,
            stage: Some("decode".into()),
            last_count: 12,
            collective_count: 40,
            waited_for_ns: 200_000,
            kernel: Some("flash_fwd_kernel".into()),
            kernel_excess_ns: Some(190_000),
            idle_excess_ns: Some(-3_000),
        }],
        experts: vec![ExpertBalance {
            stage: Some("decode".into()),
            sections: 60,
            slowest_rank: 1,
            slowest_count: 55,
            slowest_ns: 900_000,
            mean_ns: 600_000,
            imbalance: 1.5,
            waited_ns: Some(280_000),
            bound_ns: Some(250_000),
            ranks: vec![ExpertTime::default(), ExpertTime::default()],
        }],
        transfers: vec![MatchedTransfers {
            from: 0,
            to: 1,
            group: None,
            count: 7,
            matched_by: "sequence".into(),
            bytes: Some(7_000),
            receive_ns: 600_000,
            receiver_waited_ns: Some(500_000),
            sender_waited_ns: None,
        }],
        utilisation: vec![StageUtilisation { stage: "decode".into(), mfu_pct: Some(1.25), mbu_pct: None }],
        other_processes: vec![OtherProcess {
            pid: 4711,
            name: "python3".into(),
            source: "native/4711.rgcap".into(),
            kernel_count: 3,
            kernel_ns: 30_000,
        }],
    });
    let about = About::Other("ranks".into());
    let reason = Reason::new(about, "1 of 3 ranks were not given: 2");
    case.analysis.reasons.push(reason);
    case
}

#[test]
fn text_has_ranks_collectives_and_stragglers() {
    let text = text::render(&two_ranks().analysis, text::TextOptions::default());
    assert!(text.contains("rank: 0 of 3 ranks; 2 given"), "{text}");
    let cells = |start: &str| {
        let begins =
            |line: &&str| start.split(' ').eq(line.split_whitespace().take(start.split(' ').count()));
        let line = text.lines().find(begins).expect(start);
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        cells("1 10"),
        [
            "1",
            "10",
            "5.000",
            "4.000",
            "0.500",
            "1.000",
            "0.007",
            "0.006",
            "0.005",
            "0.004",
            "0.300",
            "0.200",
            "12",
            "-2.50 µs",
            "800 ns"
        ]
    );
    assert_eq!(
        cells("all_reduce"),
        [
            "all_reduce",
            "0 (default_pg)",
            "2",
            "40",
            "order",
            "4.0 MB",
            "10.0 µs",
            "–",
            "9.00 µs",
            "0.300",
            "rank 1, 12 times"
        ]
    );
    assert_eq!(
        cells("1 decode 0.200"),
        ["1", "decode", "0.200", "12 of 40", "flash_fwd_kernel", "0.190", "-0.003"]
    );
    assert_eq!(cells("0 1"), ["0", "1", "–", "7", "sequence", "7.0 kB", "0.600", "0.500", "–"]);
    assert_eq!(
        cells("decode 60"),
        ["decode", "60", "2", "0.900", "0.600", "1.50", "rank 1, 55 times", "0.280", "0.250"]
    );
    assert_eq!(cells("all"), ["all", "decode", "1.25", "–"]);
    assert_eq!(cells("1 decode 1.50"), ["1", "decode", "1.50", "–"]);
    assert!(text.contains("1 of 3 ranks were not given: 2"), "{text}");
}

#[test]
fn markdown_and_the_page_have_the_tables() {
    let case = two_ranks();
    let report = markdown::report(case.bundle());
    for title in [
        "## Ranks\n",
        "## Collectives across ranks\n",
        "## Ranks that others wait for\n",
        "## Balance of experts\n",
        "## Transfers between ranks\n",
        "## Utilisation of ranks\n",
    ] {
        assert!(report.contains(title), "{title}");
    }
    let page = page::render(case.bundle());
    for id in ["ranks", "collectives", "stragglers", "experts", "transfers", "utilisation"] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    assert!(page.contains("<svg class=\"rank-map\"") && page.contains("<g data-rank=\"1\">"));
    let plain = page::render(made(PLAIN).bundle());
    assert!(!plain.contains("<svg class=\"rank-map\""));
    assert!(!plain.contains("id=\"ranks\""));
}

#[test]
fn a_job_keeps_to_the_schema() {
    let schema = serde_json::from_str(json::SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good: serde_json::Value = serde_json::from_str(&json::pretty(&two_ranks().analysis)).unwrap();
    let errors: Vec<String> = validator.iter_errors(&good).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for path in [
        "/job/shown_rank",
        "/job/collectives/0/count",
        "/job/stragglers/0/rank",
        "/ranks/1/kernel_ns",
        "/ranks/1/activity/part_ns",
        "/ranks/0/utilisation/0/mfu_pct",
        "/job/transfers/0/from",
        "/job/other_processes/0/pid",
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(path).unwrap() = serde_json::json!("7");
        assert!(!validator.is_valid(&bad), "{path}");
    }
}
