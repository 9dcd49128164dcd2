//! Advice of ncu's own rules.

use super::memory::above_roof_ns;
use crate::counters::Measured;
use crate::findings::rule::{Find, Needs, Rows, Rule, View};
use crate::numbers::time;
use crate::result::{Confidence, Finding, NcuRule};

/// Rules whose advice no program follows: memory has to be allocated for compression.
const LEFT_OUT: [&str; 1] = ["MemoryL2Compression"];

/// ncu's rules with an estimate for the whole kernel, for kernels of this stage. The bound is that estimate applied to the
/// time of the kernel and launch shape in the stage, at most the time above the roof. A rule that has several results for a launch, one
/// for each unit, counts once with the largest.
fn ncu_rules(view: &View<'_>) -> Vec<Finding> {
    // One line for a kernel and rule: the launch shapes that a rule speaks of are added up.
    let mut said: Vec<Said<'_>> = Vec::new();
    for measured in view.counters() {
        for (advice, percent) in estimates(measured) {
            let saves = measured.timeline_total_ns as f64 * percent / 100.0;
            let kernel = &measured.row.kernel;
            let same = said.iter_mut().find(|said| said.kernel == kernel && said.advice.rule == advice.rule);
            match same {
                Some(said) => {
                    // The text is that of the largest estimate.
                    if percent > said.percent {
                        (said.advice, said.percent) = (advice, percent);
                    }
                    said.kernel_ns += measured.timeline_total_ns;
                    said.saves += saves;
                }
                None => {
                    said.push(Said { kernel, kernel_ns: measured.timeline_total_ns, advice, percent, saves });
                }
            }
        }
    }
    said.iter().filter_map(|said| said.finding(view)).collect()
}

/// Lists the rules with an estimate for a launch, each with its largest, %: at most what the busiest unit of the launch leaves.
fn estimates(measured: &Measured) -> Vec<(&NcuRule, f64)> {
    let row = &measured.row;
    let busiest = [row.sm_pct, row.dram_pct].into_iter().flatten().fold(0.0, f64::max);
    let mut largest: Vec<(&NcuRule, f64)> = Vec::new();
    for advice in measured.advice.iter().filter(|advice| !LEFT_OUT.contains(&advice.rule.as_str())) {
        let Some(percent) = advice.speedup_pct.filter(|pct| pct.is_finite() && *pct > 0.0) else {
            continue;
        };
        let percent = percent.min((100.0 - busiest).max(0.0));
        match largest.iter_mut().find(|(known, _)| known.rule == advice.rule) {
            Some(known) if known.1 < percent => *known = (advice, percent),
            Some(_) => {}
            None => largest.push((advice, percent)),
        }
    }
    largest
}

/// Results of one rule for one kernel.
struct Said<'a> {
    kernel: &'a str,
    /// Time of the launch shapes that the rule is about, ns.
    kernel_ns: i64,
    /// Result with the largest estimate.
    advice: &'a NcuRule,
    /// Largest estimate, %.
    percent: f64,
    /// Sum over the launch shapes, ns.
    saves: f64,
}

impl Said<'_> {
    fn finding(&self, view: &View<'_>) -> Option<Finding> {
        let saves = above_roof_ns(view, self.kernel).map_or(self.saves, |above| above.min(self.saves)) as i64;
        let title = format!(
            "ncu's rule {} for {} in {}: up to {:.0} %, {} in all",
            self.advice.rule,
            view.short_names.get(self.kernel),
            view.stage.spoken(),
            self.percent,
            time(saves)
        );
        view.saves_on_devices(&[
            ("kernel time", self.kernel_ns),
            ("without what the rule saves", saves - self.kernel_ns),
        ])
        .id(format!("ncu-{}", self.advice.rule.to_ascii_lowercase()))
        .with("kernel", self.kernel)
        .with("kernel_ns", self.kernel_ns)
        .with("section", self.advice.section.as_str())
        .with_number("estimated_speedup_pct", self.percent)
        .finish(title, self.advice.text.trim())
    }
}

pub const NCU_RULES: Rule = Rule {
    find: Find::Each(ncu_rules),
    needs: Needs::Counters,
    rows: Rows::Kernels(&[]),
    confidence: Confidence::Bounded,
    id: "ncu-*",
    remedy: "the advice of ncu",
    meaning: "A rule of Nsight Compute has advice for a kernel, with an estimate of what it gains.",
    computed: "The estimate of the rule, applied to the time of the kernel and launch shape in the stage: at most what its busiest unit \
              leaves, and its time above the roof.",
    fix: "Follow the text of the rule; open the ncu report for the source lines that it is about.",
    disproof: "The counter that the rule names improves, and the time of the kernel does not.",
    links: &["https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"],
    ..Rule::BASE
};
