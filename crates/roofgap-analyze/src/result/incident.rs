//! A moment that `roofgap watch --record` kept, and its cause.

use super::{Analysis, Spike, SpikeCause};

/// Name of the schema of `incident.json`.
pub const INCIDENT_SCHEMA: &str = "roofgap.incident/1";

/// Time before a trigger other than a slow step in which its cause is looked for, and around a slow step in which others are like it, ns.
const BEFORE_NS: i64 = 10_000_000_000;

/// Fewest slow steps with one cause that explain another one that took as long.
const FEWEST_ALIKE: usize = 3;

words! {
    /// The reason why a moment was kept.
    pub enum IncidentTrigger {
        /// A step took longer than others of its kind, for its tokens.
        SlowStep = "slow-step",
        /// A step does not end.
        NoStep = "no-step",
        /// A signal.
        Signal = "signal",
        /// A line of a log.
        LogLine = "log-line",
    }
}

results! {
    /// A moment of a watched program: what the collector and the samplers held of its last seconds is in the same run.
    pub struct Incident {
        /// Name of the schema.
        pub schema: String,
        /// Time of the trigger (RFC 3339, UTC).
        pub at: String,
        /// The same, ns since the epoch.
        pub unix_ns: i64,
        /// Reason why it was kept.
        pub trigger: IncidentTrigger,
        /// The reason in words.
        pub what: String,
        /// Time of the step that took longer, ns; null for another trigger.
        pub step_ns: Option<i64>,
        /// Time from the trigger until everything was kept, ms.
        pub dump_ms: u64,
        /// Cause: the slow step of the recording that belongs to it; null where no step took longer than its work explains.
        pub cause: Option<IncidentCause>,
        /// Processes of the program.
        pub processes: Vec<IncidentProcess>,
        /// Parts that could not be kept, and triggers since the last incident that were not.
        pub notes: Vec<String>,
    }

    /// A slow step as the cause of an incident.
    #[derive(Eq)]
    pub struct IncidentCause {
        /// Stage of the step.
        pub stage: String,
        /// The step.
        #[serde(flatten)]
        pub spike: Spike,
    }

    /// A process at the time of an incident.
    #[derive(Eq)]
    pub struct IncidentProcess {
        /// Process id.
        pub pid: u32,
        /// Name.
        pub name: String,
        /// Memory in use, bytes; null where it could not be read.
        pub resident_bytes: Option<u64>,
        /// Threads that run, are stopped or have a stack, and the first one.
        pub threads: Vec<IncidentThread>,
    }

    /// A thread at the time of an incident.
    #[derive(Eq)]
    pub struct IncidentThread {
        /// Thread id.
        pub tid: u32,
        /// Name.
        pub name: String,
        /// State letter of the kernel: R runs, S waits, D waits for a device, T is stopped.
        pub state: String,
        /// Function of the kernel in which it waits; null while it runs, or where this cannot be read.
        pub waits_in: Option<String>,
        /// Python functions, innermost first.
        pub stack: Vec<String>,
    }
}

impl Incident {
    /// Finds the cause in the analysis of its recording: the slow step of that time, or the slowest one before another trigger.
    pub fn explain(&mut self, analysis: &Analysis) {
        let begin = self.unix_ns - self.step_ns.unwrap_or(BEFORE_NS);
        let rank = |spike: &Spike| {
            let start = spike.unix_ns?;
            // The GPU may end a step a little later than the CPU.
            let beside = (start + spike.time_ns).min(self.unix_ns) - start.max(begin);
            let rank = if self.step_ns.is_some() { beside } else { spike.time_ns - spike.expected_ns };
            (beside > 0).then_some(rank)
        };
        let spikes =
            analysis.stages.iter().flat_map(|stage| stage.spikes.iter().map(move |spike| (stage, spike)));
        let ranked = spikes.filter_map(|(stage, spike)| Some((rank(spike)?, stage, spike)));
        let best = ranked.min_by_key(|(rank, ..)| std::cmp::Reverse(*rank));
        self.cause = best.map(|(_, stage, spike)| {
            let spike = alike(&stage.spikes, spike).unwrap_or(spike).clone();
            IncidentCause { stage: stage.name.clone(), spike }
        });
    }

    /// Says the cause in a phrase.
    pub fn spoken_cause(&self) -> String {
        let Some(IncidentCause { stage, spike }) = &self.cause else {
            return "no step of the recording took longer than its work explains".to_owned();
        };
        let mut text = format!("{} in step {} of {stage}", spike.cause, spike.step);
        if let Some(what) = &spike.what {
            text += &format!(", {what}");
        }
        if let Some(missing) = &spike.missing {
            text += &format!("; record {missing} to see it");
        }
        text
    }
}

/// Returns the nearest of the slow steps around one without a clear cause that took as long, if most of them have its cause. Samples of
/// stacks may miss a single step.
fn alike<'a>(spikes: &'a [Spike], unclear: &Spike) -> Option<&'a Spike> {
    let is_clear = |spike: &Spike| {
        !matches!(spike.cause, SpikeCause::Call | SpikeCause::Code | SpikeCause::Unknown | SpikeCause::Wait)
    };
    let at = unclear.unix_ns.filter(|_| !is_clear(unclear))?;
    let distance = |spike: &Spike| spike.unix_ns.map_or(i64::MAX, |unix_ns| (unix_ns - at).abs());
    let as_long = |a: &Spike, b: &Spike| 2 * a.time_ns <= 3 * b.time_ns;
    let is_alike = |spike: &&Spike| {
        **spike != *unclear
            && as_long(spike, unclear)
            && as_long(unclear, spike)
            && distance(spike) <= BEFORE_NS
    };
    let around: Vec<&Spike> = spikes.iter().filter(is_alike).collect();
    let nearest =
        around.iter().copied().filter(|spike| is_clear(spike)).min_by_key(|spike| distance(spike))?;
    let same = around.iter().filter(|spike| spike.cause == nearest.cause).count();
    (same >= FEWEST_ALIKE && 2 * same > around.len()).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Stage;

    #[test]
    fn the_cause_is_the_slow_step_of_that_time() {
        const S: i64 = 1_000_000_000;
        let spike = |step: u64, unix_ns: i64, time_ns: i64, cause| Spike {
            step,
            start_ns: Some(0),
            unix_ns: Some(unix_ns),
            time_ns,
            expected_ns: 1,
            cause,
            evidence_ns: 1,
            what: None,
            missing: None,
        };
        let spikes = vec![
            spike(3, 40 * S, 2 * S, SpikeCause::Allocation),
            spike(9, 100 * S, S, SpikeCause::Lock),
            spike(12, 104 * S, 3 * S, SpikeCause::FirstUse),
        ];
        let analysis = Analysis {
            stages: vec![Stage { name: "decode".into(), spikes, ..Stage::default() }],
            ..Analysis::default()
        };
        let mut incident = Incident {
            schema: INCIDENT_SCHEMA.into(),
            at: String::new(),
            unix_ns: 101 * S,
            trigger: IncidentTrigger::SlowStep,
            what: String::new(),
            step_ns: Some(S),
            dump_ms: 0,
            cause: None,
            processes: Vec::new(),
            notes: Vec::new(),
        };
        let step_of_cause = |incident: &mut Incident| {
            incident.explain(&analysis);
            incident.cause.as_ref().map(|cause| cause.spike.step)
        };
        assert_eq!(step_of_cause(&mut incident), Some(9));
        assert_eq!(incident.spoken_cause(), "lock in step 9 of decode");
        // Of another trigger, the slowest step before it.
        (incident.step_ns, incident.unix_ns) = (None, 108 * S);
        assert_eq!(step_of_cause(&mut incident), Some(12));
        (incident.step_ns, incident.unix_ns) = (Some(S), 60 * S);
        assert_eq!(step_of_cause(&mut incident), None);
        // Of steps that took as long, most have the cause that the samples missed in one of them.
        let mut explained = |causes: &[SpikeCause]| {
            let spikes =
                (0..).zip(causes).map(|(at, cause)| spike(at as u64, at * S, S / 2, *cause)).collect();
            let stages = vec![Stage { name: "decode".into(), spikes, ..Stage::default() }];
            (incident.step_ns, incident.unix_ns) = (Some(S / 2), 2 * S + S / 2);
            incident.explain(&Analysis { stages, ..Analysis::default() });
            incident.cause.as_ref().map(|cause| (cause.spike.step, cause.spike.cause))
        };
        use SpikeCause::{Call, Descheduled, Lock, Unknown};
        assert_eq!(
            explained(&[Descheduled, Descheduled, Call, Unknown, Descheduled]),
            Some((1, Descheduled))
        );
        assert_eq!(explained(&[Descheduled, Descheduled, Call, Unknown, Lock]), Some((2, Call)));
        assert_eq!(explained(&[Descheduled, Descheduled, Lock, Descheduled]), Some((2, Lock)));
    }
}
