//! The description of the packed columns, as the page reads it.

use super::lanes::Group;
use roofgap_trace::Ns;
use serde::Serialize;
use thiserror::Error;

/// The reason why inputs have no timeline.
#[derive(Debug, Error)]
pub enum NoTimeline {
    /// Only the analysis was kept.
    #[error("the capture was not kept")]
    NoCapture,
    /// A table of totals.
    #[error("a summary table holds totals, not single operations")]
    TotalsOnly,
    /// Nothing with a time.
    #[error("nothing in the inputs has a time")]
    NoEvents,
}

/// The description of the columns.
#[derive(Debug, Serialize)]
pub struct Meta {
    /// Length of the timeline, ns.
    pub span: Ns,
    /// Names and the positions of their classes.
    pub names: Vec<(String, u32)>,
    pub classes: Vec<&'static str>,
    /// GPUs and threads that own lanes.
    pub sections: Vec<SectionMeta>,
    pub lanes: Vec<LaneMeta>,
    pub stages: Vec<StageMeta>,
    /// Launch shapes: grid, block, registers of a thread, static and dynamic shared memory of a block in bytes.
    pub shapes: Vec<[u32; 9]>,
    /// Sentences on items that are merged or not drawn.
    pub notes: Vec<String>,
}

/// A GPU or a thread.
#[derive(Debug, Serialize)]
pub struct SectionMeta {
    /// `gpu` or `thread`.
    pub kind: &'static str,
    pub label: String,
}

/// A lane of the timeline.
#[derive(Debug, Serialize)]
pub struct LaneMeta {
    pub group: Group,
    pub label: String,
    /// Position of the GPU or thread.
    pub section: usize,
    pub count: usize,
    pub offset: usize,
    /// Columns for the number of items and the occupied time of a block follow.
    pub merged: bool,
    /// Number of pairs of position and bytes at the end: copies and sets.
    pub transfers: usize,
}

/// The spans of a stage.
#[derive(Debug, Serialize)]
pub struct StageMeta {
    pub name: String,
    /// Starts and lengths of the instances, ns.
    pub at: Vec<(Ns, Ns)>,
    /// Starts and lengths of the steps, ns.
    pub steps: Vec<(Ns, Ns)>,
}
