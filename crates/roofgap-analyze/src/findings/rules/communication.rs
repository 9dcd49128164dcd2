//! Communication that no computation hides.

use crate::findings::builder::{FindingBuilder, percent};
use crate::findings::{Explanation, View};
use crate::numbers::time;
use crate::result::{Finding, Stage};

const COMMUNICATION_NS: &str = "communication_ns";
const EXPOSED_NS: &str = "exposed_ns";
const HIDEABLE_NS: &str = "hideable_ns";
const KERNELS: &str = "communication_kernels";

/// Time in which a device ran only kernels that talk to other devices.
pub fn exposed(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(talk) = view.evidence.and_then(|evidence| evidence.communication) else {
        return;
    };
    let exposed = Exposed {
        kernels: talk.count,
        communication_ns: stage.each_device(talk.ns),
        exposed_ns: stage.each_device(talk.exposed_ns),
        hideable_ns: stage.each_device(talk.hideable_ns),
        waited_ns: None,
    };
    exposed.finish(stage, findings);
}

/// Takes the time that the rank waited for others out of the bounds: computation does not hide a rank that is late. `waited_ns`
/// returns that time of a stage.
pub fn without_waits(stages: &[Stage], waited_ns: impl Fn(&str) -> Option<i64>, findings: &mut Vec<Finding>) {
    let waited = |finding: &Finding| {
        let stage = stages.iter().find(|stage| finding.stage.as_deref() == Some(&stage.name))?;
        let mut exposed = Exposed::of(finding)?;
        let waited = stage.each_device(waited_ns(&stage.name)?);
        exposed.waited_ns = Some(waited.clamp(0, exposed.exposed_ns));
        Some((stage, exposed))
    };
    let mut changed = Vec::new();
    findings.retain(|finding| {
        let found = (finding.id == EXPOSED.id).then(|| waited(finding)).flatten();
        let keep = found.is_none();
        changed.extend(found);
        keep
    });
    for (stage, exposed) in changed {
        exposed.finish(stage, findings);
    }
}

/// Communication of a stage, mean of its devices.
struct Exposed {
    /// Communication kernels of all devices.
    kernels: u64,
    /// Time in which at least one ran, ns.
    communication_ns: i64,
    /// Of that, time in which the device ran nothing else, ns.
    exposed_ns: i64,
    /// Of that, as much as the computation without communication beside it can hide, ns.
    hideable_ns: i64,
    /// Of the exposed time, waits for other ranks, ns; `None` where they are not known.
    waited_ns: Option<i64>,
}

impl Exposed {
    /// Reads the evidence of a finding.
    fn of(finding: &Finding) -> Option<Self> {
        let number = |key: &str| finding.evidence.get(key)?.as_i64();
        Some(Self {
            kernels: finding.evidence.get(KERNELS)?.as_u64()?,
            communication_ns: number(COMMUNICATION_NS)?,
            exposed_ns: number(EXPOSED_NS)?,
            hideable_ns: number(HIDEABLE_NS)?,
            waited_ns: None,
        })
    }

    /// Adds the finding.
    fn finish(&self, stage: &Stage, findings: &mut Vec<Finding>) {
        let waited_ns = self.waited_ns.unwrap_or(0);
        let bound_ns = self.hideable_ns.min(self.exposed_ns - waited_ns);
        let (shown, all) = (time(self.exposed_ns), time(self.communication_ns));
        let part = if shown == all { format!("the {all} of") } else { format!("{shown} of {all} of") };
        let waits = if waited_ns > 0 {
            format!("; {} of that are waits for other ranks", time(waited_ns))
        } else {
            String::new()
        };
        let title =
            format!("{part} communication in {} are not hidden behind computation{waits}", stage.spoken());
        FindingBuilder::new("communication-exposed", stage, bound_ns)
            .with(KERNELS, self.kernels)
            .with(COMMUNICATION_NS, self.communication_ns)
            .with(EXPOSED_NS, self.exposed_ns)
            .with(HIDEABLE_NS, self.hideable_ns)
            .with("waited_ns", self.waited_ns)
            .with_number("hidden_pct", 100.0 - percent(self.exposed_ns, self.communication_ns))
            .finish(title, self.action(), findings);
    }

    fn action(&self) -> String {
        let mut action =
            "Overlap it: communicate on a stream of its own while the next part computes, in pieces small enough."
                .to_owned();
        let transfer_ns = self.exposed_ns - self.waited_ns.unwrap_or(0);
        let less = "communicate less (fewer ranks for small batches, reduced precision, a fused all-reduce and norm).";
        if self.hideable_ns < transfer_ns {
            action.push_str(&format!(
                " There is computation of {} to hide it behind; for the rest, {less}",
                time(self.hideable_ns)
            ));
        } else {
            action.push_str(&format!(" Or {less}"));
        }
        action.push_str(match self.waited_ns {
            None => " A rank that waits for a slower one shows as communication too.",
            Some(0) => "",
            Some(_) => " The waits end with the ranks that are late.",
        });
        action
    }
}

/// Explains `communication-exposed`.
pub const EXPOSED: Explanation = Explanation {
    id: "communication-exposed",
    remedy: "communication hidden behind computation",
    meaning: "A GPU runs nothing but communication kernels, because the next computation needs their result, or \
              because another rank is late.",
    computed: "Time in which a device ran only communication kernels, mean of the devices of the stage. The bound is that \
              time, without the waits for other ranks where several ranks were given, and at most the time of \
              the computation that it could hide behind.",
    fix: "Overlap communication with computation in pieces, use fewer ranks for small batches, a lower \
              precision, or a fused all-reduce and norm. Look at the ranks of the job first: waiting for a late \
              rank shows as communication.",
    links: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html"],
};
