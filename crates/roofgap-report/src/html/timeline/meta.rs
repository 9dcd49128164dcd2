//! The description of the packed columns, as the page reads it.

use super::lanes::Group;
use roofgap_trace::Ns;
use serde::Serialize;
use thiserror::Error;

/// The reason why inputs have no timeline.
#[derive(Debug, Error)]
pub enum NoTimeline {
    /// Only the analysis was kept.
    #[error("this page was made without the capture")]
    NoCapture,
    /// A table of totals.
    #[error("a summary table holds totals, not single operations")]
    TotalsOnly,
    /// Nothing with a time.
    #[error("the inputs have no timeline")]
    NoEvents,
}

/// The description of the columns.
#[derive(Debug, Serialize)]
pub(in crate::html) struct Meta {
    /// Length of the timeline, ns.
    pub(super) span: Ns,
    /// Names and the positions of their classes.
    pub(super) names: Vec<(String, u32)>,
    pub(super) classes: Vec<&'static str>,
    /// GPUs and threads that own lanes.
    pub(super) sections: Vec<SectionMeta>,
    pub(super) lanes: Vec<LaneMeta>,
    pub(super) stages: Vec<StageMeta>,
    /// Launch shapes: grid, block, registers of a thread, static and dynamic shared memory of a block in bytes.
    pub(super) shapes: Vec<[u32; 9]>,
    /// Sentences on items that are merged or not drawn.
    pub(super) notes: Vec<String>,
}

/// A GPU or a thread.
#[derive(Debug, Serialize)]
pub(super) struct SectionMeta {
    /// `gpu` or `thread`.
    pub(super) kind: &'static str,
    pub(super) label: String,
}

/// A lane of the timeline.
#[derive(Debug, Serialize)]
pub(super) struct LaneMeta {
    pub(super) group: Group,
    pub(super) label: String,
    /// Position of the GPU or thread.
    pub(super) section: usize,
    pub(super) count: usize,
    pub(super) offset: usize,
    /// Columns for the number of items and the occupied time of a block follow.
    pub(super) merged: bool,
    /// Number of pairs of position and bytes at the end: copies and sets.
    pub(super) transfers: usize,
}

/// The spans of a stage.
#[derive(Debug, Serialize)]
pub(super) struct StageMeta {
    pub(super) name: String,
    /// Starts and lengths of the instances, ns.
    pub(super) at: Vec<(Ns, Ns)>,
    /// Starts and lengths of the steps, ns.
    pub(super) steps: Vec<(Ns, Ns)>,
}
