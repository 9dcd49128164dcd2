//! Prefill steps during which requests that generate wait.

use super::steps::Step;
use crate::result::{StageKind, Stalls};

/// Finds the prefill steps between two steps that generate. Of the requests in the later one, those that did not read a
/// prompt in between have waited.
pub fn find(steps: &[Step]) -> Stalls {
    let mut stalls = Stalls::default();
    // Requests and end of the last step that generated, and the prefill steps since.
    let (mut before, mut ended) = (0, None);
    let mut between: Vec<&Step> = Vec::new();
    for step in steps {
        if step.kind == StageKind::Prefill {
            between.push(step);
            continue;
        }
        let now = step.generating().unwrap_or(0);
        if !between.is_empty() {
            let new: Option<u64> = between.iter().map(|step| step.scheduled.context.requests).sum();
            let waiting = new.map_or(0, |new| now.saturating_sub(new).min(before));
            if waiting > 0 {
                let times = between.iter().map(|step| step.time());
                let total: i64 = times.map(|(start, end)| end - start).sum();
                stalls.steps += between.len() as u64;
                stalls.total_ns += total;
                stalls.request_ns = stalls.request_ns.saturating_add(total.saturating_mul(waiting as i64));
                let pause = ended.map_or(0, |ended| step.time().0 - ended);
                stalls.longest_ns = stalls.longest_ns.max(pause);
            }
            between.clear();
        }
        (before, ended) = (now, Some(step.time().1));
    }
    stalls
}
