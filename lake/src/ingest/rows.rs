//! The rows of a run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use roofgap_analyze::{Analysis, Idle, ShortNames, Stage, StageLimit, family, verdict};
use roofgap_runs::open::Opened;
use roofgap_trace::OpKind;

use super::Facts;
use crate::tables::rows::{
    CommunicationRow, CounterRow, EventRow, FindingRow, KernelRow, RankRow, RequestRow, RunRow, StageRow,
    StepRow,
};
use crate::tables::{Cell, Record};

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
    RequestRow {
        run_key: Arc::clone(key),
        sent: count_of(stats.sent),
        completed: count_of(stats.completed),
        failed: count_of(stats.failed),
        prompt_tokens: int(stats.prompt_tokens),
        output_tokens: int(stats.output_tokens),
        window_ns: stats.window_ns,
        ttft_mean_ns: stats.ttft_ns.map(|times| times.mean),
        ttft_p50_ns: stats.ttft_ns.map(|times| times.p50),
        ttft_p90_ns: stats.ttft_ns.map(|times| times.p90),
        ttft_p99_ns: stats.ttft_ns.map(|times| times.p99),
        itl_mean_ns: stats.itl_ns.map(|times| times.mean),
        itl_p50_ns: stats.itl_ns.map(|times| times.p50),
        itl_p90_ns: stats.itl_ns.map(|times| times.p90),
        itl_p99_ns: stats.itl_ns.map(|times| times.p99),
        e2e_mean_ns: stats.e2e_ns.map(|times| times.mean),
        e2e_p50_ns: stats.e2e_ns.map(|times| times.p50),
        e2e_p90_ns: stats.e2e_ns.map(|times| times.p90),
        e2e_p99_ns: stats.e2e_ns.map(|times| times.p99),
        tokens_per_s: stats.tokens_per_s,
        requests_per_s: stats.requests_per_s,
    }
}

/// Returns the kernels of a run. Where no launches were recorded, they come from the totals of the analysis.
fn kernels(key: &Text, opened: &Opened) -> Vec<KernelRow> {
    let (ops, analysis) = (&opened.trace.ops, &opened.analysis);
    let short = ShortNames::of(analysis);
    let mut sums: HashMap<_, KernelRow> = HashMap::new();
    for row in (0..ops.len()).filter(|row| ops.kind.get(*row) == Some(&OpKind::Kernel)) {
        let (Some(&name), Some(&device)) = (ops.name.get(row), ops.device.get(row)) else {
            continue;
        };
        let launch = ops.shape_of(row);
        let stage = opened.stages.stage_of_op(row);
        let sum = sums.entry((stage, name, launch.grid, launch.block, device)).or_insert_with(|| {
            let name = opened.trace.names.get(name);
            KernelRow {
                run_key: Arc::clone(key),
                stage: stage.map(|stage| opened.stages.name(stage).into()),
                name: name.into(),
                short_name: short.get(name).into(),
                family: family(name).as_str().into(),
                grid: shape(launch.grid),
                block: shape(launch.block),
                device: opened.trace.devices.get(device.index()).map(|device| device.number.into()),
                ..KernelRow::default()
            }
        });
        let ns = ops.duration(row);
        sum.calls += 1;
        sum.total_ns = sum.total_ns.saturating_add(ns);
        sum.min_ns = Some(sum.min_ns.map_or(ns, |least| least.min(ns)));
        sum.max_ns = sum.max_ns.max(Some(ns));
    }
    let mut rows: Vec<KernelRow> = sums.into_values().collect();
    sort(&mut rows);
    if rows.is_empty() {
        let total = |kernel: &roofgap_analyze::Kernel| KernelRow {
            run_key: Arc::clone(key),
            name: kernel.name.as_str().into(),
            short_name: kernel.short_name.as_str().into(),
            family: kernel.family.as_str().into(),
            device: kernel.device.map(i64::from),
            calls: count_of(kernel.calls),
            total_ns: kernel.total_ns,
            min_ns: kernel.min_ns,
            max_ns: kernel.max_ns,
            ..KernelRow::default()
        };
        rows = analysis.kernels.iter().map(total).collect();
    }
    let all_ns = analysis.totals.kernel_ns;
    for row in rows.iter_mut().filter(|_| all_ns > 0) {
        row.share_pct = Some(row.total_ns as f64 / all_ns as f64 * 100.0);
    }
    rows
}

/// Sorts kernels. A map has no order, and the same input has to give the same file, also where GPUs of two hosts have one number.
fn sort(rows: &mut [KernelRow]) {
    rows.sort_by(|a, b| {
        let place = |row: &KernelRow| {
            (
                row.name.clone(),
                row.stage.clone(),
                row.grid.clone(),
                row.block.clone(),
                row.device,
                [Some(row.calls), Some(row.total_ns), row.min_ns, row.max_ns],
            )
        };
        place(a).cmp(&place(b))
    });
}

/// Returns every GPU operation of a run.
fn events(key: &Text, opened: &Opened) -> Vec<EventRow> {
    let ops = &opened.trace.ops;
    let stages: Vec<Text> = opened.analysis.stages.iter().map(|stage| stage.name.as_str().into()).collect();
    let mut names: HashMap<_, Text> = HashMap::new();
    let event = |row: usize| {
        let id = *ops.name.get(row)?;
        let name = names.entry(id).or_insert_with(|| opened.trace.names.get(id).into());
        let launch = ops.shape_of(row);
        let device = opened.trace.devices.get(ops.device.get(row)?.index());
        Some(EventRow {
            run_key: Arc::clone(key),
            kind: ops.kind.get(row)?.as_str().into(),
            name: Arc::clone(name),
            stage: opened.stages.stage_of_op(row).and_then(|stage| stages.get(stage).cloned()),
            device: device.map(|device| device.number.into()),
            stream: ops.stream.get(row).copied().unwrap_or_default().into(),
            start_ns: *ops.start.get(row)?,
            end_ns: *ops.end.get(row)?,
            grid: shape(launch.grid),
            block: shape(launch.block),
        })
    };
    (0..ops.len()).filter_map(event).collect()
}

/// Formats a launch shape; `None` for an operation without one.
fn shape(sizes: [u32; 3]) -> Option<Text> {
    let [x, y, z] = sizes;
    (x > 0).then(|| format!("{x}x{y}x{z}").into())
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

    #[test]
    fn gpus_with_one_number_have_one_order() {
        let row = |calls, total_ns, max_ns| KernelRow {
            name: "gemm".into(),
            device: Some(0),
            calls,
            total_ns,
            max_ns: Some(max_ns),
            ..KernelRow::default()
        };
        let sorted = vec![row(1, 9, 9), row(2, 5, 3), row(2, 5, 4), row(2, 6, 3)];
        for shift in 0..sorted.len() {
            let mut rows = sorted.clone();
            rows.rotate_left(shift);
            sort(&mut rows);
            assert_eq!(rows, sorted, "{shift}");
        }
    }
}
