//! The tables that every run has. Times are nanoseconds, percentages run from 0 to 100, and what was not measured is null.

use super::{Columns, Table};
use crate::RunFacts;
use roofgap_analyze::{
    Analysis, CommunicationRow, CounterRow, Finding, Kernel, RankInfo, RequestStats, Stage, StageEnergy,
    StageLimit, StageVitals, verdict,
};

/// Lists the tables in the order in which they are written.
pub(super) fn tables<'a>(analysis: &'a Analysis, facts: &'a RunFacts) -> [Table<'a>; 8] {
    let key = facts.key.as_str();
    [
        table("stages", key, &analysis.stages, stages),
        table("kernels", key, &analysis.kernels, kernels),
        table("counters", key, &analysis.counters, counters),
        table("findings", key, &analysis.findings, findings),
        table("communication", key, &analysis.communication, communication),
        table("ranks", key, &analysis.ranks, ranks),
        table("requests", key, analysis.requests.as_slice(), requests),
        Table::new("runs", key, 1, move |_| (analysis, facts), runs),
    ]
}

fn table<'a, T>(
    name: &'static str,
    key: &str,
    rows: &'a [T],
    columns: fn(Columns<&'a T>) -> Columns<&'a T>,
) -> Table<'a> {
    Table::new(name, key, rows.len(), |row| &rows[row], columns)
}

fn runs<'a>(run: Columns<(&'a Analysis, &'a RunFacts)>) -> Columns<(&'a Analysis, &'a RunFacts)> {
    run.with("run_id", |(_, facts)| facts.run_id.as_deref())
        .with("source", |(_, facts)| facts.source.as_str())
        .with("format", |(a, _)| a.sources.first().map(|source| source.format.as_str()))
        .with("started_at", |(_, facts)| facts.started_at.as_deref())
        .with("host", |(_, facts)| facts.host.as_deref())
        .with("git_commit", |(_, facts)| facts.commit.as_deref())
        .with("git_dirty", |(_, facts)| facts.dirty)
        .with("work", |(a, facts)| work(a, facts).as_deref().map(super::text))
        .with("model", |(a, _)| a.workload.as_ref()?.model.as_deref())
        .with("dtype", |(a, _)| a.workload.as_ref()?.dtype.as_deref())
        .with("gpu", |(a, facts)| gpu(a, facts))
        .with("gpus", |(a, _)| gpus(a))
        .with("driver", |(_, facts)| facts.driver.as_deref())
        .with("cuda", |(_, facts)| facts.cuda.as_deref())
        .with("engine", |(a, _)| Some(a.engine.as_ref()?.name.as_str()))
        .with("engine_version", |(a, _)| a.engine.as_ref()?.version.as_deref())
        .with("workload", |(_, facts)| facts.workload.as_deref())
        .with("roofgap_version", |_| env!("CARGO_PKG_VERSION"))
        .with("world_size", |(a, _)| world_size(a))
        .with("batch", |(a, _)| a.workload.as_ref()?.batch)
        .with("prompt_tokens", |(a, _)| a.workload.as_ref()?.prompt_tokens)
        .with("output_tokens", |(a, _)| a.workload.as_ref()?.generated_tokens)
        // Of all stages; null without stages.
        .with("wall_ns", |(a, _)| a.stages.iter().map(Stage::elapsed_ns).reduce(i64::saturating_add))
        .with("busy_ns", |(a, _)| a.totals.busy_ns)
        .with("kernel_ns", |(a, _)| a.totals.kernel_ns)
        .with("kernel_count", |(a, _)| a.totals.kernel_count)
        .with("tokens_per_s", |(a, _)| tokens_per_s(a))
        .with("mfu_pct", |(a, _)| Some(a.whole.as_ref()?.mfu.as_ref()?.by_wall_pct))
        .with("mbu_pct", |(a, _)| Some(a.whole.as_ref()?.mbu.as_ref()?.by_wall_pct))
        .with("overhead_pct", |(a, _)| {
            a.timeline_overhead().map(|own| (own.ratio - 1.0) * 100.0).reduce(f64::max)
        })
        .with("incident", |(a, _)| Some(a.incident.as_ref()?.trigger.as_str()))
        .with("incident_cause", |(a, _)| Some(a.incident.as_ref()?.cause.as_ref()?.spike.cause.as_str()))
        .with("exit_status", |(_, facts)| facts.exit_status)
        .with("unreadable_files", |(_, facts)| facts.unreadable_files)
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
    rows.with("stage", |s| s.name.as_str())
        .with("kind", |s| s.kind.as_str())
        .with("instances", |s| s.instances)
        .with("wall_ns", |s| s.wall_ns)
        .with("elapsed_ns", Stage::elapsed_ns)
        .with("busy_ns", |s| s.busy_ns)
        .with("kernel_ns", |s| s.kernel_ns)
        .with("idle_launch_ns", |s| Some(s.causes()?.launch_ns))
        .with("idle_sync_ns", |s| Some(s.causes()?.sync_ns))
        .with("idle_copy_ns", |s| Some(s.causes()?.copy_ns))
        .with("idle_other_ns", |s| Some(s.causes()?.other_ns))
        .with("kernel_count", |s| s.kernel_count)
        .with("launch_count", |s| s.launch_count)
        .with("device_count", |s| s.device_count)
        // GPUs of an instance; null where no GPU work was recorded.
        .with("gpus", |s| (s.device_count > 0).then_some(s.devices_per_instance))
        .with("tokens_per_s", |s| s.tokens_per_s)
        .with("token_ns", |s| s.token_ns)
        .with("step_count", |s| Some(s.steps.as_ref()?.count))
        .with("step_p50_ns", |s| Some(s.steps.as_ref()?.p50_ns))
        .with("step_p99_ns", |s| Some(s.steps.as_ref()?.p99_ns))
        .with("mfu_pct", |s| Some(s.mfu.as_ref()?.by_wall_pct))
        .with("mbu_pct", |s| Some(s.mbu.as_ref()?.by_wall_pct))
        .with("roof_pct", |s| s.roof.roof_pct)
        .with("above_roof_ns", |s| s.roof.above_roof_ns)
        .with("limited_by", |s| {
            Some(verdict(s).label).filter(|limit| *limit != StageLimit::NotMeasured).map(StageLimit::as_str)
        })
        .with("sm_mhz", |s| vitals(s)?.sm_mhz)
        // Samples with the most frequent reason for a lower clock, and that reason.
        .with("throttled_pct", |s| Some(vitals(s)?.throttle.first().map_or(0.0, |reason| reason.pct)))
        .with("throttled_by", |s| Some(vitals(s)?.throttle.first()?.reason.as_str()))
        .with("joules", |s| Some(energy(s)?.joules))
        .with("token_joules", |s| energy(s)?.token_j)
}

fn kernels<'a>(rows: Columns<&'a Kernel>) -> Columns<&'a Kernel> {
    rows.with("name", |k| k.name.as_str())
        .with("short_name", |k| k.short_name.as_str())
        .with("family", |k| k.family.as_str())
        .with("device", |k| k.device)
        .with("calls", |k| k.calls)
        .with("total_ns", |k| k.total_ns)
        .with("median_ns", |k| k.median_ns)
        .with("min_ns", |k| k.min_ns)
        .with("max_ns", |k| k.max_ns)
        .with("roof_pct", |k| k.roof.roof_pct)
        .with("above_roof_ns", |k| k.roof.above_roof_ns)
}

/// Hardware counters, a row for each kernel, launch shape and stage.
fn counters<'a>(rows: Columns<&'a CounterRow>) -> Columns<&'a CounterRow> {
    rows.with("stage", |r| r.stage.as_deref())
        .with("kernel", |r| r.kernel.as_str())
        .with("grid_x", |r| r.grid[0])
        .with("grid_y", |r| r.grid[1])
        .with("grid_z", |r| r.grid[2])
        .with("block_x", |r| r.block[0])
        .with("block_y", |r| r.block[1])
        .with("block_z", |r| r.block[2])
        .with("samples", |r| r.samples)
        .with("duration_ns", |r| r.duration_ns)
        .with("timeline_ratio", |r| r.timeline_ratio)
        .with("sm_pct", |r| r.sm_pct)
        .with("memory_pct", |r| r.memory_pct)
        .with("dram_pct", |r| r.dram_pct)
        .with("l2_pct", |r| r.l2_pct)
        .with("l1_pct", |r| r.l1_pct)
        .with("occupancy_pct", |r| r.occupancy_pct)
        .with("dram_bytes", |r| r.dram_bytes)
        .with("flops", |r| r.flops)
        .with("intensity", |r| r.intensity)
        .with("achieved_flops_per_s", |r| r.achieved_flops_per_s)
        .with("bound", |r| r.bound.as_deref())
        .with("reason", |r| r.reason.as_str())
}

fn findings<'a>(rows: Columns<&'a Finding>) -> Columns<&'a Finding> {
    rows.with("finding", |f| f.id.as_str())
        .with("stage", |f| f.stage.as_deref())
        .with("bound_ns", |f| f.bound_ns)
        .with("bound_pct", |f| f.bound_pct)
        .with("title", |f| f.title.as_str())
        .with("action", |f| f.action.as_str())
}

fn communication<'a>(rows: Columns<&'a CommunicationRow>) -> Columns<&'a CommunicationRow> {
    rows.with("rank", |c| c.rank)
        .with("device", |c| c.device)
        .with("processor", |c| c.on.as_str())
        .with("collective", |c| c.collective.as_str())
        .with("process_group", |c| c.group.as_deref())
        .with("group_size", |c| c.group_size)
        .with("calls", |c| c.calls)
        .with("bytes", |c| c.bytes)
        .with("total_ns", |c| c.is_timed().then_some(c.total_ns))
        .with("exposed_ns", |c| c.is_timed().then_some(c.exposed_ns))
        .with("bus_bandwidth_bytes_per_s", |c| c.bus_bandwidth_bytes_per_s)
}

fn ranks<'a>(rows: Columns<&'a RankInfo>) -> Columns<&'a RankInfo> {
    rows.with("rank", |r| r.rank)
        .with("world_size", |r| r.world_size)
        .with("rank_host", |r| r.host.as_deref())
        .with("kernel_count", |r| r.kernel_count)
        .with("kernel_ns", |r| r.kernel_ns)
        .with("busy_ns", |r| r.busy_ns)
        .with("communication_ns", |r| r.measured_exposed_ns().map(|_| r.communication_ns))
        .with("exposed_ns", RankInfo::measured_exposed_ns)
        .with("idle_ns", |r| Some(r.idle?.total_ns()))
        .with("waited_ns", |r| r.waited_ns)
        .with("last_count", |r| r.last_count)
        .with("waited_for_ns", |r| r.waited_for_ns)
}

/// The requests that a load generator sent in a run, summarised.
fn requests<'a>(rows: Columns<&'a RequestStats>) -> Columns<&'a RequestStats> {
    rows.with("sent", |q| q.sent)
        .with("completed", |q| q.completed)
        .with("failed", |q| q.failed)
        .with("prompt_tokens", |q| q.prompt_tokens)
        .with("output_tokens", |q| q.output_tokens)
        .with("window_ns", |q| q.window_ns)
        .with("ttft_p50_ns", |q| Some(q.ttft_ns?.p50))
        .with("ttft_p99_ns", |q| Some(q.ttft_ns?.p99))
        .with("itl_p50_ns", |q| Some(q.itl_ns?.p50))
        .with("itl_p99_ns", |q| Some(q.itl_ns?.p99))
        .with("e2e_p50_ns", |q| Some(q.e2e_ns?.p50))
        .with("e2e_p99_ns", |q| Some(q.e2e_ns?.p99))
        .with("tokens_per_s", |q| q.tokens_per_s)
        .with("requests_per_s", |q| q.requests_per_s)
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
        let mut workload = WorkloadInfo::default();
        workload.batch = Some(8);
        analysis.workload = Some(workload.clone());
        assert_eq!(work(&analysis, &facts), None);
        workload.model = Some("qwen3_8b".to_owned());
        analysis.workload = Some(workload);
        assert_eq!(work(&analysis, &facts).as_deref(), Some("qwen3_8b, 0 x H200, batch 8"));
    }
}
