//! Findings: savings, evidence, and the sentence for no findings.

use super::numbers::{NONE, count, si, significant, time};
use roofgap_analyze::{Analysis, Finding, Knob, Stage, StageLimit, verdict};
use serde_json::Value;

/// Note on several findings.
pub const SAVINGS_OVERLAP: &str =
    "Each saving is an upper bound for that finding alone; savings overlap and do not add up.";

/// States the upper bound on the time a finding saves.
pub fn saving(analysis: &Analysis, finding: &Finding) -> String {
    let stage = finding.stage.as_deref();
    let known = analysis.stages.iter().find(|s| Some(s.name.as_str()) == stage);
    let stage = known.map(Stage::spoken).or(stage);
    let stage = stage.unwrap_or("the measured launches");
    format!("saves at most {} ({:.1} % of {stage})", time(finding.bound_ns), finding.bound_pct)
}

/// States the upper bound on the time a finding saves, and its id for `roofgap explain` and `roofgap try`.
pub fn saving_with_id(analysis: &Analysis, finding: &Finding) -> String {
    format!("{} [{}]", saving(analysis, finding), finding.id)
}

/// Returns the command that tries the changes of a finding, and the changes; `None` for a finding without any.
pub fn trial(finding: &Finding, run: &str) -> Option<(String, String)> {
    let changes: Vec<String> = finding.knobs.iter().map(Knob::spoken).collect();
    let command = format!("roofgap try {run} {}", finding.id);
    (!changes.is_empty()).then(|| (command, changes.join("; ")))
}

/// States the command that tries the changes of a finding, and the changes, in one line.
pub fn to_try(finding: &Finding, run: &str) -> Option<String> {
    let (command, changes) = trial(finding, run)?;
    Some(format!("try: {command} ({changes})"))
}

/// Names of evidence whose key without its unit does not say what was measured.
const EVIDENCE_NAMES: [(&str, &str); 12] = [
    ("busy_ns", "busy time"),
    ("busy_pct", "busy share"),
    ("chain_ns", "time of chains"),
    ("communication_ns", "communication time"),
    ("compute_ns", "computation time"),
    ("copy_ns", "time of copies"),
    ("gemm_ns", "time of matrix products"),
    ("idle_ns", "idle time"),
    ("kernel_ns", "kernel time"),
    ("prefill_ns", "time of prefill"),
    ("small_kernel_ns", "time of small kernels"),
    ("wall_ns", "wall time"),
];

/// Returns the name of a piece of evidence, without the unit its value is shown with.
pub fn evidence_name(key: &str) -> String {
    if let Some((_, name)) = EVIDENCE_NAMES.iter().find(|(known, _)| *known == key) {
        return (*name).to_owned();
    }
    let bare = ["_ns", "_pct"].iter().find_map(|unit| key.strip_suffix(unit));
    bare.unwrap_or(key).replace('_', " ")
}

/// Formats a piece of evidence in the unit its key names.
pub fn evidence_value(key: &str, value: &Value) -> String {
    let number = match value {
        Value::Number(number) => number,
        Value::String(text) => return text.clone(),
        Value::Null => return NONE.into(),
        other => return other.to_string(),
    };
    let real = number.as_f64().unwrap_or(0.0);
    if key.ends_with("_ns") {
        time(real.round() as i64)
    } else if key.ends_with("_pct") {
        format!("{real:.1} %")
    } else if key.ends_with("bytes") {
        format!("{}B", si(real))
    } else if let Some(whole) = number.as_u64() {
        count(whole)
    } else {
        significant(real)
    }
}

/// Says why there is no finding, and which input would show more.
pub fn none_found(analysis: &Analysis) -> String {
    let bound = analysis.stages.iter().filter(|s| verdict(s).label == StageLimit::Gpu);
    let busy: Vec<&str> = bound.map(|s| s.name.as_str()).collect();
    if busy.is_empty() {
        return "No findings: no rule applies to the data.".into();
    }
    let mut inputs = Vec::new();
    if analysis.counters.is_empty() {
        inputs.push("ncu counters");
    }
    if analysis.stages.iter().all(|stage| stage.mbu.is_none()) {
        inputs.push("the model (--model)");
    }
    let next = if inputs.is_empty() {
        String::new()
    } else {
        let inputs = inputs.join(" and ");
        format!(" Provide {inputs} to see how far they are from the hardware's roof.")
    };
    format!("No findings: the GPU is busy in {}, so its kernels are the limit.{next}", busy.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn evidence_has_its_unit() {
        assert_eq!(evidence_name("gap_per_launch_ns"), "gap per launch");
        assert_eq!(evidence_name("small_kernel_ns"), "time of small kernels");
        assert_eq!(evidence_name("small_kernels"), "small kernels");
        for (key, value, shown) in [
            ("gap_per_launch_ns", json!(1500.4), "1.50 µs"),
            ("busy_pct", json!(8.25), "8.2 %"),
            ("bytes", json!(2_000_000), "2.00 MB"),
            ("launches", json!(12345), "12,345"),
            ("kernel", json!("<b>"), "<b>"),
            ("x", json!(null), "–"),
        ] {
            assert_eq!(evidence_value(key, &value), shown);
        }
    }
}
