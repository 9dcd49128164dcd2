//! The kernel table: the first rows as HTML, all rows as data for sorting and searching.

use super::class;
use crate::document::kernels::{self, COUNTER_SHARES, CounterShare, KernelStages, only_measured};
use crate::document::{capitalized, joined, maybe, roof};
use maud::{Markup, html};
use roofgap_analyze::{Analysis, CounterRow, Kernel, KernelShape};
use roofgap_base::numbers::{count, si};
use roofgap_base::text::{cut, without_controls};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Rows shown without scripts.
const FIRST: usize = 25;
/// The most rows of a scope; `metrics.json` has the others.
const MOST: usize = 3000;
/// The longest full name, in characters.
const LONGEST: usize = 1500;

/// The rows that the page sorts and searches.
#[derive(Debug, Serialize)]
pub struct Data {
    /// Kernel time of each scope, ns: the whole trace, then every stage.
    totals: Vec<i64>,
    scopes: Vec<String>,
    families: Vec<String>,
    /// Rows of each scope.
    rows: Vec<Vec<Row>>,
    names: Vec<Name>,
    /// Rows left out of each scope.
    left_out: Vec<usize>,
    counters: Vec<Measured>,
    rules: Vec<Measured>,
    operators: Vec<Measured>,
    first: usize,
    /// The table has the device of each row.
    devices: bool,
    /// The table has the distance to the roof.
    roof: bool,
}

#[derive(Debug, Serialize)]
struct Name {
    short: String,
    /// Full name, if it differs.
    full: Option<String>,
    family: usize,
    /// Colour of the family.
    color: &'static str,
    /// Position among the names of the timeline.
    timeline: Option<u32>,
    /// Stages in which the kernel ran, the one with most of its time first.
    stages: Vec<usize>,
}

/// Counters of a kernel and launch shape, the result of one of ncu's rules, or an operator with its shapes.
#[derive(Debug, Serialize)]
struct Measured {
    /// Position of the kernel among the names.
    name: usize,
    /// Grid and block, as in the timeline; else empty.
    shape: String,
    text: String,
}

/// Name, device, total, calls, mean, median, minimum, maximum, bound, reason, distance to the roof.
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
    Option<[String; 2]>,
);

/// Collects all kernels for the page.
pub fn data(analysis: &Analysis, timeline: Option<&BTreeMap<String, u32>>) -> Data {
    let scopes: Vec<(&str, &[Kernel])> = std::iter::once(("whole trace", analysis.kernels.as_slice()))
        .chain(analysis.stages.iter().map(|s| (s.name.as_str(), s.kernels.as_slice())))
        .collect();
    let families: BTreeSet<&str> = analysis.kernels.iter().map(|k| k.family.as_str()).collect();
    let families: Vec<String> = families.into_iter().map(str::to_owned).collect();
    let stages = KernelStages::of(analysis);
    let mut names = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for (_, kernels) in &scopes {
        let list = kernels.iter().take(MOST).map(|kernel| {
            let at = *known.entry(kernel.name.as_str()).or_insert_with(|| {
                names.push(Name {
                    short: show(&kernel.short_name, 200),
                    full: (kernel.name != kernel.short_name).then(|| show(&kernel.name, LONGEST)),
                    family: families.iter().position(|f| *f == kernel.family.as_str()).unwrap_or(0),
                    color: class::css(kernel.family.as_str()),
                    timeline: timeline.and_then(|t| t.get(&kernel.name).copied()),
                    stages: stages.positions(&kernel.name, |_| true),
                });
                names.len() - 1
            });
            row(kernel, at)
        });
        rows.push(list.collect());
    }
    let counters = analysis.counters.iter().take(MOST).filter_map(|row| {
        Some(Measured {
            name: *known.get(row.kernel.as_str())?,
            shape: shape(row),
            text: show(&counter_text(row), 600),
        })
    });
    let counters = counters.collect();
    let rules = analysis.ncu_rules.iter().take(MOST).filter_map(|rule| {
        let text = show(&format!("{}: {}", rule.rule, joined(rule.text.split_whitespace(), " ")), 400);
        Some(Measured { name: *known.get(rule.kernel.as_str())?, shape: String::new(), text })
    });
    let rules = rules.collect();
    let operators = analysis.kernels.iter().take(MOST).flat_map(|kernel| {
        let name = known.get(kernel.name.as_str());
        let shapes = kernel.shapes.iter().take(FIRST).zip(name.into_iter().cycle());
        shapes.map(|(shape, name)| Measured {
            name: *name,
            shape: String::new(),
            text: show(&operator_text(shape), 600),
        })
    });
    let operators = operators.collect();
    Data {
        counters,
        rules,
        operators,
        totals: scopes.iter().map(|s| s.1.iter().map(|k| k.total_ns).sum()).collect(),
        left_out: scopes.iter().map(|s| s.1.len().saturating_sub(MOST)).collect(),
        scopes: scopes.iter().map(|s| show(s.0, 80)).collect(),
        families,
        rows,
        names,
        first: FIRST,
        devices: kernels::on_several_devices(analysis),
        roof: roof::is_known(&analysis.kernels),
    }
}

/// Joins grid and block by commas.
pub fn shape(row: &CounterRow) -> String {
    let numbers: Vec<String> = row.grid.iter().chain(&row.block).map(u32::to_string).collect();
    numbers.join(",")
}

/// Lists the measured shares of peak, then the verdict.
fn counter_text(row: &CounterRow) -> String {
    let share = |(name, share): &CounterShare| Some(format!("{name} {:.1} %", share(row)?));
    let stage = maybe(row.stage.as_ref(), |stage| format!(" ({stage})"));
    let bound = row.bound.as_deref().unwrap_or("no verdict");
    let shares = joined(COUNTER_SHARES.iter().filter_map(share), ", ");
    format!("{shares}{stage}; {bound}: {}", row.reason)
}

/// Describes the launches by one operator, their work, and their share of the roof.
fn operator_text(shape: &KernelShape) -> String {
    let KernelShape { operator, dims, dtype, calls, total_ns, flops, bytes, roof_ns, .. } = shape;
    let roof = maybe(*roof_ns, |roof| {
        format!(", {:.1} % of roof", (100.0 * roof * *calls as f64 / *total_ns as f64).min(100.0))
    });
    format!("{operator} {dims} {dtype}: {} × {}FLOP and {}B{roof}", count(*calls), si(*flops), si(*bytes))
}

fn show(text: &str, most: usize) -> String {
    without_controls(&cut(text, most))
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
        kernel.roof.roof_pct.map(|_| [roof::pct_of(kernel), roof::above(&kernel.roof)]),
    )
}

/// Columns of the kernel table: the key by which the script sorts, and the name. The device is there only where there are several, the
/// distance to the roof where it is known.
const COLUMNS: [(&str, &str); 14] = [
    ("name", "kernel"),
    ("family", "family"),
    ("stage", "stage"),
    ("device", "device"),
    ("total", "total ms"),
    ("share", "share %"),
    ("calls", "calls"),
    ("mean", "mean µs"),
    ("median", "median µs"),
    ("min", "min µs"),
    ("max", "max µs"),
    ("bound", "bound"),
    ("roof", roof::COLUMNS[0]),
    ("above", roof::COLUMNS[1]),
];

/// Renders the table with its first rows.
pub fn table(analysis: &Analysis) -> Markup {
    let shown = &analysis.kernels[..analysis.kernels.len().min(FIRST)];
    let (several, roof) = (kernels::on_several_devices(analysis), roof::is_known(&analysis.kernels));
    let columns = COLUMNS
        .iter()
        .filter(|(key, name)| (several || *key != "device") && (roof || !roof::COLUMNS.contains(name)));
    let (keys, columns): (Vec<&str>, Vec<&str>) = columns.copied().unzip();
    let table = kernels::table(analysis, shown, analysis.totals.kernel_ns, &columns);
    let scope = if only_measured(analysis) { "measured by ncu" } else { "in the whole trace" };
    html! {
        form #kernel-tools.tools role="search" hidden {
            label { "Search " input #kernel-search type="search" placeholder="part of a name" autocomplete="off" spellcheck="false"; }
            label { "Stage " select #kernel-stage {} }
            label { "Family " select #kernel-family {} }
            output #kernel-count aria-live="polite" {}
        }
        div.scroll { table #kernel-table {
            thead { tr {
                @for (key, heading) in keys.iter().zip(&table.headings) {
                    th class=[heading.class()] scope="col" data-key=(key) aria-sort=[(*key == "total").then_some("descending")] {
                        @if *key == "device" { "GPU" } @else { (capitalized(&heading.name)) }
                    }
                }
            } }
            tbody { @for (kernel, row) in shown.iter().zip(&table.rows) { tr {
                @for (i, (cell, heading)) in row.iter().zip(&table.headings).enumerate() {
                    @if i == 0 { th scope="row" { i class={ "f-" (class::css(kernel.family.as_str())) } {} (cut(cell, 200)) } }
                    @else { td class=[heading.class()] { (cell) } }
                }
            } } }
        } }
        p #kernel-more {
            (count(analysis.kernels.len() as u64)) " kernels, " (count(analysis.totals.kernel_count))
            " launches " (scope) "; without scripts the first " (shown.len()) " are shown."
        }
        @if let Some(note) = roof::note(analysis) { p.hint { (note) } }
    }
}
