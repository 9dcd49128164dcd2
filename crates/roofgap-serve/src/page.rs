//! Pages for a browser: the list of runs, and the progress of a run without a report.

use maud::{Markup, html};
use roofgap_report::page::{Shell, shell};
use roofgap_report::{size, time};
use roofgap_runs::runs::{RunDetails, RunSummary};

/// Style of the pages.
const STYLE: &str = include_str!("page.css");

/// Seconds after which a page with something in progress is loaded again.
const REFRESH: u32 = 3;

fn page(title: &str, refresh: bool, body: Markup) -> String {
    let refresh = refresh.then_some(REFRESH);
    shell(&Shell { title, styles: &[STYLE], body, refresh, ..Shell::default() })
}

/// Renders the list of runs, newest first.
pub fn runs(runs: &[RunSummary]) -> String {
    let busy = runs.iter().any(|run| run.status == "under_way");
    let content = html! {
        h1 { "Runs" }
        @if runs.is_empty() {
            p { "No runs yet. " code { "roofgap profile" } " makes one." }
        } @else {
            table {
                thead { tr {
                    th { "run" } th { "status" } th { "started" } th { "workload" } th { "model" } th { "device" }
                    th { "stages" } th { "size" } th {}
                } }
                tbody { @for run in runs.iter().rev() { (row(run)) } }
            }
        }
        @if runs.len() > 1 { (compare_form(runs)) }
        p class="muted" { "The operations are described in " a href="/openapi.json" { "openapi.json" } "." }
    };
    page("Runs", busy, content)
}

fn row(run: &RunSummary) -> Markup {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    html! {
        tr {
            td { a href={ "/runs/" (run.run_id) "/page" } { (run.run_id) } }
            td { (run.status.replace('_', " ")) }
            td { (text(&run.started)) }
            td { (text(&run.workload)) }
            td { (text(&run.model)) }
            td { (run.devices.join(", ")) }
            td { @for stage in &run.stages { div { (stage.name) " " (time(stage.wall_ns)) } } }
            td class="number" { (size(run.bytes)) }
            td { a href={ "/profile/" (run.run_id) "/artifacts" } { "files" } }
        }
    }
}

fn compare_form(runs: &[RunSummary]) -> Markup {
    let choice = |name: &str, chosen: usize| {
        html! {
            select name=(name) {
                @for (position, run) in runs.iter().rev().enumerate() {
                    option value=(run.run_id) selected[position == chosen] { (run.run_id) }
                }
            }
        }
    };
    html! {
        h2 { "Compare" }
        form action="/compare" method="get" {
            (choice("base", 1)) " with " (choice("head", 0)) " "
            input type="hidden" name="format" value="html";
            button { "Compare" }
        }
    }
}

/// Renders a run that has no report, or none yet.
pub fn progress(run: &RunDetails) -> String {
    let summary = &run.summary;
    let under_way = summary.status == "under_way";
    let content = html! {
        p { a href="/" { "All runs" } }
        h1 { (summary.run_id) ": " (summary.status.replace('_', " ")) }
        @if let Some(problem) = &summary.problem { p { (problem) } }
        @for missing in &run.missing { p { "Missing: " (missing) } }
        table {
            thead { tr { th { "phase" } th { "status" } th { "time" } th {} } }
            tbody { @for phase in &run.phases {
                tr {
                    td { (phase.name) }
                    td { (phase.status) }
                    td class="number" { @if let Some(wall) = phase.wall_ns { (time(i64::try_from(wall).unwrap_or(i64::MAX))) } }
                    td { (phase.why.as_deref().unwrap_or_default()) }
                }
            } }
        }
        p { a href={ "/profile/" (summary.run_id) "/artifacts" } { "Files" } }
    };
    page(&summary.run_id, under_way, content)
}
