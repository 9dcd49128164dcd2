//! Advice of ncu's own rules, with its estimates.

use roofgap_trace::ncu::{CounterSet, Rule, RuleKind, SpeedupScope};

/// A rule of ncu that asks for a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The identifier of the rule.
    pub rule: String,
    /// The identifier of the section.
    pub section: String,
    /// Text of the rule.
    pub text: String,
    /// Estimated saving, % of the kernel's duration. `None` without an estimate for the whole kernel.
    pub speedup_pct: Option<f64>,
}

impl Advice {
    /// The advice for one launch, most to gain first.
    pub fn of(set: &CounterSet, launch: usize) -> Vec<Self> {
        let asks = |rule: &&Rule| rule.kind == RuleKind::Optimization || rule.kind == RuleKind::Warning;
        let mut advice: Vec<Self> = set.rules_of(launch).filter(asks).map(Self::from_rule).collect();
        advice.sort_by(|a, b| b.speedup_pct.unwrap_or(-1.0).total_cmp(&a.speedup_pct.unwrap_or(-1.0)));
        advice
    }

    fn from_rule(rule: &Rule) -> Self {
        let whole = rule.speedup.filter(|speedup| speedup.scope == SpeedupScope::Global);
        Self {
            rule: rule.name.clone(),
            section: rule.section.clone(),
            text: rule.text.clone(),
            speedup_pct: whole.map(|speedup| speedup.percent),
        }
    }
}
