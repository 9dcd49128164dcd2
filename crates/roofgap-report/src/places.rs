//! Where stages and steps lie in time, found again by the names of their ranges.

use roofgap_analyze::{Analysis, Stage, StageSet};
use roofgap_trace::{Ns, Range, Trace};
use std::collections::{BTreeMap, BTreeSet};

/// Begin and end of something.
pub(crate) type Place = (Ns, Ns);

/// A range and its row.
type Candidate<'a> = (usize, &'a Range);

/// Where one stage lies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StagePlaces {
    /// Its instances; empty where they could not be found again.
    pub instances: Vec<Place>,
    /// The same as rows of the ranges.
    pub rows: Vec<u32>,
    /// Its steps; empty where they could not be found again.
    pub steps: Vec<Place>,
}

/// Outermost ranges by thread, in the order of their start.
#[derive(Debug, Default)]
struct Cover(BTreeMap<u32, Vec<Place>>);

impl Cover {
    /// Adds a range unless the one before it reaches as far; whether it was added.
    fn add(&mut self, range: &Range) -> bool {
        let list = self.0.entry(range.thread.0).or_default();
        let new = list.last().is_none_or(|last| range.end > last.1);
        if new {
            list.push((range.start, range.end));
        }
        new
    }

    /// Whether a range lies inside one that was added.
    fn holds(&self, range: &Range) -> bool {
        let Some(list) = self.0.get(&range.thread.0) else {
            return false;
        };
        let after = list.partition_point(|p| p.0 <= range.start);
        let before = after.checked_sub(1).and_then(|at| list.get(at));
        before.is_some_and(|p| range.end <= p.1)
    }
}

/// Where every stage lies, in the order of the analysis.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// By the position of the stage.
    pub stages: Vec<StagePlaces>,
}

impl Places {
    /// Looks for the ranges of every stage. What is found counts only if it agrees with the analysis in number and time.
    pub(crate) fn find(analysis: &Analysis, trace: &Trace) -> Self {
        let set = StageSet::default();
        let name = |r: &Range| (trace.names.get(r.domain), trace.names.get(r.name));
        let mut warmups = Cover::default();
        for range in &trace.ranges.rows {
            let (domain, name) = name(range);
            if set.warmup.iter().any(|p| p.matches(domain, name)) {
                warmups.add(range);
            }
        }
        let rows = trace.ranges.rows.iter().enumerate();
        let candidates: Vec<Candidate<'_>> = rows.filter(|(_, r)| !warmups.holds(r)).collect();
        let stages = analysis
            .stages
            .iter()
            .map(|stage| Self::stage(stage, &set, &candidates, &name))
            .collect();
        Self { stages }
    }

    fn stage<'a>(
        stage: &Stage,
        set: &StageSet,
        candidates: &[Candidate<'a>],
        name: &impl Fn(&Range) -> (&'a str, &'a str),
    ) -> StagePlaces {
        let names: BTreeSet<&str> = stage.ranges.iter().map(String::as_str).collect();
        let own = |r: &Range| match name(r) {
            ("", name) => names.contains(name),
            (domain, name) => names.contains(format!("{domain}@{name}").as_str()),
        };
        let mut cover = Cover::default();
        let mut instances: Vec<Candidate<'a>> = Vec::new();
        for candidate in candidates.iter().filter(|c| own(c.1)) {
            // A range inside another of the same stage is the same time again.
            if cover.add(candidate.1) {
                instances.push(*candidate);
            }
        }
        let wall: Ns = instances.iter().map(|(_, r)| r.end - r.start).sum();
        if instances.len() as u64 != stage.instances || wall != stage.wall_ns {
            return StagePlaces::default();
        }
        let patterns = set.stages.iter().flat_map(|rule| &rule.steps);
        let step = |r: &Range| {
            let (domain, name) = name(r);
            patterns.clone().any(|p| p.matches(domain, name))
        };
        let mut steps: Vec<Place> = Vec::new();
        if let Some(known) = &stage.steps {
            steps.extend(
                candidates
                    .iter()
                    .filter(|(_, r)| step(r) && cover.holds(r))
                    .map(|(_, r)| (r.start, r.end)),
            );
            let lengths = steps.iter().map(|s| s.1 - s.0);
            if !lengths.eq(known.each_ns.iter().copied()) {
                steps.clear();
            }
        }
        StagePlaces {
            instances: instances.iter().map(|(_, r)| (r.start, r.end)).collect(),
            rows: instances.iter().map(|(row, _)| *row as u32).collect(),
            steps,
        }
    }
}
