//! Tokens per second, time per token and time to first token.

use crate::model::{Tokens, unknown_tokens};
use crate::result::{About, Analysis, NotKnown, PerRun, Reason, Stage, StageKind};
use crate::timeline::divide;

/// Adds tokens per second and time per token to the stages, and the numbers of one run. `tokens` are those of a run, from the
/// user or the program.
pub fn add_rates(analysis: &mut Analysis, tokens: &Tokens) {
    let mut reasons = Vec::new();
    for stage in &mut analysis.stages {
        if let Err(why) = add_rate(stage, tokens) {
            let about = About::StageTokens(stage.name.clone());
            reasons.push(Reason::new(about, why));
        }
        if let Some(warm) = &mut stage.warm {
            // The reason is that of the whole stage.
            let _ = add_rate(warm, tokens);
        }
    }
    let other = |path: &str, why| Reason::new(About::Other(path.to_owned()), why);
    match per_run(analysis) {
        Ok((run, no_ttft)) => {
            analysis.per_run = Some(run);
            reasons.extend(no_ttft.map(|why| other("per_run.ttft_ns", why)));
        }
        Err(why) => reasons.push(other("per_run", why)),
    }
    analysis.reasons.extend(reasons);
}

/// Adds tokens per second and time per token to a stage.
///
/// # Errors
/// Says why its tokens are not known.
fn add_rate(stage: &mut Stage, tokens: &Tokens) -> Result<(), NotKnown> {
    // The steps of an engine name their tokens.
    if stage.tokens.is_none()
        && let Some(count) = processed(stage, tokens).transpose()?
    {
        let time = stage.elapsed_ns();
        stage.tokens_per_s = (time > 0).then(|| count as f64 * 1e9 / time as f64);
    }
    let rate = stage.tokens_per_s.filter(|rate| *rate > 0.0);
    stage.token_ns = rate.map(|rate| (1e9 / rate).round() as i64);
    Ok(())
}

/// Counts the tokens that a stage processed in all instances; `None` for a stage that is neither prefill nor decode.
fn processed(stage: &Stage, tokens: &Tokens) -> Option<Result<u64, NotKnown>> {
    let batch = tokens.batch.unwrap_or(1);
    let of_each = |count: u64| count.saturating_mul(batch).saturating_mul(stage.instances);
    let stated = tokens.prompt.or(tokens.generated).or(tokens.batch).is_some();
    let steps = stage.steps.as_ref().map(|steps| steps.count).filter(|n| *n > 0);
    let (count, what) = match (stage.kind, steps) {
        (StageKind::Prefill, _) => (tokens.prompt.map(of_each), "prompt tokens"),
        // A step gives one token to each sequence.
        (StageKind::Decode, Some(steps)) => (stated.then(|| steps.saturating_mul(batch)), "generated tokens"),
        (StageKind::Decode, None) => (tokens.generated.map(of_each), "generated tokens"),
        _ => return None,
    };
    Some(count.filter(|count| *count > 0).ok_or_else(|| unknown_tokens(what).into()))
}

/// Returns the numbers of one run, and why there is no time to first token.
fn per_run(analysis: &Analysis) -> Result<(PerRun, Option<&'static str>), &'static str> {
    if analysis.engine.is_some() {
        return Err(
            "steps of an engine serve several requests, and their names do not tell when a request began",
        );
    }
    let stage = |kind: StageKind| analysis.stages.iter().find(|stage| stage.kind == kind);
    let (Some(prefill), Some(decode)) = (stage(StageKind::Prefill), stage(StageKind::Decode)) else {
        return Err("a run is a prefill and a decode, and the capture does not have both");
    };
    let (prefill, decode) = match prefill.warm().instances == decode.warm().instances {
        true => (prefill.warm(), decode.warm()),
        false => (prefill, decode),
    };
    if prefill.coverage.is_some() || decode.coverage.is_some() {
        return Err("only a part of the steps was recorded");
    }
    let runs = decode.instances;
    if runs == 0 || prefill.instances != runs {
        return Err("prefill and decode occur a different number of times");
    }
    let first = first_step_ns(decode);
    let prefill_ns = divide(prefill.elapsed_ns(), runs as i64);
    let run = PerRun {
        runs,
        ttft_ns: first.ok().map(|first| prefill_ns.saturating_add(first)),
        token_ns: decode.token_ns,
        tokens_per_s: decode.tokens_per_s,
    };
    Ok((run, first.err()))
}

/// Returns the mean time of the first step of each instance.
fn first_step_ns(decode: &Stage) -> Result<i64, &'static str> {
    let each = decode.steps.as_ref().map_or(&[][..], |steps| &steps.each_ns);
    let instances = decode.instances.max(1) as usize;
    if each.is_empty() {
        return Err("decode has no steps");
    }
    if !each.len().is_multiple_of(instances) {
        return Err("the runs have different numbers of steps");
    }
    let first: i64 = each.iter().step_by(each.len() / instances).sum();
    Ok(divide(first, instances as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::step_summary;

    fn stage(name: &str, instances: u64, wall_ns: i64, each: &[i64]) -> Stage {
        Stage {
            name: name.into(),
            kind: crate::stages::kind_of(name),
            instances,
            wall_ns,
            steps: step_summary(each.to_vec(), None),
            ..Stage::default()
        }
    }

    fn analysis(each: &[i64]) -> Analysis {
        Analysis {
            stages: vec![stage("prefill", 2, 2_000_000, &[]), stage("decode", 2, 8_000_000, each)],
            ..Analysis::default()
        }
    }

    #[test]
    fn two_runs_of_two_steps_with_a_batch_of_four() {
        let mut analysis = analysis(&[3_000_000, 1_000_000, 2_000_000, 2_000_000]);
        let tokens = Tokens { prompt: Some(100), generated: Some(2), batch: Some(4), ..Tokens::default() };
        add_rates(&mut analysis, &tokens);
        // 2 x 4 x 100 tokens in 2 ms, 4 steps of 4 tokens in 8 ms.
        assert_eq!(analysis.stages[0].tokens_per_s, Some(400_000.0));
        assert_eq!(analysis.stages[0].token_ns, Some(2_500));
        assert_eq!(analysis.stages[1].tokens_per_s, Some(2_000.0));
        assert_eq!(analysis.stages[1].token_ns, Some(500_000));
        let run = analysis.per_run.unwrap();
        // Prefill takes 1 ms, the first steps 3 and 2 ms.
        assert_eq!((run.runs, run.ttft_ns), (2, Some(3_500_000)));
        assert_eq!((run.token_ns, run.tokens_per_s), (Some(500_000), Some(2_000.0)));
    }

    #[test]
    fn unknown_tokens_have_a_reason_and_no_rate() {
        let mut analysis = analysis(&[3_000_000, 1_000_000, 4_000_000]);
        add_rates(&mut analysis, &Tokens::default());
        assert!(analysis.stages.iter().all(|stage| stage.token_ns.is_none()));
        let why = |about: &str| analysis.reason(&About::from(about.to_owned())).unwrap_or_default();
        assert!(why("stages.prefill.tokens_per_s").contains("prompt tokens"));
        assert!(why("stages.decode.tokens_per_s").contains("generated tokens"));
        assert!(why("per_run.ttft_ns").contains("different numbers of steps"));
        assert_eq!(analysis.per_run.unwrap().ttft_ns, None);
    }

    #[test]
    fn a_decode_without_a_prefill_is_no_run() {
        let mut analysis = analysis(&[1, 1]);
        analysis.stages.remove(0);
        add_rates(&mut analysis, &Tokens::default());
        assert_eq!(analysis.per_run, None);
        assert!(analysis.reason(&About::Other("per_run".into())).is_some());
    }
}
