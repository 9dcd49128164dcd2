//! Advice of ncu's own rules.

use crate::counters::{Advice, Measured};
use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::time;
use crate::result::Finding;

/// ncu's rules with an estimate for the whole kernel, for kernels of this stage. The bound is that estimate applied to the
/// time of the kernel and launch shape in the stage.
pub(in crate::findings) fn ncu_rules(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    // One line for a kernel and rule: the launch shapes that a rule speaks of are added up.
    let mut said: Vec<(&Measured, &Advice, f64, f64)> = Vec::new();
    for measured in view.counters() {
        for advice in &measured.advice {
            let Some(percent) = advice
                .speedup_pct
                .filter(|percent| percent.is_finite() && *percent > 0.0)
            else {
                continue;
            };
            let percent = percent.min(100.0);
            let saves = measured.timeline_total_ns as f64 * percent / 100.0;
            let same = said.iter_mut().find(|(other, known, _, _)| {
                other.row.kernel == measured.row.kernel && known.rule == advice.rule
            });
            match same {
                Some((_, _, most, sum)) => {
                    *most = most.max(percent);
                    *sum += saves;
                }
                None => said.push((measured, advice, percent, saves)),
            }
        }
    }
    for (measured, advice, percent, saves) in said {
        let name = view.short_names.get(&measured.row.kernel);
        let title = format!(
            "ncu's rule {} for {name} in {}: up to {percent:.0} %, {} in all",
            advice.rule,
            stage.spoken(),
            time(saves as i64)
        );
        FindingBuilder::summed(
            &format!("ncu-{}", advice.rule.to_ascii_lowercase()),
            stage,
            saves as i64,
        )
        .with("kernel", measured.row.kernel.as_str())
        .with("kernel_ns", measured.timeline_total_ns)
        .with("section", advice.section.as_str())
        .with_number("estimated_speedup_pct", percent)
        .finish(title, advice.text.trim().to_owned(), findings);
    }
}

/// Explains `ncu-*`.
pub(in crate::findings) const NCU_RULES: Explanation = Explanation {
    id: "ncu-*",
    remedy: "the advice of ncu",
    meaning: "A rule of Nsight Compute has advice for a kernel, with an estimate of what it gains.",
    computed: "The estimate of the rule, applied to the time of the kernel and launch shape in the stage.",
    fix: "Follow the text of the rule; open the ncu report for the source lines that it is about.",
    links: &["https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"],
};
