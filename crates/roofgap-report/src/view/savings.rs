//! Savings of findings by token.

use super::numbers::time;
use roofgap_analyze::{Analysis, Finding};

/// States the upper bound on the time that a finding saves per token, where the tokens of its stage are known.
pub fn per_token(analysis: &Analysis, finding: &Finding) -> Option<String> {
    let name = finding.stage.as_deref()?;
    let stage = analysis.stages.iter().find(|stage| stage.name == name)?;
    let (token, elapsed) = (stage.token_ns?, stage.elapsed_ns());
    if token <= 0 || elapsed <= 0 {
        return None;
    }
    let saved = token as f64 * (finding.bound_ns as f64 / elapsed as f64).clamp(0.0, 1.0);
    Some(format!("at most {} of the {} per token", time(saved.round() as i64), time(token)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::Stage;

    #[test]
    fn a_saving_per_token_is_its_share_of_the_stage() {
        let mut stage = Stage::default();
        (stage.name, stage.wall_ns, stage.token_ns) = ("decode".into(), 80_000, Some(10_000));
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage];
        let mut finding = Finding::default();
        (finding.stage, finding.bound_ns) = (Some("decode".into()), 60_000);
        let shown = per_token(&analysis, &finding);
        assert_eq!(shown.as_deref(), Some("at most 7.50 µs of the 10.0 µs per token"));
        analysis.stages[0].token_ns = None;
        assert_eq!(per_token(&analysis, &finding), None);
    }
}
