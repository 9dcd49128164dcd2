//! The top of the page: what was profiled, a card with the verdict of each stage, and the first findings.

use super::class;
use super::stages::{share_bar, shares};
use crate::bundle::Bundle;
use crate::document::brief::{FINDINGS, STAGES, largest_part, recorded};
use crate::document::findings::saving;
use crate::document::stages::{own_times, two_clocks};
use crate::document::summary::distance_of;
use crate::document::{capitalized, headline, provenance};
use crate::render::html::absent;
use maud::{Markup, html};
use roofgap_analyze::{About, Analysis, Stage, verdict};
use roofgap_base::numbers::{count, counted, share, time};
use roofgap_base::text::cut;

/// Renders what was recorded, the headline, a card for each stage and the first findings.
pub fn head(bundle: Bundle<'_>) -> Markup {
    let analysis = bundle.analysis;
    let (first, more) = analysis.stages.split_at(analysis.stages.len().min(STAGES));
    let cards = |stages: &[Stage], from: usize| {
        html! { div.cards { @for (at, stage) in stages.iter().enumerate() { (card(analysis, stage, from + at)) } } }
    };
    html! {
        @if let Some(line) = recorded(analysis) { p.hint { (cut(&line, 300)) } }
        @if let Some(headline) = headline::headline(analysis) { p.lead { (cut(&headline, 600)) } }
        @if let Some(line) = headline::per_run(analysis) { p.hint { (cut(&capitalized(&line), 400)) } }
        (cards(first, 0))
        @if !more.is_empty() {
            details { summary { (counted(more.len() as u64, "more stage")) } (cards(more, STAGES)) }
        }
        @if analysis.stages.is_empty() { (absent(&provenance::missing(analysis, &About::Stages))) }
        @if !analysis.findings.is_empty() {
            ol #first {
                @for (at, finding) in analysis.findings.iter().take(FINDINGS).enumerate() {
                    li { a href={ "#finding-" (at + 1) } { (finding.title) } " " small { (saving(analysis, finding)) } }
                }
            }
        }
    }
}

fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn card(analysis: &Analysis, stage: &Stage, at: usize) -> Markup {
    let verdict = verdict(stage);
    let parts = shares(stage);
    let utilisation = [
        ("MFU", stage.mfu.as_ref().map(|m| m.by_wall_pct)),
        ("MBU", stage.mbu.as_ref().map(|m| m.by_wall_pct)),
    ];
    let (distance, meaning) = distance_of(analysis, stage);
    html! {
        article.card {
            h3 { i class=(class::stage(at)) {} (cut(&stage.name, 60)) }
            p.label { (verdict.label.as_str()) }
            @if !parts.is_empty() { div.bar.thin { (share_bar(&parts, 0.0)) } }
            p {
                (capitalized(&verdict.why)) "."
                @if own_times(stage) { " Times reported by the program." }
            }
            dl.facts {
                (fact(if two_clocks(std::slice::from_ref(stage)) { "Time" } else { "Wall" }, html! {
                    (time(stage.elapsed_ns()))
                    @if stage.instances > 1 { " " small { "in " (count(stage.instances)) " instances" } }
                }))
                @if let Some(steps) = stage.steps.as_ref().filter(|s| s.count > 0) {
                    (fact("Step", html! { (time(steps.p50_ns)) " " small { "p50 of " (count(steps.count)) } }))
                }
                @if let Some(rate) = stage.tokens_per_s {
                    (fact("Tokens/s", html! { (count(rate.round() as u64)) @if let Some(token) = stage.token_ns { " " small { (time(token)) " per token" } } }))
                }
                @if let Some(part) = largest_part(stage) { (fact("Largest part", html! { (part) })) }
                @for (name, value) in utilisation {
                    @if let Some(pct) = value { (fact(name, html! { (share(pct)) " %" })) }
                }
                (fact("Distance to the limit", html! { (distance) " " small { (cut(&meaning, 120)) } }))
            }
        }
    }
}
