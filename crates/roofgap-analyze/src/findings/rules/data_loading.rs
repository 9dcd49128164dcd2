//! The GPU waits for the data loader.

use crate::findings::rule::{Cause, Find, Rows, Rule, View, percent};
use crate::numbers::time;
use crate::result::Finding;
use crate::timeline::IdleCause;

/// A stage in which the GPU is idle while the launching thread gets the next batch from its data loader.
fn waits_for_data(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (inside_ns, before_ns) = (stage.data_loading_ns, stage.before.data_loading_ns);
    let loading_ns = inside_ns + before_ns;
    let idle = stage.idle.filter(|_| loading_ns > 0)?;
    let draft = view.saves_on_devices(&[
        ("idle time in the data loader", inside_ns),
        ("the same before the first operation", before_ns),
    ]);
    let title = format!(
        "{} waits for its data loader: the GPU is idle {} while the CPU gets the next batch, {:.0} % of its idle time",
        stage.spoken(),
        time(stage.each_device(loading_ns)),
        percent(loading_ns, idle.total_ns() + stage.before.idle_ns).min(100.0)
    );
    let action = format!(
        "Load batches ahead of the GPU: more workers (num_workers) that stay alive (persistent_workers=True), a larger prefetch_factor, \
         pin_memory=True and copies with non_blocking=True. If the workers cannot keep up, make a sample cheaper: decode and \
         transform less, or on the GPU. If all of that wait vanished the stage would take {}.",
        time(stage.elapsed_ns() - draft.bound_ns())
    );
    draft
        .with("data_loading_ns", loading_ns)
        .with("idle_launch_ns", idle.launch_ns)
        .with("idle_total_ns", idle.total_ns())
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

pub const DATA_LOADING: Rule = Rule {
    find: Find::One(waits_for_data),
    cause: Cause::Data,
    rows: Rows::Gaps(IdleCause::Launch),
    id: "data-loading",
    remedy: "faster data loading",
    meaning: "The GPU waits for the next batch: the thread that launches its work is inside the data loader and \
              launches nothing until the batch is there.",
    computed: "Idle time of the stage in which the next operation had not been launched yet, inside ranges of the \
              launching thread that PyTorch names `enumerate(DataLoader)...`. The bound is that time, and \
              `launch-bound` does not count it again.",
    fix: "Use more workers and keep them alive, prefetch more batches, pin memory and copy with \
              non_blocking=True. Store samples in a form that is cheap to read, and move decoding and \
              augmentation to the GPU where the CPU cannot keep up.",
    disproof: "Steps take as long with batches that are in memory already, such as one batch used again and again.",
    links: &[
        "https://docs.pytorch.org/docs/stable/data.html",
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ],
    ..Rule::BASE
};
