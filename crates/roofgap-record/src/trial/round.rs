//! Interleaved runs of a workload and of changed ones.
//!
//! A block runs each once; the order of every second block is reversed. So slow changes of the machine affect both sides of a
//! pair alike.

use std::time::Duration;

use roofgap_analyze::{MeasuredTime, OutputCheck, OutputEffect, TrialVerdict};

use super::bounds::bound_ratio;
use super::context::{Stop, TrialContext};
use super::judge::{compare_output, compare_times, hindrance, is_narrow, set_bound, verdict};
use super::plan::Candidate;
use super::props::TrialEvent;
use super::sample::{Failure, Sample};
use super::variant::Variant;
use roofgap_runs::config::settings::WorkloadKind;

/// Most pairs of runs, as a multiple of the fewest. A noisier time is decided by what these show.
const MOST_PAIRS: u32 = 4;

/// A changed workload that is measured.
#[derive(Debug)]
pub struct Contender {
    pub variant: Variant,
    /// Effect of its changes on the output.
    pub effect: OutputEffect,
    /// Index of its row.
    pub row: usize,
    /// Runs by block; `None` where it did not run.
    samples: Vec<Option<Sample>>,
    took: Option<Duration>,
    open: bool,
}

impl Contender {
    /// Starts without runs.
    pub fn new(variant: Variant, effect: OutputEffect, row: usize) -> Self {
        Contender { variant, effect, row, samples: Vec::new(), took: None, open: true }
    }
}

/// Measures changed workloads against `reference` until each has a verdict, or the trial must stop. Either way each row has what
/// was measured.
pub fn measure(
    context: &mut TrialContext<'_>,
    reference: &Variant,
    contenders: &mut [Contender],
) -> Result<(), Stop> {
    let most = context.props.repeats.saturating_mul(MOST_PAIRS) as usize;
    let mut before: Vec<Option<Sample>> = Vec::new();
    let mut end = Ok(());
    for block in 0..most {
        if end.is_err() || contenders.iter().all(|contender| !contender.open) {
            break;
        }
        before.push(None);
        for contender in contenders.iter_mut() {
            contender.samples.push(None);
        }
        end = run_block(context, reference, &mut before, contenders, block);
        for contender in contenders.iter_mut().filter(|contender| contender.open) {
            if is_decided(context, contender) {
                close(context, contender, None);
            }
        }
    }
    abandon(context, contenders, end.as_ref().err());
    context.save()?;
    end
}

/// Ends the contenders that have no verdict yet.
pub fn abandon(context: &mut TrialContext<'_>, contenders: &mut [Contender], stop: Option<&Stop>) {
    for contender in contenders.iter_mut().filter(|contender| contender.open) {
        close(context, contender, stop);
    }
}

/// Runs each open workload once.
fn run_block(
    context: &mut TrialContext<'_>,
    reference: &Variant,
    before: &mut [Option<Sample>],
    contenders: &mut [Contender],
    block: usize,
) -> Result<(), Stop> {
    let pair = block + 1;
    let mut order: Vec<Option<usize>> =
        std::iter::once(None).chain((0..contenders.len()).map(Some)).collect();
    if block % 2 == 1 {
        order.reverse();
    }
    for who in order {
        match who {
            None if contenders.iter().any(|contender| contender.open) => {
                let expected = context.expected();
                match context.sample(reference, pair, expected)? {
                    Ok((sample, _)) => {
                        if let Some(slot) = before.get_mut(block) {
                            *slot = Some(sample);
                        }
                    }
                    Err(failure) => {
                        let label = reference.label();
                        return Err(Stop::Failed { label, failure });
                    }
                }
            }
            None => {}
            Some(at) => {
                let Some(contender) = contenders.get_mut(at).filter(|contender| contender.open) else {
                    continue;
                };
                let expected = contender.took.unwrap_or_else(|| context.expected());
                match context.sample(&contender.variant, pair, expected)? {
                    Ok((sample, took)) => {
                        contender.took = Some(took);
                        if let Some(slot) = contender.samples.get_mut(block) {
                            *slot = Some(sample);
                        }
                    }
                    Err(failure) => fail(context, contender, failure),
                }
            }
        }
        for contender in contenders.iter_mut().filter(|contender| contender.open) {
            update(context, reference, before, contender);
        }
        context.save()?;
    }
    Ok(())
}

/// Computes the row of a contender from its pairs so far. A contender that cannot be compared, or is refused, is closed.
fn update(
    context: &mut TrialContext<'_>,
    reference: &Variant,
    before: &[Option<Sample>],
    contender: &mut Contender,
) {
    let pairs: Vec<(&Sample, &Sample)> = before
        .iter()
        .zip(&contender.samples)
        .filter_map(|(before, after)| before.as_ref().zip(after.as_ref()))
        .collect();
    let known: Vec<&Sample> = before.iter().flatten().collect();
    let own: Vec<&Sample> = contender.samples.iter().flatten().collect();
    let mut times = compare_times(&pairs);
    if reference.knobs.is_empty() {
        let changes: Vec<&Candidate> = candidates(context, &contender.variant);
        let means: Vec<(MeasuredTime, f64)> =
            context.trial.base.times.iter().map(|mean| (mean.of.clone(), mean.mean_ns as f64)).collect();
        let config = context.config();
        let closed_loop = config.workload.kind == WorkloadKind::Server && config.load.rate.is_none();
        for change in &mut times {
            let bound = bound_ratio(&change.of, &changes, &context.plan.stages, &means, closed_loop);
            set_bound(change, bound);
        }
    }
    let decides = known.first().and_then(|sample| sample.times.first()).map(|(of, _)| of);
    let comparable = pairs.is_empty() || times.first().map(|change| &change.of) == decides;
    let output = compare_output(&known, &own);
    let refused = output == OutputCheck::Different && contender.effect == OutputEffect::None;
    if let Some(row) = context.trial.rows.get_mut(contender.row) {
        row.runs = own.len() as u64;
        row.times = times;
        row.output = output;
        row.device_memory_bytes = own.iter().filter_map(|sample| sample.device_memory_bytes).max();
        if refused {
            row.reason = Some("its tokens differ from those without the change".to_owned());
        }
    }
    if !comparable {
        let failure = Failure {
            why: "the program reports other times with the change than without".to_owned(),
            log_tail: None,
        };
        fail(context, contender, failure);
    } else if refused {
        close(context, contender, None);
    }
}

/// Returns the planned changes of a variant.
fn candidates<'a>(context: &TrialContext<'a>, variant: &Variant) -> Vec<&'a Candidate> {
    let has = |candidate: &&Candidate| variant.knobs.contains(&candidate.knob);
    context.plan.candidates.iter().filter(has).collect()
}

/// Tells whether a contender has enough pairs. More than the fewest are run only for a change that can be kept, and only in the
/// first half of the budget: the second is for combinations and the winner.
fn is_decided(context: &TrialContext<'_>, contender: &Contender) -> bool {
    let props = context.props;
    let Some((row, change)) =
        context.trial.rows.get(contender.row).and_then(|row| Some((row, row.deciding()?)))
    else {
        return false;
    };
    let enough = change.after_ns.len() as u64 >= u64::from(props.repeats);
    let hindered = hindrance(row, contender.effect, props.accept_changed_output).is_some();
    enough && (is_narrow(change) || hindered || context.left() < props.budget / 2)
}

/// Ends a contender that failed.
fn fail(context: &mut TrialContext<'_>, contender: &mut Contender, failure: Failure) {
    if let Some(row) = context.trial.rows.get_mut(contender.row) {
        row.verdict = TrialVerdict::Failed;
        row.reason = Some(failure.why);
        row.log_tail = failure.log_tail;
    }
    close(context, contender, None);
}

/// Ends a contender with its verdict.
fn close(context: &mut TrialContext<'_>, contender: &mut Contender, stop: Option<&Stop>) {
    contender.open = false;
    let Some(row) = context.trial.rows.get_mut(contender.row) else {
        return;
    };
    row.verdict = verdict(row, contender.effect, context.props.repeats);
    if row.verdict == TrialVerdict::Unfinished {
        let pairs = row.deciding().map_or(0, |change| change.after_ns.len());
        let why = match stop {
            Some(Stop::Cancelled) => "interrupted",
            Some(Stop::Budget) => "the budget was spent",
            Some(Stop::Failed { .. }) => "the workload without the change failed",
            Some(Stop::Record(_)) | None => "the trial ended",
        };
        row.reason = Some(format!("{why} after {pairs} of at least {} pairs of runs", context.props.repeats));
    }
    (context.events)(TrialEvent::RowEnds(row));
}
