//! Communication that no computation hides.

use crate::findings::builder::{FindingBuilder, percent};
use crate::findings::{Explanation, View};
use crate::numbers::time;
use crate::result::Finding;

/// Time in which a device ran only kernels that talk to other devices.
pub(in crate::findings) fn exposed(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(talk) = view.evidence.and_then(|evidence| evidence.communication) else {
        return;
    };
    let hidden = 100.0 - percent(talk.exposed_ns, talk.ns);
    let (shown, all) = (stage.each_device(talk.exposed_ns), stage.each_device(talk.ns));
    let part = if shown == all {
        format!("the {} of", time(all))
    } else {
        format!("{} of {} of", time(shown), time(all))
    };
    let title = format!(
        "{part} communication in {} are not hidden behind computation",
        stage.spoken()
    );
    let action = "Overlap it: communicate on a stream of its own while the next part computes, in pieces small enough; or \
                  communicate less (fewer ranks for small batches, reduced precision, a fused all-reduce and norm). A rank that \
                  waits for a slower one shows as communication too."
        .to_owned();
    FindingBuilder::summed("communication-exposed", stage, talk.exposed_ns)
        .with("communication_kernels", talk.count)
        .with("communication_ns", talk.ns)
        .with("exposed_ns", talk.exposed_ns)
        .with_number("hidden_pct", hidden)
        .finish(title, action, findings);
}

/// Explains `communication-exposed`.
pub(in crate::findings) const EXPOSED: Explanation = Explanation {
    id: "communication-exposed",
    remedy: "communication hidden behind computation",
    meaning: "A GPU runs nothing but communication kernels, because the next computation needs their result, or \
              because another rank is late.",
    computed: "Time in which a device ran only communication kernels. The bound is that time.",
    fix: "Overlap communication with computation in pieces, use fewer ranks for small batches, a lower \
              precision, or a fused all-reduce and norm. Look at the ranks of the job first: waiting for a late \
              rank shows as communication.",
    links: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html"],
};
