//! Experts of a mixture run one after another.

use crate::findings::rule::{Cause, Find, Rows, Rule, View};
use crate::model::{Experts, Mlp, distinct_experts};
use crate::names::Family;
use crate::result::{Confidence, Finding};
use crate::timeline::IdleCause;

/// Products of a layer outside its routed experts: four of attention, three of the shared expert, the router.
const OTHER_PRODUCTS: f64 = 8.0;
/// Products of an expert: gate, up, down.
const PRODUCTS: f64 = 3.0;

/// A decode whose matrix products are as many as one for each expert and projection, where a grouped kernel would need two or
/// three a layer. The bound is the idle time that the launches too many cost, at the stage's mean.
fn one_by_one(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let model = view.inputs.model?;
    let steps = stage.steps.as_ref().map(|steps| steps.count).filter(|count| *count > 0)?;
    let layers: Vec<(u64, &Experts)> = model
        .decoder
        .groups
        .iter()
        .filter_map(|group| match &group.mlp {
            Mlp::Experts(experts) => Some((group.count, experts)),
            Mlp::Dense { .. } => None,
        })
        .collect();
    if layers.is_empty() {
        return None;
    }
    let batch = view.inputs.analysis.workload.as_ref().and_then(|w| w.batch).unwrap_or(1);
    let expert_layers: u64 = layers.iter().map(|(count, _)| count).sum();
    let all_layers: u64 = model.decoder.groups.iter().map(|group| group.count).sum();
    let one_by_one: f64 = layers
        .iter()
        .map(|(count, e)| *count as f64 * PRODUCTS * distinct_experts(e.routed, e.per_token, batch))
        .sum();
    let others = all_layers as f64 * OTHER_PRODUCTS;
    let calls: u64 = stage
        .kernels
        .iter()
        .filter(|k| matches!(k.family, Family::Gemm | Family::Gemv))
        .map(|k| k.calls)
        .sum();
    let per_step = calls as f64 / steps as f64;
    // Attention may or may not show as products, and a split product as two: half of the experts' own is a safe margin.
    if per_step < 0.5 * one_by_one + others {
        return None;
    }
    let grouped = PRODUCTS * expert_layers as f64;
    let vanish = (one_by_one - grouped).max(0.0) * steps as f64;
    let launches = stage.launch_count.max(stage.kernel_count).max(1) as f64;
    let gaps = stage
        .causes()
        .map(|idle| idle.launch_ns)
        .or_else(|| Some(stage.wall_ns - stage.busy_ns.or(stage.kernel_ns)?));
    let gaps = gaps?;
    let left = gaps as f64 * (1.0 - (vanish / launches).min(1.0));
    let title = format!(
        "{} runs its experts one by one: {per_step:.0} matrix products a step, {one_by_one:.0} of them experts of {expert_layers} \
         layers",
        stage.spoken()
    );
    let action = format!(
        "Run all experts of a layer in one grouped product (a fused mixture-of-experts kernel, grouped_mm): {grouped:.0} launches a \
         step instead of {one_by_one:.0}, and no loop over experts on the CPU."
    );
    view.saves_on_devices(&[
        ("idle time before launches", gaps),
        ("of the launches that stay", -(left.round() as i64)),
    ])
    .with_number("products_per_step", per_step)
    .with_number("expert_products_per_step", one_by_one)
    .with_number("grouped_products_per_step", grouped)
    .with("expert_layers", expert_layers)
    .with("steps", steps)
    .finish(title, action)
}

pub const ONE_BY_ONE: Rule = Rule {
    find: Find::One(one_by_one),
    cause: Cause::Launches,
    rows: Rows::Gaps(IdleCause::Launch),
    confidence: Confidence::Bounded,
    id: "experts-one-by-one",
    remedy: "grouped products of the experts",
    meaning: "A mixture-of-experts layer runs its experts in a loop, one set of matrix products for each.",
    computed: "A decode whose matrix products of a step are about as many as layers, active experts and projections \
              multiply to. The bound is the idle time of the launches that a grouped kernel would not need, at the \
              mean of the stage.",
    fix: "Use a fused mixture-of-experts kernel or a grouped matrix product (grouped_mm), which runs all \
              experts of a layer in a few launches.",
    disproof: "The products of a step are those of other layers: the names of their operators or modules tell.",
    links: &["https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html"],
    ..Rule::BASE
};
