//! The kernel table: the first rows as HTML, all of them as data for sorting and searching.

use super::class;
use super::markup::{cut, escape, escape_cut, visible};
use crate::number::{NONE, count, ms, percent};
use roofgap_analyze::{About, Analysis, Kernel};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Rows that are there without scripts.
const FIRST: usize = 25;
/// The most rows a page holds; the rest is in `metrics.json`.
const MOST: usize = 3000;
/// The longest full name.
const LONGEST: usize = 1500;

/// What the page sorts and searches.
#[derive(Debug, Serialize)]
pub(super) struct Data {
    /// Kernel time of each scope: the whole trace, then every stage.
    totals: Vec<i64>,
    scopes: Vec<String>,
    families: Vec<String>,
    /// Rows of each scope.
    rows: Vec<Vec<Row>>,
    names: Vec<Name>,
    /// Rows left out of each scope.
    left_out: Vec<usize>,
    first: usize,
}

#[derive(Debug, Serialize)]
struct Name {
    short: String,
    /// The full name where it says more.
    full: Option<String>,
    family: usize,
    /// Colour of the family.
    color: &'static str,
    /// Position among the names of the timeline.
    timeline: Option<u32>,
    /// Stages in which it ran, the one with most of its time first.
    stages: Vec<usize>,
}

/// Name, device, total, calls, mean, median, least, most, bound, why.
type Row = (
    usize,
    Option<u32>,
    i64,
    u64,
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<String>,
    Option<String>,
);

/// All kernels for the page.
pub(super) fn data(analysis: &Analysis, timeline: Option<&BTreeMap<String, u32>>) -> Data {
    let scopes: Vec<(&str, &[Kernel])> = std::iter::once(("whole trace", analysis.kernels.as_slice()))
        .chain(
            analysis
                .stages
                .iter()
                .map(|s| (s.name.as_str(), s.kernels.as_slice())),
        )
        .collect();
    let families: BTreeSet<&str> = analysis.kernels.iter().map(|k| k.family.as_str()).collect();
    let families: Vec<String> = families.into_iter().map(str::to_owned).collect();
    let stages = stages_of(analysis);
    let mut names = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for (_, kernels) in &scopes {
        let list = kernels.iter().take(MOST).map(|kernel| {
            let at = *known.entry(kernel.name.as_str()).or_insert_with(|| {
                names.push(Name {
                    short: show(&kernel.short_name, 200),
                    full: (kernel.name != kernel.short_name).then(|| show(&kernel.name, LONGEST)),
                    family: families
                        .iter()
                        .position(|f| *f == kernel.family.as_str())
                        .unwrap_or(0),
                    color: class::css(kernel.family.as_str()),
                    timeline: timeline.and_then(|t| t.get(&kernel.name).copied()),
                    stages: stages.get(kernel.name.as_str()).cloned().unwrap_or_default(),
                });
                names.len() - 1
            });
            row(kernel, at)
        });
        rows.push(list.collect());
    }
    Data {
        totals: scopes
            .iter()
            .map(|s| s.1.iter().map(|k| k.total_ns).sum())
            .collect(),
        left_out: scopes.iter().map(|s| s.1.len().saturating_sub(MOST)).collect(),
        scopes: scopes.iter().map(|s| show(s.0, 80)).collect(),
        families,
        rows,
        names,
        first: FIRST,
    }
}

fn show(text: &str, most: usize) -> String {
    cut(text, most).chars().map(visible).collect()
}

fn row(kernel: &Kernel, name: usize) -> Row {
    let counters = kernel.counters.as_ref();
    (
        name,
        kernel.device,
        kernel.total_ns,
        kernel.calls,
        kernel.mean_ns,
        kernel.median_ns,
        kernel.min_ns,
        kernel.max_ns,
        counters.and_then(|c| c.bound.as_deref()).map(|b| show(b, 60)),
        counters.map(|c| show(&c.reason, 400)),
    )
}

/// For each kernel name the stages in which it ran, most of its time first.
fn stages_of(analysis: &Analysis) -> BTreeMap<&str, Vec<usize>> {
    let mut times: BTreeMap<&str, BTreeMap<usize, i64>> = BTreeMap::new();
    for (at, stage) in analysis.stages.iter().enumerate() {
        for kernel in &stage.kernels {
            let time = times.entry(&kernel.name).or_default().entry(at).or_default();
            *time += kernel.total_ns;
        }
    }
    times
        .into_iter()
        .map(|(name, stages)| {
            let mut list: Vec<(usize, i64)> = stages.into_iter().collect();
            list.sort_by_key(|s| std::cmp::Reverse(s.1));
            (name, list.into_iter().map(|s| s.0).collect())
        })
        .collect()
}

/// The table with its first rows, or why there is none.
pub(super) fn table(analysis: &Analysis) -> String {
    if analysis.kernels.is_empty() {
        let why = analysis.reasons.iter().find(|r| r.about == About::Kernels);
        return super::absence("No kernels", why.map_or("the run recorded none", |r| &r.why));
    }
    let mut out = String::from(include_str!("kernels.html"));
    let stages = stages_of(analysis);
    for kernel in analysis.kernels.iter().take(FIRST) {
        let in_stages: Vec<&str> = stages
            .get(kernel.name.as_str())
            .into_iter()
            .flatten()
            .filter_map(|at| analysis.stages.get(*at).map(|s| s.name.as_str()))
            .collect();
        let in_stages = if in_stages.is_empty() {
            NONE.into()
        } else {
            in_stages.join(", ")
        };
        let us = |ns: Option<i64>| ns.map_or(NONE.to_owned(), |n| format!("{:.2}", n as f64 / 1e3));
        let bound = kernel.counters.as_ref().and_then(|c| c.bound.as_deref());
        let _ = write!(
            out,
            "<tr><th scope=\"row\"><i class=\"f-{}\"></i>{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            class::css(kernel.family.as_str()),
            escape_cut(&kernel.short_name, 200),
            escape(kernel.family.as_str()),
            escape(&in_stages),
            ms(kernel.total_ns),
            percent(kernel.total_ns, analysis.totals.kernel_ns),
            count(kernel.calls),
            us(Some(kernel.mean_ns)),
            us(kernel.median_ns),
            us(kernel.min_ns),
            us(kernel.max_ns),
            bound.map_or(NONE.into(), escape)
        );
    }
    out.push_str("</tbody></table></div>");
    let _ = write!(
        out,
        "<p id=\"kernel-more\">{} kernels, {} launches in the whole trace; without scripts the first {} are shown.</p>",
        count(analysis.kernels.len() as u64),
        count(analysis.totals.kernel_count),
        FIRST.min(analysis.kernels.len())
    );
    out
}
