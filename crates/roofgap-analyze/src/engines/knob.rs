//! What a knob is: a condition on a workload and the changes that it makes.

use super::Engine;
use crate::result::{Finding, KnobChange, StageKind};

/// The settings of a workload that a knob can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadFacts {
    /// The embedded model.
    Embedded {
        /// Keeps keys and values of earlier positions.
        kv_cache: bool,
        /// Most positions that a step without a KV cache reads again.
        context_limit: Option<u64>,
    },
    /// A Hugging Face model, run by the driver.
    Hf(HfFacts),
    /// A program or a server after `--`.
    Program(ProgramFacts),
}

/// Settings of a Hugging Face model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HfFacts {
    /// Uses torch.compile for decode.
    pub compile: bool,
    /// Replays decode as a CUDA graph.
    pub cuda_graphs: bool,
    /// Sequences at once.
    pub batch: u64,
    /// Number format of the weights.
    pub dtype: String,
    /// Attention implementation, where one is set.
    pub attention: Option<String>,
    /// Experts implementation, where one is set.
    pub experts: Option<String>,
}

/// A program after `--`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramFacts {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Serving engine whose command it is, such as `vllm serve`; its flags are those of the engine. `None` for a script, whose
    /// flags are not those of an engine.
    pub engine_command: Option<&'static Engine>,
}

impl ProgramFacts {
    /// Returns a flag as the program has it. Engines accept underscores for dashes.
    pub(crate) fn flag(&self, name: &str) -> Option<Flag<'_>> {
        self.words.iter().enumerate().find_map(|(at, word)| {
            let (spelled, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (word.as_str(), self.words.get(at + 1).map(String::as_str)),
            };
            let same = spelled.starts_with("--") && spelled.replace('_', "-") == name;
            same.then_some(Flag { spelled, value })
        })
    }
}

/// A flag of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flag<'a> {
    /// The flag as written.
    pub(crate) spelled: &'a str,
    /// Text after `=`, else the next word, which is the value of a flag that takes one.
    pub(crate) value: Option<&'a str>,
}

/// The changes of a knob. What people read about it stands in `texts/knobs.md`.
#[derive(Debug, Clone, Copy)]
pub struct KnobRule {
    /// Id of the knob.
    pub id: &'static str,
    /// Returns the changes; `None` where the knob does not apply or is set already.
    pub(crate) changes: fn(&Case<'_>) -> Option<Vec<KnobChange>>,
}

/// A finding with the facts about its workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) workload: &'a WorkloadFacts,
    pub(crate) finding: &'a Finding,
    /// Kind of the stage that the finding is about.
    pub(crate) stage: Option<StageKind>,
    /// The model has routed experts.
    pub(crate) has_experts: bool,
}

impl<'a> Case<'a> {
    /// Returns the settings of a Hugging Face model.
    pub(crate) fn hf(&self) -> Option<&'a HfFacts> {
        match self.workload {
            WorkloadFacts::Hf(hf) => Some(hf),
            _ => None,
        }
    }

    /// Returns the same in a finding about decode.
    pub(crate) fn hf_decode(&self) -> Option<&'a HfFacts> {
        self.hf().filter(|_| self.stage == Some(StageKind::Decode))
    }

    /// Returns the command of the engine, or the script that uses it.
    pub(crate) fn program(&self) -> Option<&'a ProgramFacts> {
        match self.workload {
            WorkloadFacts::Program(program) => Some(program),
            _ => None,
        }
    }

    /// Returns the program where it is the command of the engine itself, which accepts all flags of the engine.
    pub(crate) fn command(&self) -> Option<&'a ProgramFacts> {
        self.program().filter(|program| program.engine_command.is_some())
    }

    /// Returns a number of the finding's evidence.
    pub(crate) fn evidence(&self, key: &str) -> Option<f64> {
        self.finding.evidence.get(key)?.as_f64()
    }

    /// Returns the largest batch that ran without a CUDA graph, and the largest that ran with one.
    pub(crate) fn eager_batches(&self) -> Option<(u64, u64)> {
        let sizes = self.finding.evidence.get("batch_sizes")?.as_array()?;
        let largest = sizes.iter().filter_map(serde_json::Value::as_u64).max()?;
        Some((largest, self.evidence("largest_graph_batch").unwrap_or(0.0) as u64))
    }
}

/// Sets a key of the configuration.
pub(crate) fn set(key: &str, value: impl ToString) -> KnobChange {
    KnobChange::Setting { key: key.to_owned(), value: value.to_string() }
}

/// Adds a flag with a value.
pub(crate) fn flag(flag: &str, value: impl ToString) -> KnobChange {
    KnobChange::AddFlag { flag: flag.to_owned(), value: Some(value.to_string()) }
}

/// Adds a switch.
pub(crate) fn switch(flag: &str) -> KnobChange {
    KnobChange::AddFlag { flag: flag.to_owned(), value: None }
}

/// Removes a switch that the program has; `None` where it has it not.
pub(crate) fn without_switch(program: &ProgramFacts, name: &str) -> Option<KnobChange> {
    Some(KnobChange::RemoveFlag { flag: program.flag(name)?.spelled.to_owned(), takes_value: false })
}

/// Raises a limit of requests to those in flight; `None` where the command does not set it, or sets it high enough.
pub(crate) fn raised(case: &Case<'_>, name: &str) -> Option<Vec<KnobChange>> {
    let in_flight = case.evidence("requests_in_flight")?;
    let limit = case.command()?.flag(name)?;
    let now: f64 = limit.value?.parse().ok()?;
    let wanted = (in_flight.ceil().max(1.0) as u64).checked_next_power_of_two()?;
    (now < in_flight).then(|| vec![flag(limit.spelled, wanted)])
}

/// Sets a limit of prompt tokens in a step to a quarter; `None` below the least that is worth a trial, which is the smallest default of the
/// engines. A negative limit is none.
pub(crate) fn quartered(case: &Case<'_>, name: &str) -> Option<Vec<KnobChange>> {
    const LEAST: u64 = 2048;
    let now = match case.command()?.flag(name) {
        Some(limit) => u64::try_from(limit.value?.parse::<i64>().ok()?).unwrap_or(4 * LEAST),
        None => LEAST,
    };
    (now >= LEAST).then(|| vec![flag(name, now / 4)])
}

/// Adds a flag that the command does not have.
pub(crate) fn unset(case: &Case<'_>, name: &str, value: &str) -> Option<Vec<KnobChange>> {
    case.command()?.flag(name).is_none().then(|| vec![flag(name, value)])
}
