//! A comparison as one HTML page that needs no network.

use super::view::{self, Form, SUM, added_up, signed_ms};
use crate::document::findings::saving;
use crate::document::stages::{PARTS, TimePart};
use crate::page::stages::{legend, share_bar, share_words, shares_of};
use crate::page::{class, ops_of_longest};
use crate::render::html::{self as render, STYLE, Shell, shell};
use maud::{Markup, html};
use roofgap_analyze::compare::{Basis, Change, Comparison, StageChange};
use roofgap_analyze::{Analysis, StageIndex};
use roofgap_base::numbers::time;
use roofgap_trace::{NameId, Ns, Trace};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;

/// Styles of this page, after those of the report.
const OWN_STYLE: &str = include_str!("style.css");
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("../page/tables.js"),
    include_str!("sort.js"),
    "})();\n"
);

/// What the page shows of one side beside the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// Analysis.
    pub analysis: &'a Analysis,
    /// Timeline and its stages; `None` where it was not kept.
    pub timeline: Option<(&'a Trace, &'a StageIndex)>,
    /// Page of this side.
    pub page: Option<&'a Path>,
}

impl<'a> Shown<'a> {
    /// Shows an analysis alone.
    pub fn analysis(analysis: &'a Analysis) -> Self {
        Self { analysis, timeline: None, page: None }
    }
}

/// Renders a comparison as HTML, with what is known of base and head.
pub fn html(comparison: &Comparison, shown: &[Shown<'_>]) -> String {
    let (base, head) = (&comparison.base.title, &comparison.head.title);
    let form = Form { parts: 24, kernels: 200, is_page: true };
    let mut drawings = comparison.stages.iter().flat_map(|stage| {
        let parts = view::parts(stage, form.parts);
        let bars = sides_of(stage).map(|bars| html! { (bars) (strips(&stage.name, shown)) });
        [bars].into_iter().chain((!parts.is_empty()).then(|| Some(deltas(&parts))))
    });
    let body = html! {
        main {
            p.kicker { "roofgap compare" }
            @if let Some(alarm) = view::alarm(comparison) { p.alarm role="alert" { (alarm) } }
            h1 { (view::conclusion(comparison)) }
            p { "base " (linked(base, shown.first())) ", head " (linked(head, shown.get(1))) }
            ul { @for fact in view::facts(comparison) { li { (fact) } } }
            @if let [base, head] = shown {
                (findings("Findings that are gone", base.analysis, head.analysis))
                (findings("New findings", head.analysis, base.analysis))
            }
            (render::sections(&view::sections(comparison, form), |_| drawings.next().flatten()))
        }
    };
    shell(&Shell {
        title: &format!("{head} against {base}"),
        styles: &[STYLE, OWN_STYLE],
        body,
        script: Some(SCRIPT),
        ..Shell::default()
    })
}

/// Names a side, with a link to its page.
fn linked(title: &str, side: Option<&Shown<'_>>) -> Markup {
    html! { b { @match side.and_then(|side| side.page) { Some(page) => a href=(page.display()) { (title) }, None => (title) } } }
}

/// Lists the findings of one side that the other does not have.
fn findings(title: &str, of: &Analysis, other: &Analysis) -> Markup {
    let known =
        |id: &str, stage: &Option<String>| other.findings.iter().any(|f| f.id == id && f.stage == *stage);
    let own: Vec<_> = of.findings.iter().filter(|finding| !known(&finding.id, &finding.stage)).collect();
    html! {
        @if !own.is_empty() {
            h2 { (title) }
            ul { @for finding in own { li { (finding.title) " " small { (saving(of, finding)) } } } }
        }
    }
}

/// Number of columns of a strip, and its height.
const COLUMNS: Ns = 400;
const HEIGHT: f64 = 30.0;

/// Draws the GPU work of the longest instance of a stage on both sides, on one scale.
fn strips(stage: &str, shown: &[Shown<'_>]) -> Markup {
    let sides = shown.iter().filter_map(|side| {
        let (trace, stages) = side.timeline?;
        let at = side.analysis.stages.iter().position(|own| own.name == stage)?;
        let own: Vec<usize> = ops_of_longest(trace, stages, at).collect();
        let first = own.iter().map(|op| trace.ops.start[*op]).min()?;
        let last = own.iter().map(|op| trace.ops.end[*op]).max()?;
        Some((trace, own, first, last - first))
    });
    let sides: Vec<_> = sides.collect();
    let [base, head] = sides.as_slice() else {
        return html! {};
    };
    let longest = base.3.max(head.3);
    let drawn = [("base", base), ("head", head)]
        .map(|(name, side)| (name, paths(side.0, &side.1, side.2, longest), side.3));
    let mut families: Vec<&str> = drawn.iter().flat_map(|side| side.1.keys().copied()).collect();
    families.sort_unstable();
    families.dedup();
    html! {
        @for (name, paths, length) in &drawn {
            div.side {
                b { (name) }
                svg.strip viewBox={ "0 0 " (COLUMNS) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label={ "GPU work of the " (name) ", " (time(*length)) } {
                    @for (class, path) in paths { path class={ "f-" (class) } d=(path) {} }
                }
                span.n { (time(*length)) }
            }
        }
        ul.legend { @for class in families { li { i class={ "f-" (class) } {} (class) } } }
        p.hint { "GPU work of the longest instance on each side, from its first operation on, on one scale. The height of a column is the share of time in which the GPU ran; its colour is the family with most of it." }
    }
}

/// Returns a path for each family: the columns in which it has most of the occupied time.
fn paths(trace: &Trace, ops: &[usize], first: Ns, longest: Ns) -> BTreeMap<&'static str, String> {
    let column = (longest / COLUMNS).max(1);
    let mut classes: HashMap<NameId, &'static str> = HashMap::new();
    let mut columns: Vec<BTreeMap<&'static str, Ns>> = vec![BTreeMap::new(); COLUMNS as usize + 1];
    for &op in ops {
        let (kind, name) = (trace.ops.kind[op], trace.ops.name[op]);
        let found = || class::css(class::of_op(kind, trace.names.get(name)));
        let class = *classes.entry(name).or_insert_with(found);
        let (mut at, end) = (trace.ops.start[op] - first, trace.ops.end[op] - first);
        while at < end {
            let until = end.min((at / column + 1) * column);
            let Some(families) = columns.get_mut((at / column) as usize) else {
                break;
            };
            *families.entry(class).or_default() += until - at;
            at = until;
        }
    }
    let mut paths: BTreeMap<&'static str, String> = BTreeMap::new();
    for (x, families) in columns.iter().enumerate() {
        if let Some((class, _)) = families.iter().max_by_key(|(_, ns)| **ns) {
            let busy = families.values().sum::<Ns>().min(column);
            let high = HEIGHT * busy as f64 / column as f64;
            // Writing to a string cannot fail.
            let _ = write!(paths.entry(class).or_default(), "M{x} {HEIGHT}v-{high:.1}h1v{high:.1}z");
        }
    }
    paths
}

/// Renders the parts of the wall time of base and head on one scale; `None` where one of them has no time or the sides did different work.
fn sides_of(stage: &StageChange) -> Option<Markup> {
    let (base, head) =
        stage.wall_ns.base.zip(stage.wall_ns.head).filter(|_| stage.basis != Basis::StepAndToken)?;
    let longest = base.max(head).max(1) as f64;
    let bars = [
        ("base", base, time_parts(stage, base, |change| change.base)),
        ("head", head, time_parts(stage, head, |change| change.head)),
    ];
    let used: Vec<&TimePart> = PARTS
        .iter()
        .filter(|part| bars.iter().any(|bar| bar.2.iter().any(|own| own.0.class == part.class)))
        .collect();
    Some(html! {
        @for (label, total, parts) in &bars {
            div.side {
                b { (label) }
                div.bar role="img" aria-label={ (label) " wall time " (time(*total)) ": " (share_words(parts)) } style=(format!("width:{:.3}%", 100.0 * *total as f64 / longest)) {
                    @if parts.is_empty() { span.unknown style="flex:1" {} }
                    (share_bar(parts, 0.0))
                }
                span.n { (time(*total)) }
            }
        }
        @if !used.is_empty() { (legend(used.into_iter())) }
    })
}

/// Splits the wall time of a side; empty where busy time is unknown or, on several GPUs, sums to more than the wall time.
fn time_parts(
    stage: &StageChange,
    total_ns: i64,
    of: fn(&Change<i64>) -> Option<i64>,
) -> Vec<(&'static TimePart, i64, f64)> {
    let StageChange { busy_ns, idle_launch_ns, idle_sync_ns, idle_copy_ns, idle_other_ns, .. } = stage;
    let known = [busy_ns, idle_launch_ns, idle_sync_ns, idle_copy_ns, idle_other_ns];
    let Some(mut times) = known.into_iter().map(of).collect::<Option<Vec<i64>>>() else { return Vec::new() };
    times.push(total_ns.saturating_sub(added_up(times.iter().copied())));
    let fits = times.last().is_some_and(|rest| *rest >= 0);
    if fits { shares_of(times) } else { Vec::new() }
}

/// Renders bars to the left (less) and to the right (more) of a middle line.
fn deltas(parts: &[(String, i64, &str)]) -> Markup {
    let widest = parts.iter().map(|part| part.1.unsigned_abs()).max().unwrap_or(1).max(1);
    let bar = |delta: i64| {
        let width = 50.0 * delta.unsigned_abs() as f64 / widest as f64;
        let left = if delta < 0 { 50.0 - width } else { 50.0 };
        format!("left:{left:.2}%;width:{width:.2}%")
    };
    html! {
        div.scroll { table.delta-table { tbody {
            @for (name, delta, _) in parts {
                tr {
                    th scope="row" { (name) }
                    td.n { (signed_ms(*delta)) " ms" }
                    td { span.delta { i class=(if *delta < 0 { "less" } else { "more" }) style=(bar(*delta)) {} } }
                }
            }
            tr.sum { th scope="row" { (SUM) } td.n { (signed_ms(added_up(parts.iter().map(|part| part.1)))) " ms" } td {} }
        } } }
    }
}
