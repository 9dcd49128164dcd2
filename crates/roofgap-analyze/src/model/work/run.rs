//! Fitting a stage of a trace to the tokens of a run.

use super::{DecodeInput, PrefillInput, StageWork, View};
use crate::model::Architecture;
use crate::result::StageKind;

/// Tokens of one repeat, as the program or the user states them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tokens {
    /// Tokens of a sequence before the first step, those of images included.
    pub prompt: Option<u64>,
    /// Tokens generated for a sequence.
    pub generated: Option<u64>,
    /// Sequences at once.
    pub batch: Option<u64>,
    /// Tokens of the prompt that come from images.
    pub vision: Option<u64>,
    /// Images of one sequence; where not given they follow from `vision` if that is unambiguous.
    pub views: Option<Vec<View>>,
}

/// The work of a stage is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The number of tokens is unknown.
    #[error(
        "the number of {0} is not known: the program wrote no account of it and none was given ({option})",
        option = option(.0)
    )]
    Unknown(&'static str),
    /// The trace has another number of steps than the run.
    #[error(
        "the trace has {found} decode steps in {instances} instances where {generated} tokens were generated in each: the model \
         or its tokens do not fit the trace"
    )]
    Steps {
        /// In the trace.
        found: u64,
        /// Instances of the stage.
        instances: u64,
        /// As stated.
        generated: u64,
    },
    /// The images cannot be told from the number of their tokens.
    #[error("{0} vision tokens fit no known layout of images: the work of the vision part is not known")]
    Views(u64),
    /// The steps of an engine do not name their tokens.
    #[error("the step names do not give the number of tokens")]
    StepTokens,
    /// A stage whose work does not follow from the tokens of a run.
    #[error("the work of a model is known for prefill, for decode and for the steps of an engine only")]
    OtherStage,
    /// No instance of the stage.
    #[error("the stage has no instance")]
    NoInstance,
}

/// Names the option that gives a number of tokens.
fn option(tokens: &str) -> &'static str {
    match tokens {
        "generated tokens" => "--new-tokens",
        "vision tokens" => "--vision-tokens, 0 for a prompt without images",
        _ => "--prompt-tokens",
    }
}

impl Architecture {
    /// The work of a stage that occurred `instances` times, with `steps` decode steps in all where the trace shows them.
    ///
    /// # Errors
    /// A [`Misfit`] that says what is not known or does not fit.
    pub fn stage_work(
        &self,
        kind: StageKind,
        tokens: &Tokens,
        instances: u64,
        steps: Option<u64>,
    ) -> Result<StageWork, Misfit> {
        if instances == 0 {
            return Err(Misfit::NoInstance);
        }
        let prompt = tokens.prompt.filter(|n| *n > 0).ok_or(Misfit::Unknown("prompt tokens"))?;
        let batch = tokens.batch.filter(|n| *n > 0);
        let mut work = match kind {
            StageKind::Prefill => {
                let views = self.views(tokens)?;
                self.prefill(&PrefillInput { batch: batch.unwrap_or(1), prompt, views: views.clone() })
                    .noting(views_text(&views))
                    .times(instances)
            }
            StageKind::Decode => {
                let (each, note) = steps_of_instance(tokens.generated, instances, steps)?;
                self.decode(&DecodeInput { batch: batch.unwrap_or(1), context: prompt, steps: each })
                    .noting(note)
                    .times(instances)
            }
            StageKind::Mixed | StageKind::Whole | StageKind::Custom => return Err(Misfit::OtherStage),
        };
        if batch.is_none() {
            work.assumptions.push("one sequence at a time: no batch size is stated".to_owned());
        }
        Ok(work)
    }

    fn views(&self, tokens: &Tokens) -> Result<Vec<View>, Misfit> {
        if let Some(views) = &tokens.views {
            return Ok(views.clone());
        }
        let Some(vision) = &self.vision else {
            return Ok(Vec::new());
        };
        let count = tokens.vision.ok_or(Misfit::Unknown("vision tokens"))?;
        vision.views_for(count).ok_or(Misfit::Views(count))
    }
}

impl StageWork {
    fn noting(mut self, note: Option<String>) -> Self {
        self.assumptions.extend(note);
        self
    }
}

fn views_text(views: &[View]) -> Option<String> {
    if views.is_empty() {
        return None;
    }
    let parts: Vec<String> =
        views.iter().map(|v| format!("{} of {1} x {1} pixels", v.count, v.image_size)).collect();
    Some(format!("images of a sequence, from its vision tokens: {}", parts.join(" and ")))
}

/// Steps of one instance. The first token comes from prefill in some programs, so one step less than tokens fits too.
fn steps_of_instance(
    generated: Option<u64>,
    instances: u64,
    steps: Option<u64>,
) -> Result<(u64, Option<String>), Misfit> {
    match (generated.filter(|n| *n > 0), steps) {
        (Some(generated), Some(found)) => {
            let each = found / instances;
            let whole = found.is_multiple_of(instances);
            if whole && each == generated {
                Ok((each, None))
            } else if whole && each > 0 && each + 1 == generated {
                Ok((each, Some("the first generated token comes from prefill".to_owned())))
            } else {
                Err(Misfit::Steps { found, instances, generated })
            }
        }
        (Some(generated), None) => Ok((
            generated,
            Some("the trace shows no steps: one for each generated token is assumed".to_owned()),
        )),
        (None, Some(found)) if found > 0 && found.is_multiple_of(instances) => {
            Ok((found / instances, Some("steps are counted in the trace".to_owned())))
        }
        (None, _) => Err(Misfit::Unknown("generated tokens")),
    }
}
