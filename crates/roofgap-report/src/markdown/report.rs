//! `report.md`: everything, with how each number was obtained.

use super::sections::{self, escape_line};
use super::{kernels, operators};
use crate::bundle::Bundle;
use crate::number::{NONE, count, ms, ms_or, percent, si};
use crate::table::{Table, escape};
use roofgap_analyze::About;
use std::fmt::Write;

/// How many kernels a stage lists.
const TOP: usize = 25;

/// The whole report.
pub fn report(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Report: {}\n\n", escape(&bundle.context.title));
    let _ = write!(
        out,
        "## Findings\n\n{}",
        sections::findings(bundle, usize::MAX, true)
    );
    let _ = write!(out, "\n## Stages\n\n{}", sections::stages(bundle, true));
    let _ = write!(out, "\n## MFU and MBU\n\n{}", sections::utilisation(bundle));
    terms(bundle, &mut out);
    for stage in analysis.stages.iter().filter(|s| !s.kernels.is_empty()) {
        let _ = write!(out, "\n## Kernels of {}\n\n", escape(&stage.name));
        out.push_str("A share is of the kernel time of the stage.\n\n");
        let shown = &stage.kernels[..stage.kernels.len().min(TOP)];
        out.push_str(&kernels::table(bundle, shown, stage.kernel_ns.unwrap_or(0)).markdown());
        if stage.kernels.len() > TOP {
            let _ = writeln!(out, "\n{} more are in `metrics.json`.", stage.kernels.len() - TOP);
        }
    }
    counters(bundle, &mut out);
    out.push_str("\n## Operators\n\n");
    if analysis.operators.is_empty() {
        let why = sections::reason(analysis, &About::Operators, "none were recorded");
        let _ = writeln!(out, "None: {}.", escape_line(why));
    } else {
        out.push_str(&operators::table(&analysis.operators[..analysis.operators.len().min(TOP)]).markdown());
    }
    let _ = write!(out, "\n## Environment\n\n{}", sections::environment(bundle));
    let _ = write!(out, "\n## Aggregates\n\n{}", sections::aggregates(bundle));
    overhead(bundle, &mut out);
    phases(bundle, &mut out);
    losses(bundle, &mut out);
    out.push_str(METHOD);
    if let Some(command) = &bundle.context.repeat {
        let _ = write!(
            out,
            "\n## Again\n\n```sh\n{}\n```\n",
            command.replace("```", "'''")
        );
    }
    out
}

/// What the FLOPs and bytes are made of.
fn terms(bundle: Bundle<'_>, out: &mut String) {
    for stage in &bundle.analysis.stages {
        let terms: Vec<_> = stage
            .mfu
            .iter()
            .flat_map(|m| &m.terms)
            .chain(stage.mbu.iter().flat_map(|m| &m.terms))
            .collect();
        if terms.is_empty() {
            continue;
        }
        // How each came about is too long for a cell and too useful to cut.
        let mut how = String::new();
        let mut table = Table::new(&["term", "FLOPs>", "bytes>"]);
        let some = |v: f64| if v == 0.0 { NONE.to_owned() } else { si(v) };
        let mut seen: Vec<&str> = Vec::new();
        for term in terms {
            if seen.contains(&term.name.as_str()) {
                continue;
            }
            seen.push(&term.name);
            table.row([term.name.clone(), some(term.flops), some(term.bytes)]);
            let _ = writeln!(how, "- {}: {}", escape(&term.name), escape_line(&term.how));
        }
        let _ = write!(
            out,
            "\nWork of {}, term by term:\n\n{}\n{how}",
            escape(&stage.name),
            table.markdown()
        );
        let assumptions = stage
            .mfu
            .iter()
            .flat_map(|m| &m.assumptions)
            .chain(stage.mbu.iter().flat_map(|m| &m.assumptions));
        let mut said: Vec<&String> = Vec::new();
        for assumption in assumptions {
            if !said.contains(&assumption) {
                let _ = writeln!(out, "- assumed: {}", escape_line(assumption));
                said.push(assumption);
            }
        }
    }
}

fn counters(bundle: Bundle<'_>, out: &mut String) {
    let analysis = bundle.analysis;
    out.push_str("\n## Counters\n\n");
    if analysis.counters.is_empty() {
        let why = sections::reason(analysis, &About::Counters, "no counters were measured");
        let _ = writeln!(out, "None: {}.", escape_line(why));
        return;
    }
    let pct = |v: Option<f64>| v.map_or(NONE.to_owned(), |v| format!("{v:.1}"));
    let mut table = Table::new(&[
        "kernel",
        "stage",
        "grid",
        "block",
        "µs>",
        "× timeline>",
        "SM %>",
        "memory %>",
        "DRAM %>",
        "L2 %>",
        "L1 %>",
        "occupancy %>",
        "FLOP/B>",
        "FLOP/s>",
        "bound",
        "reason",
    ]);
    let dims = |d: [u32; 3]| format!("{}x{}x{}", d[0], d[1], d[2]);
    for row in &analysis.counters {
        table.row([
            roofgap_analyze::short_name(&row.kernel),
            row.stage.clone().unwrap_or_else(|| NONE.into()),
            dims(row.grid),
            dims(row.block),
            row.duration_ns
                .map_or(NONE.to_owned(), |d| format!("{:.2}", d as f64 / 1e3)),
            row.timeline_ratio.map_or(NONE.to_owned(), |r| format!("{r:.2}")),
            pct(row.sm_pct),
            pct(row.memory_pct),
            pct(row.dram_pct),
            pct(row.l2_pct),
            pct(row.l1_pct),
            pct(row.occupancy_pct),
            pct(row.intensity),
            row.achieved_flops_per_s.map_or(NONE.to_owned(), si),
            row.bound.clone().unwrap_or_else(|| NONE.into()),
            row.reason.clone(),
        ]);
    }
    out.push_str(&table.markdown());
}

fn overhead(bundle: Bundle<'_>, out: &mut String) {
    out.push_str("\n## Overhead of watching\n\n");
    if bundle.analysis.overhead.is_empty() {
        let why = sections::reason(
            bundle.analysis,
            &About::Overhead,
            "there is no unwatched run to compare with",
        );
        let _ = writeln!(out, "Not known: {}.", escape_line(why));
        return;
    }
    let mut table = Table::new(&["tool", "stage", "watched / unwatched>"]);
    for o in &bundle.analysis.overhead {
        table.row([o.tool.to_string(), o.stage.clone(), format!("{:.2}", o.ratio)]);
    }
    out.push_str(&table.markdown());
    merged(bundle, out);
    if bundle.analysis.overhead.iter().any(|o| o.ratio > 1.25) {
        out.push_str("\nAbove 1.25 the tool distorts what it measures. `run.mode=light` or `profiling.timeline=native` costs less.\n");
    }
}

/// Unwatched stage times beside what the watched run attributes to them, an instance each.
fn merged(bundle: Bundle<'_>, out: &mut String) {
    let mut table = Table::new(&[
        "stage",
        "unwatched wall ms>",
        "watched wall ms>",
        "kernel ms>",
        "GPU busy ms>",
        "busy % of unwatched>",
    ]);
    for o in bundle
        .analysis
        .overhead
        .iter()
        .filter(|o| o.tool.records_timeline() && o.ratio > 0.0)
    {
        let Some(stage) = bundle.analysis.stages.iter().find(|s| s.name == o.stage) else {
            continue;
        };
        let each = |ns: i64| ns / (stage.instances.max(1) as i64);
        let unwatched = (each(stage.wall_ns) as f64 / o.ratio) as i64;
        table.row([
            stage.name.clone(),
            ms(unwatched),
            ms(each(stage.wall_ns)),
            ms_or(stage.kernel_ns.map(each)),
            ms_or(stage.busy_ns.map(each)),
            stage.busy_ns.map_or(NONE.to_owned(), |b| {
                percent(each(stage.each_device(b)), unwatched)
            }),
        ]);
    }
    if !table.is_empty() {
        let _ = write!(
            out,
            "\nOne instance of each stage, as long as it takes unwatched (watched wall time over the ratio above), with what the watched run \
             attributes to it:\n\n{}",
            table.markdown()
        );
    }
}

fn phases(bundle: Bundle<'_>, out: &mut String) {
    if bundle.context.phases.is_empty() {
        return;
    }
    let mut table = Table::new(&["phase", "status", "seconds>", "why"]);
    // The phase that writes this is still under way.
    for p in bundle.context.phases.iter().filter(|p| p.status != "running") {
        let seconds = p.seconds.map_or(NONE.to_owned(), |s| format!("{s:.1}"));
        table.row([
            p.name.clone(),
            p.status.clone(),
            seconds,
            p.why.clone().unwrap_or_default(),
        ]);
    }
    let _ = write!(out, "\n## Phases\n\n{}", table.markdown());
}

fn losses(bundle: Bundle<'_>, out: &mut String) {
    out.push_str("\n## What was lost\n\n");
    if bundle.analysis.losses.is_empty() {
        out.push_str("Nothing: every row of the input was understood and used.\n");
        return;
    }
    let mut table = Table::new(&["loss", "severity", "rows>", "meaning"]);
    for l in &bundle.analysis.losses {
        table.row([
            l.id.clone(),
            l.severity.clone(),
            count(l.count),
            l.meaning.clone(),
        ]);
    }
    out.push_str(&table.markdown());
}

const METHOD: &str = "
## How the numbers were obtained

- A GPU operation belongs to every range that encloses its launch call on the launching thread, joined by process and correlation id,
  not by when it ran. Ranges inside a warm-up are left out of the stages.
- `wall` is the sum of a stage's ranges on the CPU; `kernel` the sum of kernel durations; `busy` the union of its GPU operations, per
  device; `idle` what lies between its first and its last operation and is not busy.
- Idle time is `launch` when the launch of the next operation began after the device had run dry, less what the launching thread spent
  waiting (`sync`) or copying (`copy`) before that; `other` when it had been launched already.
- A dash stands for what was not measured.
";
