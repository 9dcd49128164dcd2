//! Jobs of several ranks: the analysis finds the skew, the waits, the exposed communication and the clock offsets that were put in.

use roofgap_analyze::{Analysis, Options, RankRecord, analyze, join_ranks};
use roofgap_testkit::job::{ExpectedRank, JobRun, JobSpec, LATE_KERNEL};

/// Analyses some ranks of a job; the first of them is shown.
fn joined(run: &JobRun, ranks: &[usize]) -> Analysis {
    let folder = tempfile::tempdir().unwrap();
    let mut shown = None;
    let mut records = Vec::new();
    for &rank in ranks {
        let path = folder.path().join(format!("trace{rank}.json"));
        run.write(rank, std::fs::File::create(&path).unwrap()).unwrap();
        let input = roofgap_trace::read(&[path]).unwrap();
        let analyzed = analyze(&input.trace, &Options::default());
        records.push(RankRecord::of(&input.trace, &analyzed, None).unwrap());
        shown.get_or_insert(analyzed.analysis);
    }
    let mut analysis = shown.unwrap();
    join_ranks(&mut analysis, ranks[0] as u32, records);
    analysis
}

fn found(analysis: &Analysis) -> Vec<ExpectedRank> {
    let rank = |rank: &roofgap_analyze::RankInfo| ExpectedRank {
        clock_offset_ns: rank.clock_offset_ns.unwrap(),
        kernel_ns: rank.kernel_ns,
        communication_ns: rank.communication_ns,
        exposed_ns: rank.exposed_ns,
        waited_ns: rank.waited_ns.unwrap(),
        waited_for_ns: rank.waited_for_ns.unwrap(),
        last_count: rank.last_count.unwrap(),
    };
    analysis.ranks.iter().map(rank).collect()
}

fn uneven() -> JobSpec {
    JobSpec {
        late_ns: vec![0, 2_000, 50_000, 1_000],
        clock_offset_ns: vec![0, 7_000_000_123, -3_000_456, 12],
        hidden_ns: 9_000,
        ..JobSpec::even(4, 25)
    }
}

#[test]
fn skew_waits_and_offsets_are_exact_without_jitter() {
    for numbered in [false, true] {
        let run = JobRun::run(&JobSpec { numbered, ..uneven() });
        let analysis = joined(&run, &[0, 1, 2, 3]);
        assert_eq!(found(&analysis), run.ranks);
        assert!(analysis.ranks.iter().all(|rank| rank.clock_error_ns == Some(0)));
        let job = analysis.job.unwrap();
        assert_eq!((job.world_size, job.missing.as_slice()), (Some(4), &[][..]));
        let [all_reduce] = &job.collectives[..] else {
            panic!("{:?}", job.collectives);
        };
        assert_eq!(all_reduce.matched_by, if numbered { "sequence" } else { "order" });
        assert_eq!((all_reduce.count, all_reduce.bytes), (25, Some(25 * 8192)));
        assert_eq!(all_reduce.latency_ns, run.latency_ns);
        assert_eq!((all_reduce.skew_mean_ns, all_reduce.skew_max_ns), (Some(50_000), Some(50_000)));
        assert_eq!((all_reduce.last_rank, all_reduce.last_count), (Some(2), 25));
    }
}

#[test]
fn uneven_experts_are_found_exactly() {
    let spec = JobSpec { experts: true, ..uneven() };
    let run = JobRun::run(&spec);
    let analysis = joined(&run, &[0, 1, 2, 3]);
    let job = analysis.job.as_ref().unwrap();
    let [row] = &job.experts[..] else {
        panic!("{:?}", job.experts);
    };
    assert_eq!(job.collectives[0].collective, "all_to_all");
    assert_eq!((row.stage.as_deref(), row.sections), (Some("decode"), 25));
    assert_eq!((row.slowest_rank, row.slowest_count), (2, 25));
    // 10 µs and the extra time of each rank.
    assert_eq!((row.slowest_ns, row.mean_ns), (25 * 60_000, 25 * 23_250));
    assert_eq!(row.imbalance, 60_000.0 / 23_250.0);
    assert_eq!(row.waited_ns, Some(25 * (50_000 + 48_000 + 49_000)));
    assert_eq!(row.bound_ns, Some(25 * (60_000 - 23_250)));
    let times: Vec<i64> = row.ranks.iter().map(|rank| rank.experts_ns).collect();
    assert_eq!(times, [10_000, 12_000, 60_000, 11_000].map(|ns| 25 * ns));
    let finding = analysis.findings.iter().find(|finding| finding.id == "expert-imbalance").unwrap();
    assert_eq!((finding.bound_ns, &finding.evidence["rank"]), (25 * 36_750, &2.into()));

    // The time of one rank alone says nothing about the others.
    let alone = joined(&run, &[0]);
    assert!(alone.job.unwrap().experts.is_empty());
    assert!(
        alone.reasons.iter().any(|reason| reason.why.contains("balance of the experts")),
        "{:?}",
        alone.reasons
    );
    let even = joined(&JobRun::run(&JobSpec { experts: true, ..JobSpec::even(2, 5) }), &[0, 1]);
    assert_eq!(even.job.unwrap().experts[0].bound_ns, Some(0));
    assert!(even.findings.iter().all(|finding| finding.id != "expert-imbalance"));
    let dense = joined(&JobRun::run(&uneven()), &[0, 1, 2, 3]);
    assert!(dense.job.unwrap().experts.is_empty());
}

#[test]
fn a_straggler_is_named_with_its_stage_and_kernel() {
    let run = JobRun::run(&uneven());
    let analysis = joined(&run, &[0, 1, 2, 3]);
    let [late] = &analysis.job.as_ref().unwrap().stragglers[..] else {
        panic!("{:?}", analysis.job);
    };
    assert_eq!((late.rank, late.stage.as_deref()), (2, Some("decode")));
    assert_eq!((late.last_count, late.collective_count), (25, 25));
    assert_eq!(late.waited_for_ns, 25 * 49_000);
    assert_eq!(late.kernel.as_deref(), Some(LATE_KERNEL));
    assert_eq!(late.kernel_excess_ns, Some(25 * 49_000));
    let finding = analysis.findings.iter().find(|f| f.id == "rank-straggler").unwrap();
    assert_eq!(finding.bound_ns, 25 * 49_000);
    assert_eq!(finding.evidence["rank"], 2);
    assert!(finding.action.contains(LATE_KERNEL), "{}", finding.action);
}

#[test]
fn offsets_are_within_their_stated_error() {
    for seed in 1..20 {
        let run = JobRun::run(&JobSpec { jitter_ns: 4_000, seed, ..uneven() });
        let analysis = joined(&run, &[0, 1, 2, 3]);
        for (rank, expected) in analysis.ranks.iter().zip(&run.ranks) {
            let error = (rank.clock_offset_ns.unwrap() - expected.clock_offset_ns).abs();
            assert!(error <= rank.clock_error_ns.unwrap(), "seed {seed}: {rank:?}");
            assert!(rank.clock_error_ns.unwrap() <= 8_000, "{rank:?}");
        }
        assert_eq!(analysis.job.unwrap().collectives[0].last_rank, Some(2));
    }
}

#[test]
fn skew_below_the_error_of_the_clocks_is_not_shown() {
    let run = JobRun::run(&JobSpec { late_ns: vec![0, 500], jitter_ns: 4_000, ..JobSpec::even(2, 40) });
    let analysis = joined(&run, &[0, 1]);
    let job = analysis.job.unwrap();
    assert!(job.clock_error_ns.unwrap() > 500);
    assert_eq!((job.collectives[0].skew_mean_ns, job.collectives[0].last_rank), (None, None));
    assert!(job.stragglers.is_empty());
    assert!(!analysis.findings.iter().any(|f| f.id == "rank-straggler"));
}

#[test]
fn even_ranks_have_no_straggler() {
    let analysis = joined(&JobRun::run(&JobSpec::even(3, 10)), &[0, 1, 2]);
    let job = analysis.job.unwrap();
    assert_eq!(job.collectives[0].latency_ns, 10 * 30_000);
    assert!(job.stragglers.is_empty());
    assert_eq!(analysis.ranks[1].waited_ns, Some(0));
}

#[test]
fn missing_and_repeated_ranks_are_named() {
    let run = JobRun::run(&JobSpec { late_ns: vec![0; 8], ..JobSpec::even(8, 4) });
    let analysis = joined(&run, &[3, 1, 1, 6]);
    let ranks: Vec<u32> = analysis.ranks.iter().map(|rank| rank.rank).collect();
    assert_eq!(ranks, [1, 3, 6]);
    let job = analysis.job.as_ref().unwrap();
    assert_eq!((job.shown_rank, job.missing.as_slice()), (3, &[0, 2, 4, 5, 7][..]));
    let whys: Vec<&str> = analysis.reasons.iter().map(|reason| reason.why.as_str()).collect();
    assert!(whys.contains(&"5 of 8 ranks were not given: 0, 2, 4-5, 7"), "{whys:?}");
    assert!(whys.iter().any(|why| why.starts_with("rank 1 was given more than once")), "{whys:?}");
    assert_eq!(job.collectives[0].ranks, [1, 3, 6]);
}
