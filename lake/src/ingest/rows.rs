//! The rows of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use roofgap_analyze::{Analysis, Idle, Percentiles, Stage, StageLimit, verdict};
use roofgap_runs::open::Opened;

use super::facts::Facts;
use super::kernels::{events, kernels, shape};
use crate::tables::record::{Cell, Record};
use crate::tables::rows::{
    CommunicationRow, CounterRow, FindingRow, RankRow, RequestRow, RunRow, StageRow, StepRow,
};

type Text = Arc<str>;

/// Rows by table.
#[derive(Debug, Default)]
pub struct Rows(pub BTreeMap<&'static str, Vec<Vec<Cell>>>);

impl Rows {
    pub fn push<R: Record>(&mut self, row: R) {
        self.0.entry(R::TABLE.name).or_default().push(row.cells());
    }

    fn extend<R: Record>(&mut self, rows: impl IntoIterator<Item = R>) {
        rows.into_iter().for_each(|row| self.push(row));
    }
}

/// Statements of the user that go into the row of a run.
#[derive(Debug)]
pub struct Given<'a> {
    pub key: Text,
    pub source: String,
    pub date_from: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub events: bool,
}

/// Builds the rows of a run.
pub fn rows(opened: &Opened, facts: &Facts, given: &Given<'_>) -> Rows {
    let mut rows = Rows::default();
    let (key, analysis) = (&given.key, &opened.analysis);
    rows.push(run(opened, facts, given));
    rows.extend(analysis.stages.iter().map(|row| stage(key, row)));
    rows.extend(analysis.stages.iter().filter_map(|row| steps(key, row)));
    rows.extend(kernels(key, opened));
    rows.extend(analysis.counters.iter().flat_map(|row| counters(key, row)));
    rows.extend(findings(key, analysis));
    rows.extend(communication(key, analysis));
    rows.extend(analysis.ranks.iter().map(|row| rank(key, row)));
    rows.extend(analysis.requests.iter().map(|row| requests(key, row)));
    if given.events {
        rows.extend(events(key, opened));
    }
    rows
}

fn run(opened: &Opened, facts: &Facts, given: &Given<'_>) -> RunRow {
    let analysis = &opened.analysis;
    let workload = analysis.workload.as_ref();
    let engine = analysis.engine.as_ref();
    let (whole, incident) = (analysis.whole.as_ref(), analysis.incident.as_ref());
    let ranks = &analysis.ranks;
    let of_ranks: usize = ranks.iter().map(|rank| rank.devices.len()).sum();
    let labels: Vec<String> = given.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let elapsed = analysis.stages.iter().map(Stage::elapsed_ns);
    let recorded = analysis.devices.iter().find_map(|device| maybe(device.name.as_deref()));
    let world = analysis.job.as_ref().and_then(|job| job.world_size);
    RunRow {
        run_key: Arc::clone(&given.key),
        run_id: maybe(facts.run_id.as_deref()),
        source: given.source.as_str().into(),
        kind: facts.kind.into(),
        format: format(opened),
        started_at: facts.started_at,
        date_from: given.date_from.into(),
        git_commit: maybe(facts.commit.as_deref()),
        git_dirty: facts.dirty,
        model: maybe(workload.and_then(|workload| workload.model.as_deref())),
        dtype: maybe(workload.and_then(|workload| workload.dtype.as_deref())),
        gpu: recorded.or_else(|| maybe(facts.gpus.first().map(String::as_str))),
        gpus: count_of(of_ranks.max(analysis.devices.len())),
        driver: maybe(facts.driver.as_deref()),
        cuda: maybe(facts.cuda.as_deref()),
        engine: engine.map(|engine| engine.name.as_str().into()),
        engine_version: maybe(engine.and_then(|engine| engine.version.as_deref())),
        workload: maybe(facts.workload.as_deref()),
        roofgap_version: env!("CARGO_PKG_VERSION").into(),
        world_size: world.or_else(|| ranks.iter().find_map(|rank| rank.world_size)).map(i64::from),
        batch: workload.and_then(|workload| int(workload.batch)),
        prompt_tokens: workload.and_then(|workload| int(workload.prompt_tokens)),
        output_tokens: workload.and_then(|workload| int(workload.generated_tokens)),
        wall_ns: elapsed.reduce(i64::saturating_add),
        busy_ns: analysis.totals.busy_ns,
        kernel_ns: analysis.totals.kernel_ns,
        kernel_count: count_of(analysis.totals.kernel_count),
        tokens_per_s: tokens_per_s(analysis),
        mfu_pct: whole.and_then(|whole| Some(whole.mfu.as_ref()?.by_wall_pct)),
        mbu_pct: whole.and_then(|whole| Some(whole.mbu.as_ref()?.by_wall_pct)),
        overhead_pct: analysis.timeline_overhead().map(|row| (row.ratio - 1.0) * 100.0).reduce(f64::max),
        incident: incident.map(|moment| moment.trigger.as_str().into()),
        incident_cause: incident.and_then(|moment| Some(moment.cause.as_ref()?.spike.cause.as_str().into())),
        exit_status: facts.exit_status.map(i64::from),
        labels: (!labels.is_empty()).then(|| labels.join(",").into()),
        unreadable_files: count_of(opened.unreadable.len()),
    }
}

/// Returns the format of the timeline, else of the first file.
fn format(opened: &Opened) -> Option<Text> {
    let mut sources = opened.trace.sources.iter();
    let timeline = sources.find(|source| source.format.is_timeline());
    let first = || opened.analysis.sources.first().map(|source| source.format.as_str().into());
    timeline.map(|source| source.format.as_str().into()).or_else(first)
}

/// Returns generated tokens per second: of the runs of a program, else of the load sent to a server, else of the engine's steps. The rate
/// of decode alone is not that of the run.
fn tokens_per_s(analysis: &Analysis) -> Option<f64> {
    let of_runs = analysis.per_run.as_ref().and_then(|run| run.tokens_per_s);
    let of_load = || analysis.requests.as_ref()?.tokens_per_s;
    let of_engine = || analysis.serving.as_ref()?.generation_tokens_per_s;
    of_runs.or_else(of_load).or_else(of_engine)
}

fn stage(key: &Text, stage: &Stage) -> StageRow {
    let idle = stage.causes();
    let cause = |cause: fn(&Idle) -> i64| idle.as_ref().map(cause);
    let limit = verdict(stage).label;
    let vitals = stage.vitals.as_ref().filter(|own| own.samples > 0);
    let throttle = vitals.and_then(|own| own.throttle.first());
    let energy = stage.vitals.as_ref().and_then(|own| own.energy.as_ref());
    StageRow {
        run_key: Arc::clone(key),
        stage: stage.name.as_str().into(),
        kind: stage.kind.as_str().into(),
        instances: count_of(stage.instances),
        wall_ns: stage.wall_ns,
        elapsed_ns: stage.elapsed_ns(),
        busy_ns: stage.busy_ns,
        kernel_ns: stage.kernel_ns,
        idle_launch_ns: cause(|idle| idle.launch_ns),
        idle_sync_ns: cause(|idle| idle.sync_ns),
        idle_copy_ns: cause(|idle| idle.copy_ns),
        idle_other_ns: cause(|idle| idle.other_ns),
        kernel_count: count_of(stage.kernel_count),
        launch_count: count_of(stage.launch_count),
        device_count: count_of(stage.device_count),
        tokens_per_s: stage.tokens_per_s,
        token_ns: stage.token_ns,
        mean_ns: stage.mean_ns,
        mfu_pct: stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct),
        mbu_pct: stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct),
        roof_pct: stage.roof.roof_pct,
        above_roof_ns: stage.roof.above_roof_ns,
        context_tokens: stage.tokens.and_then(|tokens| int(tokens.context)),
        generation_tokens: stage.tokens.and_then(|tokens| int(tokens.generation)),
        limited_by: (limit != StageLimit::NotMeasured).then(|| limit.as_str().into()),
        devices_per_instance: (stage.device_count > 0).then_some(stage.devices_per_instance),
        sm_mhz: vitals.and_then(|own| own.sm_mhz),
        throttled_pct: vitals.map(|_| throttle.map_or(0.0, |own| own.pct)),
        throttled_by: throttle.map(|own| own.reason.as_str().into()),
        joules: energy.map(|own| own.joules),
        idle_joules: energy.map(|own| own.idle_j),
        token_joules: energy.and_then(|own| own.token_j),
        million_tokens_cost: stage.cost.as_ref().map(|cost| cost.million_tokens),
    }
}

fn steps(key: &Text, stage: &Stage) -> Option<StepRow> {
    let steps = stage.steps.as_ref()?;
    Some(StepRow {
        run_key: Arc::clone(key),
        stage: stage.name.as_str().into(),
        step_count: count_of(steps.count),
        mean_ns: steps.mean_ns,
        min_ns: steps.each_ns.iter().min().copied(),
        p50_ns: steps.p50_ns,
        p90_ns: steps.p90_ns,
        p99_ns: steps.p99_ns,
        max_ns: steps.each_ns.iter().max().copied(),
        first_ns: steps.each_ns.first().copied(),
        launches_per_step: steps.launches_per_step,
    })
}

fn counters(key: &Text, row: &roofgap_analyze::CounterRow) -> Vec<CounterRow> {
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    let values = [
        ("samples", "launches", Some(row.samples as f64)),
        ("duration_ns", "ns", row.duration_ns.map(|ns| ns as f64)),
        ("timeline_ratio", "ratio", row.timeline_ratio),
        ("sm_pct", "%", row.sm_pct),
        ("memory_pct", "%", row.memory_pct),
        ("dram_pct", "%", row.dram_pct),
        ("l2_pct", "%", row.l2_pct),
        ("l1_pct", "%", row.l1_pct),
        ("occupancy_pct", "%", row.occupancy_pct),
        ("dram_bytes", "bytes", whole(row.dram_bytes)),
        ("flops", "flops", whole(row.flops)),
        ("intensity", "flops/byte", row.intensity),
        ("achieved_flops_per_s", "flops/s", row.achieved_flops_per_s),
        ("l1_bytes_per_s", "bytes/s", row.caches.and_then(|caches| caches.l1_bytes_per_s)),
        ("l2_bytes_per_s", "bytes/s", row.caches.and_then(|caches| caches.l2_bytes_per_s)),
    ];
    let measured = values
        .into_iter()
        .filter_map(|(metric, unit, value)| Some((metric, unit, value.filter(|value| value.is_finite())?)));
    measured
        .map(|(metric, unit, value)| CounterRow {
            run_key: Arc::clone(key),
            stage: maybe(row.stage.as_deref()),
            kernel: row.kernel.as_str().into(),
            grid: shape(row.grid).unwrap_or_else(|| "unknown".into()),
            block: shape(row.block).unwrap_or_else(|| "unknown".into()),
            metric: metric.into(),
            unit: unit.into(),
            value,
        })
        .collect()
}

fn findings<'a>(key: &'a Text, analysis: &'a Analysis) -> impl Iterator<Item = FindingRow> + 'a {
    analysis.findings.iter().zip(1..).map(|(finding, position)| FindingRow {
        run_key: Arc::clone(key),
        finding: finding.id.as_str().into(),
        stage: maybe(finding.stage.as_deref()),
        position,
        bound_ns: finding.bound_ns,
        bound_pct: if finding.bound_pct.is_finite() { finding.bound_pct } else { 0.0 },
        title: finding.title.as_str().into(),
        action: finding.action.as_str().into(),
    })
}

fn communication<'a>(key: &'a Text, analysis: &'a Analysis) -> impl Iterator<Item = CommunicationRow> + 'a {
    analysis.communication.iter().map(|row| CommunicationRow {
        run_key: Arc::clone(key),
        rank: row.rank.map(i64::from),
        device: row.device.map(i64::from),
        processor: row.on.as_str().into(),
        collective: row.collective.as_str().into(),
        process_group: maybe(row.group.as_deref()),
        group_size: row.group_size.map(i64::from),
        calls: count_of(row.calls),
        bytes: int(row.bytes),
        total_ns: row.is_timed().then_some(row.total_ns),
        exposed_ns: row.is_timed().then_some(row.exposed_ns),
        bus_bandwidth_bytes_per_s: row.bus_bandwidth_bytes_per_s,
    })
}

fn rank(key: &Text, rank: &roofgap_analyze::RankInfo) -> RankRow {
    let exposed_ns = rank.measured_exposed_ns();
    RankRow {
        run_key: Arc::clone(key),
        rank: rank.rank.into(),
        world_size: rank.world_size.map(i64::from),
        rank_host: maybe(rank.host.as_deref()),
        kernel_count: count_of(rank.kernel_count),
        kernel_ns: rank.kernel_ns,
        busy_ns: rank.busy_ns,
        communication_ns: exposed_ns.map(|_| rank.communication_ns),
        exposed_ns,
        idle_ns: rank.idle.map(|idle| idle.total_ns()),
        waited_ns: rank.waited_ns,
        last_count: int(rank.last_count),
        waited_for_ns: rank.waited_for_ns,
    }
}

fn requests(key: &Text, stats: &roofgap_analyze::RequestStats) -> RequestRow {
    let of = |times: Option<Percentiles>, value: fn(Percentiles) -> i64| times.map(value);
    RequestRow {
        run_key: Arc::clone(key),
        sent: count_of(stats.sent),
        completed: count_of(stats.completed),
        failed: count_of(stats.failed),
        prompt_tokens: int(stats.prompt_tokens),
        output_tokens: int(stats.output_tokens),
        window_ns: stats.window_ns,
        ttft_mean_ns: of(stats.ttft_ns, |times| times.mean),
        ttft_p50_ns: of(stats.ttft_ns, |times| times.p50),
        ttft_p90_ns: of(stats.ttft_ns, |times| times.p90),
        ttft_p99_ns: of(stats.ttft_ns, |times| times.p99),
        itl_mean_ns: of(stats.itl_ns, |times| times.mean),
        itl_p50_ns: of(stats.itl_ns, |times| times.p50),
        itl_p90_ns: of(stats.itl_ns, |times| times.p90),
        itl_p99_ns: of(stats.itl_ns, |times| times.p99),
        e2e_mean_ns: of(stats.e2e_ns, |times| times.mean),
        e2e_p50_ns: of(stats.e2e_ns, |times| times.p50),
        e2e_p90_ns: of(stats.e2e_ns, |times| times.p90),
        e2e_p99_ns: of(stats.e2e_ns, |times| times.p99),
        tokens_per_s: stats.tokens_per_s,
        requests_per_s: stats.requests_per_s,
    }
}

fn maybe(text: Option<&str>) -> Option<Text> {
    text.filter(|text| !text.is_empty()).map(Text::from)
}

fn int(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

fn count_of(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_decode_is_not_that_of_the_run() {
        let mut decode = Stage::default();
        decode.kind = roofgap_analyze::StageKind::Decode;
        decode.tokens_per_s = Some(100.0);
        let mut analysis = Analysis::default();
        analysis.stages.push(decode);
        assert_eq!(tokens_per_s(&analysis), None);
    }

    #[test]
    fn a_stage_has_its_gpus_per_instance() {
        let devices = |device_count| {
            let mut row = Stage::default();
            row.device_count = device_count;
            row.devices_per_instance = 4.0;
            stage(&"k".into(), &row).devices_per_instance
        };
        assert_eq!((devices(4), devices(0)), (Some(4.0), None));
    }
}
