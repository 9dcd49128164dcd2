//! Kernels: too small, not fused, off the tensor cores, and the advice of ncu's own rules.

use super::measured::{WARP, above_roof_ns, beyond_shortest_ns, busiest_pct, full_pipe, is_long, keeps_data};
use super::occupancy::filled;
use crate::counters::{Bound, Measured};
use crate::findings::evidence::{ChainUse, ShapeUse};
use crate::findings::rule::{View, fill, percent};
use crate::gpu::{Dtype, GpuFacts, UnknownGpu, lookup};
use crate::names::{Family, is_initialisation, on_cuda_cores};
use crate::numbers::{count, counted, time};
use crate::result::{Confidence, CounterRow, Finding, Kernel, NcuRule, Stage};
use crate::timeline::Grouped;

/// Share of the stage's kernel time, in %, from which on small kernels are worth a line.
const LEAST_SMALL_PCT: f64 = 20.0;

/// Kernels with fewer blocks than the device has multiprocessors. Those that talk to other devices are meant to be small, and the
/// products of a model that is split over devices wait for their weights. Time in which another kernel runs beside them does not
/// count. The bound is the time that a full device would not need, beyond the shortest time of a kernel.
pub fn small_kernels(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, kernel_ns) = (view.evidence?, stage.kernel_ns?);
    let counts = |family: Family| match family {
        Family::Communication => false,
        Family::Gemm | Family::Gemv => evidence.communication.is_none(),
        _ => true,
    };
    let mut calls = 0;
    let mut total_ns = 0;
    let mut unused = 0.0;
    let mut shared_ns = 0;
    let mut largest: Option<(&ShapeUse, i64, u32)> = None;
    let mut is_long = false;
    // Without a timeline, kernels that make the input are not part of the work.
    let is_input = |name: &str| stage.idle.is_none() && is_initialisation(name);
    // Blocks of less than a warp are another finding.
    let counts = |shape: &&ShapeUse| counts(shape.family) && !is_input(&shape.name) && !is_narrow(shape);
    for shape in evidence.shapes.iter().filter(counts) {
        let Some(sms) = shape.sms.filter(|sms| shape.blocks > 0 && shape.blocks < u64::from(*sms)) else {
            continue;
        };
        let alone_ns = shape.total_ns - shape.shared_ns;
        let lasts = shape.total_ns > LONG_NS.saturating_mul(shape.calls as i64);
        calls += shape.calls;
        total_ns += alone_ns;
        shared_ns += shape.shared_ns;
        // More warps do not shorten the latency that is most of a short kernel, and a block for nearly each multiprocessor is not small.
        let few = 10 * shape.blocks <= 9 * u64::from(sms);
        let used = filled(shape, sms).filter(|_| lasts && few);
        let used = used.unwrap_or(shape.blocks as f64 / f64::from(sms));
        let most_ns = beyond_shortest_ns(alone_ns, shape.calls);
        unused += (alone_ns as f64 * (1.0 - used)).min(most_ns as f64);
        if largest.is_none_or(|(_, ns, _)| alone_ns > ns) {
            largest = Some((shape, alone_ns, sms));
            is_long = lasts;
        }
    }
    let (ShapeUse { name, blocks, threads, .. }, _, sms) = largest?;
    let share = percent(total_ns, kernel_ns);
    if share < LEAST_SMALL_PCT {
        return None;
    }
    let short = view.short_names.get(name);
    let alone = if shared_ns > 0 { " alone on the GPU for" } else { "" };
    let title = format!(
        "{} fewer blocks than the GPU has multiprocessors ({sms}):{alone} {share:.0} % of kernel time",
        kernels_have(stage, calls)
    );
    let action = format!(
        "{}. The largest is {short} with {} of {}. Small kernels take {} in all.",
        larger_launches(view, is_long),
        counted(*blocks, "block"),
        counted((*threads).into(), "thread"),
        time(total_ns)
    );
    view.saves_on_devices(&[
        ("small kernels alone on the GPU", total_ns),
        ("their share of it", unused as i64 - total_ns),
    ])
    .with("small_kernels", calls)
    .with("kernels", stage.kernel_count)
    .with("small_kernel_ns", total_ns)
    .with_number("share_of_kernel_time_pct", share)
    .with("multiprocessors", sms)
    .with("largest", short)
    .with("largest_blocks", *blocks)
    .finish(title, action)
}

/// Says how a launch gets more work.
fn larger_launches(view: &View<'_>, is_long: bool) -> String {
    let give = match is_long && view.program.is_plain() {
        true => "Spread the work of a launch over more of the GPU",
        false => "Give each launch more to do at a time",
    };
    let more = match (view.program.generates, view.program.is_torch) {
        (true, _) => "more sequences at once",
        (_, true) => "a larger batch at once",
        _ => "more blocks and threads, or several pieces of work at once",
    };
    let products = view.stage.kernels.iter().any(|kernel| kernel.family == Family::Gemm);
    let split = if products { "; for matrix products a split of the inner dimension" } else { "" };
    let fused = if is_long { "" } else { ", or kernels fused with their neighbours" };
    format!("{give}: {more}{fused}{split}")
}

/// Begins a sentence about some of the kernels of a stage.
fn kernels_have(stage: &Stage, calls: u64) -> String {
    let which = match calls == stage.kernel_count {
        true if calls == 1 => "the only kernel".to_owned(),
        true => format!("all {} kernels", count(calls)),
        false => format!("{} of {} kernels", count(calls), count(stage.kernel_count)),
    };
    let have = if calls == 1 { "has" } else { "have" };
    format!("{which} of {} {have}", stage.spoken())
}

/// Mean duration of a kernel from which on its launch and its neighbours do not matter, ns.
const LONG_NS: i64 = 50_000;

/// Tells whether the blocks of a launch have less than a warp, and that leaves more of the GPU unused than their number.
fn is_narrow(shape: &ShapeUse) -> bool {
    let by_number = |sms: u32| shape.blocks * u64::from(WARP) < u64::from(shape.threads) * u64::from(sms);
    (1..WARP).contains(&shape.threads) && shape.blocks > 0 && shape.sms.is_some_and(|sms| !by_number(sms))
}

/// Kernels with blocks of less than a warp. The bound is the share of the lanes of the device that have no thread.
pub fn small_blocks(view: &View<'_>) -> Option<Finding> {
    let (stage, kernel_ns) = (view.stage, view.stage.kernel_ns?);
    let counts = |shape: &&ShapeUse| is_narrow(shape) && is_long(shape.total_ns, shape.calls);
    let shapes: Vec<&ShapeUse> = view.evidence?.shapes.iter().filter(counts).collect();
    let largest = shapes.iter().max_by_key(|shape| shape.total_ns)?;
    let (calls, total_ns) = (shapes.iter().map(|s| s.calls).sum(), shapes.iter().map(|s| s.total_ns).sum());
    let filled = |s: &&ShapeUse| s.blocks as f64 / f64::from(s.sms.unwrap_or(1).max(1));
    let lanes = |s: &&ShapeUse| f64::from(s.threads) / f64::from(WARP) * filled(s).min(1.0);
    let used = shapes.iter().map(|s| s.total_ns as f64 * lanes(s)).sum::<f64>() as i64;
    let share = percent(total_ns, kernel_ns);
    if share < LEAST_SMALL_PCT {
        return None;
    }
    let short = view.short_names.get(&largest.name);
    let title = format!(
        "{} blocks of fewer than {WARP} threads: {share:.0} % of kernel time",
        kernels_have(stage, calls)
    );
    let few = largest.sms.filter(|sms| largest.blocks < u64::from(*sms));
    let more =
        few.map_or_else(String::new, |sms| format!(" Use more blocks, too, for its {sms} multiprocessors."));
    let action = format!(
        "{short} has {} of {}. {}{more}",
        counted(largest.blocks, "block"),
        counted(largest.threads.into(), "thread"),
        view.action("whole warps")
    );
    view.saves_on_devices(&[("kernels of small blocks", total_ns), ("their share of the lanes", -used)])
        .with("small_block_kernels", calls)
        .with("small_block_ns", total_ns)
        .with("largest", short)
        .with("largest_threads", largest.threads)
        .finish(title, action)
}

/// Mean duration of the launches of a shape over the shortest of them from which on more than their work holds them up.
const STRETCHED: i64 = 8;

/// Kernels that take many times as long as the shortest launch of the same shape, where nothing runs beside them. Elementwise kernels of
/// one shape have the same work; only where most of their time is stretched does it count for products too. The bound is their time
/// beyond the shortest launches.
pub fn stretched(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let of = |light: bool| {
        let family = move |family| match family {
            Family::Elementwise | Family::CopyLayout => light,
            family => !light && family == Family::Gemm,
        };
        view.evidence
            .into_iter()
            .flat_map(|evidence| &evidence.shapes)
            .filter(move |shape| family(shape.family))
    };
    let usual_ns = |shape: &ShapeUse| shape.shortest_ns.saturating_mul(shape.calls as i64);
    let is_stretched = |shape: &&ShapeUse| {
        (1..shape.total_ns / STRETCHED).contains(&usual_ns(shape)) && 2 * shape.shared_ns < shape.total_ns
    };
    let sum = |shapes: &mut dyn Iterator<Item = &ShapeUse>| shapes.map(|shape| shape.total_ns).sum::<i64>();
    if 2 * sum(&mut of(true).filter(is_stretched)) < sum(&mut of(true)) {
        return None;
    }
    let shapes: Vec<&ShapeUse> = of(true).chain(of(false)).filter(is_stretched).collect();
    let largest = shapes.iter().max_by_key(|shape| shape.total_ns)?;
    let (total_ns, usual): (i64, i64) =
        shapes.iter().fold((0, 0), |(total, usual), shape| (total + shape.total_ns, usual + usual_ns(shape)));
    let times = largest.total_ns / usual_ns(largest).max(1);
    let draft = view.saves_on_devices(&[("such kernels", total_ns), ("at their shortest", -usual)]);
    if percent(draft.bound_ns(), stage.elapsed_ns()) < LEAST_SMALL_PCT {
        return None;
    }
    let short = view.short_names.get(&largest.name);
    let title = format!(
        "kernels of {} take many times as long as others of the same shape, {short} {times} times on average: {}",
        stage.spoken(),
        view.time(total_ns)
    );
    draft
        .with("stretched_ns", total_ns)
        .with("largest", short)
        .with("largest_shortest_ns", largest.shortest_ns)
        .with("largest_calls", largest.calls)
        .finish(title, view.action("memory"))
}

/// Runs of three or more kernels that only move and combine elements. The bound is their time without the longest of each dozen of a run,
/// as one kernel replaces no more; the launches they cost are in the launch-bound finding.
pub fn unfused(view: &View<'_>) -> Option<Finding> {
    let chains = used(view.evidence?.chains)?;
    // One kernel alone is repeated, as a benchmark does.
    if chains.kernels >= view.stage.kernel_count && view.stage.kernels.len() == 1 {
        return None;
    }
    let title = format!(
        "{} runs {} kernels in {} of elementwise work, {} in all",
        view.stage.spoken(),
        count(chains.kernels),
        counted(chains.count, "unfused chain"),
        time(chains.ns)
    );
    let time_of = |is: &dyn Fn(&Kernel) -> bool| -> i64 {
        let kernels = view.stage.kernels.iter().filter(|kernel| is(kernel));
        kernels.map(|kernel| kernel.total_ns).sum()
    };
    let is_layout = |kernel: &Kernel| LAYOUT_KERNELS.iter().any(|part| kernel.name.contains(part));
    let (layout_ns, bits_ns) =
        (time_of(&is_layout), time_of(&|kernel| kernel.family == Family::Quantization));
    let first = if 2 * bits_ns > chains.ns {
        format!("{} ({}). ", view.action("low bits"), time(bits_ns))
    } else if percent(layout_ns, view.stage.kernel_ns.unwrap_or(0)) >= LEAST_LAYOUT_PCT {
        format!("{} ({}). ", view.action("channels last"), time(layout_ns))
    } else {
        String::new()
    };
    let fuse = fill(view.action("fuse"), &[&view.program.fusing(), &chains.longest]);
    saved_by_fusion(view, &chains, title, first + &fuse)
}

/// Parts of the names of kernels that convert layouts, and the share of kernel time, in %, from which on they come first.
const LAYOUT_KERNELS: [&str; 2] = ["nchwToNhwc", "nhwcToNchw"];
const LEAST_LAYOUT_PCT: f64 = 5.0;

/// Attention as a product, a softmax among elementwise kernels and another product, which move the scores through memory.
pub fn unfused_attention(view: &View<'_>) -> Option<Finding> {
    let (chains, program) = (used(view.evidence?.attention)?, view.program);
    // Beside fused attention a softmax between products is another part, such as the loss.
    let fused = view.stage.kernels.iter().filter(|kernel| kernel.family == Family::Attention);
    if fused.map(|kernel| kernel.calls).sum::<u64>() >= chains.count {
        return None;
    }
    let title = format!(
        "{} runs attention in separate kernels {}: product, softmax and product take {}",
        view.stage.spoken(),
        crate::numbers::times(chains.count),
        time(chains.ns)
    );
    let library = if program.is_hopper { "FlashAttention 3 or cuDNN" } else { "FlashAttention 2" };
    let action = match program.engine {
        _ if !program.is_torch => fill(view.action("fused kernel"), &[&library]),
        Some(engine) if engine.in_process => view.action("eager attention").to_owned(),
        _ => fill(view.action("attention call"), &[&library]),
    };
    saved_by_fusion(view, &chains, title, action)
}

fn used(chains: ChainUse) -> Option<ChainUse> {
    (chains.count > 0).then_some(chains)
}

fn saved_by_fusion(view: &View<'_>, chains: &ChainUse, title: String, action: String) -> Option<Finding> {
    let longest_ns = chains.ns - chains.beyond_longest_ns;
    view.saves_on_devices(&[
        ("kernels of the chains", chains.ns),
        ("the longest of each dozen in a chain", -longest_ns),
        ("gaps between queued kernels of a chain", chains.gaps_ns),
    ])
    .with("chains", chains.count)
    .with("kernels_in_chains", chains.kernels)
    .with("kernels", view.stage.kernel_count)
    .with("chain_ns", chains.ns)
    .with("longest_chain", chains.longest)
    .finish(title, action)
}

/// Share of kernel time, in %, from which on a stage is made of matrix products.
const GEMM_HEAVY_PCT: f64 = 30.0;

/// Tells whether a kernel is attention in fp32, by the number format in its name.
fn is_fp32_attention(kernel: &Kernel) -> bool {
    kernel.family == Family::Attention && kernel.name.contains("_f32_")
}

/// A stage of matrix products, part of which run on the CUDA cores by their counters, or where there are none by the names of
/// their kernels; attention in fp32 counts with them. Products with one row (gemv) are left out: they wait for memory, not for arithmetic. The bound is what the
/// ratio of peaks would save.
pub fn tensor_cores_idle(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let kernel_ns = stage.kernel_ns?;
    let products = || stage.kernels.iter().filter(|k| k.family == Family::Gemm || is_fp32_attention(k));
    let gemm_ns: i64 = products().map(|k| k.total_ns).sum();
    if percent(gemm_ns, kernel_ns) < GEMM_HEAVY_PCT {
        return None;
    }
    let is_slow = |k: &&Kernel| {
        let counted = counted_off_tensor_cores(view, &k.name);
        counted.unwrap_or_else(|| is_fp32_attention(k) || on_cuda_cores(&k.name))
    };
    // A product that is mostly its start and its end, leaves most of the GPU unused or waits for memory gains little by faster arithmetic.
    let shapes = view.evidence.map_or(&[][..], |evidence| &evidence.shapes);
    let fills = |k: &&Kernel| {
        let few = |shape: &&ShapeUse| shape.sms.is_some_and(|sms| 2 * shape.blocks < u64::from(sms));
        let of_kernel = shapes.iter().filter(|shape| shape.name == k.name && shape.blocks > 0);
        2 * of_kernel.filter(few).map(|shape| shape.total_ns).sum::<i64>() <= k.total_ns
    };
    let waits = |k: &&Kernel| {
        let is_memory = |row: &Measured| matches!(row.bound, Some(Bound::Dram | Bound::L2 | Bound::L1));
        view.counters().any(|row| row.row.kernel == k.name && is_memory(row))
    };
    let counts = |k: &&Kernel| is_slow(k) && is_long(k.total_ns, k.calls) && fills(k) && !waits(k);
    let slow: Vec<_> = products().filter(counts).collect();
    let attends = slow.iter().any(|k| is_fp32_attention(k));
    // TF32 is a setting of matrix products alone.
    let formats = [Dtype::Tf32, Dtype::Bf16, Dtype::Fp16];
    let formats = if attends { &formats[1..] } else { &formats[..] };
    let (first, (format, ratio)) = (slow.first()?, faster_format(view, formats)?);
    let slow_ns: i64 = slow.iter().map(|kernel| kernel.total_ns).sum();
    let title = format!(
        "{} for {} of {} ({})",
        match attends {
            true => format!("attention and matrix products of {} run in fp32", stage.spoken()),
            false => format!("matrix products of {} run on the CUDA cores", stage.spoken()),
        },
        time(slow_ns),
        time(gemm_ns),
        first.short_name
    );
    let faster = ratio.map_or_else(
        || "are faster by a ratio that is not known of this GPU".to_owned(),
        |ratio| format!("do {format} {ratio:.1} times as fast here"),
    );
    let how = match format {
        _ if !view.program.is_torch => {
            format!(
                "{format} in the library (cublasGemmEx, cublasSetMathMode), or matrix instructions in the kernel"
            )
        }
        Dtype::Tf32 => {
            "torch.set_float32_matmul_precision(\"high\"), or bf16 weights, which save more".to_owned()
        }
        _ => format!("{format} weights, or autocast"),
    };
    let action =
        format!("Let them use the tensor cores, which {faster}: {how}; sizes that are multiples of 8.");
    // Without the ratio nothing is known to stay.
    let at_peak = |kernel: &&Kernel| {
        let least_ns = kernel.total_ns - beyond_shortest_ns(kernel.total_ns, kernel.calls);
        ratio.map_or(0, |ratio| (kernel.total_ns as f64 / ratio) as i64).max(least_ns)
    };
    let at_peak_ns: i64 = slow.iter().map(at_peak).sum();
    view.saves_on_devices(&[
        ("products on the CUDA cores", slow_ns),
        ("at the ratio of the peaks", -at_peak_ns),
    ])
    .with("cuda_core_gemm_ns", slow_ns)
    .with("gemm_ns", gemm_ns)
    .with("kernel_ns", kernel_ns)
    .confidence(if ratio.is_some() { Confidence::Bounded } else { Confidence::Guessed })
    .with_number(&format!("{format}_over_fp32_peak"), ratio)
    .with("largest", first.short_name.as_str())
    .finish(title, action)
}

/// Tells whether the counters of a kernel show arithmetic, none of it on tensor cores; `None` where they do not tell.
fn counted_off_tensor_cores(view: &View<'_>, name: &str) -> Option<bool> {
    let row = view.counters().find(|row| row.row.kernel == name)?;
    let work = row.readings.work.as_ref()?;
    let flops = work.flops().filter(|flops| *flops > 0.0)?;
    if work.by_kind.iter().any(|(kind, _)| kind.is_tensor()) {
        return Some(work.tensor_flops() < 0.01 * flops);
    }
    // Without a counter of the tensor cores their part is unknown; beside them few operations would be left for the others.
    let peak = facts(view)?.ok()?.dense_tflops.tflops(Dtype::Fp32)? * 1e12;
    let rate = flops / (row.readings.duration_ns.filter(|ns| *ns > 0.0)? * 1e-9);
    (rate >= BESIDE_TENSOR_CORES * peak).then_some(true)
}

/// Part of the peak of the CUDA cores from which on a matrix product that is counted there is done there.
const BESIDE_TENSOR_CORES: f64 = 0.05;

/// Returns the facts of the device, or why its table has none.
fn facts(view: &View<'_>) -> Option<Result<&'static GpuFacts, UnknownGpu>> {
    let device = view.inputs.analysis.devices.first()?;
    Some(lookup(device.name.as_deref()?, None, device.memory_bytes))
}

/// Returns the first of some number formats that the tensor cores of the device do faster than the CUDA cores do
/// fp32, and the ratio of the peaks; the ratio is not known of every device, and without tensor cores there is no format.
fn faster_format(view: &View<'_>, formats: &[Dtype]) -> Option<(Dtype, Option<f64>)> {
    let Ok(facts) = facts(view)? else {
        return view.program.has_bf16.then_some((Dtype::Bf16, None));
    };
    let fp32 = facts.dense_tflops.tflops(Dtype::Fp32)?;
    let ratio = |format: &Dtype| Some((*format, facts.dense_tflops.tflops(*format)? / fp32));
    let (format, ratio) = formats.iter().filter_map(ratio).find(|(_, ratio)| *ratio > 1.1)?;
    Some((format, Some(ratio)))
}

/// Rules whose advice no program follows: memory has to be allocated for compression.
const LEFT_OUT: [&str; 1] = ["MemoryL2Compression"];

/// ncu's rules with an estimate for the whole kernel, for kernels of this stage. The bound is that estimate applied to the
/// time of the kernel and launch shape in the stage, at most the time above the roof. A rule that has several results for a launch, one
/// for each unit, counts once with the largest. A launch that is mostly its start and its end is left out.
pub fn ncu_rules(view: &View<'_>) -> Vec<Finding> {
    // One line for a kernel and rule: the launch shapes that a rule speaks of are added up.
    let mut results: Grouped<_, RuleResult<'_>> = Grouped::default();
    let long = view.counters().filter(|row| is_long(row.timeline_total_ns, row.timeline_calls));
    for measured in long {
        let most_ns = beyond_shortest_ns(measured.timeline_total_ns, measured.timeline_calls);
        // Warps that wait for a full pipe are no cause of their own.
        let of_pipe = |rule: &str| rule == "CPIStall" && full_pipe(view, measured).is_some();
        for (advice, percent) in estimates(measured).into_iter().filter(|(rule, _)| !of_pipe(&rule.rule)) {
            let saves = (measured.timeline_total_ns as f64 * percent / 100.0).min(most_ns as f64);
            let kernel = &measured.row.kernel;
            let new = || RuleResult { kernel, kernel_ns: 0, advice, percent, saves: 0.0 };
            let result = results.entry((kernel, &advice.rule), new);
            // The text is that of the largest estimate.
            if percent > result.percent {
                (result.advice, result.percent) = (advice, percent);
            }
            result.kernel_ns += measured.timeline_total_ns;
            result.saves += saves;
        }
    }
    results.items.iter().filter_map(|result| result.finding(view)).collect()
}

/// Use of a unit, % of its peak, below which it does not matter how evenly its parts are used.
const HARDLY_USED_PCT: f64 = 20.0;

/// Tells whether a rule speaks of how evenly the parts of a unit are used that the launch hardly uses.
fn is_of_an_idle_unit(advice: &NcuRule, row: &CounterRow) -> bool {
    let units = [("L2 Slice", row.l2_pct), ("DRAM", row.dram_pct)];
    let named = units.iter().find(|(name, _)| advice.text.contains(name)).and_then(|(_, pct)| *pct);
    advice.rule == "WorkloadImbalance" && named.is_some_and(|pct| pct < HARDLY_USED_PCT)
}

/// Parts of the names of rules about bytes that are moved in vain.
const WASTE: [&str; 3] = ["Uncoalesced", "SharedMemoryConflicts", "AccessPattern"];

/// Lists the rules with an estimate for a launch, each with its largest, %: at most what the busiest unit of the launch leaves.
fn estimates(measured: &Measured) -> Vec<(&NcuRule, f64)> {
    let row = &measured.row;
    let busiest = busiest_pct(row);
    let mut largest: Grouped<&str, (&NcuRule, f64)> = Grouped::default();
    let counts = |advice: &&NcuRule| {
        // A grid that does not fill the GPU has few warps whatever they do.
        let is_small = measured.bound == Some(Bound::TooSmall);
        let by_design = advice.rule.contains("Occupancy") && (is_small || keeps_data(&row.kernel));
        !LEFT_OUT.contains(&advice.rule.as_str()) && !is_of_an_idle_unit(advice, row) && !by_design
    };
    for advice in measured.advice.iter().filter(counts) {
        let Some(percent) = advice.speedup_pct.filter(|pct| pct.is_finite() && *pct > 0.0) else {
            continue;
        };
        // What is wasted in a cache may be what keeps it busy.
        let is_waste = WASTE.iter().any(|part| advice.rule.contains(part));
        let others = || [row.sm_pct, row.dram_pct].into_iter().flatten().fold(0.0, f64::max);
        let busiest = if is_waste { others() } else { busiest };
        let percent = percent.min((100.0 - busiest).max(0.0));
        let known = largest.entry(&advice.rule, || (advice, percent));
        if known.1 < percent {
            *known = (advice, percent);
        }
    }
    largest.items
}

/// Results of one rule for one kernel.
struct RuleResult<'a> {
    kernel: &'a str,
    /// Time of the launch shapes that the rule is about, ns.
    kernel_ns: i64,
    /// Result with the largest estimate.
    advice: &'a NcuRule,
    /// Largest estimate, %.
    percent: f64,
    /// Sum over the launch shapes, ns.
    saves: f64,
}

impl RuleResult<'_> {
    fn finding(&self, view: &View<'_>) -> Option<Finding> {
        let saves = above_roof_ns(view, self.kernel).map_or(self.saves, |above| above.min(self.saves)) as i64;
        let title = format!(
            "ncu's rule {} for {} in {}: up to {:.0} %, {} in all",
            self.advice.rule,
            view.short_names.get(self.kernel),
            view.stage.spoken(),
            self.percent,
            time(saves)
        );
        view.saves_on_devices(&[
            ("kernel time", self.kernel_ns),
            ("without what the rule saves", saves - self.kernel_ns),
        ])
        .id(format!("ncu-{}", self.advice.rule.to_ascii_lowercase()))
        .with("kernel", self.kernel)
        .with("kernel_ns", self.kernel_ns)
        .with("section", self.advice.section.as_str())
        .with_number("estimated_speedup_pct", self.percent)
        .finish(title, self.advice.text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::on_cuda_cores;

    #[test]
    fn names_tell_the_cores() {
        assert!(on_cuda_cores("ampere_sgemm_128x64_tn"));
        assert!(on_cuda_cores(
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(T1::Params)"
        ));
        assert!(!on_cuda_cores("cutlass_80_tensorop_s1688gemm_128x64_32x3_tn_align4"));
        assert!(!on_cuda_cores("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT"));
        assert!(!on_cuda_cores("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"));
    }
}
