//! Communication that no computation hides.

use crate::findings::View;
use crate::findings::builder::{FindingBuilder, ms, percent};
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
        format!("the {} of", ms(all))
    } else {
        format!("{} of {} of", ms(shown), ms(all))
    };
    let title = format!(
        "{part} communication in {} are not hidden behind computation",
        stage.name
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
