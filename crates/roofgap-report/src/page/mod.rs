//! `report.html`: one file that needs no network and is readable without scripts.
//!
//! The sections are those of the document; here is what only the page draws. Everything but the timeline and the sorting of the
//! kernel table is plain HTML and SVG. The page's policy lets a browser run the script of this crate, identified by its hash, and
//! nothing else.
//!
//! - `head`: what was profiled, a card per stage and the first findings; `findings` with a piece of the timeline each
//! - `stages`: the time of stages, steps and collectives as bars; `ranks`: the map of ranks by time
//! - `roofline`, `kernels`, `flame`: the drawings of those names
//! - `timeline`: the data of the timeline and its frame
//! - `class`: colours

pub(crate) mod class;
mod findings;
mod flame;
mod head;
mod kernels;
mod ranks;
mod roofline;
mod stages;
mod timeline;

pub use crate::render::html::{STYLE, Shell, shell};
pub(crate) use timeline::ops_of_longest;
pub use timeline::{NoTimeline, TimelineWindow, timeline_window};

use crate::bundle::Bundle;
use crate::document::{Document, Form};
use crate::render::html::{policy, script_json, sections};
use maud::html;
use roofgap_analyze::{call_tree, host_stacks, idle_parts};
use roofgap_base::text::cut;

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
    let idle = bundle.trace.map_or_else(Vec::new, |trace| idle_parts(trace, bundle.stages));
    let mut findings = Some(findings::findings(bundle, &idle));
    let timeline = timeline::timeline(bundle, idle);
    let (meta, columns, names, no_timeline) = match timeline {
        Ok(t) => (script_json(&t.meta), t.columns, Some(t.kernel_names), None),
        Err(why) => ("null".into(), String::new(), None, Some(format!("No timeline: {why}."))),
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
        "ranks" => ranks::map(analysis),
        "communication" => Some(stages::communication(analysis)),
        "flame" => flame.take(),
        "idle-flame" => idle_flame.take(),
        _ => None,
    };
    let title = cut(&Document::of(bundle, Form::Page).summary_title(), 160);
    let body = html! {
        a.skip href="#findings" { "To the findings" }
        header {
            p.kicker { "roofgap " span { (cut(&bundle.context.title, 160)) } }
            h1 { (title) }
            (head::head(bundle))
        }
        nav aria-label="Parts of this page" {
            @for part in parts.iter().filter(|part| !part.inner) { a href={ "#" (part.id) } { (part.title) } " " }
        }
        main { (sections(&parts, drawing)) }
    };
    let data = [
        ("kernel-data", "application/json", script_json(&kernels::data(analysis, names.as_ref()))),
        ("timeline-meta", "application/json", meta),
        ("timeline-columns", "text/plain", columns),
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
