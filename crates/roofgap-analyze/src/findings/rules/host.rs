//! The CPU keeps the GPU waiting: outside of GPU work, in a cold start, in a data loader, or in code that stacks tell.

use super::LEAST_SMALL_GAP_PCT;
use super::words::{self, is_telling, operation, spoken};
use crate::findings::rule::{View, fill, percent};
use crate::host::advice;
use crate::numbers::{count, time};
use crate::result::{Confidence, Finding, HostFunction, HostKind, StageKind};

use crate::verdict::LEAST_GAP_PCT;
use roofgap_trace::NOT_RUNNING;

/// Id of the rule about what a program does once.
pub const COLD_START: &str = "cold-start";

/// A stage whose GPU has nothing to do before the first and after the last operation of its instances for much of its time.
pub fn outside(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let before = stage.before;
    let known_ns = stage.each_device(before.data_loading_ns + before.cold_ns + before.after_launch_ns);
    let (edges_ns, first_ns) =
        (stage.outside().idle_ns - known_ns, stage.each_device(stage.idle_detail.host_first_ns));
    let pct = percent(edges_ns.max(0) + first_ns, stage.elapsed_ns());
    // The time between the steps of an engine has a rule of its own.
    if stage.period_ns.is_some() || !stage.computes() || pct < LEAST_GAP_PCT {
        return None;
    }
    let draft = view.saves(&[
        ("idle time at the edges of the stage", edges_ns.max(0)),
        ("idle time before the first operation of a step", first_ns),
    ]);
    let title = format!(
        "the GPU has nothing to do for {} while the CPU works before the first and after the last operation of {}{}, {pct:.0} % of its \
         time{}",
        time(draft.bound_ns()),
        if first_ns > edges_ns { "a step of " } else { "" },
        stage.spoken(),
        words::line(stage)
    );
    let work = match stage.kind {
        _ if view.program.trains => "reading and preparing the batch, logging, checkpoints",
        StageKind::Prefill => "tokenising, image processing, copying the inputs",
        StageKind::Decode | StageKind::Mixed => "sampling, stopping tests, decoding text, streaming",
        _ => "preparing inputs, reading files, handling results",
    };
    let look =
        words::start_with(stage, || format!("Find what the CPU does there ({work}) in a CPU profile."));
    let action = format!("{look} {}", view.action("another thread"));
    draft
        .with("outside_idle_ns", edges_ns.max(0))
        .with("before_steps_ns", (first_ns > 0).then_some(first_ns))
        .with("instances", stage.instances)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

/// A stage in which the GPU is idle because the launching thread does something else for long, and calls nothing meanwhile.
pub fn other_work(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (ns, work) = (stage.idle_detail.host_work_ns, view.evidence?.other_work.as_ref()?);
    // Where stacks tell what it does, the rule about that says more.
    let has_line = stage.host.first().is_some_and(|row| row.function != NOT_RUNNING);
    let known = words::most_idle(stage)
        .is_some_and(|(kind, share)| (has_line || kind != HostKind::Descheduled) && share >= 50.0);
    let large = view.pct(ns) >= LEAST_SMALL_GAP_PCT;
    if !stage.computes() || !large || known {
        return None;
    }
    let draft = view.saves_on_devices(&[("idle time in which the CPU did other work", ns)]);
    let before = operation(view, &work.longest);
    let gaps = match stage.idle_detail.host_gaps {
        0 | 1 => format!(" before {before}"),
        gaps => format!(
            ", in {} gaps of up to {}, the longest before {before}",
            count(gaps),
            time(work.longest.ns)
        ),
    };
    let away =
        words::most_idle(stage).is_some_and(|(kind, share)| kind == HostKind::Descheduled && share >= 50.0);
    let messages = work.within.as_deref().filter(|name| name.starts_with("MPI_"));
    let (what, draft) = match (away, messages) {
        (_, Some(name)) => (format!("the launching thread is in {name}"), draft),
        (true, _) => ("the launching thread does not run".to_owned(), draft.confidence(Confidence::Guessed)),
        (false, _) => ("the CPU does other work".to_owned(), draft),
    };
    let title = format!(
        "{} idle for {} of {} while {what}{gaps}{}",
        view.gpu_is(),
        time(draft.bound_ns()),
        stage.spoken(),
        words::line(stage)
    );
    let within = work.within.as_ref().map_or_else(String::new, |name| format!(" It was in {name} then."));
    let such_as = match view.program.generates {
        true => format!(" Such as: {}.", view.program.advice().overlap),
        false => String::new(),
    };
    let look = words::start_with(stage, || view.action("look").to_owned());
    let action = match work.within.as_ref() {
        _ if 2 * work.managed_ns > ns => view.action("managed").to_owned(),
        Some(_) if messages.is_some() => view.action("messages").to_owned(),
        _ if away => advice(HostKind::Descheduled).to_owned(),
        _ => format!("{look}{within} {}{such_as}", view.action("other work")),
    };
    draft
        .with("host_work_ns", ns)
        .with("gaps", stage.idle_detail.host_gaps)
        .with("longest_gap_ns", work.longest.ns)
        .with("within", work.within.clone())
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

/// A stage that was recorded cold: the CPU loads code, instantiates a graph or launches for the first time, and nothing warm is left.
pub fn cold(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (inside_ns, before_ns) = (stage.idle_detail.cold_ns, stage.before.cold_ns);
    let pct = view.pct(inside_ns + before_ns);
    if pct < LEAST_GAP_PCT {
        return None;
    }
    // What is done only once is more than its idle time, where the whole stage is cold.
    let known = stage.cold_start.as_ref().filter(|cold| !cold.left_out && stage.device_count <= 1);
    let rest = known.map_or(0, |cold| cold.mean_ns - cold.warm_mean_ns - inside_ns - before_ns);
    let draft = view.saves_on_devices(&[
        ("idle time in one-time CPU work", inside_ns),
        ("the same before the first operation", before_ns),
        ("allocations and launches that are made once", rest.max(0)),
    ]);
    let causes = stage.cold_start.iter().flat_map(|cold| &cold.causes);
    // CPU work before the first GPU operation is excluded.
    let call = causes.max_by_key(|cause| cause.ns).filter(|cause| 4 * cause.ns >= inside_ns + before_ns);
    let call = call.map(|cause| cause.call.clone());
    let title = format!(
        "{} was recorded cold: {} idle {} ({pct:.0} % of its time) in one-time CPU work{}",
        stage.spoken(),
        view.gpu_is(),
        view.time(inside_ns + before_ns),
        call.as_ref().map_or_else(String::new, |call| format!(", in {call} and before it"))
    );
    let action = if call.is_some() { view.action("cold") } else { view.action("once") };
    draft
        .with("cold_ns", inside_ns + before_ns)
        .with("call", call)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

/// A stage in which the GPU is idle while the launching thread gets the next batch from its data loader.
pub fn waits_for_data(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (inside_ns, before_ns) = (stage.data_loading_ns, stage.before.data_loading_ns);
    let loading_ns = inside_ns + before_ns;
    let large = view.pct(loading_ns) >= LEAST_SMALL_GAP_PCT;
    let idle = stage.idle.filter(|_| large)?;
    let draft = view.saves_on_devices(&[
        ("idle time in the data loader", inside_ns),
        ("the same before the first operation", before_ns),
    ]);
    let title = format!(
        "{} waits for its data loader: {} idle {} while the CPU gets the next batch, {:.0} % of its idle time",
        stage.spoken(),
        view.gpu_is(),
        view.time(loading_ns),
        percent(loading_ns, idle.total_ns() + stage.before.idle_ns).min(100.0)
    );
    let left = time(stage.elapsed_ns() - draft.bound_ns());
    let action = fill(view.action("batches ahead"), &[&left]);
    draft
        .with("data_loading_ns", loading_ns)
        .with("idle_launch_ns", idle.launch_ns)
        .with("idle_total_ns", idle.total_ns())
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

/// Share of the stage's time from which on a kind of work is worth a finding, %.
const LEAST_CODE_PCT: f64 = 5.0;

/// Idle time of a stage in code of each kind that says what to do. Waiting for a person or a
/// fixed rate is no finding.
pub fn idle_by_kind(view: &View<'_>) -> Vec<Finding> {
    let wanted = [HostKind::Input, HostKind::Rate];
    let kinds = HostKind::ALL.iter().filter(|kind| is_telling(**kind) && !wanted.contains(kind));
    kinds.filter_map(|kind| idle_in(view, *kind)).collect()
}

fn idle_in(view: &View<'_>, kind: HostKind) -> Option<Finding> {
    let stage = view.stage;
    // The rule about waits has the advice for a program of its own kernels.
    if kind == HostKind::HiddenSync && view.program.is_plain() {
        return None;
    }
    let idle_ns = stage.host_idle?.idle_ns;
    let rows: Vec<&HostFunction> = stage.host.iter().filter(|row| row.kind == kind).collect();
    let ns: i64 = rows.iter().map(|row| row.self_ns).sum();
    // The rule about synchronisation counts its own part.
    let waits_ns = if kind == HostKind::HiddenSync { stage.causes()?.sync_ns.min(ns) } else { 0 };
    let first = rows.first()?;
    // So do those about data loaders, about cold starts, and about time outside of GPU work.
    let other_ns = stage.data_loading_ns + stage.idle_detail.cold_ns;
    let is_launches = stage.causes()?.launch_ns - other_ns >= ns / 2;
    if !is_launches || view.pct(ns - waits_ns) < LEAST_CODE_PCT {
        return None;
    }
    // Of a thread whose code is not known, a wait for work or for the device is not told from a lost core.
    if first.function == NOT_RUNNING {
        return None;
    }
    let exact = rows.iter().all(|row| row.samples.is_none());
    let title = format!(
        "{:.0} % of the idle time of {} is {}, {:.0} % of that in {}",
        percent(ns, idle_ns),
        stage.spoken(),
        kind.as_str().replace('_', " "),
        percent(first.self_ns, ns),
        spoken(first)
    );
    let named = !first.function.starts_with('[');
    // An engine awaits requests; other programs of PyTorch await the workers of a data loader.
    let of_workers = kind == HostKind::Messages && view.program.is_torch && view.program.engine.is_none();
    let start = if named { format!("Start with {}. ", first.spoken()) } else { String::new() };
    view.saves_on_devices(&[("idle time in such code", ns), ("waits for the device", -waits_ns)])
        .id(id_of(kind))
        .confidence(if exact { Confidence::Measured } else { Confidence::Bounded })
        .with("function", first.function.clone())
        .with("file", first.file.clone())
        .with("line", first.line)
        .with("samples", first.samples)
        .with("function_ns", first.self_ns)
        .with("remedy", (kind == HostKind::Sleep).then_some("no sleep while the GPU waits"))
        .finish(title, format!("{start}{}", if of_workers { view.action("workers") } else { advice(kind) }))
}

fn id_of(kind: HostKind) -> String {
    format!("idle-{}", kind.as_str().replace('_', "-"))
}

/// Returns what to do about the kind of code that a finding is about.
pub fn fix_of_kind(id: &str) -> Option<&'static str> {
    HostKind::ALL.iter().copied().find(|kind| id_of(*kind) == id).map(advice)
}
