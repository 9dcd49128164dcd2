//! Several GPUs: uneven work, communication that no computation hides, and ranks that wait for others.

use crate::findings::rule::{FindingBuilder, View, fill, percent};
use crate::findings::{StageEvidence, explain};
use crate::names::short_name;
use crate::numbers::{count, counted, time};
use crate::result::{Analysis, CommunicationRow, ExpertBalance, Finding, Stage, Straggler};
use crate::roof::StageRoofs;

/// Share of the stage's time, in %, by which the busiest device must exceed the mean.
const LEAST_UNEVEN_PCT: f64 = 10.0;
/// Devices take turns where at most this part of their work, in %, runs at the same time.
const MOST_SHARED_PCT: f64 = 10.0;

/// A stage on several devices of which one has more to compute than the rest, after all have begun. A device that takes longer for the same
/// launches has no more to do. The bound is what an even share would save.
pub fn uneven(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let devices = view.evidence.map(|e| &e.devices).filter(|d| d.len() > 1)?;
    let most = devices.iter().max_by_key(|d| d.load_ns)?;
    let least = devices.iter().min_by_key(|d| d.load_ns)?;
    let sum: i64 = devices.iter().map(|d| d.load_ns).sum();
    let mean = sum / devices.len() as i64;
    if percent(most.load_ns - mean, stage.elapsed_ns()) < LEAST_UNEVEN_PCT {
        return None;
    }
    let title = format!(
        "the GPUs of {} are loaded unevenly: GPU {} computes {}, GPU {} {}",
        stage.spoken(),
        most.number,
        time(most.load_ns),
        least.number,
        time(least.load_ns)
    );
    let action = view.action("uneven");
    view.saves(&[("computation of the busiest GPU", most.load_ns), ("of an even share", -mean)])
        .with("devices", devices.len())
        .with("busiest_ns", most.load_ns)
        .with("least_busy_ns", least.load_ns)
        .with("mean_ns", mean)
        .finish(title, action)
}

/// A stage whose devices compute one after another. The bound is what is left out if all compute at once.
pub fn take_turns(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let evidence = view.evidence?;
    let any = evidence.any_device_ns?;
    let devices = evidence.devices.len() as i64;
    let sum: i64 = evidence.devices.iter().map(|d| d.compute_ns).sum();
    if devices < 2 || percent(sum - any, sum) > MOST_SHARED_PCT {
        return None;
    }
    let title = format!("the {devices} GPUs of {} take turns: they run one after another", stage.spoken());
    let action = view.action("turns");
    view.saves(&[("computation of any GPU", any), ("if all compute at once", -sum / devices)])
        .with("devices", devices)
        .with("compute_ns", sum)
        .with("any_device_ns", any)
        .finish(title, action)
}

/// Id of the rule.
pub const EXPOSED: &str = "communication-exposed";

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
pub fn exposed(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let talk = view.evidence.and_then(|evidence| evidence.communication)?;
    // A stage of communication alone measures that.
    if stage.kernel_count == talk.count {
        return None;
    }
    let exposed = Exposed {
        kernels: talk.count,
        communication_ns: stage.each_device(talk.ns),
        exposed_ns: stage.each_device(talk.exposed_ns),
        hideable_ns: stage.each_device(talk.hideable_ns),
        roof_ns: view.roofs.communication_ns,
        waited_ns: stage
            .communication
            .and_then(|communication| communication.waiting_ns)
            .map(|ns| stage.each_device(ns)),
        late: stage.communication.map_or((0, 0), |communication| {
            (communication.late_calls, stage.each_device(communication.late_ns))
        }),
    };
    exposed.finish(stage)
}

/// Takes the time that the rank waited for others out of the bounds: computation does not hide a rank that is late. `waited_ns`
/// returns that time of a stage.
pub fn without_waits(stages: &[Stage], waited_ns: impl Fn(&str) -> Option<i64>, findings: &mut Vec<Finding>) {
    let waited = |finding: &Finding| {
        let stage = stages.iter().find(|stage| finding.stage.as_deref() == Some(&stage.name))?.warm();
        let mut exposed = Exposed::from_finding(finding)?;
        let waited = stage.each_device(waited_ns(&stage.name)?);
        exposed.waited_ns = Some(waited.clamp(0, exposed.exposed_ns));
        Some((stage, exposed))
    };
    let mut changed = Vec::new();
    findings.retain(|finding| {
        let waits = (finding.id == EXPOSED).then(|| waited(finding)).flatten();
        let keep = waits.is_none();
        changed.extend(waits);
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
    /// First calls that waited for other ranks, and their time beyond that of the others, ns.
    late: (u64, i64),
}

impl Exposed {
    /// Reads the evidence of a finding.
    fn from_finding(finding: &Finding) -> Option<Self> {
        let number = |key: &str| finding.evidence.get(key)?.as_i64();
        Some(Self {
            kernels: finding.evidence.get(KERNELS)?.as_u64()?,
            communication_ns: number(COMMUNICATION_NS)?,
            exposed_ns: number(EXPOSED_NS)?,
            hideable_ns: number(HIDEABLE_NS)?,
            roof_ns: number(ROOF_NS).unwrap_or(0),
            waited_ns: None,
            late: (0, 0),
        })
    }

    /// Makes the finding.
    fn finish(&self, stage: &Stage) -> Option<Finding> {
        let (late_calls, late_ns) = self.late;
        let waited_ns = self.waited_ns.unwrap_or(late_ns);
        let (shown, all) = (time(self.exposed_ns), time(self.communication_ns));
        let part = if shown == all { format!("the {all} of") } else { format!("{shown} of {all} of") };
        let waits = match self.waited_ns {
            Some(0) => "; no rank waits for another".to_owned(),
            Some(ns) => format!("; {} of that are waits for other ranks", time(ns)),
            None if late_ns > 0 => format!(
                "; {} of that are in {}, the first of a kind and size: probably waiting for the other ranks, or setting up",
                time(late_ns),
                counted(late_calls, "call")
            ),
            None if self.roof_ns > 0 && self.roof_ns.saturating_mul(5) < self.exposed_ns => format!(
                "; the link needs {} for its messages, so most of it is the start of each call or waiting for other ranks",
                time(self.roof_ns)
            ),
            None => "; how much of that is waiting for other ranks is unknown".to_owned(),
        };
        let title =
            format!("{part} communication in {} are not hidden behind computation{waits}", stage.spoken());
        let roofs = StageRoofs { communication_ns: self.roof_ns, ..StageRoofs::of(stage) };
        let terms =
            [("communication without computation", self.exposed_ns), ("waits for other ranks", -waited_ns)];
        FindingBuilder::new(explain(EXPOSED)?, stage, roofs, &terms)
            .with(KERNELS, self.kernels)
            .with(COMMUNICATION_NS, self.communication_ns)
            .with(EXPOSED_NS, self.exposed_ns)
            .with(HIDEABLE_NS, self.hideable_ns)
            .with(ROOF_NS, (self.roof_ns > 0).then_some(self.roof_ns))
            .with("waited_ns", self.waited_ns)
            .with("late_ns", (late_ns > 0).then_some(late_ns))
            .with_number("hidden_pct", 100.0 - percent(self.exposed_ns, self.communication_ns))
            .finish(title, self.action())
    }

    fn action(&self) -> String {
        let transfer_ns = self.exposed_ns - self.waited_ns.unwrap_or(self.late.1);
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

/// A rank that arrives last at the collectives of a stage.
pub fn late_ranks(view: &View<'_>) -> Vec<Finding> {
    let stage = view.stage;
    let Some(job) = &view.inputs.analysis.job else {
        return Vec::new();
    };
    let late = job.stragglers.iter().filter(|late| late.stage.as_deref() == Some(&stage.name));
    let finding = |late: &Straggler| {
        let title = format!(
            "the other ranks wait {} for rank {}, which is last at {} of {} collectives in {}",
            time(late.waited_for_ns),
            late.rank,
            count(late.last_count),
            count(late.collective_count),
            stage.spoken()
        );
        view.saves(&[("waits of the other ranks for this one", late.waited_for_ns)])
            .with("rank", late.rank)
            .with("last_count", late.last_count)
            .with("collective_count", late.collective_count)
            .with("waited_for_ns", late.waited_for_ns)
            .with("kernel", late.kernel.clone())
            .with("kernel_excess_ns", late.kernel_excess_ns)
            .with("idle_excess_ns", late.idle_excess_ns)
            .with("clock_error_ns", job.clock_error_ns)
            .finish(title, action(view, late))
    };
    late.filter_map(finding).collect()
}

/// Names the largest difference from the other ranks.
fn action(view: &View<'_>, late: &Straggler) -> String {
    let rank = late.rank;
    let kernel_ns = late.kernel_excess_ns.unwrap_or(0);
    let idle_ns = late.idle_excess_ns.unwrap_or(0);
    // A difference that explains less than a tenth of the wait is not its cause.
    let least = late.waited_for_ns / 10;
    match &late.kernel {
        Some(kernel) if kernel_ns >= idle_ns && kernel_ns > least => {
            fill(view.action("slower kernel"), &[&rank, &time(kernel_ns), &short_name(kernel)])
        }
        _ if idle_ns > least => fill(view.action("idle rank"), &[&rank, &time(idle_ns)]),
        _ => fill(view.action("before the stage"), &[&rank]),
    }
}

/// A stage in which ranks wait for the experts of others.
pub fn uneven_experts(view: &View<'_>) -> Vec<Finding> {
    let stage = view.stage;
    let rows = view.inputs.analysis.job.iter().flat_map(|job| &job.experts);
    let rows = rows.filter(|row| row.stage.as_deref() == Some(&stage.name));
    let finding = |row: &ExpertBalance| {
        let bound_ns = row.bound_ns?;
        let title = format!(
            "the experts of {} are uneven: the slowest rank takes {:.2} times the mean of {} ranks, most often rank {} ({} of {} times)",
            stage.spoken(),
            row.imbalance,
            count(row.ranks.len() as u64),
            row.slowest_rank,
            count(row.slowest_count),
            count(row.sections)
        );
        let action = fill(view.action("even experts"), &[&time(row.waited_ns.unwrap_or(0))]);
        view.saves(&[("experts of the slowest rank above the mean", bound_ns)])
            .with("rank", row.slowest_rank)
            .with("slowest_count", row.slowest_count)
            .with("sections", row.sections)
            .with("slowest_ns", row.slowest_ns)
            .with("mean_ns", row.mean_ns)
            .with_number("imbalance", row.imbalance)
            .with("waited_ns", row.waited_ns)
            .finish(title, action)
    };
    rows.filter_map(finding).collect()
}
