//! The rows of one synthetic run.

use std::sync::Arc;

use crate::planted::{
    BATCH, Extent, GPUS, LARGER_BATCH, MODELS, NEW_DRIVER, OLD_DRIVER, PROJECTS, SLOW_KERNEL, SLOW_RANK,
    decode_mbu_pct, prefill_mfu_pct,
};
use roofgap_lake::tables::Micros;
use roofgap_lake::tables::rows::{
    CommunicationRow, CounterRow, ErrorRow, FindingRow, KernelRow, RankRow, RequestRow, RunRow, StageRow,
    StepRow,
};

type Text = Arc<str>;

/// Stages: name, kind, instances and time of an instance relative to a token of decode.
const STAGES: [(&str, &str, i64, i64); 10] = [
    ("tokenize", "custom", 16, 1),
    ("vision_encoder", "custom", 16, 4),
    ("projector", "custom", 16, 1),
    ("prefill", "prefill", 16, 20),
    ("decode", "decode", 16, 128),
    ("mixed", "mixed", 8, 3),
    ("draft", "custom", 64, 1),
    ("verify", "custom", 64, 2),
    ("sampling", "custom", 128, 1),
    ("kv_transfer", "custom", 16, 2),
];

/// Generated tokens of an instance of decode.
const TOKENS: i64 = 128;

/// Kernels: name, short name, family, calls and time of a launch, ns.
const KERNELS: [(&str, &str, &str, i64, i64); 4] = [
    ("void flash::flash_fwd_kernel<Traits<128, 64, 128>>(Params)", SLOW_KERNEL, "attention", 2048, 60_000),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        "sm90_xmma_gemm_bf16",
        "gemm",
        8192,
        90_000,
    ),
    ("void vllm::rms_norm_kernel<c10::BFloat16>(...)", "rms_norm_kernel", "norm", 4096, 4_000),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllReduce", "communication", 1024, 40_000),
];

/// Position of a run in the lake.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub day: usize,
    pub project: usize,
    pub host: usize,
    /// Number of the run in the lake.
    pub run: usize,
    /// Number of the run in its partition.
    pub index: usize,
}

/// The rows of one run.
#[derive(Default)]
pub struct Made {
    pub run: RunRow,
    pub stages: Vec<StageRow>,
    pub steps: Vec<StepRow>,
    pub kernels: Vec<KernelRow>,
    pub counters: Vec<CounterRow>,
    pub findings: Vec<FindingRow>,
    pub communication: Vec<CommunicationRow>,
    pub ranks: Vec<RankRow>,
    pub requests: Vec<RequestRow>,
    pub errors: Vec<ErrorRow>,
}

/// Noise of a run: a sequence that depends on the seed and the number of the run only.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Changes a time by at most 2 %.
    fn around(&mut self, ns: f64) -> i64 {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (ns * (0.98 + 0.04 * share)) as i64
    }
}

/// Makes the rows of a run.
pub fn make(extent: &Extent, place: Place) -> Made {
    let mut noise = Noise(extent.seed ^ (place.run as u64).wrapping_mul(0xd134_2543_de82_ef95));
    let key: Text = format!("{:016x}{:016x}", noise.next(), noise.next()).into();
    let model_at = place.index % MODELS.len();
    let gpu_at = place.host % GPUS.len();
    let (model, world_size, token_ns) = MODELS.get(model_at).copied().unwrap_or(("", 1, 1));
    let gpu = GPUS.get(gpu_at).copied().unwrap_or_default();
    let slow_host = if place.host == extent.slow_host() { 1.15 } else { 1.0 };
    let faster_gpu = if gpu_at == 1 { 0.8 } else { 1.0 };
    let speed = slow_host * faster_gpu;
    let slower = place.project == 0 && model_at == 0 && place.day >= extent.slow_day();
    let has_larger_batch = place.project == 1 && model_at == 1 && place.day >= extent.slow_day();
    let batch = if has_larger_batch { LARGER_BATCH } else { BATCH };
    let new_driver = place.day >= extent.driver_day();
    let is_server = place.project == 1;
    let mut made = Made::default();
    for (name, kind, instances, units) in STAGES {
        let regressed = if slower && kind == "decode" { 1.2 } else { 1.0 };
        let larger = if batch == LARGER_BATCH { 1.5 } else { 1.0 };
        let mean = noise.around((token_ns * units) as f64 * speed * regressed * larger);
        made.stages.push(stage(&key, name, kind, instances, mean, (model_at, gpu_at)));
    }
    made.steps.extend(made.stages.iter().filter(|stage| &*stage.kind == "decode").map(steps));
    for (name, short_name, family, calls, launch_ns) in KERNELS {
        if family == "communication" && world_size == 1 {
            continue;
        }
        let driver = if new_driver && short_name == SLOW_KERNEL { 1.3 } else { 1.0 };
        let mean = noise.around(launch_ns as f64 * speed * driver);
        made.kernels.push(KernelRow {
            run_key: Arc::clone(&key),
            stage: Some("decode".into()),
            name: name.into(),
            short_name: short_name.into(),
            family: family.into(),
            grid: Some("132x1x1".into()),
            block: Some("256x1x1".into()),
            device: Some(0),
            calls,
            total_ns: calls * mean,
            min_ns: Some(mean / 2),
            max_ns: Some(mean * 2),
            share_pct: None,
        });
    }
    let kernel_ns: i64 = made.kernels.iter().map(|kernel| kernel.total_ns).sum();
    for kernel in &mut made.kernels {
        kernel.share_pct = Some(kernel.total_ns as f64 / kernel_ns as f64 * 100.0);
    }
    let sum = |value: fn(&StageRow) -> Option<i64>| made.stages.iter().filter_map(value).sum::<i64>();
    let wall_ns = sum(|stage| Some(stage.elapsed_ns));
    let decode = made.stages.iter().find(|stage| &*stage.kind == "decode");
    let started = extent.date(place.day).at(0, 0, 0, 0).to_zoned(jiff::tz::TimeZone::UTC);
    let started = started.map_or(0, |day| day.timestamp().as_microsecond());
    made.run = RunRow {
        run_key: Arc::clone(&key),
        run_id: Some(format!("run-{}", place.run).into()),
        source: format!("synthetic/{}", place.run).into(),
        kind: "run".into(),
        format: Some("native".into()),
        started_at: Some(Micros(started + place.index as i64 * 1_000_000)),
        date_from: "run".into(),
        git_commit: Some(extent.commit(place.project, place.day).into()),
        git_dirty: Some(false),
        model: Some(model.into()),
        dtype: Some("bfloat16".into()),
        gpu: Some(gpu.into()),
        gpus: world_size,
        driver: Some(if new_driver { NEW_DRIVER } else { OLD_DRIVER }.into()),
        cuda: Some("12.4.127".into()),
        engine: Some("vllm".into()),
        engine_version: Some(if place.day * 2 < extent.days { "0.9.2" } else { "0.10.0" }.into()),
        workload: Some(if is_server { "server" } else { "hf" }.into()),
        roofgap_version: env!("CARGO_PKG_VERSION").into(),
        world_size: Some(world_size),
        batch: Some(batch),
        prompt_tokens: Some(1024),
        output_tokens: Some(TOKENS),
        wall_ns: Some(wall_ns),
        busy_ns: Some(sum(|stage| stage.busy_ns) * world_size),
        kernel_ns,
        kernel_count: made.kernels.iter().map(|kernel| kernel.calls).sum(),
        tokens_per_s: decode.and_then(|decode| decode.tokens_per_s),
        mfu_pct: Some(prefill_mfu_pct(model_at, gpu_at)),
        mbu_pct: Some(decode_mbu_pct(model_at, gpu_at)),
        overhead_pct: Some(2.0 + (noise.next() % 100) as f64 / 100.0),
        incident: None,
        incident_cause: None,
        exit_status: Some(0),
        labels: place.index.is_multiple_of(5).then(|| "experiment=baseline".into()),
        unreadable_files: 0,
    };
    made.findings.extend(findings(&key, &made.stages));
    if world_size > 1 {
        distributed(&mut made, &key, world_size, speed, extent.host(place.host), &mut noise);
    }
    if is_server {
        made.requests.push(requests(&key, token_ns as f64 * speed, &mut noise));
    }
    if place.index.is_multiple_of(10) {
        made.counters.extend(counters(&key, &mut noise));
    }
    if place.run % 100 == 99 {
        made.errors.push(ErrorRow {
            run_key: format!("{:016x}{:016x}", noise.next(), noise.next()).into(),
            source: format!("synthetic/broken-{}", place.run).into(),
            error: "the capture ends in the middle of a frame".into(),
            roofgap_version: env!("CARGO_PKG_VERSION").into(),
        });
    }
    debug_assert!(place.project < PROJECTS.len());
    made
}

fn stage(
    key: &Text,
    name: &str,
    kind: &str,
    instances: i64,
    mean_ns: i64,
    (model, gpu): (usize, usize),
) -> StageRow {
    let elapsed_ns = mean_ns * instances;
    let busy_ns = elapsed_ns / 10 * 8;
    let idle = elapsed_ns - busy_ns;
    let is_decode = kind == "decode";
    let tokens = instances * TOKENS;
    let kernel_count = instances * 300;
    StageRow {
        run_key: Arc::clone(key),
        stage: name.into(),
        kind: kind.into(),
        instances,
        wall_ns: elapsed_ns,
        elapsed_ns,
        busy_ns: Some(busy_ns),
        kernel_ns: Some(busy_ns),
        idle_launch_ns: Some(idle / 2),
        idle_sync_ns: Some(idle / 4),
        idle_copy_ns: Some(idle / 8),
        idle_other_ns: Some(idle - idle / 2 - idle / 4 - idle / 8),
        kernel_count,
        launch_count: kernel_count,
        device_count: 1,
        tokens_per_s: is_decode.then(|| tokens as f64 * 1e9 / elapsed_ns as f64),
        token_ns: is_decode.then(|| elapsed_ns / tokens),
        mean_ns: Some(mean_ns),
        mfu_pct: (kind == "prefill").then(|| prefill_mfu_pct(model, gpu)),
        mbu_pct: is_decode.then(|| decode_mbu_pct(model, gpu)),
        roof_pct: Some(50.0),
        above_roof_ns: Some(busy_ns / 2),
        context_tokens: None,
        generation_tokens: is_decode.then_some(tokens),
        limited_by: Some("GPU-bound".into()),
        devices_per_instance: Some(1.0),
        sm_mhz: None,
        throttled_pct: None,
        throttled_by: None,
        joules: None,
        idle_joules: None,
        token_joules: None,
        million_tokens_cost: None,
    }
}

fn steps(stage: &StageRow) -> StepRow {
    let mean_ns = stage.token_ns.unwrap_or_default();
    StepRow {
        run_key: Arc::clone(&stage.run_key),
        stage: Arc::clone(&stage.stage),
        step_count: stage.instances * TOKENS,
        mean_ns,
        min_ns: Some(mean_ns / 10 * 9),
        p50_ns: mean_ns,
        p90_ns: mean_ns / 10 * 11,
        p99_ns: mean_ns / 10 * 13,
        max_ns: Some(mean_ns * 2),
        first_ns: Some(mean_ns * 2),
        launches_per_step: Some(300.0),
    }
}

fn findings(key: &Text, stages: &[StageRow]) -> Vec<FindingRow> {
    let decode = stages.iter().find(|stage| &*stage.kind == "decode");
    let elapsed = decode.map_or(0, |stage| stage.elapsed_ns);
    let finding = |(at, (id, share, title, action)): (i64, (&str, i64, &str, &str))| FindingRow {
        run_key: Arc::clone(key),
        finding: id.into(),
        stage: Some("decode".into()),
        position: at,
        bound_ns: elapsed / 100 * share,
        bound_pct: share as f64,
        title: title.into(),
        action: action.into(),
    };
    let all = [
        ("launch-bound", 10, "decode waits for launches", "use CUDA graphs"),
        ("sync-in-step", 5, "decode waits for the device", "remove the synchronisation"),
    ];
    (1..).zip(all).map(finding).collect()
}

/// Adds ranks and communication. The slow rank computes longer, and the others wait for it.
fn distributed(made: &mut Made, key: &Text, world_size: i64, speed: f64, host: String, noise: &mut Noise) {
    let host: Text = host.into();
    for rank in 0..world_size {
        let slow = rank == SLOW_RANK;
        let compute = noise.around(1e9 * speed * if slow { 1.25 } else { 1.0 });
        let communication = noise.around(if slow { 5e7 } else { 3e8 } * speed);
        made.ranks.push(RankRow {
            run_key: Arc::clone(key),
            rank,
            world_size: Some(world_size),
            rank_host: Some(Arc::clone(&host)),
            kernel_count: 15_360,
            kernel_ns: compute + communication,
            busy_ns: Some(compute + communication),
            communication_ns: Some(communication),
            exposed_ns: Some(communication / 2),
            idle_ns: Some(compute / 10),
            waited_ns: Some(if slow { 0 } else { communication / 3 }),
            last_count: Some(if slow { 1000 } else { 3 }),
            waited_for_ns: Some(if slow { 80_000_000 } else { 100_000 }),
        });
    }
    made.communication.push(CommunicationRow {
        run_key: Arc::clone(key),
        rank: Some(0),
        device: Some(0),
        processor: "gpu".into(),
        collective: "all_reduce".into(),
        process_group: Some("tp".into()),
        group_size: Some(world_size),
        calls: 1024,
        bytes: Some(1024 * 16_777_216),
        total_ns: Some(noise.around(3e8 * speed)),
        exposed_ns: Some(noise.around(1.5e8 * speed)),
        bus_bandwidth_bytes_per_s: Some(2.5e11),
    });
}

fn requests(key: &Text, token_ns: f64, noise: &mut Noise) -> RequestRow {
    let (ttft, itl) = (noise.around(token_ns * 20.0), noise.around(token_ns));
    let e2e = ttft + itl * TOKENS;
    RequestRow {
        run_key: Arc::clone(key),
        sent: 200,
        completed: 199,
        failed: 1,
        prompt_tokens: Some(199 * 1024),
        output_tokens: Some(199 * TOKENS),
        window_ns: e2e * 20,
        ttft_mean_ns: Some(ttft),
        ttft_p50_ns: Some(ttft / 10 * 9),
        ttft_p90_ns: Some(ttft / 10 * 15),
        ttft_p99_ns: Some(ttft * 2),
        itl_mean_ns: Some(itl),
        itl_p50_ns: Some(itl / 10 * 9),
        itl_p90_ns: Some(itl / 10 * 15),
        itl_p99_ns: Some(itl * 2),
        e2e_mean_ns: Some(e2e),
        e2e_p50_ns: Some(e2e / 10 * 9),
        e2e_p90_ns: Some(e2e / 10 * 15),
        e2e_p99_ns: Some(e2e * 2),
        tokens_per_s: Some(199.0 * TOKENS as f64 / (e2e as f64 * 20.0 / 1e9)),
        requests_per_s: Some(199.0 / (e2e as f64 * 20.0 / 1e9)),
    }
}

fn counters(key: &Text, noise: &mut Noise) -> Vec<CounterRow> {
    let kernel = KERNELS[1].0;
    let counter = |metric: &str, unit: &str, value: f64| CounterRow {
        run_key: Arc::clone(key),
        stage: Some("decode".into()),
        kernel: kernel.into(),
        grid: "132x1x1".into(),
        block: "256x1x1".into(),
        metric: metric.into(),
        unit: unit.into(),
        value,
    };
    let dram = 60.0 + (noise.next() % 1000) as f64 / 100.0;
    vec![
        counter("dram_pct", "%", dram),
        counter("sm_pct", "%", 100.0 - dram),
        counter("samples", "launches", 4.0),
    ]
}
