//! `report.md`: every result, and how the numbers were obtained.

use super::sections;
use crate::bundle::Bundle;
use crate::view::kernels::{counters as counter_table, markdown_columns, table};
use crate::view::provenance::{self, missing};
use crate::view::table::{escape, escape_line};
use crate::view::utilisation::work;
use crate::view::{gpu_work, job, layers};
use crate::view::{headline, measured, serving};
use roofgap_analyze::{About, Analysis};
use std::fmt::Write;

/// The most kernels listed for a stage, and the most operators.
const TOP: usize = 25;

/// Renders `report.md`.
pub fn report(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Report: {}\n", escape(&bundle.context.title));
    let mut section = |title: &str, body: &str| {
        let _ = write!(out, "\n## {title}\n\n{body}");
    };
    let summary = sections::summary(analysis);
    if !summary.is_empty() {
        section("Summary", &summary);
    }
    section("Findings", &sections::findings(bundle, usize::MAX, true));
    if let Some(body) = sections::tried(bundle) {
        section("Tried", &body);
    }
    section("Stages", &sections::stages(analysis, true));
    if !analysis.stages.is_empty() {
        section("Per run", &headline::rates(analysis).markdown());
    }
    if let Some(requests) = &analysis.requests {
        section("Requests", &sections::requests(analysis, requests));
    }
    if let Some(serving) = serving::of(analysis) {
        section("Steps of the engine", &sections::serving(analysis, serving));
    }
    section("MFU and MBU", &(sections::utilisation(analysis) + &terms(analysis)));
    for stage in analysis.stages.iter().filter(|s| !s.kernels.is_empty()) {
        let shown = &stage.kernels[..stage.kernels.len().min(TOP)];
        let table = table(analysis, shown, stage.kernel_ns.unwrap_or(0)).pick(&markdown_columns(shown));
        let mut body = format!("Shares are of the stage's kernel time.\n\n{}", table.markdown());
        if stage.kernels.len() > TOP {
            let _ = writeln!(body, "\n{} more are in `metrics.json`.", stage.kernels.len() - TOP);
        }
        section(&format!("Kernels of {}", escape(&stage.name)), &body);
    }
    if !analysis.layers.is_empty() {
        let table = layers::table(analysis).markdown();
        let mut body = format!("{}\n\n{table}", layers::LAYERS);
        if let Some(why) = layers::unnamed(analysis) {
            let _ = writeln!(body, "\n{}", escape_line(why));
        }
        section("Kernel time by layer", &body);
    }
    for (title, table, meaning) in [
        ("Ranks", job::ranks(analysis), job::RANKS),
        ("Collectives across ranks", job::collectives(analysis), job::COLLECTIVES),
        ("Ranks that others wait for", job::stragglers(analysis), job::STRAGGLERS),
        ("Balance of experts", job::experts(analysis), job::EXPERTS),
        ("Transfers between ranks", job::transfers(analysis), job::TRANSFERS),
        ("Utilisation of ranks", job::utilisation(analysis), job::UTILISATION),
        ("Graphs", gpu_work::graphs(analysis), gpu_work::GRAPHS),
        ("Copies", gpu_work::copies(analysis), gpu_work::COPIES),
        ("Communication", gpu_work::communication(analysis), gpu_work::COMMUNICATION),
    ] {
        if !table.is_empty() {
            section(title, &format!("The whole capture. {meaning}\n\n{}", table.markdown()));
        }
    }
    if measured::alone(analysis) {
        section("Kernels measured by ncu", &sections::measured_kernels(analysis, usize::MAX));
    }
    section("Counters", &counters(analysis));
    if !analysis.ncu_rules.is_empty() {
        section("Rules of ncu", &sections::ncu_rules(analysis, TOP));
    }
    section("Operators", &sections::operators(analysis, TOP));
    section("Environment", &sections::environment(bundle));
    section("Aggregates", &provenance::aggregates(analysis).markdown());
    if let Some(body) = sections::stage1(analysis, TOP) {
        section("Stage 1", &body);
    }
    section("Profiler overhead", &overhead(analysis));
    if !bundle.context.phases.is_empty() {
        section("Phases", &provenance::phases(bundle).markdown());
    }
    section("Losses", &losses(analysis));
    section("How the numbers were obtained", METHOD);
    if let Some(command) = &bundle.context.repeat {
        let command = command.replace("```", "'''");
        section("Reproduce", &format!("```sh\n{command}\n```\n"));
    }
    out
}

/// Renders the terms of FLOPs and bytes of each stage.
fn terms(analysis: &Analysis) -> String {
    let mut out = String::new();
    for stage in &analysis.stages {
        let Some(work) = work(stage) else { continue };
        let (name, table) = (escape(&stage.name), work.table.markdown());
        let _ = writeln!(out, "\nWork of {name}, term by term:\n\n{table}");
        for (term, how) in work.derivations {
            let _ = writeln!(out, "- {}: {}", escape(term), escape_line(how));
        }
        for assumption in work.assumptions {
            let _ = writeln!(out, "- assumed: {}", escape_line(assumption));
        }
    }
    out
}

fn counters(analysis: &Analysis) -> String {
    if analysis.counters.is_empty() {
        let lines =
            [Some(missing(analysis, &About::Counters)), provenance::no_roof(analysis).map(str::to_owned)];
        let lines: Vec<String> = lines.into_iter().flatten().map(|line| escape_line(&line)).collect();
        return format!("{}\n", lines.join("\n\n"));
    }
    counter_table(analysis, usize::MAX).markdown()
}

fn overhead(analysis: &Analysis) -> String {
    if analysis.overhead.is_empty() {
        return format!("{}\n", escape_line(&missing(analysis, &About::Overhead)));
    }
    let mut out = provenance::overhead(analysis).markdown();
    let unprofiled = provenance::unprofiled(analysis);
    if !unprofiled.is_empty() {
        let _ = write!(
            out,
            "\nOne instance of each stage: its unprofiled wall time (profiled wall time over the ratio above), and the GPU time that the \
             profiled run attributes to it:\n\n{}",
            unprofiled.markdown()
        );
    }
    if !provenance::high_overhead(analysis).is_empty() {
        let _ = write!(out, "\n{}\n", provenance::LOWER_OVERHEAD);
    }
    out
}

fn losses(analysis: &Analysis) -> String {
    if analysis.losses.is_empty() {
        format!("{}\n", provenance::NO_LOSSES)
    } else {
        provenance::losses(analysis).markdown()
    }
}

const METHOD: &str = "\
- A GPU operation belongs to every range that encloses its launch call on the launching thread, joined by process and correlation id,
  not by the time at which it ran. Ranges inside a warm-up are excluded from the stages.
- `wall` is the sum of a stage's ranges on the CPU; `kernel` is the sum of kernel durations; `busy` is the union of the stage's GPU
  operations, per device; `idle` is the time between the first and the last operation in which the GPU ran nothing at all.
- `outside` is the time of a stage before its first and after its last operation, averaged over GPUs. Time before the first operation
  in which the GPU ran earlier work is `queued`, not idle; time in which it ran only work from outside the stage is `other work`. With
  busy and idle time they add up to the time of the stage.
- Idle time is `launch` if the launch of the next operation began after the device ran out of work, less the time that the launching
  thread spent waiting (`sync`) or copying (`copy`) before that launch; it is `other` if the operation had been launched already.
- A dash stands for a value that was not measured.
";
