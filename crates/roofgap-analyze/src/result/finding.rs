//! Findings, and the changes of a workload that carry out their actions.

use std::collections::BTreeMap;
use std::fmt;

results! {
    /// A finding: evidence, an upper bound on the saving, and an action.
    #[derive(Default)]
    #[non_exhaustive]
    pub struct Finding {
        /// Stable id of the rule.
        pub id: String,
        /// Stage that it is about; null for the whole trace.
        pub stage: Option<String>,
        /// Title of one line.
        pub title: String,
        /// Evidence in numbers.
        pub evidence: BTreeMap<String, serde_json::Value>,
        /// Upper bound on the saving, ns: never more than leaves the stage at the highest of its roofs.
        pub bound_ns: i64,
        /// Upper bound on the saving, % of the stage's time, without the cost of its profiler where that is known.
        pub bound_pct: f64,
        /// Predicted saving; null where it cannot be predicted.
        #[serde(default)]
        pub saves: Option<Saving>,
        /// Reason why there is no prediction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unpredicted: Option<String>,
        /// Terms of the bound, whose sum it is.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub terms: Vec<BoundTerm>,
        /// Origin of the bound and of the cause.
        #[serde(default)]
        pub confidence: Confidence,
        /// Observation that would disprove the finding.
        #[serde(default)]
        pub disproof: String,
        /// Id of the finding of the same stage and cause to act on first, which covers this one; left out for that finding itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub part_of: Option<String>,
        /// Action to take.
        pub action: String,
        /// Changes of the workload that carry out the action; left out where no such change is known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub knobs: Vec<Knob>,
    }

    /// A term of the bound of a finding.
    #[derive(Eq)]
    pub struct BoundTerm {
        /// Name of the time.
        pub what: String,
        /// The time, ns, mean of the devices; negative where it is subtracted.
        pub ns: i64,
    }
}

words! {
    /// The confidence in a finding.
    #[derive(Default)]
    pub enum Confidence {
        /// The time was recorded, and its cause too.
        Measured = "measured",
        /// The bound follows from a roof or another ideal, which programs come close to at best.
        #[default]
        Bounded = "bounded",
        /// The cause is concluded from names, shapes or totals.
        Guessed = "guessed",
    }
}

results! {
    /// A change of the workload that the action of a finding asks for. The workload stays as it is without it: leaving the change
    /// out undoes it.
    #[derive(Eq)]
    pub struct Knob {
        /// Stable id: the workload or the engine, and the setting, e.g. `hf.cuda_graphs`, `vllm.cuda_graphs`.
        pub id: String,
        /// Sentence for people.
        pub title: String,
        /// Changes to make, all of them together.
        pub changes: Vec<KnobChange>,
        /// Effect on the output of the program.
        pub output: OutputEffect,
        /// Condition under which the knob applies, for people.
        pub applies: String,
    }

    /// One change of a workload.
    #[derive(Eq)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    pub enum KnobChange {
        /// A setting of roofgap's configuration: `workload.cuda_graphs=true`.
        Setting {
            /// Key, e.g. `workload.cuda_graphs`.
            key: String,
            /// Value, as on the command line.
            value: String,
        },
        /// A flag of the program after `--`. It replaces the same flag, with its value, where the program has it.
        AddFlag {
            /// Flag with its dashes.
            flag: String,
            /// Value; left out for a switch.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            value: Option<String>,
        },
        /// A flag of the program after `--` to leave out.
        RemoveFlag {
            /// Flag with its dashes.
            flag: String,
            /// The word after the flag is its value, to leave out too.
            takes_value: bool,
        },
        /// An environment variable of the program.
        Environment {
            /// Name of the variable.
            name: String,
            /// Value of the variable.
            value: String,
        },
    }
}

words! {
    /// Effect of a knob on the output of the program.
    pub enum OutputEffect {
        /// The same output.
        None = "none",
        /// The same computation in another order: tokens may differ in rare ties.
        Rounding = "rounding",
        /// Another output.
        Changes = "changes",
    }
}

impl fmt::Display for KnobChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { key, value } => write!(out, "{key}={value}"),
            Self::AddFlag { flag, value: None } => out.write_str(flag),
            Self::AddFlag { flag, value: Some(value) } => write!(out, "{flag} {value}"),
            Self::RemoveFlag { flag, .. } => write!(out, "without {flag}"),
            Self::Environment { name, value } => write!(out, "{name}={value}"),
        }
    }
}

impl Knob {
    /// Tells whether a run with the changes does more work than before, so that the bounds of findings, which are about the work of one
    /// run, say nothing of its gain.
    pub fn adds_work(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| matches!(change, KnobChange::Setting { key, .. } if key == "workload.batch"))
    }

    /// Returns all changes in one line.
    pub fn spoken(&self) -> String {
        let changes: Vec<String> = self.changes.iter().map(KnobChange::to_string).collect();
        changes.join(", ")
    }
}

results! {
    /// The time of a step with changes, replayed.
    pub struct Prediction {
        /// Time before, ns.
        pub now_ns: i64,
        /// Time after, ns.
        pub after_ns: i64,
        /// Lower end of its interval, ns.
        pub low_ns: i64,
        /// Upper end of its interval, ns.
        pub high_ns: i64,
        /// The times are those without the profiler.
        pub unprofiled: bool,
        /// Origin of the prediction.
        pub how: SavingBasis,
        /// Side that sets the pace then.
        pub limit: Binding,
        /// Changes that find nothing to change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unused: Vec<String>,
    }

    /// The step of a stage with changes.
    pub struct NextLimit {
        /// Changes, all of them together.
        pub edits: Vec<String>,
        /// Step with them.
        pub step: Prediction,
    }

    /// Changes of a stage together, and its step with them.
    pub struct WhatIf {
        /// Stage.
        pub stage: String,
        /// Changes.
        pub edits: Vec<String>,
        /// Step with them; null where it cannot be predicted.
        pub step: Option<Prediction>,
        /// Reason why it cannot be predicted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub why: Option<String>,
    }

    /// Predicted saving of a finding: the stage, replayed with its change.
    #[derive(Copy)]
    pub struct Saving {
        /// Time saved in a step, ns.
        pub ns: i64,
        /// The same, % of a step.
        pub pct: f64,
        /// Lower end of its interval, %.
        pub low_pct: f64,
        /// Upper end of its interval, %.
        pub high_pct: f64,
        /// Time of a step now, ns: without the profiler, where that is known.
        pub of: i64,
        /// Origin of the prediction.
        pub how: SavingBasis,
    }

    /// Edges of the graph of a capture that are not the order of a thread or a stream.
    #[derive(Copy, Eq, Default)]
    pub struct EdgeCounts {
        /// Edges that the tool recorded.
        pub recorded: u64,
        /// Edges that follow from the times.
        pub inferred: u64,
    }
}

words! {
    /// The origin of a prediction.
    pub enum SavingBasis {
        /// Replayed; the tool recorded what waits for what.
        Replayed = "replayed",
        /// Replayed; what waits for what follows from the times.
        ReplayedInferred = "replayed-inferred",
        /// The time of a kernel that nobody has run is a model.
        Modelled = "modelled",
    }
}

words! {
    /// The side that sets the pace of a step.
    pub enum Binding {
        /// The CPU.
        Cpu = "cpu",
        /// The GPU.
        Gpu = "gpu",
    }
}

impl From<&Prediction> for Saving {
    fn from(after: &Prediction) -> Self {
        // A change that makes a step longer saves nothing.
        let saved = |ns: i64| (after.now_ns - ns).max(0);
        let pct = |ns: i64| 100.0 * saved(ns) as f64 / after.now_ns.max(1) as f64;
        Self {
            ns: saved(after.after_ns),
            pct: pct(after.after_ns),
            low_pct: pct(after.high_ns),
            high_pct: pct(after.low_ns),
            of: after.now_ns,
            how: after.how,
        }
    }
}
