//! The tables that every run has. Times are nanoseconds, percentages run from 0 to 100, and what was not measured is null.

use super::{Columns, TableFile, columns};
use crate::RunFacts;
use roofgap_analyze::{
    Analysis, CommunicationRow, CounterRow, Finding, Kernel, RankInfo, RequestStats, Stage, StageEnergy,
    StageLimit, StageVitals, verdict,
};

/// Lists the tables in the order in which they are written.
pub(super) fn tables<'a>(analysis: &'a Analysis, facts: &'a RunFacts) -> [TableFile<'a>; 8] {
    let key = facts.key.as_str();
    [
        table("stages", key, &analysis.stages, stages),
        table("kernels", key, &analysis.kernels, kernels),
        table("counters", key, &analysis.counters, counters),
        table("findings", key, &analysis.findings, findings),
        table("communication", key, &analysis.communication, communication),
        table("ranks", key, &analysis.ranks, ranks),
        table("requests", key, analysis.requests.as_slice(), requests),
        TableFile::new("runs", key, 1, move |_| (analysis, facts), runs),
    ]
}

fn table<'a, T>(
    name: &'static str,
    key: &str,
    rows: &'a [T],
    columns: fn(Columns<&'a T>) -> Columns<&'a T>,
) -> TableFile<'a> {
    TableFile::new(name, key, rows.len(), |row| &rows[row], columns)
}

fn runs<'a>(run: Columns<(&'a Analysis, &'a RunFacts)>) -> Columns<(&'a Analysis, &'a RunFacts)> {
    columns!(run, (a, facts);
        run_id: facts.run_id.as_deref(),
        source: facts.source.as_str(),
        format: a.sources.first().map(|source| source.format.as_str()),
        started_at: facts.started_at.as_deref(),
        host: facts.host.as_deref(),
        git_commit: facts.commit.as_deref(),
        git_dirty: facts.dirty,
        work: work(a, facts),
        model: a.workload.as_ref()?.model.as_deref(),
        dtype: a.workload.as_ref()?.dtype.as_deref(),
        gpu: gpu(a, facts),
        gpus: gpus(a),
        driver: facts.driver.as_deref(),
        cuda: facts.cuda.as_deref(),
        engine: Some(a.engine.as_ref()?.name.as_str()),
        engine_version: a.engine.as_ref()?.version.as_deref(),
        workload: facts.workload.as_deref(),
        roofgap_version: env!("CARGO_PKG_VERSION"),
        world_size: world_size(a),
        batch: a.workload.as_ref()?.batch,
        prompt_tokens: a.workload.as_ref()?.prompt_tokens,
        output_tokens: a.workload.as_ref()?.generated_tokens,
        // Of all stages; null without stages.
        wall_ns: a.stages.iter().map(Stage::elapsed_ns).reduce(i64::saturating_add),
        busy_ns: a.totals.busy_ns,
        kernel_ns: a.totals.kernel_ns,
        kernel_count: a.totals.kernel_count,
        tokens_per_s: tokens_per_s(a),
        mfu_pct: Some(a.whole.as_ref()?.mfu.as_ref()?.by_wall_pct),
        mbu_pct: Some(a.whole.as_ref()?.mbu.as_ref()?.by_wall_pct),
        overhead_pct: a.timeline_overhead().map(|overhead| (overhead.ratio - 1.0) * 100.0).reduce(f64::max),
        incident: Some(a.incident.as_ref()?.trigger.as_str()),
        incident_cause: Some(a.incident.as_ref()?.cause.as_ref()?.spike.cause.as_str()),
        exit_status: facts.exit_status,
        unreadable_files: facts.unreadable_files,
    )
}

fn gpu<'a>(analysis: &'a Analysis, facts: &'a RunFacts) -> Option<&'a str> {
    analysis.devices.iter().find_map(|device| device.name.as_deref()).or(facts.gpu.as_deref())
}

/// Counts the GPUs, over all ranks given.
fn gpus(analysis: &Analysis) -> usize {
    let of_ranks = analysis.ranks.iter().map(|rank| rank.devices.len()).sum();
    analysis.devices.len().max(of_ranks)
}

fn world_size(analysis: &Analysis) -> Option<u32> {
    let of_job = analysis.job.as_ref().and_then(|job| job.world_size);
    of_job.or_else(|| analysis.ranks.iter().find_map(|rank| rank.world_size))
}

/// Names the work of a run. Runs with one name did the same, so that their times compare; `None` without a model, because nothing tells then.
fn work(analysis: &Analysis, facts: &RunFacts) -> Option<String> {
    let workload = analysis.workload.as_ref()?;
    let mut parts = vec![workload.model.clone()?];
    parts.extend(workload.dtype.clone());
    parts.extend(gpu(analysis, facts).map(|gpu| format!("{} x {gpu}", gpus(analysis))));
    parts.extend(analysis.engine.as_ref().map(|engine| engine.name.clone()).or(facts.workload.clone()));
    parts.extend(workload.batch.map(|batch| format!("batch {batch}")));
    parts.extend(workload.prompt_tokens.map(|tokens| format!("{tokens} prompt tokens")));
    parts.extend(workload.generated_tokens.map(|tokens| format!("{tokens} new tokens")));
    parts.extend(world_size(analysis).filter(|ranks| *ranks > 1).map(|ranks| format!("{ranks} ranks")));
    Some(parts.join(", "))
}

/// Returns generated tokens per second: of the runs of a program, else of the load sent to a server, else of the engine's steps. The rate
/// of decode alone is not that of the run.
fn tokens_per_s(analysis: &Analysis) -> Option<f64> {
    let of_runs = analysis.per_run.as_ref().and_then(|run| run.tokens_per_s);
    let of_load = || analysis.requests.as_ref()?.tokens_per_s;
    let of_engine = || analysis.serving.as_ref()?.generation_tokens_per_s;
    of_runs.or_else(of_load).or_else(of_engine)
}

fn stages<'a>(rows: Columns<&'a Stage>) -> Columns<&'a Stage> {
    let energy = |stage: &'a Stage| -> Option<&'a StageEnergy> { stage.vitals.as_ref()?.energy.as_ref() };
    let vitals = |stage: &'a Stage| -> Option<&'a StageVitals> {
        stage.vitals.as_ref().filter(|vitals| vitals.samples > 0)
    };
    columns!(rows, s;
        stage: s.name.as_str(),
        kind: s.kind.as_str(),
        instances, wall_ns,
        elapsed_ns: s.elapsed_ns(),
        busy_ns, kernel_ns,
        idle_launch_ns: Some(s.causes()?.launch_ns),
        idle_sync_ns: Some(s.causes()?.sync_ns),
        idle_copy_ns: Some(s.causes()?.copy_ns),
        idle_other_ns: Some(s.causes()?.other_ns),
        kernel_count, launch_count, device_count,
        // GPUs of an instance; null where no GPU work was recorded.
        gpus: (s.device_count > 0).then_some(s.devices_per_instance),
        tokens_per_s, token_ns,
        step_count: Some(s.steps.as_ref()?.count),
        step_p50_ns: Some(s.steps.as_ref()?.p50_ns),
        step_p99_ns: Some(s.steps.as_ref()?.p99_ns),
        mfu_pct: Some(s.mfu.as_ref()?.by_wall_pct),
        mbu_pct: Some(s.mbu.as_ref()?.by_wall_pct),
        roof_pct: s.roof.roof_pct,
        above_roof_ns: s.roof.above_roof_ns,
        limited_by: Some(verdict(s).label).filter(|limit| *limit != StageLimit::NotMeasured).map(StageLimit::as_str),
        sm_mhz: vitals(s)?.sm_mhz,
        // Samples with the most frequent reason for a lower clock, and that reason.
        throttled_pct: Some(vitals(s)?.throttle.first().map_or(0.0, |reason| reason.pct)),
        throttled_by: Some(vitals(s)?.throttle.first()?.reason.as_str()),
        joules: Some(energy(s)?.joules),
        token_joules: energy(s)?.token_j,
    )
}

fn kernels(rows: Columns<&Kernel>) -> Columns<&Kernel> {
    columns!(rows, k;
        name, short_name,
        family: k.family.as_str(),
        device, calls, total_ns, median_ns, min_ns, max_ns,
        roof_pct: k.roof.roof_pct,
        above_roof_ns: k.roof.above_roof_ns,
    )
}

/// Hardware counters, a row for each kernel, launch shape and stage.
fn counters(rows: Columns<&CounterRow>) -> Columns<&CounterRow> {
    columns!(rows, r;
        stage, kernel,
        grid_x: r.grid[0],
        grid_y: r.grid[1],
        grid_z: r.grid[2],
        block_x: r.block[0],
        block_y: r.block[1],
        block_z: r.block[2],
        samples, duration_ns, timeline_ratio, sm_pct, memory_pct, dram_pct, l2_pct, l1_pct, occupancy_pct,
        dram_bytes, flops, intensity, achieved_flops_per_s, bound, reason,
    )
}

fn findings(rows: Columns<&Finding>) -> Columns<&Finding> {
    columns!(rows, f;
        finding: f.id.as_str(),
        stage, bound_ns, bound_pct, title, action,
    )
}

fn communication(rows: Columns<&CommunicationRow>) -> Columns<&CommunicationRow> {
    columns!(rows, c;
        rank, device,
        processor: c.on.as_str(),
        collective,
        process_group: c.group.as_deref(),
        group_size, calls, bytes,
        total_ns: c.is_timed().then_some(c.total_ns),
        exposed_ns: c.is_timed().then_some(c.exposed_ns),
        bus_bandwidth_bytes_per_s,
    )
}

fn ranks(rows: Columns<&RankInfo>) -> Columns<&RankInfo> {
    columns!(rows, r;
        rank, world_size,
        rank_host: r.host.as_deref(),
        kernel_count, kernel_ns, busy_ns,
        communication_ns: r.measured_exposed_ns().map(|_| r.communication_ns),
        exposed_ns: r.measured_exposed_ns(),
        idle_ns: Some(r.idle?.total_ns()),
        waited_ns, last_count, waited_for_ns,
    )
}

/// The requests that a load generator sent in a run, summarised.
fn requests(rows: Columns<&RequestStats>) -> Columns<&RequestStats> {
    columns!(rows, q;
        sent, completed, failed, prompt_tokens, output_tokens, window_ns,
        ttft_p50_ns: Some(q.ttft_ns?.p50),
        ttft_p99_ns: Some(q.ttft_ns?.p99),
        itl_p50_ns: Some(q.itl_ns?.p50),
        itl_p99_ns: Some(q.itl_ns?.p99),
        e2e_p50_ns: Some(q.e2e_ns?.p50),
        e2e_p99_ns: Some(q.e2e_ns?.p99),
        tokens_per_s, requests_per_s,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{StageKind, WorkloadInfo};

    #[test]
    fn the_rate_of_decode_is_not_that_of_the_run() {
        let mut decode = Stage::default();
        decode.kind = StageKind::Decode;
        decode.tokens_per_s = Some(100.0);
        let mut analysis = Analysis::default();
        analysis.stages.push(decode);
        assert_eq!(tokens_per_s(&analysis), None);
    }

    #[test]
    fn work_without_a_model_has_no_name() {
        let facts = RunFacts { gpu: Some("H200".to_owned()), ..RunFacts::default() };
        let mut analysis = Analysis::default();
        let mut workload = WorkloadInfo { batch: Some(8), ..WorkloadInfo::default() };
        analysis.workload = Some(workload.clone());
        assert_eq!(work(&analysis, &facts), None);
        workload.model = Some("qwen3_8b".to_owned());
        analysis.workload = Some(workload);
        assert_eq!(work(&analysis, &facts).as_deref(), Some("qwen3_8b, 0 x H200, batch 8"));
    }
}
