//! Communication that no computation hides.

use crate::findings::StageEvidence;
use crate::findings::rule::{Cause, Find, FindingBuilder, Rows, Rule, View, percent};
use crate::names::Family;
use crate::numbers::time;
use crate::result::{Analysis, CommunicationRow, Finding, Stage};
use crate::roof::StageRoofs;

const COMMUNICATION_NS: &str = "communication_ns";
const EXPOSED_NS: &str = "exposed_ns";
const HIDEABLE_NS: &str = "hideable_ns";
const KERNELS: &str = "communication_kernels";
const ROOF_NS: &str = "roof_ns";

/// Returns the least time of the communication of a stage: its messages at the peak of the link, mean of the devices, ns. It is 0 where
/// the size of a message is not known, or other stages communicate too.
pub fn communication_roof_ns(analysis: &Analysis, stage: &Stage, evidence: Option<&StageEvidence>) -> i64 {
    let Some(talk) = evidence.and_then(|evidence| evidence.communication) else {
        return 0;
    };
    let rows = || analysis.communication.iter().filter(|row| row.on == "gpu");
    let at_peak =
        |row: &CommunicationRow| Some(row.total_ns as f64 * row.peak_pct?.clamp(0.0, 100.0) / 100.0);
    let all: Option<f64> = rows().map(at_peak).sum();
    let here = rows().map(|row| row.calls).sum::<u64>() == talk.count;
    // Kernels of several groups overlap, and no time can be shorter than the part that ran.
    all.filter(|_| here).map_or(0, |ns| stage.each_device((ns as i64).min(talk.ns)))
}

/// Time in which a device ran only kernels that talk to other devices.
fn exposed(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let talk = view.evidence.and_then(|evidence| evidence.communication)?;
    let exposed = Exposed {
        kernels: talk.count,
        communication_ns: stage.each_device(talk.ns),
        exposed_ns: stage.each_device(talk.exposed_ns),
        hideable_ns: stage.each_device(talk.hideable_ns),
        roof_ns: view.roofs.communication_ns,
        waited_ns: stage.communication.and_then(|own| own.waiting_ns).map(|ns| stage.each_device(ns)),
    };
    exposed.finish(stage)
}

/// Takes the time that the rank waited for others out of the bounds: computation does not hide a rank that is late. `waited_ns`
/// returns that time of a stage.
pub fn without_waits(stages: &[Stage], waited_ns: impl Fn(&str) -> Option<i64>, findings: &mut Vec<Finding>) {
    let waited = |finding: &Finding| {
        let stage = stages.iter().find(|stage| finding.stage.as_deref() == Some(&stage.name))?.warm();
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
    findings.extend(changed.into_iter().filter_map(|(stage, exposed)| exposed.finish(stage)));
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
    /// Time of the messages at the peak of the link, ns; 0 where it is not known.
    roof_ns: i64,
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
            roof_ns: number(ROOF_NS).unwrap_or(0),
            waited_ns: None,
        })
    }

    /// Makes the finding.
    fn finish(&self, stage: &Stage) -> Option<Finding> {
        let waited_ns = self.waited_ns.unwrap_or(0);
        let (shown, all) = (time(self.exposed_ns), time(self.communication_ns));
        let part = if shown == all { format!("the {all} of") } else { format!("{shown} of {all} of") };
        let waits = match self.waited_ns {
            Some(0) => "; no rank waits for another".to_owned(),
            Some(ns) => format!("; {} of that are waits for other ranks", time(ns)),
            None => "; how much of that is waiting for other ranks is unknown".to_owned(),
        };
        let title =
            format!("{part} communication in {} are not hidden behind computation{waits}", stage.spoken());
        let roofs = StageRoofs { communication_ns: self.roof_ns, ..StageRoofs::of(stage) };
        let terms =
            [("communication without computation", self.exposed_ns), ("waits for other ranks", -waited_ns)];
        FindingBuilder::new(&EXPOSED, stage, roofs, &terms)
            .with(KERNELS, self.kernels)
            .with(COMMUNICATION_NS, self.communication_ns)
            .with(EXPOSED_NS, self.exposed_ns)
            .with(HIDEABLE_NS, self.hideable_ns)
            .with(ROOF_NS, (self.roof_ns > 0).then_some(self.roof_ns))
            .with("waited_ns", self.waited_ns)
            .with_number("hidden_pct", 100.0 - percent(self.exposed_ns, self.communication_ns))
            .finish(title, self.action())
    }

    fn action(&self) -> String {
        let transfer_ns = self.exposed_ns - self.waited_ns.unwrap_or(0);
        let less = "communicate less (fewer ranks for small batches, reduced precision, a fused all-reduce and norm)";
        let overlap =
            "communicate on a stream of its own while the next part computes, in pieces small enough";
        let mut action = if 2 * self.hideable_ns < transfer_ns {
            format!(
                "First {less}: there is computation of {} to hide it behind. For that part, {overlap}.",
                time(self.hideable_ns)
            )
        } else if self.hideable_ns < transfer_ns {
            format!(
                "Overlap it: {overlap}. There is computation of {} to hide it behind; for the rest, {less}.",
                time(self.hideable_ns)
            )
        } else {
            format!("Overlap it: {overlap}. Or {less}.")
        };
        action.push_str(match self.waited_ns {
            None => " A rank that waits for a slower one shows as communication too: analyse the captures of several ranks together.",
            Some(0) => "",
            Some(_) => " The waits end with the ranks that are late.",
        });
        action
    }
}

pub const EXPOSED: Rule = Rule {
    find: Find::One(exposed),
    cause: Cause::Communication,
    rows: Rows::Kernels(&[Family::Communication]),
    id: "communication-exposed",
    remedy: "less exposed communication",
    meaning: "A GPU runs nothing but communication kernels, because the next computation needs their result, or \
              because another rank is late.",
    computed: "Time in which a device ran only communication kernels, mean of the devices of the stage. The bound is that \
              time, without the waits for other ranks where several ranks were given. It leaves the stage the time of the messages \
              at the peak of the link, where their sizes and the link are known.",
    fix: "Overlap communication with computation in pieces, use fewer ranks for small batches, a lower \
              precision, or a fused all-reduce and norm. Look at the ranks of the job first: waiting for a late \
              rank shows as communication.",
    disproof: "The captures of the other ranks show that this rank only waits for them; then the late rank is the cause.",
    links: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html"],
    ..Rule::BASE
};
