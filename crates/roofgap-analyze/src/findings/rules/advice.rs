//! What ncu's own rules say.

use crate::analysis::Finding;
use crate::findings::draft::{Draft, ms};
use crate::findings::{NcuAdvice, View};

/// ncu's rules with an estimate of what they save, for kernels of this stage. The bound is the estimate applied to the
/// kernel's time in the stage; where ncu estimates for a part of the kernel only, it is looser than that.
pub(in crate::findings) fn ncu_rules(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let mut said: Vec<&NcuAdvice> = Vec::new();
    for advice in view.inputs.advice {
        let here = advice.stage.as_deref().is_none_or(|name| name == stage.name);
        let same = |other: &&mut &NcuAdvice| other.kernel == advice.kernel && other.rule == advice.rule;
        if !here || advice.speedup_pct.is_none() {
            continue;
        }
        // Several launches of a kernel were measured: the largest estimate stands for them.
        match said.iter_mut().find(same) {
            Some(known) if known.speedup_pct < advice.speedup_pct => *known = advice,
            Some(_) => {}
            None => said.push(advice),
        }
    }
    for advice in said {
        let Some(kernel) = stage.kernels.iter().find(|kernel| kernel.name == advice.kernel) else {
            continue;
        };
        let percent = advice.speedup_pct.unwrap_or_default().clamp(0.0, 100.0);
        let title = format!(
            "ncu {}: up to {percent:.0} % of {} ({} in {})",
            advice.rule,
            kernel.short_name,
            ms(kernel.total_ns),
            stage.name
        );
        let bound = kernel.total_ns as f64 * percent / 100.0;
        Draft::new(
            &format!("ncu-{}", advice.rule.to_ascii_lowercase()),
            stage,
            bound as i64,
        )
        .with("kernel", kernel.name.as_str())
        .with("kernel_ns", kernel.total_ns)
        .with("section", advice.section.as_str())
        .with_number("estimated_speedup_pct", percent)
        .with(
            "estimate_is_for",
            if advice.whole_kernel {
                "the kernel"
            } else {
                "a part of the kernel"
            },
        )
        .say(title, advice.text.trim().to_owned(), findings);
    }
}
