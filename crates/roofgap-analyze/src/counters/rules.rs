//! Results of ncu's own rules, by kernel.

use roofgap_trace::ncu::{CounterSet, Rule, RuleKind, SpeedupScope};
use rustc_hash::{FxHashMap, FxHashSet};

use super::names::canonical;
use crate::result::NcuRule;

/// Collects the results of ncu's rules: one row per kernel and rule, suggestions first, largest estimate first. The text is
/// that of the launch with the largest estimate.
pub fn rules(sets: &[CounterSet]) -> Vec<NcuRule> {
    let mut forms: FxHashMap<&str, String> = FxHashMap::default();
    let mut at: FxHashMap<(String, &str), usize> = FxHashMap::default();
    let mut rows: Vec<(NcuRule, FxHashSet<usize>)> = Vec::new();
    for set in sets {
        for rule in &set.rules {
            let (Some(launch), Some(kind)) = (set.launches.get(rule.launch), kind(rule.kind)) else {
                continue;
            };
            let form = forms.entry(&launch.kernel).or_insert_with(|| canonical(&launch.kernel)).clone();
            let row = *at.entry((form, rule.name.as_str())).or_insert_with(|| {
                rows.push((described(&launch.kernel, rule, kind), FxHashSet::default()));
                rows.len() - 1
            });
            let Some((row, launches)) = rows.get_mut(row) else {
                continue;
            };
            launches.insert(rule.launch);
            if rule.speedup.map(|speedup| speedup.percent) > row.speedup_pct {
                *row = described(&launch.kernel, rule, kind);
            }
        }
    }
    let counted = |(mut row, launches): (NcuRule, FxHashSet<usize>)| {
        row.launches = launches.len() as u64;
        row
    };
    let mut rows: Vec<NcuRule> = rows.into_iter().map(counted).collect();
    let order = |row: &NcuRule| match row.kind.as_str() {
        "optimization" => 0,
        "warning" => 1,
        _ => 2,
    };
    rows.sort_by(|a, b| {
        let estimate = |row: &NcuRule| row.speedup_pct.unwrap_or(-1.0);
        order(a)
            .cmp(&order(b))
            .then_with(|| estimate(b).total_cmp(&estimate(a)))
            .then_with(|| (&a.kernel, &a.rule).cmp(&(&b.kernel, &b.rule)))
    });
    rows
}

fn described(kernel: &str, rule: &Rule, kind: &str) -> NcuRule {
    let of = |scope| match scope {
        SpeedupScope::Global => "kernel",
        SpeedupScope::Local => "part",
    };
    NcuRule {
        kernel: kernel.to_owned(),
        launches: 0,
        rule: rule.name.clone(),
        section: rule.section.clone(),
        kind: kind.to_owned(),
        speedup_pct: rule.speedup.map(|speedup| speedup.percent),
        speedup_of: rule.speedup.map(|speedup| of(speedup.scope).to_owned()),
        text: rule.text.trim().to_owned(),
    }
}

/// Names the kind of a result that says something about the kernel.
fn kind(kind: RuleKind) -> Option<&'static str> {
    match kind {
        RuleKind::Optimization => Some("optimization"),
        RuleKind::Warning => Some("warning"),
        RuleKind::Info => Some("info"),
        RuleKind::Error | RuleKind::Ok => None,
    }
}
