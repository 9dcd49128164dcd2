//! Advice of ncu's own rules.

use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::time;
use crate::result::{Finding, NcuRule};

/// ncu's rules with an estimate for the whole kernel, for kernels of this stage. The bound is that estimate applied to the
/// time of the kernel and launch shape in the stage.
pub fn ncu_rules(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    // One line for a kernel and rule: the launch shapes that a rule speaks of are added up.
    let mut said: Vec<Said<'_>> = Vec::new();
    for measured in view.counters() {
        for advice in &measured.advice {
            let Some(percent) = advice.speedup_pct.filter(|percent| percent.is_finite() && *percent > 0.0)
            else {
                continue;
            };
            let percent = percent.min(100.0);
            let saves = measured.timeline_total_ns as f64 * percent / 100.0;
            let same = said
                .iter_mut()
                .find(|said| said.kernel == measured.row.kernel && said.advice.rule == advice.rule);
            match same {
                Some(said) => {
                    // The text is that of the largest estimate.
                    if percent > said.percent {
                        (said.advice, said.percent) = (advice, percent);
                    }
                    said.kernel_ns += measured.timeline_total_ns;
                    said.saves += saves;
                }
                None => said.push(Said {
                    kernel: &measured.row.kernel,
                    kernel_ns: measured.timeline_total_ns,
                    advice,
                    percent,
                    saves,
                }),
            }
        }
    }
    for said in said {
        let Said { kernel, kernel_ns, advice, percent, saves } = said;
        let name = view.short_names.get(kernel);
        let title = format!(
            "ncu's rule {} for {name} in {}: up to {percent:.0} %, {} in all",
            advice.rule,
            stage.spoken(),
            time(saves as i64)
        );
        FindingBuilder::summed(&format!("ncu-{}", advice.rule.to_ascii_lowercase()), stage, saves as i64)
            .with("kernel", kernel)
            .with("kernel_ns", kernel_ns)
            .with("section", advice.section.as_str())
            .with_number("estimated_speedup_pct", percent)
            .finish(title, advice.text.trim().to_owned(), findings);
    }
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

/// Explains `ncu-*`.
pub const NCU_RULES: Explanation = Explanation {
    id: "ncu-*",
    remedy: "the advice of ncu",
    meaning: "A rule of Nsight Compute has advice for a kernel, with an estimate of what it gains.",
    computed: "The estimate of the rule, applied to the time of the kernel and launch shape in the stage.",
    fix: "Follow the text of the rule; open the ncu report for the source lines that it is about.",
    links: &["https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"],
};
