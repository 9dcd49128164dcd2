//! Results of ncu's own rules: by kernel, and as advice for a launch.

use super::names::CanonicalNames;
use crate::result::NcuRule;
use crate::timeline::Grouped;
use roofgap_trace::ncu::{CounterSet, Rule, RuleKind, SpeedupScope};
use rustc_hash::FxHashSet;
use std::cmp::Reverse;

/// Collects the results of ncu's rules: one row per kernel and rule, suggestions first, largest estimate first. The text is
/// that of the launch with the largest estimate.
pub fn rules(sets: &[CounterSet]) -> Vec<NcuRule> {
    let mut forms = CanonicalNames::default();
    let mut rows: Grouped<_, (NcuRule, FxHashSet<usize>)> = Grouped::default();
    for set in sets {
        for rule in &set.rules {
            let found = set.launches.get(rule.launch);
            let Some((launch, result)) =
                found.and_then(|launch| Some((launch, result(&launch.kernel, rule)?)))
            else {
                continue;
            };
            let key = (forms.of(&launch.kernel), rule.name.as_str());
            let (row, launches) = rows.entry(key, || (result.clone(), FxHashSet::default()));
            launches.insert(rule.launch);
            if result.speedup_pct > row.speedup_pct {
                *row = result;
            }
        }
    }
    let counted =
        |(row, launches): (NcuRule, FxHashSet<usize>)| NcuRule { launches: launches.len() as u64, ..row };
    let mut rows: Vec<NcuRule> = rows.items.into_iter().map(counted).collect();
    rows.sort_by(|a, b| {
        let order = |row: &NcuRule| (Reverse(row.kind == "optimization"), Reverse(row.kind == "warning"));
        order(a)
            .cmp(&order(b))
            .then_with(|| estimate(b).total_cmp(&estimate(a)))
            .then_with(|| (&a.kernel, &a.rule).cmp(&(&b.kernel, &b.rule)))
    });
    rows
}

/// Returns the results for one launch that ask for a change, most to gain first. Only an estimate for the whole kernel counts.
pub fn advice(set: &CounterSet, launch: usize) -> Vec<NcuRule> {
    let asks = |rule: &&Rule| rule.kind == RuleKind::Optimization || rule.kind == RuleKind::Warning;
    let results = set.rules_of(launch).filter(asks).filter_map(|rule| result("", rule));
    let mut advice: Vec<NcuRule> = results
        .map(|result| NcuRule {
            speedup_pct: result.speedup_pct.filter(|_| result.speedup_of.as_deref() == Some("kernel")),
            ..result
        })
        .collect();
    advice.sort_by(|a, b| estimate(b).total_cmp(&estimate(a)));
    advice
}

fn estimate(row: &NcuRule) -> f64 {
    row.speedup_pct.unwrap_or(-1.0)
}

/// Describes a result; `None` for one that says nothing about the kernel.
fn result(kernel: &str, rule: &Rule) -> Option<NcuRule> {
    let kind = match rule.kind {
        RuleKind::Optimization => "optimization",
        RuleKind::Warning => "warning",
        RuleKind::Info => "info",
        RuleKind::Error | RuleKind::Ok => return None,
    };
    let of = |scope| match scope {
        SpeedupScope::Global => "kernel",
        SpeedupScope::Local => "part",
    };
    Some(NcuRule {
        kernel: kernel.to_owned(),
        launches: 0,
        rule: rule.name.clone(),
        section: rule.section.clone(),
        kind: kind.to_owned(),
        speedup_pct: rule.speedup.map(|speedup| speedup.percent),
        speedup_of: rule.speedup.map(|speedup| of(speedup.scope).to_owned()),
        text: rule.text.trim().to_owned(),
    })
}
