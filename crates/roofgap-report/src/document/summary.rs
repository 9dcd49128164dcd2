//! The document for stakeholders: the conclusions first, then the mandatory tables and recommendations.

use super::findings::{none_found, saving_with_id};
use super::kernels::{by_time, measured_summary, only_measured, verdicts};
use super::{Block, Document, Item, Section, headline, provenance, trial};
use roofgap_analyze::{About, Stage, verdict};
use roofgap_base::numbers::{count, percent, time};

/// The most conclusions listed.
const CONCLUSIONS: usize = 10;

impl Document<'_> {
    /// Lists the sections of the summary, in order.
    pub fn for_stakeholders(&self) -> Vec<Section> {
        vec![
            self.conclusions(),
            self.environment(),
            self.aggregates(),
            self.stages().titled("Per-Stage Timings"),
            self.per_run(),
            self.stage1(),
            self.utilisation().titled("MFU"),
            self.operators().titled("Top Operators"),
            self.top_kernels(),
            self.findings().titled("Recommendations"),
        ]
    }

    /// Lists the lines for a manager, then the conclusions: the headline, the numbers of one run, the environment, the confidence and
    /// what was tried; then what to fix first and how, the time of each stage, the top kernels, and what was not measured.
    fn conclusions(&self) -> Section {
        let tried = self.context.trials.as_ref().and_then(trial::headline);
        let lines =
            self.headlines().chain(self.environment_line()).chain(headline::confidence(self.analysis));
        let lines = lines.chain(tried.map(|line| format!("Tried: {line}")));
        let mut items: Vec<Item> = Vec::new();
        if let Some(first) = self.analysis.findings.first() {
            items.push(Item { name: format!("Fix first: {}.", first.title), ..Item::default() });
        }
        items.extend(self.conclusion_lines().into_iter().map(Item::from));
        items.truncate(CONCLUSIONS);
        let items = (!items.is_empty()).then_some(Block::List(items));
        Section::new("summary", "").with(lines.map(Block::Line)).with(items)
    }

    fn conclusion_lines(&self) -> Vec<String> {
        let (analysis, stages) = (self.analysis, &self.analysis.stages);
        let mut lines = Vec::new();
        if let Some(first) = analysis.findings.first() {
            lines.push(format!("It {}.", saving_with_id(analysis, first)));
            lines.push(format!("Next step: {}", first_sentence(&first.action)));
        } else if !stages.is_empty() {
            lines.push(none_found(analysis));
        }
        let all: i64 = stages.iter().map(Stage::elapsed_ns).sum();
        lines.extend(stages.iter().map(|stage| {
            let verdict = verdict(stage);
            let (name, each) = (&stage.name, each_instance(stage));
            let share = percent(stage.elapsed_ns(), all);
            format!("{name} takes {each} ({share} % of the stages): {}; {}.", verdict.label, verdict.why)
        }));
        if only_measured(analysis) {
            lines.push(self.sentence(&measured_summary(analysis)));
            lines.extend(verdicts(analysis, 3).into_iter().map(|line| self.closed(line)));
        }
        if stages.is_empty() {
            lines.push(provenance::missing(analysis, &About::Stages));
        }
        let (kernels, whole) = by_time(analysis);
        let top = kernels.iter().take(3).map(|(name, ns)| format!("{name} ({} %)", percent(*ns, whole)));
        let top: Vec<String> = top.collect();
        if !top.is_empty() {
            let scope = if stages.is_empty() { "" } else { " in the stages" };
            lines.push(format!("Most kernel time{scope}: {}.", top.join(", ")));
        }
        lines.extend(provenance::high_overhead(analysis).into_iter().chain(self.incomplete_phases()));
        lines
    }
}

/// Returns the first sentence of a text.
fn first_sentence(text: &str) -> &str {
    let end = text
        .match_indices(". ")
        .map(|(at, _)| at)
        .find(|at| text[at + 2..].starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit()));
    end.map_or(text, |at| &text[..=at])
}

/// States the time of a stage: the mean of several instances.
fn each_instance(stage: &Stage) -> String {
    let elapsed = stage.elapsed_ns();
    match stage.instances {
        0 | 1 => time(elapsed),
        instances => {
            format!("{} on average of {} instances", time(elapsed / instances as i64), count(instances))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{each_instance, first_sentence};
    use roofgap_analyze::Stage;

    #[test]
    fn the_time_of_several_instances_is_their_mean() {
        let mut stage = Stage::default();
        (stage.instances, stage.wall_ns) = (3, 9_000_000);
        assert_eq!(each_instance(&stage), "3.00 ms on average of 3 instances");
        stage.instances = 1;
        assert_eq!(each_instance(&stage), "9.00 ms");
        // The steps of an engine go on after its ranges have closed.
        stage.period_ns = Some(12_000_000);
        assert_eq!(each_instance(&stage), "12.0 ms");
    }

    #[test]
    fn a_sentence_ends_where_the_next_begins() {
        assert_eq!(first_sentence("Find it (.item(), .cpu()). Keep it."), "Find it (.item(), .cpu()).");
        assert_eq!(first_sentence("Use 2.5 of them. 3 are left."), "Use 2.5 of them.");
        assert_eq!(first_sentence("Nothing more"), "Nothing more");
    }
}
