//! The top of the page: model, GPUs, and a card with the verdict of each stage.

use crate::bundle::Bundle;
use crate::document::stages::{own_times, two_clocks, why_missing};
use crate::document::{capitalized, headline, provenance};
use crate::render::html::absent;
use maud::{Markup, html};
use roofgap_analyze::{About, Analysis, Stage, verdict};
use roofgap_base::numbers::{NONE, count, or_none, share, time};
use roofgap_base::text::cut;

/// Renders the facts of the run and a card for each stage.
pub fn head(bundle: Bundle<'_>) -> Markup {
    let analysis = bundle.analysis;
    let (workload, totals) = (analysis.workload.as_ref(), &analysis.totals);
    let unknown = |why: &str| html! { (NONE) " " small { "(" (why) ")" } };
    let pct = |value: Option<f64>| or_none(value, |v| format!("{} %", share(v)));
    html! {
        @if let Some(headline) = headline::headline(analysis) { p.lead { (cut(&headline, 600)) } }
        dl.facts {
            (fact("Model", match workload {
                Some(workload) => html! { (cut(&provenance::model(workload), 240)) },
                None => unknown("the program reported no model"),
            }))
            @for device in &analysis.devices {
                (fact(&format!("GPU {}", device.id), html! { (cut(&provenance::device(device), 240)) }))
            }
            @if analysis.devices.is_empty() {
                (fact("Device", match workload.and_then(|w| w.device.as_deref()) {
                    Some(device) => html! { (cut(device, 120)) },
                    None => unknown("the inputs name none"),
                }))
            }
            @if let Some(engine) = &analysis.engine {
                (fact("Engine", html! { (cut(&provenance::engine(engine), 240)) }))
            }
            (fact("Kernels", html! { (count(totals.kernel_count)) " launches, " (time(totals.kernel_ns)) }))
            @if let Some(line) = headline::per_run(analysis) {
                (fact("Per run", html! { (cut(line.trim_start_matches("per run: "), 400)) }))
            }
            @if let Some(whole) = &analysis.whole {
                (fact("All stages", html! {
                    "MFU " (pct(whole.mfu.as_ref().map(|m| m.by_wall_pct)))
                    ", MBU " (pct(whole.mbu.as_ref().map(|m| m.by_wall_pct)))
                }))
            }
        }
        div.cards { @for stage in &analysis.stages { (card(analysis, stage)) } }
        @if analysis.stages.is_empty() { (absent(&provenance::missing(analysis, &About::Stages))) }
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn card(analysis: &Analysis, stage: &Stage) -> Markup {
    let verdict = verdict(stage);
    let utilisation = [
        ("MFU", About::StageMfu(stage.name.clone()), stage.mfu.as_ref().map(|m| m.by_wall_pct)),
        ("MBU", About::StageMbu(stage.name.clone()), stage.mbu.as_ref().map(|m| m.by_wall_pct)),
    ];
    html! {
        article.card {
            h3 { (cut(&stage.name, 60)) }
            p.label { (verdict.label.as_str()) }
            p {
                (capitalized(&verdict.why)) "."
                @if own_times(stage) { " Times reported by the program." }
            }
            dl {
                dt { @if two_clocks(std::slice::from_ref(stage)) { "Time" } @else { "Wall" } }
                dd {
                    (time(stage.elapsed_ns()))
                    @if stage.instances > 1 { " " small { "in " (count(stage.instances)) " instances" } }
                }
                @if let Some(steps) = stage.steps.as_ref().filter(|s| s.count > 0) {
                    dt { "Step" }
                    dd { (time(steps.p50_ns)) " " small { "p50 of " (count(steps.count)) } }
                }
                @if let Some(rate) = stage.tokens_per_s {
                    dt { "Tokens/s" }
                    dd { (count(rate.round() as u64)) @if let Some(token) = stage.token_ns { " " small { (time(token)) " per token" } } }
                }
                @for (name, about, value) in utilisation {
                    dt { (name) }
                    @if let Some(pct) = value { dd { (share(pct)) " %" } }
                    @else {
                        @let why = why_missing(analysis, &about, &stage.name);
                        dd title=(why) { (NONE) " " small.why { (cut(why, 90)) } }
                    }
                }
            }
        }
    }
}
