//! Pages: an answer, and the fleet. Each is one file that needs no network and no script.

use std::collections::{BTreeMap, HashSet};

use maud::{Markup, html};
use roofgap_report::page::{STYLE, Shell, shell};

use crate::LakeError;
use crate::query::answer::NONE;
use crate::query::saved::{Query, fill};
use crate::query::{Answer, Engine};
use crate::trend::{By, TrendProps, trend};

/// Most rows of a table of the fleet page.
const ROWS: usize = 15;

/// Most lines of a chart.
const LINES: usize = 8;

/// Additions to the styles of the report.
const OWN_STYLE: &str = "td.bar-cell { min-width: 160px; } td.bar-cell svg { display: block; } \
    svg.chart { width: 100%; height: auto; } svg.chart text { fill: var(--soft); font-size: 11px; } \
    svg.chart path.axis { stroke: var(--line); fill: none; } svg.chart polyline { fill: none; stroke-width: 1.8; }";

/// Cells of a row.
type Row = Vec<Option<String>>;

/// Colours of lines, by position.
const COLOURS: [&str; LINES] = [
    "var(--c-gemm)",
    "var(--c-attention)",
    "var(--c-elementwise)",
    "var(--c-moe)",
    "var(--c-norm)",
    "var(--c-communication)",
    "var(--c-graph)",
    "var(--c-embedding)",
];

/// A section of the fleet page: title, saved query and the column that is drawn as bars.
const SECTIONS: [(&str, &str, &str); 9] = [
    ("Changes at commits", "regressions", "change_pct"),
    ("MFU and MBU", "utilisation", "gpu_hours"),
    ("Kernels by GPU time", "top-kernels", "gpu_hours"),
    ("What fixing would save", "findings-by-hours", "gpu_hours"),
    ("Slow hosts", "slow-hosts", "slowdown_pct"),
    ("Slow ranks", "slow-ranks", "slowdown_pct"),
    ("Kernels and drivers", "driver-kernels", "change_pct"),
    ("Causes of idle time", "idle-causes", "idle_hours"),
    ("Failed runs and unreadable inputs", "failed-runs", ""),
];

/// Renders an answer.
pub fn answer_page(title: &str, answer: &Answer) -> Result<String, LakeError> {
    let body = html! {
        section { (table(answer, "", usize::MAX, &[])?) }
    };
    Ok(page(title, &body, &[]))
}

/// Renders the fleet.
pub fn fleet_page(engine: &Engine, address: &str) -> Result<String, LakeError> {
    let totals = engine.query(
        "SELECT COUNT(*) AS runs, COUNT(DISTINCT project) AS projects, COUNT(DISTINCT host) AS hosts, COUNT(DISTINCT gpu) AS gpu_models, \
         COUNT(DISTINCT model) AS models, MIN(date) AS first_date, MAX(date) AS last_date, \
         SUM(CAST(busy_ns AS DOUBLE)) / 3.6e12 AS busy_gpu_hours FROM runs",
    )?;
    let facts = totals.rows(Some(4))?;
    let mut sections: Vec<(String, String, Markup)> = Vec::new();
    let chart = trend_chart(engine)?;
    sections.push(("trend".to_owned(), "Time of a token in decode".to_owned(), chart));
    for (title, name, bars) in SECTIONS {
        let Some(query) = Query::named(name) else {
            continue;
        };
        let answer = engine.query(&fill(query.text, &BTreeMap::new())?)?;
        // A stage without known work has no place in a table of utilisation.
        let needed: &[&str] = if name == "utilisation" { &["mfu_pct", "mbu_pct"] } else { &[] };
        let body = html! {
            p.hint { (query.title()) ". " code { "roofgap lake query " (name) } }
            (table(&answer, bars, ROWS, needed)?)
        };
        sections.push((name.to_owned(), title.to_owned(), body));
    }
    let body = html! {
        section {
            dl.facts {
                @for (name, value) in totals.names().iter().zip(facts.first().into_iter().flatten()) {
                    div { dt { (name.replace('_', " ")) } dd { (value.as_deref().unwrap_or(NONE)) } }
                }
            }
        }
        @for (id, title, body) in &sections {
            section id=(id) { h2 { (title) } (body) }
        }
    };
    let links: Vec<(&str, &str)> =
        sections.iter().map(|(id, title, _)| (id.as_str(), title.as_str())).collect();
    Ok(page(&format!("Fleet: {address}"), &body, &links))
}

fn page(title: &str, body: &Markup, links: &[(&str, &str)]) -> String {
    let body = html! {
        header { p.kicker { "roofgap" } h1 { (title) } }
        @if !links.is_empty() {
            nav { @for (id, title) in links { a href={ "#" (id) } { (title) } } }
        }
        main { (body) }
    };
    shell(&Shell { title, styles: &[STYLE, OWN_STYLE], body, ..Shell::default() })
}

/// Renders a table; the column `bars` also has bars. Rows without a value in any of the columns `needed` are left out.
fn table(answer: &Answer, bars: &str, most: usize, needed: &[&str]) -> Result<Markup, LakeError> {
    let names = answer.names();
    let drawn = names.iter().position(|name| *name == bars);
    let values = drawn.map_or_else(|| Ok(Vec::new()), |column| answer.numbers(column))?;
    let values = values.into_iter().chain(std::iter::repeat(None));
    let is_shown = |row: &Row| {
        let known = |(name, cell): (&&str, &Option<String>)| needed.contains(name) && cell.is_some();
        needed.is_empty() || names.iter().zip(row).any(known)
    };
    let rows: Vec<(Row, Option<f64>)> =
        answer.rows(Some(6))?.into_iter().zip(values).filter(|(row, _)| is_shown(row)).collect();
    if rows.is_empty() {
        return Ok(html! { p.absent { "No rows." } });
    }
    let longest =
        rows.iter().filter_map(|(_, value)| *value).fold(0.0_f64, |most, value| most.max(value.abs()));
    let left_out = rows.len().saturating_sub(most);
    Ok(html! {
        div.scroll { table {
            thead { tr {
                @for (at, name) in names.iter().enumerate() {
                    th.n[answer.is_numeric(at)] { (name.replace('_', " ")) }
                }
                @if drawn.is_some() { th {} }
            } }
            tbody { @for (row, value) in rows.iter().take(most) { tr {
                @for (column, cell) in row.iter().enumerate() {
                    td.n[answer.is_numeric(column)] { (cell.as_deref().unwrap_or(NONE)) }
                }
                @if drawn.is_some() { td.bar-cell { (bar(*value, longest)) } }
            } } }
        } }
        @if left_out > 0 { p.hint { (left_out) " more rows" } }
    })
}

fn bar(value: Option<f64>, longest: f64) -> Markup {
    let Some(value) = value.filter(|_| longest > 0.0) else {
        return html! {};
    };
    let width = format!("{:.1}", value.abs() / longest * 150.0);
    let colour = if value < 0.0 { "var(--idle-other)" } else { "var(--accent)" };
    html! {
        svg width="150" height="12" role="img" aria-label=(format!("{value:.3}")) {
            rect width=(width) height="12" rx="2" fill=(colour) {}
        }
    }
}

/// Draws the time of a token in decode by date, one line for each project, model and GPU.
fn trend_chart(engine: &Engine) -> Result<Markup, LakeError> {
    let answer = trend(
        engine,
        &TrendProps {
            metric: "token_ns".to_owned(),
            stage: "decode".to_owned(),
            by: By::Date,
            since: None,
            model: None,
            project: None,
        },
    )?;
    let rows = answer.rows(None)?;
    let values = answer.numbers(answer.names().len().saturating_sub(1))?;
    let mut lines: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for (row, value) in rows.iter().zip(values) {
        let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_else(|| NONE.to_owned());
        if let Some(value) = value {
            let name = format!("{}, {}, {}", text(0), text(1), text(2));
            lines.entry(name).or_default().push((text(3), value));
        }
    }
    let dates: HashSet<&String> = lines.values().flatten().map(|(date, _)| date).collect();
    let mut dates: Vec<&String> = dates.into_iter().collect();
    dates.sort();
    let most = lines.values().flatten().fold(0.0_f64, |most, (_, value)| most.max(*value));
    if dates.len() < 2 || most <= 0.0 {
        return Ok(html! { p.absent { "Runs of at least two days with decode and its tokens are needed." } });
    }
    let (width, height, left, bottom) = (1000.0, 260.0, 60.0, 30.0);
    let x = |date: &String| {
        let at = dates.binary_search(&date).unwrap_or(0) as f64;
        left + at / (dates.len() - 1) as f64 * (width - left - 10.0)
    };
    let y = |value: f64| 10.0 + (1.0 - value / (most * 1.05)) * (height - bottom - 10.0);
    let points = |line: &[(String, f64)]| {
        let points = line.iter().map(|(date, value)| format!("{:.1},{:.1}", x(date), y(*value)));
        points.collect::<Vec<_>>().join(" ")
    };
    let hidden = lines.len().saturating_sub(LINES);
    Ok(html! {
        p.hint { "Mean over the runs of a day, ms per token, all sequences together." }
        ul.legend {
            @for (name, colour) in lines.keys().zip(COLOURS) { li { i style={ "background:" (colour) } {} (name) } }
        }
        svg.chart viewBox=(format!("0 0 {width} {height}")) role="img" aria-label="Time of a token in decode by date" {
            path.axis d=(format!("M{left} 10V{}H{width}", height - bottom)) {}
            @for part in [0.0, 0.5, 1.0] {
                text x=(format!("{:.1}", left - 6.0)) y=(format!("{:.1}", y(most * part) + 4.0)) text-anchor="end" {
                    (format!("{:.2}", most * part / 1e6))
                }
            }
            @for (date, anchor) in dates.first().zip(Some("start")).into_iter().chain(dates.last().zip(Some("end"))) {
                text x=(format!("{:.1}", x(date))) y=(format!("{:.1}", height - 8.0)) text-anchor=(anchor) { (date) }
            }
            @for (line, colour) in lines.values().zip(COLOURS) {
                polyline points=(points(line)) stroke=(colour) {}
            }
        }
        @if hidden > 0 { p.hint { (hidden) " more series; " code { "roofgap lake trend token_ns --by date" } " has all." } }
    })
}
