//! `report.html`: one file that needs no network and is readable without scripts.
//!
//! The sections are those of the document; here is what only the page draws. Everything but the timeline and the sorting of the
//! kernel table is plain HTML and SVG. The page's policy lets a browser run the script of this crate, identified by its hash, and
//! nothing else.
//!
//! - `findings`: findings with a piece of the timeline each
//! - `stages`: the time of stages, steps and collectives as bars; `by_time`: the map of ranks, and power and clock
//! - `roofline`, `kernels`, `flame`: the drawings of those names
//! - `timeline`: the data of the timeline and its frame
//! - `class`: colours

mod by_time;
pub(crate) mod class;
mod findings;
mod flame;
mod kernels;
mod roofline;
mod stages;
mod timeline;

pub use crate::render::html::{STYLE, Shell, shell};
pub use timeline::{NoTimeline, TimelineWindow, timeline_window};

use crate::Bundle;
use crate::document::brief::{FINDINGS, STAGES, largest_part, nothing, recorded};
use crate::document::findings::{in_order, saving};
use crate::document::headline::{Pace, headline, per_run};
use crate::document::stages::{own_times, two_clocks};
use crate::document::summary::distance;
use crate::document::vitals::card as energy;
use crate::document::{Document, Form, capitalized, provenance};
use crate::render::html::{Data, absent, policy, script_json, sections};
use maud::{Markup, html};
use roofgap_analyze::gpu::reword;
use roofgap_analyze::{About, Analysis, Stage, call_tree, host_stacks, verdict};
use roofgap_base::numbers::{count, counted, share, significant, time};
use roofgap_base::text::cut;
use stages::{share_bar, shares};
use std::cell::OnceCell;

/// The scripts, in the order in which they run; each is a part of one strict function.
const SCRIPTS: [&str; 18] = [
    include_str!("columns.js"),
    include_str!("sections.js"),
    include_str!("canvas.js"),
    include_str!("detail.js"),
    include_str!("span.js"),
    include_str!("minimap.js"),
    include_str!("search.js"),
    include_str!("gestures.js"),
    include_str!("pieces.js"),
    include_str!("tools.js"),
    include_str!("timeline.js"),
    include_str!("tables.js"),
    include_str!("table.js"),
    include_str!("drawer.js"),
    include_str!("flame.js"),
    include_str!("ranks.js"),
    include_str!("roofline.js"),
    include_str!("app.js"),
];

/// First element of the head.
const CHARSET: &str = "<meta charset=\"utf-8\">";

/// Renders the page.
pub fn render(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    // One after the other: each needs memory for all operations only while it is made.
    let mut flame = bundle.trace.and_then(|trace| flame::flame(&call_tree(trace, bundle.stages)));
    let mut idle_flame = bundle.trace.and_then(|trace| {
        let stacks = host_stacks(trace, bundle.stages).into_iter().enumerate();
        flame::idle(&stacks.map(|(at, stacks)| (bundle.stages.name(at), stacks)).collect::<Vec<_>>())
    });
    let idle = OnceCell::new();
    let timeline = timeline::timeline(bundle, &idle);
    let mut findings = Some(findings::findings(bundle, &idle.into_inner().unwrap_or_default()));
    let (meta, columns, names, no_timeline) = match timeline {
        Ok(t) => (script_json(&t.meta), t.columns, Some(t.kernel_names), None),
        Err(why) => ("null".into(), Vec::new(), None, Some(format!("No timeline: {why}."))),
    };
    let mut parts = Document::of(bundle, Form::Page).sections();
    parts.retain(|part| part.id != "flame" || flame.is_some());
    parts.retain(|part| part.id != "idle-flame" || idle_flame.is_some());
    // The timeline comes first where there is one.
    if let Some(at) = parts.iter().position(|part| part.id == "timeline").filter(|_| no_timeline.is_none()) {
        parts[..=at].rotate_right(1);
    }
    let drawing = |id: &str| match id {
        "findings" => findings.take(),
        "stages" => Some(stages::stages(bundle)),
        "timeline" => Some(timeline::frame(no_timeline.as_deref())),
        "roofline" => Some(roofline::roofline(analysis)),
        "kernels" => Some(kernels::table(analysis)),
        "ranks" => by_time::ranks(analysis),
        "communication" => Some(stages::communication(analysis)),
        "vitals" => bundle.trace.and_then(by_time::vitals),
        "flame" => flame.take(),
        "idle-flame" => idle_flame.take(),
        _ => None,
    };
    let title = cut(&Document::of(bundle, Form::Page).summary_title(), 160);
    let mut body = html! {
        a.skip href="#findings" { "To the findings" }
        header {
            p.kicker { "roofgap " span { (cut(&bundle.context.title, 160)) } }
            h1 { (title) }
            (head(bundle))
        }
        nav aria-label="Parts of this page" {
            @for part in parts.iter().filter(|part| !part.inner) { a href={ "#" (part.id) } { (part.title) } " " }
        }
        main { (sections(&parts, drawing)) }
    };
    reword(&analysis.devices, [&mut body.0]);
    let kernel_data = script_json(&kernels::data(analysis, names.as_ref()));
    let data = [
        ("kernel-data", "application/json", Data::Text(&kernel_data)),
        ("timeline-meta", "application/json", Data::Text(&meta)),
        ("timeline-columns", "text/plain", Data::Bytes(&columns)),
    ];
    let script = script();
    shell(&Shell {
        title: &title,
        styles: &[STYLE],
        body,
        data: &data,
        script: Some(&script),
        asks_server: true,
        refresh: None,
    })
}

/// Renders what was recorded, the headline, a card for each stage and the first findings.
fn head(bundle: Bundle<'_>) -> Markup {
    let analysis = bundle.analysis;
    let (first, more) = analysis.stages.split_at(analysis.stages.len().min(STAGES));
    let cards = |stages: &[Stage], from: usize| {
        html! { div.cards { @for (at, stage) in stages.iter().enumerate() { (card(analysis, stage, from + at)) } } }
    };
    html! {
        @if let Some(line) = recorded(analysis) { p.hint { (cut(&line, 300)) } }
        p.lead { (cut(&headline(analysis).unwrap_or_else(|| nothing(analysis)), 600)) }
        @if let Some(line) = per_run(analysis) { p.hint { (cut(&capitalized(&line), 400)) } }
        (cards(first, 0))
        @if let Some(facts) = analysis.vitals.as_ref().and_then(energy) {
            div.cards { article.card {
                h3 { a href="#vitals" { "Energy" } }
                dl.facts {
                    @for (name, value) in facts { (fact(name, html! { (value) })) }
                    @for (stage, joules) in token_energy(analysis) { (fact(stage, html! { (joules) " J per token" })) }
                }
            } }
        }
        @if !more.is_empty() {
            details { summary { (counted(more.len() as u64, "more stage")) } (cards(more, STAGES)) }
        }
        @if analysis.stages.is_empty() { (absent(&provenance::missing(analysis, &About::Stages))) }
        @if !analysis.findings.is_empty() {
            ol #first {
                @for (at, (finding, _)) in in_order(&analysis.findings).into_iter().take(FINDINGS).enumerate() {
                    li { a href={ "#finding-" (at + 1) } { (finding.title) } " " small { (saving(analysis, finding)) } }
                }
            }
        }
    }
}

/// Returns the energy of a token in each stage.
fn token_energy(analysis: &Analysis) -> impl Iterator<Item = (&str, String)> {
    let energy = |stage: &Stage| stage.vitals.as_ref()?.energy.as_ref()?.token_j;
    analysis.stages.iter().filter_map(move |stage| Some((stage.name.as_str(), significant(energy(stage)?))))
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
    let (distance, meaning) = distance(analysis, stage);
    let pace = Pace::of(stage);
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
                @if pace.is_step { (fact("Step", html! { (time(pace.ns)) @if pace.count > 1 { " " small { (if pace.is_mean { "mean" } else { "median" }) " of " (count(pace.count)) } } })) }
                @if let Some(rate) = pace.tokens_per_s {
                    (fact("Tokens/s", html! { (count(rate.round() as u64)) " " small { "over all, " (time((1e9 / rate) as i64)) " per token" } }))
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

/// Returns the script.
fn script() -> String {
    format!("(() => {{\n\"use strict\";\n{}}})();\n", SCRIPTS.concat())
}

/// A page for a server to give.
#[derive(Debug)]
pub struct ServedPage {
    /// Page that names the address of its timeline.
    pub page: String,
    /// Value of the header `Content-Security-Policy`: the browser runs no other script, whatever the page contains.
    pub policy: String,
}

/// Names in a page of this version the address at which its script finds windows of the timeline. Returns `None` for a page of
/// another version, whose script is not known.
pub fn served(page: &str, timeline: &str) -> Option<ServedPage> {
    let policy = policy(Some(&script()), true);
    let (before, after) = page.split_once(CHARSET)?;
    // The policy of the page is the next element.
    let known = after.find(&policy).is_some_and(|at| at < 100);
    let source = html! { meta name="roofgap-timeline" content=(timeline); };
    known.then(|| ServedPage {
        page: format!("{before}{CHARSET}{}{after}", source.into_string()),
        policy: format!("{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    })
}
