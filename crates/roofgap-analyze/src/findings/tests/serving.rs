use super::*;
use crate::result::*;
use std::collections::BTreeMap;

const MS: i64 = 1_000_000;

/// A stage of an engine whose steps took these times.
pub(super) fn stage(name: &str, kind: StageKind, each_ns: Vec<i64>, generation: u64) -> Stage {
    let mut sorted = each_ns.clone();
    sorted.sort_unstable();
    let total: i64 = each_ns.iter().sum();
    Stage {
        name: name.into(),
        kind,
        instances: each_ns.len() as u64,
        wall_ns: total,
        period_ns: Some(total),
        projected_ns: Some(total),
        kernel_ns: Some(total),
        busy_ns: Some(total),
        kernel_count: 1,
        launch_count: 1,
        idle: Some(Idle::default()),
        requests: Some(PhaseCounts { context: Some(0), generation: Some(generation) }),
        steps: Some(Steps {
            count: each_ns.len() as u64,
            mean_ns: total / each_ns.len() as i64,
            p50_ns: sorted[sorted.len() / 2],
            each_ns,
            ..Steps::default()
        }),
        ..Stage::default()
    }
}

pub(super) fn percentiles(p50: i64, p99: i64) -> Option<Percentiles> {
    Some(Percentiles { count: 1000, mean: p50, p50, p99, ..Percentiles::default() })
}

/// A hundred decode steps of 10 ms for 8 requests each, and a load of 8 requests in flight that get a token every 10 ms.
pub(super) fn served() -> Analysis {
    Analysis {
        stages: vec![stage("decode", StageKind::Decode, vec![10 * MS; 100], 800)],
        engine: Some(EngineInfo { name: "vLLM".into(), ..EngineInfo::default() }),
        requests: Some(RequestStats {
            sent: 64,
            completed: 64,
            itl_ns: percentiles(10 * MS, 11 * MS),
            e2e_ns: percentiles(1000 * MS, 1000 * MS),
            requests_per_s: Some(8.0),
            ..RequestStats::default()
        }),
        ..Analysis::default()
    }
}

#[test]
fn a_server_at_the_pace_of_its_steps_has_no_finding() {
    assert_eq!(ids(&findings(&served(), &[])), Vec::<&str>::new());
}

#[test]
fn serving_rules_need_requests_and_engine_steps() {
    let mut analysis = served();
    analysis.stages[0].between_ns = 500 * MS;
    assert_eq!(ids(&findings(&analysis, &[])), ["gaps-between-steps"]);
    // Without requests nobody knows whether any was waiting.
    let requests = analysis.requests.take();
    let all = findings(&analysis, &[]);
    assert_eq!(one(&all, "gaps-between-steps").confidence, Confidence::Guessed);
    assert!(all[0].action.ends_with("there is nothing to gain."), "{}", all[0].action);
    analysis.requests = requests;
    analysis.stages[0].requests = None;
    assert_eq!(ids(&findings(&analysis, &[])), Vec::<&str>::new());
}

#[test]
fn gaps_between_steps_without_pauses_of_the_load() {
    let mut analysis = served();
    // One pause of a second, and 3 ms after each other step.
    let steps = analysis.stages[0].steps.as_mut().unwrap();
    steps.each_ns[50] = 1_010 * MS;
    analysis.stages[0].period_ns = Some(2_000 * MS);
    analysis.stages[0].between_ns = 1_000 * MS + 99 * 3 * MS;
    let all = findings(&analysis, &[]);
    let found = one(&all, "gaps-between-steps");
    assert_eq!(found.bound_ns, 297 * MS);
    assert!(found.title.contains("297 ms"), "{}", found.title);
    assert!(found.title.contains("3.00 ms a step"), "{}", found.title);
    assert!(found.action.contains("--async-scheduling"), "{}", found.action);
    // With one request at a time the server may have had nothing to do.
    analysis.requests.as_mut().unwrap().requests_per_s = Some(1.0);
    let all = findings(&analysis, &[]);
    assert!(!ids(&all).contains(&"gaps-between-steps"), "{:?}", ids(&all));
}

#[test]
fn tokens_that_arrive_later_than_their_steps() {
    let mut analysis = served();
    analysis.requests.as_mut().unwrap().itl_ns = percentiles(15 * MS, 18 * MS);
    let all = findings(&analysis, &[]);
    let found = one(&all, "latency-outside-steps");
    assert_eq!(found.bound_ns, 500 * MS);
    assert!(found.title.contains("5.00 ms are outside"), "{}", found.title);
    assert!(found.action.contains("--api-server-count"), "{}", found.action);
    // Mixed steps of that length explain it.
    let mixed = stage("mixed", StageKind::Mixed, vec![14 * MS; 100], 800);
    analysis.stages.push(mixed);
    let all = findings(&analysis, &[]);
    assert!(!ids(&all).contains(&"latency-outside-steps"), "{:?}", ids(&all));
}

#[test]
fn prompts_that_delay_decode() {
    let mut analysis = served();
    let mixed = stage("mixed", StageKind::Mixed, vec![30 * MS; 10], 80);
    analysis.stages.push(mixed);
    let all = findings(&analysis, &[]);
    let found = one(&all, "decode-starved");
    assert_eq!((found.stage.as_deref(), found.bound_ns), (Some("mixed"), 200 * MS));
    assert!(found.action.contains("--max-num-batched-tokens"), "{}", found.action);
    // Prefill alone is a delay only if clients see one.
    let prefill = stage("prefill", StageKind::Prefill, vec![40 * MS; 10], 0);
    analysis.stages[1] = prefill;
    assert!(!ids(&findings(&analysis, &[])).contains(&"decode-starved"));
    analysis.requests.as_mut().unwrap().itl_ns = percentiles(10 * MS, 52 * MS);
    let all = findings(&analysis, &[]);
    let found = one(&all, "decode-starved");
    assert_eq!(found.bound_ns, 300 * MS);
    assert!(found.title.contains("52.0 ms at p99"), "{}", found.title);
    // The settings of an unknown engine are not guessed.
    analysis.engine = None;
    let all = findings(&analysis, &[]);
    assert!(!one(&all, "decode-starved").action.contains("--"));
}

#[test]
fn a_batch_far_below_the_compute_roof() {
    let mut analysis = served();
    // 1 s at the roof of memory and 0.1 s at that of compute: ten times the batch.
    analysis.stages[0].mfu = Some(Mfu { flops: 1e14, peak_flops_per_s: 1e15, ..Mfu::default() });
    analysis.stages[0].mbu = Some(Mbu { bytes: 4e12, bandwidth_bytes_per_s: 4e12, ..Mbu::default() });
    let all = findings(&analysis, &[]);
    let found = one(&all, "batch-too-small");
    assert_eq!(found.bound_ns, 900 * MS);
    assert!(found.title.contains("serves 8.0 requests"), "{}", found.title);
    assert!(found.title.contains("up to 80 before"), "{}", found.title);
    assert!(found.action.starts_with("About 8 requests were in flight"), "{}", found.action);
    // Many more in flight than in a step: the engine holds them back.
    let requests = analysis.requests.as_mut().unwrap();
    requests.requests_per_s = Some(64.0);
    let all = findings(&analysis, &[]);
    assert!(one(&all, "batch-too-small").action.contains("--max-num-seqs"));
    // Replicas share the requests.
    let engine = analysis.engine.as_mut().unwrap();
    engine.parallelism = Some(BTreeMap::from([("data".to_owned(), 8)]));
    let all = findings(&analysis, &[]);
    assert!(!one(&all, "batch-too-small").action.contains("--max-num-seqs"));
    analysis.stages[0].mfu.as_mut().unwrap().flops = 5e14;
    assert!(!ids(&findings(&analysis, &[])).contains(&"batch-too-small"));
}

pub(super) fn batch(requests: u64, steps: u64, graph_steps: u64, eager_idle_ns: i64) -> BatchRow {
    BatchRow { requests, steps, graph_steps, mean_ns: Some(8 * MS), eager_idle_ns }
}

#[test]
fn batch_sizes_without_a_graph_in_an_engine_with_graphs() {
    let mut analysis = served();
    analysis.requests = None;
    let mut serving =
        Serving { batches: vec![batch(8, 60, 60, 0), batch(9, 40, 0, 200 * MS)], ..Serving::default() };
    analysis.serving = Some(serving.clone());
    let all = findings(&analysis, &[]);
    let found = one(&all, "graphs-not-used");
    assert_eq!(found.bound_ns, 200 * MS);
    assert!(found.title.starts_with("40 of 100 decode steps"), "{}", found.title);
    assert!(found.title.ends_with("batch sizes: 9"), "{}", found.title);
    assert!(found.action.contains("--max-cudagraph-capture-size"), "{}", found.action);
    // An engine without graphs has chosen so.
    serving.batches.remove(0);
    analysis.serving = Some(serving);
    assert_eq!(ids(&findings(&analysis, &[])), Vec::<&str>::new());
}

#[test]
fn a_full_cache_holds_requests_back_or_computes_them_twice() {
    let mut analysis = served();
    let requests = analysis.requests.as_mut().unwrap();
    let gauge = |mean: f64, max: f64| GaugeStats { samples: 5, mean, max, ..GaugeStats::default() };
    requests.gauges = BTreeMap::from([
        ("vllm:kv_cache_usage_perc".to_owned(), gauge(0.9, 0.99)),
        ("vllm:num_requests_running".to_owned(), gauge(6.0, 8.0)),
        ("vllm:num_requests_waiting".to_owned(), gauge(2.0, 4.0)),
    ]);
    let all = findings(&analysis, &[]);
    let found = one(&all, "kv-cache-full");
    // A quarter of the requests waited: at best, 100 steps of 10 ms do the work of 133.
    assert_eq!(found.bound_ns, 250 * MS);
    assert!(found.title.contains("99 % full"), "{}", found.title);
    assert!(found.action.contains("--gpu-memory-utilization"), "{}", found.action);
    let requests = analysis.requests.as_mut().unwrap();
    requests.gauges.clear();
    requests.metrics.insert("vllm:num_preemptions_total".to_owned(), 16.0);
    let all = findings(&analysis, &[]);
    assert_eq!(one(&all, "kv-cache-full").bound_ns, 200 * MS);
    // A cache with room is no limit.
    let requests = analysis.requests.as_mut().unwrap();
    requests.metrics.clear();
    requests.gauges.insert("vllm:kv_cache_usage_perc".to_owned(), gauge(0.4, 0.6));
    assert_eq!(ids(&findings(&analysis, &[])), Vec::<&str>::new());
}
