//! A row of the table of knobs.

use super::facts::{HfFacts, ProgramFacts, WorkloadFacts};
use crate::result::{Finding, Knob, KnobChange, OutputEffect};

/// A knob of one kind of workload.
#[derive(Debug, Clone, Copy)]
pub struct KnobRule {
    /// Id of the knob.
    pub id: &'static str,
    /// Sentence for people.
    pub title: &'static str,
    /// Findings whose action it carries out.
    pub findings: &'static [&'static str],
    /// Effect on the output.
    pub output: OutputEffect,
    /// Condition for people.
    pub applies: &'static str,
    /// Returns the changes; `None` where the knob does not apply or is set already.
    pub changes: fn(&Case<'_>) -> Option<Vec<KnobChange>>,
}

impl KnobRule {
    /// Makes the knob for a finding of a workload.
    pub fn knob(&self, case: &Case<'_>) -> Option<Knob> {
        if !self.findings.contains(&case.finding.id.as_str()) {
            return None;
        }
        Some(Knob {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            changes: (self.changes)(case)?,
            output: self.output,
            applies: self.applies.to_owned(),
        })
    }
}

/// A finding with the facts about its workload.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub workload: &'a WorkloadFacts,
    pub finding: &'a Finding,
    /// Serving engine, by the command or by the names of its steps.
    pub engine: Option<&'a str>,
    /// The model has routed experts.
    pub has_experts: bool,
}

impl<'a> Case<'a> {
    /// Returns the settings of a Hugging Face model.
    pub fn hf(&self) -> Option<&'a HfFacts> {
        match self.workload {
            WorkloadFacts::Hf(hf) => Some(hf),
            _ => None,
        }
    }

    /// Returns the same in a finding about decode.
    pub fn hf_decode(&self) -> Option<&'a HfFacts> {
        self.hf().filter(|_| self.finding.stage.as_deref() == Some("decode"))
    }

    /// Returns the program of an engine: its own command, or a script that uses it.
    pub fn program_of(&self, engine: &str) -> Option<&'a ProgramFacts> {
        match self.workload {
            WorkloadFacts::Program(program) if self.engine == Some(engine) => Some(program),
            _ => None,
        }
    }

    /// Returns the program where it is the command of the engine itself, which accepts all flags of the engine.
    pub fn command_of(&self, engine: &str) -> Option<&'a ProgramFacts> {
        self.program_of(engine).filter(|program| program.engine_command.as_deref() == Some(engine))
    }

    /// Returns a number of the finding's evidence.
    pub fn evidence(&self, key: &str) -> Option<f64> {
        self.finding.evidence.get(key)?.as_f64()
    }
}

/// Sets a key of the configuration.
pub fn set(key: &str, value: impl ToString) -> KnobChange {
    KnobChange::Setting { key: key.to_owned(), value: value.to_string() }
}

/// Adds a flag with a value.
pub fn flag(flag: &str, value: impl ToString) -> KnobChange {
    KnobChange::AddFlag { flag: flag.to_owned(), value: Some(value.to_string()) }
}

/// Adds a switch.
pub fn switch(flag: &str) -> KnobChange {
    KnobChange::AddFlag { flag: flag.to_owned(), value: None }
}

/// Removes a switch that the program has; `None` where it has it not.
pub fn without_switch(program: &ProgramFacts, name: &str) -> Option<KnobChange> {
    Some(KnobChange::RemoveFlag { flag: program.flag(name)?.spelled.to_owned(), takes_value: false })
}

/// Raises the number of a flag that the program sets lower; `None` where it is not set, or high enough.
pub fn raised(program: &ProgramFacts, name: &str, least: f64) -> Option<KnobChange> {
    let found = program.flag(name)?;
    let now: f64 = found.value?.parse().ok()?;
    let wanted = (least.ceil().max(1.0) as u64).checked_next_power_of_two()?;
    (now < least).then(|| flag(found.spelled, wanted))
}
