//! Facts stated by the user.

use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::model::{Architecture, Tokens};
use roofgap_analyze::{Options, StageError, StageSet};

/// Facts stated by the user beside the inputs. They win over those in the files.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Stages to replace or add, as `NAME=PATTERN`.
    pub stages: Vec<String>,
    /// Model.
    pub model: Option<Architecture>,
    /// Tokens of a run.
    pub tokens: Tokens,
    /// Limits of the device.
    pub limits: UserLimits,
    /// Rank to show, of several.
    pub rank: Option<u32>,
}

impl Overrides {
    /// Adds the stages to a set.
    pub(crate) fn add_stages(&self, set: &mut StageSet) -> Result<(), StageError> {
        self.stages.iter().try_for_each(|stage| set.set(stage))
    }

    /// Builds the options of an analysis from these facts alone.
    pub(crate) fn options(&self) -> Result<Options, StageError> {
        let mut stages = StageSet::default();
        self.add_stages(&mut stages)?;
        Ok(Options {
            stages,
            model: self.model.clone(),
            limits: self.limits,
            tokens: self.tokens.clone(),
            ..Options::default()
        })
    }
}
