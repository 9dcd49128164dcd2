//! The FLOPs and bytes of a stage of a model, term by term.
//!
//! `decoder` has the language model and the steps of a serving engine, `vision` the encoders. [`Architecture::stage_work`] fits a
//! stage of a trace to the tokens of a run.

mod decoder;
mod vision;

#[cfg(test)]
mod tests;

pub use crate::result::Term;
pub use decoder::{DecodeInput, PrefillInput, distinct_experts};
pub use roofgap_trace::account::TokenCounts as Tokens;
pub use vision::View;

use super::Architecture;
use crate::result::{NotKnown, StageKind};

/// Creates a term. A multiplication and an addition are two FLOPs; `bytes` are weights, and cached keys and values.
fn term(name: impl Into<String>, flops: f64, bytes: f64, how: String) -> Term {
    Term { name: name.into(), flops, bytes, how }
}

/// Returns the texts whose condition holds.
fn that_hold<const N: usize>(texts: [(bool, &str); N]) -> impl Iterator<Item = String> {
    texts.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_owned())
}

/// The work of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct StageWork {
    /// The stage.
    pub stage: String,
    /// Terms.
    pub terms: Vec<Term>,
    /// Decode steps it stands for, where it is a decode.
    pub steps: Option<u64>,
    /// Devices that share it. Busy time is summed over devices and wall time is not, so they count by wall time alone.
    pub devices: u32,
    /// Assumptions.
    pub assumptions: Vec<String>,
}

impl StageWork {
    fn new(stage: &str, terms: Vec<Term>, steps: Option<u64>, assumptions: Vec<String>) -> Self {
        Self { stage: stage.to_owned(), terms, steps, devices: 1, assumptions }
    }

    /// Floating-point operations in all.
    pub fn flops(&self) -> f64 {
        self.terms.iter().map(|term| term.flops).sum()
    }

    /// Bytes that must move.
    pub fn moved_bytes(&self) -> f64 {
        self.terms.iter().map(|term| term.bytes).sum()
    }

    /// The least a decode step can take at this bandwidth, in nanoseconds.
    pub fn floor_step_ns(&self, bandwidth_bytes_per_s: f64) -> Option<f64> {
        let steps = self.steps.filter(|steps| *steps > 0)?;
        (bandwidth_bytes_per_s > 0.0).then(|| self.moved_bytes() / steps as f64 / bandwidth_bytes_per_s * 1e9)
    }

    /// The same work shared by several devices.
    pub fn on_devices(mut self, devices: u32) -> Self {
        self.devices = devices.max(1);
        self
    }

    /// The work of one of several ranks that split every term.
    pub fn split_over(mut self, ranks: u32) -> Self {
        if ranks <= 1 {
            return self;
        }
        self.scale(1.0 / f64::from(ranks), &format!("1/{ranks} of"));
        self.noting(Some(format!(
            "the capture holds one of {ranks} tensor-parallel ranks, which split every term evenly"
        )))
    }

    /// The same work done several times.
    pub fn times(mut self, count: u64) -> Self {
        if count != 1 {
            self.scale(count as f64, &format!("{count} times"));
            self.steps = self.steps.map(|steps| steps.saturating_mul(count));
        }
        self
    }

    fn scale(&mut self, factor: f64, how: &str) {
        for term in &mut self.terms {
            term.flops *= factor;
            term.bytes *= factor;
            term.how = format!("{how}: {}", term.how);
        }
    }

    fn noting(mut self, note: Option<String>) -> Self {
        self.assumptions.extend(note);
        self
    }

    /// The work of several stages together.
    pub fn together(stage: &str, parts: &[&Self]) -> Self {
        let mut whole = Self::new(stage, Vec::new(), None, Vec::new());
        for part in parts {
            whole.devices = whole.devices.max(part.devices);
            let named = |term: &Term| Term { name: format!("{}: {}", part.stage, term.name), ..term.clone() };
            whole.terms.extend(part.terms.iter().map(named));
            for assumption in &part.assumptions {
                if !whole.assumptions.contains(assumption) {
                    whole.assumptions.push(assumption.clone());
                }
            }
        }
        whole
    }
}

/// Says that a number of tokens is not known, and which option gives it.
pub fn unknown_tokens(tokens: &str) -> String {
    let option = match tokens {
        "generated tokens" => "--set workload.tokens=N",
        "vision tokens" => "--set workload.vision_tokens=N, 0 for a prompt without images",
        _ => "--set workload.prompt_tokens=N",
    };
    format!(
        "the number of {tokens} is not known: the program wrote no account of it and none was given ({option})"
    )
}

impl Architecture {
    /// The work of a stage that occurred `instances` times, with `steps` decode steps in all where the trace shows them. Any stage but
    /// a decode is a prefill.
    ///
    /// # Errors
    /// Says what is not known or does not fit.
    pub fn stage_work(
        &self,
        kind: StageKind,
        tokens: &Tokens,
        instances: u64,
        steps: Option<u64>,
    ) -> Result<StageWork, NotKnown> {
        if instances == 0 {
            return Err("the stage has no instance".into());
        }
        let prompt = tokens.prompt.filter(|n| *n > 0).ok_or_else(|| unknown_tokens("prompt tokens"))?;
        let stated = tokens.batch.filter(|n| *n > 0);
        let batch = stated.unwrap_or(1);
        let (work, note) = if kind == StageKind::Decode {
            let (steps, note) = steps_of_instance(tokens.generated, instances, steps)?;
            (self.decode(&DecodeInput { batch, context: prompt, steps }), note)
        } else {
            let views = self.views(tokens)?;
            let note = views_text(&views);
            (self.prefill(&PrefillInput { batch, prompt, views }), note)
        };
        let one = stated.is_none().then(|| "one sequence at a time: no batch size is stated".to_owned());
        Ok(work.noting(note).times(instances).noting(one))
    }

    fn views(&self, tokens: &Tokens) -> Result<Vec<View>, NotKnown> {
        let Some(vision) = &self.vision else {
            return Ok(Vec::new());
        };
        let count = tokens.vision.ok_or_else(|| unknown_tokens("vision tokens"))?;
        vision.views_for(count).ok_or_else(|| {
            format!(
                "{count} vision tokens fit no known layout of images: the work of the vision part is not known"
            )
            .into()
        })
    }
}

fn views_text(views: &[View]) -> Option<String> {
    let parts = views.iter().map(|v| format!("{} of {1} x {1} pixels", v.count, v.image_size));
    let parts = parts.collect::<Vec<_>>().join(" and ");
    (!views.is_empty()).then(|| format!("images of a sequence, from its vision tokens: {parts}"))
}

/// Steps of one instance. The first token comes from prefill in some programs, so one step less than tokens fits too.
fn steps_of_instance(
    generated: Option<u64>,
    instances: u64,
    steps: Option<u64>,
) -> Result<(u64, Option<String>), NotKnown> {
    let each = steps.filter(|steps| steps.is_multiple_of(instances)).map(|steps| steps / instances);
    let (steps, note) = match (generated.filter(|n| *n > 0), steps, each) {
        (Some(generated), _, Some(each)) if each == generated => return Ok((each, None)),
        (Some(generated), _, Some(each)) if each > 0 && each + 1 == generated => {
            (each, "the first generated token comes from prefill")
        }
        (Some(generated), Some(recorded), _) => {
            return Err(format!(
                "the trace has {recorded} decode steps in {instances} instances where {generated} tokens were generated in each: the \
                 model or its tokens do not fit the trace"
            )
            .into());
        }
        (Some(generated), None, _) => {
            (generated, "the trace shows no steps: one for each generated token is assumed")
        }
        (None, _, Some(each)) if each > 0 => (each, "steps are counted in the trace"),
        (None, ..) => return Err(unknown_tokens("generated tokens").into()),
    };
    Ok((steps, Some(note.to_owned())))
}
