//! The first screen of a terminal: what was recorded, the headline, a line a stage, the first findings. It has 24 lines at most.

use super::headline::{Pace, headline};
use super::table::Table;
use super::{
    Block, Document, Item, Section, capitalized, findings, joined, joined_any, kernels, maybe, provenance,
};
use crate::render::screen::Tone;
use roofgap_analyze::findings::to_act_on;
use roofgap_analyze::{About, Analysis, Stage, StageLimit, verdict};
use roofgap_base::numbers::{all_counted, counted, significant, time};
use roofgap_base::text::cut;
use std::collections::BTreeMap;

/// The most stages, findings, and characters of a headline.
pub const STAGES: usize = 4;
pub const FINDINGS: usize = 3;
const HEADLINE: usize = 310;

/// Width of text whose reader has no width.
const WIDTH: usize = 100;

/// Characters of a bar.
const BAR: usize = 8;

impl Document<'_> {
    /// Lists the sections of the first screen.
    pub(crate) fn brief(&self) -> Vec<Section> {
        let analysis = self.analysis;
        let mut first = Section::new("summary", "").with(recorded(analysis).map(Block::Line));
        let summary = headline(analysis).unwrap_or_else(|| nothing(analysis));
        first.blocks.push(Block::Line(cut(&summary, HEADLINE)));
        let all = &analysis.stages;
        let shown = &all[..all.len().min(STAGES)];
        let stages = match all.is_empty() {
            true => {
                let mut kernels = self.kernels().into_iter().next().unwrap_or_default();
                kernels.blocks.retain(|block| matches!(block, Block::Table(_) | Block::Rest { .. }));
                kernels
            }
            false => Section::new("stages", "Stages")
                .with(Block::table(stage_lines(shown)))
                .with(Block::rest(all.len(), STAGES, "")),
        };
        let findings = &analysis.findings;
        let most = self.text().screen.width.unwrap_or(WIDTH).saturating_sub(4);
        let first_steps = to_act_on(findings);
        let wraps = first_steps.first().is_some_and(|(finding, _)| finding.title.chars().count() > most);
        // Each stage that is not there leaves a line for an action, and a first title of two lines takes one; without room, there is a
        // finding less.
        let room = 2 * FINDINGS + if all.is_empty() { 1 } else { STAGES - shown.len() } - usize::from(wraps);
        let listed = if room > 2 * FINDINGS { FINDINGS } else { FINDINGS - 1 };
        let actions = room - 2 * listed;
        let steps = first_steps.into_iter().take(listed).enumerate().map(|(at, (finding, others))| {
            let saving =
                [Some(findings::saving_with_id(analysis, finding)), findings::also_in(analysis, &others)];
            let saving = joined(saving.into_iter().flatten(), "; ");
            let action = (at < actions).then(|| format!("Do: {}", finding.action));
            let lines = [Some(saving), action].into_iter().flatten().map(|line| cut(&line, most)).collect();
            let name = if at == 0 { claim(&finding.title, most) } else { cut(&finding.title, most) };
            Item { name, lines, ..Item::default() }
        });
        let known = !findings.is_empty() || !all.is_empty() || !analysis.counters.is_empty();
        let advice = Section::new("findings", "What to do first (in full: `--full`)");
        let advice = advice.with(known.then(|| match findings.is_empty() {
            true => Block::Line(findings::none_found(analysis)),
            false => Block::Steps(steps.collect()),
        }));
        let lost = Section::new("losses", "").with(losses(analysis).map(Block::Line));
        let sections = [first, stages, advice, lost];
        self.worded(sections.into_iter().filter(|section| !section.blocks.is_empty()).collect())
    }
}

/// Returns as much of a sentence as two lines of `most` characters hold, up to the end of a clause.
fn claim(sentence: &str, most: usize) -> String {
    // A line that breaks at a word leaves room.
    let room = 2 * most - most / 4;
    let fits = |text: &str| text.chars().count() <= room;
    let ends = sentence.rmatch_indices([',', ':', ';']).map(|(end, _)| &sentence[..end]);
    let is_clause = |text: &&str| {
        let count = |c: char| text.matches(c).count();
        sentence[text.len() + 1..].starts_with(' ') && count('(') == count(')') && count('<') == count('>')
    };
    let whole = std::iter::once(sentence).chain(ends.filter(is_clause)).find(|text| fits(text));
    whole.map_or_else(|| cut(sentence, room), str::to_owned)
}

/// States GPU, model and engine of a capture in a line; `None` where nothing is known.
pub fn recorded(analysis: &Analysis) -> Option<String> {
    let mut facts = provenance::gpus(analysis);
    facts.extend(analysis.workload.as_ref().map(provenance::model));
    facts.extend(analysis.engine.as_ref().map(|engine| engine.name.clone()));
    facts.extend(analysis.sources.first().map(provenance::tool));
    let totals = &analysis.totals;
    if totals.kernel_count > 0 && !kernels::only_measured(analysis) {
        let busy = maybe(totals.busy_ns, |busy| format!(", GPU busy {}", time(busy)));
        facts.push(format!("{}{busy}", counted(totals.kernel_count, "kernel")));
    }
    let startup = analysis.serving.as_ref().and_then(|serving| serving.startup);
    facts.extend(startup.map(|startup| format!("{} of start-up, in no stage", time(startup.elapsed_ns))));
    let before = analysis.stages.iter().map(Stage::startup_ns);
    facts.extend(before.filter(|ns| *ns > 0).map(|ns| format!("{} of start-up excluded", time(ns))));
    joined_any(facts, " · ")
}

/// Says why there is no headline.
pub fn nothing(analysis: &Analysis) -> String {
    match (analysis.totals.kernel_count, analysis.reason(&About::Kernels)) {
        (0, why) => format!("{}.", capitalized(why.unwrap_or("no GPU work was recorded"))),
        _ => "No stage was found.".to_owned(),
    }
}

/// Tabulates the stages: a line each.
fn stage_lines(stages: &[Stage]) -> Table {
    Table::of(stages)
        .text("stage", |s| &s.name)
        .number("median time", |s| {
            let pace = Pace::of(s);
            let unit = if pace.is_step { "/step" } else { "" };
            format!("{}{unit}{}", time(pace.ns), if pace.is_mean { ", mean" } else { "" })
        })
        .number("tokens/s", |s| Pace::of(s).tokens_per_s.map(significant))
        .number("GPU busy", |s| s.warm().busy_ns.and_then(|_| s.warm().busy_share()).map(bar))
        .judged("limit", |s| {
            let label = verdict(s).label;
            (label.as_str(), Some(Tone::from(label)))
        })
        .number("largest part", largest_part)
        .build()
        .measured()
}

/// Draws a share of 1 as a bar with its percentage.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{} {:>4.1} %", "█".repeat(full), "░".repeat(BAR - full), 100.0 * share)
}

/// Characters of the name of a kernel in the table of stages.
const NAME: usize = 32;

/// Names the largest part of the time of a stage: the cause of its limit, a kernel that takes most of it, or a family of kernels.
pub fn largest_part(stage: &Stage) -> Option<String> {
    let stage = stage.warm();
    let verdict = verdict(stage);
    if let Some(pct) = verdict.pct {
        return Some(format!("{} {pct:.0} %", part_of(verdict.label)?));
    }
    if verdict.label != StageLimit::Gpu {
        return None;
    }
    // Each device has its own row.
    let mut by_name: BTreeMap<&str, i64> = BTreeMap::new();
    stage
        .kernels
        .iter()
        .for_each(|kernel| *by_name.entry(&kernel.short_name).or_default() += kernel.total_ns);
    let largest = by_name.into_iter().max_by_key(|(_, ns)| *ns);
    let most = largest.zip(stage.kernel_ns).filter(|((_, ns), all)| 2 * ns > *all);
    let (name, share) = match most {
        Some(((name, ns), all)) => (cut(name, NAME), 100.0 * ns as f64 / all.max(1) as f64),
        None => kernels::largest_family(stage).map(|(family, share)| (family.to_owned(), share))?,
    };
    Some(format!("{name} {share:.0} % of kernels"))
}

/// Names the time that a limit stands for.
fn part_of(limit: StageLimit) -> Option<&'static str> {
    Some(match limit {
        StageLimit::NotMeasured | StageLimit::TooLittle | StageLimit::Gpu | StageLimit::Queued => {
            return None;
        }
        StageLimit::Copy => "copies",
        StageLimit::Launch => "late launches",
        StageLimit::DataLoading => "data loading",
        StageLimit::Sync => "waits",
        StageLimit::GpuGaps => "launched, not started",
        StageLimit::Uneven => "uneven work",
        StageLimit::Host => "CPU work",
        StageLimit::Communication => "communication",
        StageLimit::ColdStart => "cold calls",
        StageLimit::StepGaps => "gaps between steps",
    })
}

/// Counts the losses that change numbers.
fn losses(analysis: &Analysis) -> Option<String> {
    let number =
        |severity: &str| analysis.losses.iter().filter(|loss| loss.severity == severity).count() as u64;
    let effects = [(number("error"), "wrong"), (number("warning"), "incomplete")];
    let (n, effect) = effects.into_iter().find(|(n, _)| *n > 0)?;
    let losses = all_counted([(n, "loss", "losses")]);
    Some(format!("Some numbers are {effect} because of {losses} in the recording: `--show losses`"))
}
