//! Operators of the framework, the first of them.

use super::markup::{escape, escape_cut};
use crate::number::{count, ms, ms_or};
use roofgap_analyze::{About, Analysis};
use std::fmt::Write;

/// How many are shown.
const MOST: usize = 30;

/// The table, or why there is none.
pub(super) fn table(analysis: &Analysis) -> String {
    let why = analysis.reasons.iter().find(|r| r.about == About::Operators);
    if analysis.operators.is_empty() {
        return super::absence("No operators", why.map_or("none were recorded", |r| &r.why));
    }
    let mut out = String::new();
    if let Some(reason) = why {
        let _ = write!(
            out,
            "<p class=\"hint\">{}.</p>",
            escape(reason.why.trim_end_matches('.'))
        );
    }
    out.push_str("<div class=\"scroll\"><table><thead><tr><th>Operator</th><th class=\"n\">Calls</th><th class=\"n\">Self CPU ms</th><th class=\"n\">Total CPU ms</th><th class=\"n\">Self GPU ms</th><th class=\"n\">Total GPU ms</th></tr></thead><tbody>");
    for operator in analysis.operators.iter().take(MOST) {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape_cut(&operator.name, 120),
            count(operator.calls),
            ms(operator.self_cpu_ns),
            ms(operator.total_cpu_ns),
            ms_or(operator.self_gpu_ns),
            ms_or(operator.total_gpu_ns)
        );
    }
    out.push_str("</tbody></table></div>");
    if analysis.operators.len() > MOST {
        let _ = write!(
            out,
            "<p class=\"hint\">{} more are in metrics.json.</p>",
            count((analysis.operators.len() - MOST) as u64)
        );
    }
    out
}
