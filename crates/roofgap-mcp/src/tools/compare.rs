//! `compare`: two runs or captures side by side.

use super::{Page, State};
use roofgap_analyze::compare::{Comparison, compare};
use roofgap_base::error::Error;
use roofgap_report::compare::headline;
use roofgap_runs::open::{Overrides, open_side};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Differences and stages that an answer names.
const MOST: usize = 12;

/// Request for a comparison.
#[derive(Deserialize, JsonSchema)]
pub struct CompareRequest {
    /// Before: a run (id, unique prefix or `latest`), or the path of a capture or of a metrics.json.
    pub base: String,
    /// After.
    pub head: String,
    #[serde(flatten)]
    pub page: Page,
}

/// Two runs or captures side by side.
#[derive(Serialize, JsonSchema)]
pub struct CompareAnswer {
    /// The main result in one sentence.
    pub headline: String,
    /// False if the two did different work or ran on different hardware, so that times do not compare.
    pub comparable: bool,
    /// The comparison, as `roofgap compare --format json` gives it: facts that differ, facts that neither side gives, stages with
    /// their numbers and what explains the change, and kernels, largest change first.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Number of all kernels.
    pub kernel_count: usize,
}

/// Compares two inputs and shortens the comparison.
pub fn answer(state: &State, request: &CompareRequest) -> Result<CompareAnswer, Error> {
    let side = |input: &str| -> Result<_, Error> {
        let path = state.roots.find(input)?.display().to_string();
        open_side(state.roots.runs(), &path, &Overrides::default(), state.cache.exporter())
    };
    let (base, head) = (side(&request.base)?, side(&request.head)?);
    let mut comparison = compare(base.as_side(), head.as_side(), &[]);
    let headline = headline(&comparison);
    let kernel_count = comparison.total.kernels.len();
    comparison.total.kernels = request.page.select(&comparison.total.kernels).to_vec();
    comparison.differences.truncate(MOST);
    comparison.stages.truncate(MOST);
    Ok(CompareAnswer { headline, comparable: !comparison.is_incomparable(), kernel_count, comparison })
}
