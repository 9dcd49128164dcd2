//! Knobs: changes of a workload that carry out the action of a finding.
//!
//! The rows of the embedded model are here, those of an engine in its file in `engines`. A row names the findings it is for, and makes its
//! changes from the facts about the workload and the evidence of the finding. A setting that is in effect already is not offered,
//! and a capture whose workload is unknown has no knobs.

#[cfg(test)]
mod tests;

use crate::engines::{ENGINES, Engine};
use crate::model::{Architecture, Mlp};
use crate::result::{Analysis, Finding, Knob, KnobChange, OutputEffect, StageKind};

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
    /// Serving engine whose own command it is, such as `vllm serve`; its flags are those of the engine. `None` for a script, whose
    /// flags are its own.
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

/// A knob of one kind of workload.
#[derive(Debug, Clone, Copy)]
pub struct KnobRule {
    /// Id of the knob.
    pub id: &'static str,
    /// Sentence for people.
    pub title: &'static str,
    /// Findings whose action it carries out.
    pub(crate) findings: &'static [&'static str],
    /// Effect on the output.
    pub(crate) output: OutputEffect,
    /// Condition for people.
    pub applies: &'static str,
    /// Returns the changes; `None` where the knob does not apply or is set already.
    pub(crate) changes: fn(&Case<'_>) -> Option<Vec<KnobChange>>,
}

impl KnobRule {
    /// Returns the knob for a case; `None` where it does not apply or is set already.
    fn knob(&self, case: &Case<'_>) -> Option<Knob> {
        Some(Knob {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            changes: (self.changes)(case)?,
            output: self.output,
            applies: self.applies.to_owned(),
        })
    }
}

/// Parts of a row that engines have in common.
const SHARED: KnobRule = KnobRule {
    id: "",
    title: "",
    findings: &[],
    output: OutputEffect::Rounding,
    applies: "",
    changes: |_| None,
};

/// CUDA graphs instead of single launches.
pub(crate) const GRAPHS: KnobRule =
    KnobRule { findings: &["launch-bound", "gaps-between-steps", "sync-in-step", "host-copies"], ..SHARED };

/// Graphs for larger batches.
pub(crate) const GRAPH_SIZES: KnobRule = KnobRule {
    title: "capture CUDA graphs up to the largest batch that ran",
    findings: &["graphs-not-used"],
    ..SHARED
};

/// A higher limit of requests in a step.
pub(crate) const MORE_REQUESTS: KnobRule = KnobRule {
    title: "allow as many requests in a step as are in flight",
    findings: &["batch-too-small"],
    ..SHARED
};

/// A lower limit of prompt tokens in a step.
pub(crate) const FEWER_PROMPT_TOKENS: KnobRule = KnobRule {
    title: "read fewer prompt tokens in a step",
    findings: &["decode-starved"],
    applies: "requests that generate wait for prompts; costs time to first token",
    ..SHARED
};

/// Scheduling while the GPU runs.
pub(crate) const OVERLAP: KnobRule = KnobRule {
    title: "schedule the next step while the GPU runs this one",
    findings: &["gaps-between-steps", "launch-bound"],
    ..SHARED
};

/// Smaller numbers in the KV cache.
pub(crate) const SMALLER_CACHE: KnobRule = KnobRule {
    title: "store the KV cache in 8 bits",
    findings: &["kv-cache-full", "memory-at-roof"],
    output: OutputEffect::Changes,
    applies: "--kv-cache-dtype is not set; the device and the attention backend support fp8",
    ..SHARED
};

/// Knobs of the embedded model.
const EMBEDDED: [KnobRule; 2] = [
    KnobRule {
        id: "embedded.kv_cache",
        title: "keep keys and values of earlier positions",
        findings: &["context-recomputed"],
        applies: "workload.kv_cache is false",
        changes: |case| uncached(case).map(|_| vec![set("workload.kv_cache", true)]),
        ..SHARED
    },
    KnobRule {
        id: "embedded.context_limit",
        title: "read a quarter of the context again",
        findings: &["context-recomputed"],
        output: OutputEffect::Changes,
        applies: "workload.kv_cache is false, and workload.context_limit is not set",
        changes: |case| {
            let quarter = (case.evidence("mean_context_tokens")? / 4.0).max(1.0) as u64;
            let unlimited = uncached(case)?.is_none();
            unlimited.then(|| vec![set("workload.context_limit", quarter)])
        },
    },
];

/// Returns the context limit of a model without a KV cache.
fn uncached(case: &Case<'_>) -> Option<Option<u64>> {
    match case.workload {
        WorkloadFacts::Embedded { kv_cache: false, context_limit } => Some(*context_limit),
        _ => None,
    }
}

/// A finding with the facts about its workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    workload: &'a WorkloadFacts,
    pub(crate) finding: &'a Finding,
    /// Kind of the stage that the finding is about.
    stage: Option<StageKind>,
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

    /// Returns the program of the engine: its own command, or a script that uses it.
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
    let found = case.command()?.flag(name)?;
    let now: f64 = found.value?.parse().ok()?;
    let wanted = (in_flight.ceil().max(1.0) as u64).checked_next_power_of_two()?;
    (now < in_flight).then(|| vec![flag(found.spelled, wanted)])
}

/// Sets a limit of prompt tokens in a step to a quarter; `None` below the least that is worth a trial, which is the smallest default of the
/// engines. A negative limit is none.
pub(crate) fn quartered(case: &Case<'_>, name: &str) -> Option<Vec<KnobChange>> {
    const LEAST: u64 = 2048;
    let now = match case.command()?.flag(name) {
        Some(found) => u64::try_from(found.value?.parse::<i64>().ok()?).unwrap_or(4 * LEAST),
        None => LEAST,
    };
    (now >= LEAST).then(|| vec![flag(name, now / 4)])
}

/// Adds a flag that the command does not have.
pub(crate) fn unset(case: &Case<'_>, name: &str, value: &str) -> Option<Vec<KnobChange>> {
    case.command()?.flag(name).is_none().then(|| vec![flag(name, value)])
}

/// Returns the rows of all workloads.
fn rules() -> impl Iterator<Item = &'static KnobRule> {
    EMBEDDED.iter().chain(ENGINES.into_iter().flat_map(|engine| engine.knobs))
}

/// Lists the knobs for a finding over all workloads.
///
/// ```
/// use roofgap_analyze::knobs::of_finding;
/// assert!(of_finding("launch-bound").any(|knob| knob.id == "hf.cuda_graphs"));
/// assert_eq!(of_finding("no-such-finding").count(), 0);
/// ```
pub fn of_finding(id: &str) -> impl Iterator<Item = &'static KnobRule> {
    rules().filter(move |rule| rule.findings.contains(&id))
}

/// Adds to each finding the knobs of the workload.
pub(crate) fn attach(analysis: &mut Analysis, workload: &WorkloadFacts, model: Option<&Architecture>) {
    let has_experts = model.is_some_and(|model| {
        let mut groups = model.decoder.groups.iter();
        groups.any(|group| matches!(group.mlp, Mlp::Experts(_)))
    });
    let rules = rules_of(analysis, workload);
    for finding in &mut analysis.findings {
        let stage = analysis.stages.iter().find(|stage| finding.stage.as_ref() == Some(&stage.name));
        let case = Case { workload, finding, stage: stage.map(|stage| stage.kind), has_experts };
        let for_finding = rules.iter().filter(|rule| rule.findings.contains(&case.finding.id.as_str()));
        finding.knobs = for_finding.filter_map(|rule| rule.knob(&case)).collect();
    }
}

/// Returns the rows of a workload.
fn rules_of(analysis: &Analysis, workload: &WorkloadFacts) -> &'static [KnobRule] {
    match workload {
        WorkloadFacts::Embedded { .. } => &EMBEDDED,
        WorkloadFacts::Hf(_) => crate::engines::TRANSFORMERS.knobs,
        // Serving engine, by the command or by the names of its steps.
        WorkloadFacts::Program(program) => {
            let engine = program.engine_command.or(Engine::of(analysis.engine.as_ref()));
            engine.map_or(&[][..], |engine| engine.knobs)
        }
    }
}
