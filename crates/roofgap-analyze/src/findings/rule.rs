//! A rule: the explanation of its findings, and the function that finds them.

use super::Inputs;
use super::evidence::StageEvidence;
use super::program::Program;
use super::rules::RULES;
use crate::counters::Measured;
use crate::execution::Edit;
use crate::names::{Family, ShortNames, is_initialisation};
use crate::numbers;
use crate::result::{BoundTerm, Confidence, Finding, Saving, Stage};
use crate::roof::{Keeps, StageRoofs};
use crate::sections;
use crate::timeline::IdleCause;
use serde_json::Value;
use std::fmt::Display;

/// The explanations: a section for each rule, with a part under each title, whose text is one line.
pub(super) const TEXT: &str = include_str!("../../texts/findings.md");

/// Returns the text under a title; empty where there is none.
fn section(text: &'static str, mark: &'static str, title: &str) -> &'static str {
    sections(text, mark).find(|(name, _)| *name == title).map_or("", |(_, body)| body)
}

/// A kind of finding: its explanation, and the function that looks at a stage.
#[derive(Debug)]
pub struct Rule {
    /// Id of the finding. A last `*` stands for any ending.
    pub id: &'static str,
    /// Remedy in a few words, as the subject of a sentence.
    pub remedy: &'static str,
    /// Meaning of the finding.
    pub meaning: &'static str,
    /// Rule, inputs and bound.
    pub computed: &'static str,
    /// Ways to fix it.
    pub fix: &'static str,
    /// Actions of its findings by the case that they are for, with `{}` for what differs.
    pub(super) actions: Vec<(&'static str, &'static str)>,
    /// Observation that would disprove it.
    pub disproof: &'static str,
    /// Confidence in its findings, where one does not say otherwise.
    pub confidence: Confidence,
    /// Documentation.
    pub links: Vec<&'static str>,
    /// Rows of a capture that its bound comes from.
    pub rows: Rows,
    /// Cause, of which a stage has one finding to act on.
    pub(super) cause: Cause,
    /// Work that is left when the cause is gone.
    pub(super) keeps: Keeps,
    /// Data without which it finds nothing.
    pub(super) needs: Needs,
    /// Change that its action makes; `None` where a replay cannot make it.
    pub(super) change: Option<Change>,
    /// Function that looks at a stage.
    pub(super) find: Find,
}

/// The change that the action of a finding makes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// The same for all findings.
    Edit(Edit),
    /// The kernel of the finding takes as much less time as its bound says.
    Kernel,
    /// The matrix products on the CUDA cores do.
    Products,
}

/// The rows of a capture that a bound comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Gaps of the GPU with this cause.
    Gaps(IdleCause),
    /// Kernels of the stage of these families; without any, all.
    Kernels(&'static [Family]),
    /// Steps of the stage.
    Steps,
    /// Numbers of the evidence alone.
    Evidence,
}

/// The cause that findings share. What one of them saves the others cannot save again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Launches,
    Data,
    Waits,
    Copies,
    Host,
    Kernels,
    Fusion,
    Attention,
    Precision,
    Bytes,
    Prompts,
    Recompute,
    Communication,
    Devices,
    Steps,
    Clock,
    Tenant,
    Profiler,
    Recording,
}

/// The data that a rule needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// A capture with stages.
    Stage,
    /// Launches that ncu measured, with a timeline or without.
    Counters,
    /// Several ranks of a job.
    Job,
}

/// The function of a rule.
#[derive(Debug, Clone, Copy)]
pub(super) enum Find {
    /// Returns at most one finding about a stage.
    One(fn(&View<'_>) -> Option<Finding>),
    /// Returns any number of findings about a stage.
    Each(fn(&View<'_>) -> Vec<Finding>),
}

impl Rule {
    /// Returns a rule with the explanation of its findings, and the other fields as most rules have them.
    pub(super) fn new(id: &'static str, cause: Cause, find: Find) -> Self {
        let explanation = section(TEXT, "\n## ", id);
        let part = |title| section(explanation, "\n### ", title).trim();
        let link = |line: &'static str| line.strip_prefix("- <")?.strip_suffix('>');
        let action = |line: &'static str| line.strip_prefix("- **")?.split_once("**: ");
        Self {
            id,
            remedy: part("Remedy"),
            meaning: part("What it means"),
            computed: part("How it was computed"),
            fix: part("How to fix it"),
            actions: part("What to do").lines().filter_map(action).collect(),
            disproof: part("What would disprove it"),
            confidence: Confidence::Measured,
            links: part("Read more").lines().filter_map(link).collect(),
            rows: Rows::Evidence,
            cause,
            keeps: Keeps::Work,
            needs: Needs::Stage,
            change: None,
            find,
        }
    }

    pub(super) fn confidence(self, confidence: Confidence) -> Self {
        Self { confidence, ..self }
    }

    pub(super) fn rows(self, rows: Rows) -> Self {
        Self { rows, ..self }
    }

    pub(super) fn keeps(self, keeps: Keeps) -> Self {
        Self { keeps, ..self }
    }

    pub(super) fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    pub(super) fn edit(self, edit: Edit) -> Self {
        self.change(Change::Edit(edit))
    }

    pub(super) fn change(self, change: Change) -> Self {
        Self { change: Some(change), ..self }
    }

    /// Makes it a rule about kernels of any family, by their counters.
    pub(super) fn counted(self) -> Self {
        self.needs(Needs::Counters).rows(Rows::Kernels(&[])).change(Change::Kernel)
    }

    /// Tells whether the rule makes findings of this id.
    pub fn is_about(&self, id: &str) -> bool {
        match self.id.strip_suffix('*') {
            Some(start) => id.starts_with(start) && RULES.iter().all(|rule| rule.id != id),
            None => id == self.id,
        }
    }

    /// Looks at a stage.
    pub(super) fn find(&self, view: &View<'_>) -> Vec<Finding> {
        match self.find {
            Find::One(find) => find(view).into_iter().collect(),
            Find::Each(find) => find(view),
        }
    }
}

/// A stage with the inputs of the rules, as one rule sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) rule: &'a Rule,
    pub(super) inputs: Inputs<'a>,
    pub(super) stage: &'a Stage,
    pub(super) evidence: Option<&'a StageEvidence>,
    pub(super) roofs: StageRoofs,
    pub(super) program: &'a Program,
    pub(super) short_names: &'a ShortNames,
}

impl<'a> View<'a> {
    /// Returns the counters of this stage that match the timeline and have a similar duration. Kernels that only set up the test are left out.
    pub(super) fn counters(&self) -> impl Iterator<Item = &'a Measured> {
        let name = self.stage.name.as_str();
        self.inputs.counters.iter().filter(move |row| {
            row.matched
                && row.representative != Some(false)
                && row.row.stage.as_deref() == Some(name)
                && !is_initialisation(&row.row.kernel)
        })
    }

    /// Returns the action of the rule for a case.
    pub(super) fn action(&self, case: &str) -> &'static str {
        self.rule.actions.iter().find(|(known, _)| *known == case).map_or("", |(_, action)| action)
    }

    /// Begins a sentence about the time of the GPU, which is a mean where the stage has several.
    pub(super) fn gpu_is(&self) -> String {
        match self.stage.devices_per_instance {
            several if several > 1.0 => format!("each of its {:.0} GPUs is on average", several),
            _ => "the GPU is".to_owned(),
        }
    }

    /// Returns a sum over the devices of the stage, in % of its time.
    pub(super) fn pct(&self, ns: i64) -> f64 {
        percent(self.stage.each_device(ns), self.stage.elapsed_ns())
    }

    /// Returns a sum over the devices of the stage as a mean, in words.
    pub(super) fn time(&self, ns: i64) -> String {
        numbers::time(self.stage.each_device(ns))
    }

    /// Returns the predicted saving of a change of the stage, %; `None` where it cannot be predicted.
    pub(super) fn predicted_pct(&self, edit: Edit) -> Option<f64> {
        let stages = &self.inputs.analysis.stages;
        let at = stages.iter().position(|stage| stage.name == self.stage.name)?;
        let after = self.inputs.engine?.predict((at, self.stage), &[edit]).ok()?;
        Some(Saving::from(&after).pct)
    }

    /// Begins a finding whose bound is the sum of these times of the stage.
    pub(super) fn saves(&self, terms: &[(&str, i64)]) -> FindingBuilder {
        FindingBuilder::new(self.rule, self.stage, self.roofs, terms)
    }

    /// Begins a finding whose bound is the sum of these times, which are sums over the devices of the stage.
    pub(super) fn saves_on_devices(&self, terms: &[(&str, i64)]) -> FindingBuilder {
        let mean: Vec<(&str, i64)> =
            terms.iter().map(|(what, ns)| (*what, self.stage.each_device(*ns))).collect();
        self.saves(&mean)
    }
}

/// Least bound of a finding, % of the stage's time. Less is no advice.
pub const LEAST_PCT: f64 = 3.0;

/// Beginning of the name of the term that keeps a bound from more than a roof allows.
pub(super) const NOT_BELOW: &str = "not below ";

/// A finding under construction.
pub(super) struct FindingBuilder(Finding);

impl FindingBuilder {
    /// Begins a finding. Its bound leaves the stage at the highest of the roofs that hold without the cause.
    pub(super) fn new(rule: &Rule, stage: &Stage, roofs: StageRoofs, terms: &[(&str, i64)]) -> Self {
        let term = |(what, ns): &(&str, i64)| BoundTerm { what: (*what).to_owned(), ns: *ns };
        let mut terms: Vec<BoundTerm> = terms.iter().filter(|(_, ns)| *ns != 0).map(term).collect();
        let sum: i64 = terms.iter().map(|term| term.ns).fold(0, i64::saturating_add);
        let elapsed = stage.own_ns().max(0);
        let faster = matches!(rule.cause, Cause::Kernels | Cause::Precision | Cause::Bytes | Cause::Clock);
        let (roof, roof_ns) = roofs.highest(rule.keeps, faster);
        let bound_ns = sum.clamp(0, (elapsed - roof_ns).max(0));
        if bound_ns < sum {
            terms.push(BoundTerm { what: format!("{NOT_BELOW}{roof}"), ns: bound_ns - sum });
        }
        Self(Finding {
            id: rule.id.to_owned(),
            stage: Some(stage.name.clone()),
            bound_ns,
            bound_pct: percent(bound_ns, elapsed),
            terms,
            confidence: rule.confidence,
            disproof: rule.disproof.to_owned(),
            ..Finding::default()
        })
    }

    /// Returns the bound, ns.
    pub(super) fn bound_ns(&self) -> i64 {
        self.0.bound_ns
    }

    /// Sets another id than that of the rule.
    pub(super) fn id(mut self, id: String) -> Self {
        self.0.id = id;
        self
    }

    /// Sets another confidence than that of the rule.
    pub(super) fn confidence(mut self, confidence: Confidence) -> Self {
        self.0.confidence = confidence;
        self
    }

    /// Adds evidence. A null is left out.
    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.0.evidence.insert(key.to_owned(), value);
        }
        self
    }

    /// Adds a number rounded to two digits; nothing for no number.
    pub(super) fn with_number(self, key: &str, value: impl Into<Option<f64>>) -> Self {
        self.with(key, value.into().map(|value| (value * 100.0).round() / 100.0))
    }

    /// Returns the finding if its bound is large enough.
    pub(super) fn finish(self, title: String, action: impl Into<String>) -> Option<Finding> {
        let pct = self.0.bound_pct;
        self.finish_with(pct, title, action)
    }

    /// Returns the finding if a saving is large enough, %.
    pub(super) fn finish_with(
        mut self,
        pct: f64,
        title: String,
        action: impl Into<String>,
    ) -> Option<Finding> {
        if pct < LEAST_PCT {
            return None;
        }
        self.0.title = title;
        self.0.action = action.into();
        Some(self.0)
    }
}

/// Puts values where a text has `{}`, in order.
pub(super) fn fill(text: &str, values: &[&dyn Display]) -> String {
    let mut parts = text.split("{}");
    let first = parts.next().unwrap_or_default().to_owned();
    values.iter().zip(parts).fold(first, |text, (value, part)| format!("{text}{value}{part}"))
}

/// Returns `part` in % of `whole`.
pub(super) fn percent(part: i64, whole: i64) -> f64 {
    if whole > 0 { 100.0 * part as f64 / whole as f64 } else { 0.0 }
}
