//! `report.html`: one file that needs no network and is readable without scripts.
//!
//! Everything but the timeline and the sorting of the kernel table is plain HTML and SVG. Templates escape what came from a
//! capture. The page's policy lets a browser run the script of this crate, identified by its hash, and nothing else.
//!
//! - `head`: model, GPUs and a card per stage
//! - `stages`: time of each stage and step as bars; `engine_steps`: requests and tokens of each engine step
//! - `findings` with `cut`, a piece of the timeline; `flame`: GPU time by range and operator; `communication`: its bars
//! - `roofline`, `kernels`, `provenance`: the sections of those names
//! - `roofline_scale`: the axes of the roofline; `cache_roofs`: its roofs of L1 and L2
//! - `timeline`: the data of the timeline; `timeline_view`: its frame, tools and keys
//! - `ranks`: the map of ranks by time
//! - `class`, `markup`, `pack`: colours, text and columns for the script
//! - `script`: the script and its policy, also for a page that a server gives

mod cache_roofs;
mod class;
mod communication;
mod cut;
mod engine_steps;
mod findings;
mod flame;
mod head;
mod kernels;
pub(crate) mod markup;
mod pack;
mod provenance;
mod ranks;
mod roofline;
mod roofline_scale;
mod script;
mod stages;
mod timeline;
mod timeline_view;

use crate::bundle::Bundle;
use crate::view;
use crate::view::provenance::missing;
use crate::view::table::cut;
use crate::view::{gpu_work, job, layers};
pub(crate) use pack::base64;
pub use script::{ServedPage, served};
pub use timeline::{NoTimeline, TimelineWindow, timeline_window};

use markup::{absent, script_json, visible_text};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use roofgap_analyze::{About, Analysis, RequestStats, Serving, call_tree, idle_parts};

/// Styles of the report, which the other pages share.
pub const STYLE: &str = include_str!("style.css");
/// The most operators listed.
const OPERATORS: usize = 30;

/// Renders the page.
pub fn page(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    // One after the other: each needs memory for all operations only while it is made.
    let flame = bundle.trace.and_then(|trace| flame::flame(&call_tree(trace, bundle.stages)));
    let idle = bundle.trace.map_or_else(Vec::new, |trace| idle_parts(trace, bundle.stages));
    let findings = findings::findings(bundle, &idle);
    let timeline = timeline::timeline(bundle, &idle);
    drop(idle);
    let script = script::script();
    let policy = script::policy(&script);
    let (meta, columns, names, no_timeline) = match timeline {
        Ok(t) => (script_json(&t.meta), t.columns, Some(t.kernel_names), None),
        Err(why) => {
            let why = format!("No timeline: {why}.");
            ("null".into(), String::new(), None, Some(why))
        }
    };
    let title = cut(&bundle.context.title, 160);
    let mut work = vec![
        ("Layers", layers::table(analysis), layers::LAYERS),
        ("Ranks", job::ranks(analysis), job::RANKS),
        ("Collectives", job::collectives(analysis), job::COLLECTIVES),
        ("Stragglers", job::stragglers(analysis), job::STRAGGLERS),
        ("Experts", job::experts(analysis), job::EXPERTS),
        ("Transfers", job::transfers(analysis), job::TRANSFERS),
        ("Utilisation", job::utilisation(analysis), job::UTILISATION),
        ("Graphs", gpu_work::graphs(analysis), gpu_work::GRAPHS),
        ("Copies", gpu_work::copies(analysis), gpu_work::COPIES),
        ("Communication", gpu_work::communication(analysis), gpu_work::COMMUNICATION),
    ];
    work.retain(|(_, table, _)| !table.is_empty());
    let rank_map = ranks::map(analysis);
    let body = html! {
        a.skip href="#findings" { "To the findings" }
        header {
            p.kicker { "roofgap report" }
            h1 { (title) }
            (head::head(bundle))
        }
        nav aria-label="Parts of this page" {
            (link("Findings"))
            @if bundle.context.trials.is_some() { (link("Tried")) }
            @if !analysis.stages.is_empty() { (link("Stages")) }
            @for name in ["Timeline", "Roofline", "Kernels"] { (link(name)) }
            @for (name, ..) in &work { (link(name)) }
            @if flame.is_some() { (link("Flame")) }
            @for name in ["Operators", "Provenance"] { (link(name)) }
            @if analysis.stage1.is_some() { a href="#stage1" { "Stage 1" } }
        }
        main {
            (section("findings", "What to do first", findings))
            @if let Some(content) = tried(bundle) { (section("tried", "Tried", content)) }
            @if !analysis.stages.is_empty() { (section("stages", "Where the time goes", stages::stages(bundle))) }
            @if let Some(requests) = &analysis.requests { (section("requests", "Requests", requests_view(analysis, requests))) }
            @if let Some(serving) = view::serving::of(analysis) { (section("serving", "Steps of the engine", serving_view(analysis, serving))) }
            (section("timeline", "Timeline", timeline_view::timeline(no_timeline.as_deref())))
            (section("roofline", "Roofline", roofline::roofline(analysis)))
            (section("kernels", "Kernels", kernels::table(analysis)))
            @for (name, table, meaning) in &work {
                (section(&name.to_lowercase(), name, html! {
                    @if *name == "Ranks" { @if let Some(map) = &rank_map { (map) } }
                    p.hint { (meaning) }
                    @if *name == "Communication" { (communication::bars(analysis)) }
                    (table.html())
                }))
            }
            @if let Some(drawing) = flame { (section("flame", "GPU time by range and operator", drawing)) }
            (section("operators", "Operators", operators(analysis)))
            @if let Some(content) = stage1(analysis) { (section("stage1", "Stage 1", content)) }
            (section("provenance", "Provenance", provenance::provenance(bundle)))
        }
    };
    let data = [
        ("kernel-data", "application/json", script_json(&kernels::data(analysis, names.as_ref()))),
        ("timeline-meta", "application/json", meta),
        ("timeline-columns", "text/plain", columns),
    ];
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (visible_text(&title)) " · roofgap" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                (PreEscaped(visible_text(&body.into_string())))
                @for (id, kind, content) in data { script type=(kind) id=(id) { (PreEscaped(content)) } "\n" }
                script { (PreEscaped(script)) }
            }
        }
        "\n"
    }
    .into_string()
}

fn link(name: &str) -> Markup {
    html! { a href={ "#" (name.to_lowercase()) } { (name) } " " }
}

fn section(id: &str, title: &str, content: Markup) -> Markup {
    html! { section id=(id) { h2 { (title) } (content) } "\n" }
}

fn requests_view(analysis: &Analysis, requests: &RequestStats) -> Markup {
    html! {
        (view::requests::table(requests).html())
        @for line in view::requests::sentences(requests) { p { (line) } }
        @for line in view::requests::against_steps(analysis) { p { (line) } }
    }
}

fn serving_view(analysis: &Analysis, serving: &Serving) -> Markup {
    html! {
        @for line in view::serving::sentences(analysis) { p { (line) } }
        (view::serving::over_time(serving).html())
        (view::serving::batches(serving).html())
        @if let Some(latency) = &serving.latency {
            @for table in view::serving::latency(latency) { @if !table.is_empty() { (table.html()) } }
            p.hint { (view::serving::LATENCY) }
        }
    }
}

/// Renders the changes that were tried, if any were.
fn tried(bundle: Bundle<'_>) -> Option<Markup> {
    let trials = bundle.context.trials.as_ref()?;
    let trial = trials.latest()?;
    Some(html! {
        @if let Some(line) = view::trial::headline(trials) { p { b { (line) } } }
        p.hint { (view::trial::MEANING) }
        (view::trial::table(trial).measured().html())
        @if let Some(times) = view::trial::times(trial) {
            p.hint { (view::trial::TIMES) }
            (times.measured().html())
        }
        ul {
            @for line in view::trial::sentences(trial) { li { (line) } }
            li { (view::trial::cost(trial)) }
        }
    })
}

/// Renders the figures of a Stage 1 runner, if one ran the model.
fn stage1(analysis: &Analysis) -> Option<Markup> {
    let figures = analysis.stage1.as_ref()?;
    Some(html! {
        p.hint { (view::stage1::source(analysis, figures)) }
        (view::stage1::times(analysis, figures).html())
        (view::stage1::rates(figures).html())
        @if !figures.operators.is_empty() {
            p.hint { (view::stage1::OPERATOR_TIMES) }
            (view::stage1::operators(figures, OPERATORS).html())
        }
    })
}

fn operators(analysis: &Analysis) -> Markup {
    if analysis.operators.is_empty() {
        return absent(&missing(analysis, &About::Operators));
    }
    let columns = ["operator", "calls", "self CPU ms", "total CPU ms", "self GPU ms", "total GPU ms"];
    let more = analysis.operators.len().saturating_sub(OPERATORS);
    html! {
        p.hint { (view::kernels::operator_scope(analysis)) "." }
        (crate::view::kernels::operators(analysis, OPERATORS).pick(&columns).html())
        @if more > 0 { p.hint { (more) " more are in metrics.json." } }
    }
}
