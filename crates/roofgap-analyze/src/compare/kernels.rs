//! The change of each kernel.

use super::comparison::{KernelChange, KernelSide, KernelStatus, MatchedBy, SideName};
use super::noise::{self, DEVIATIONS, Floors, is_doubled};
use super::pairing::{self, Group, Pair};
use crate::names::distinct_short_names;
use crate::result::{Analysis, GraphRow, Kernel, Stage};
use rustc_hash::FxHashMap;

/// Compares the kernels of two whole traces; empty where a side has none.
pub fn of_whole(base: &Analysis, head: &Analysis, floors: &Floors) -> Vec<KernelChange> {
    if base.kernels.is_empty() || head.kernels.is_empty() {
        return Vec::new();
    }
    let whole = whole_graphs(&base.graphs, &head.graphs);
    changes((&base.kernels, 1), (&head.kernels, 1), whole, floors)
}

/// Compares the kernels of a stage; empty where a side did not measure them: what was not measured is not gone.
pub fn of_stage(base: &Stage, head: &Stage, floors: &Floors) -> Vec<KernelChange> {
    if base.kernel_ns.is_none() || head.kernel_ns.is_none() {
        return Vec::new();
    }
    let whole = whole_graphs(&base.graphs, &head.graphs);
    changes((&base.kernels, base.instances), (&head.kernels, head.instances), whole, floors)
}

/// Returns the side that alone recorded CUDA graphs whole, so that their kernels are on the other side only.
pub fn whole_graphs(base: &[GraphRow], head: &[GraphRow]) -> Option<SideName> {
    match (base.is_empty(), head.is_empty()) {
        (false, true) => Some(SideName::Base),
        (true, false) => Some(SideName::Head),
        _ => None,
    }
}

/// Kernels of both sides by instance, largest change first. `whole` is the side that alone recorded CUDA graphs whole.
fn changes(
    base: (&[Kernel], u64),
    head: (&[Kernel], u64),
    whole: Option<SideName>,
    floors: &Floors,
) -> Vec<KernelChange> {
    let groups =
        |side: (&[Kernel], u64)| pairing::groups(side.0, side.1, |kernel| noise::of_kernel(kernel, floors));
    let mut changes: Vec<KernelChange> = pairing::pair(groups(base), groups(head))
        .into_iter()
        .map(|pair| match pair {
            Pair::Named(b, h) => both(&b, &h, MatchedBy::Name, None, floors),
            Pair::Renamed(b, h, why) => both(&b, &h, MatchedBy::FamilyAndPlace, Some(why), floors),
            Pair::Gone(b) => single(&b, false),
            Pair::Added(h) => single(&h, true),
        })
        .collect();
    for change in &mut changes {
        use KernelStatus::{Added, FewerCalls, Gone, InGraph, MoreCalls};
        if matches!(
            (whole, change.status),
            (Some(SideName::Base), Added | MoreCalls) | (Some(SideName::Head), Gone | FewerCalls)
        ) {
            change.status = InGraph;
        }
    }
    name_apart(&mut changes);
    changes.sort_by(|a, b| {
        (b.delta_ns.unsigned_abs(), &a.short_name).cmp(&(a.delta_ns.unsigned_abs(), &b.short_name))
    });
    changes
}

/// Names kernels apart that are different and have the same short name on their own sides.
fn name_apart(changes: &mut [KernelChange]) {
    let mut counts: FxHashMap<&str, usize> = FxHashMap::default();
    for change in changes.iter() {
        *counts.entry(&change.short_name).or_default() += 1;
    }
    fn full_name(change: &KernelChange) -> Option<&str> {
        Some(&change.head.as_ref().or(change.base.as_ref())?.name)
    }
    let taken = counts.keys().map(|name| (*name).to_owned()).collect();
    let shared = changes.iter().filter(|change| counts[change.short_name.as_str()] > 1);
    let found = distinct_short_names(shared.filter_map(full_name), taken);
    for change in changes {
        if let Some(short_name) = full_name(change).and_then(|name| found.get(name)) {
            change.short_name.clone_from(short_name);
        }
    }
}

/// Noise of the sum of all kernels: they move apart from one another.
pub fn noise_of_sum(changes: &[KernelChange]) -> f64 {
    let square = |change: &KernelChange| (change.noise_ns as f64) * (change.noise_ns as f64);
    changes.iter().map(square).sum::<f64>().sqrt()
}

fn side(group: &Group) -> KernelSide {
    KernelSide {
        name: group.name.clone(),
        total_ns: group.total_ns,
        calls: group.calls,
        mean_ns: mean(group).round() as i64,
    }
}

fn mean(group: &Group) -> f64 {
    if group.calls > 0.0 { group.total_ns as f64 / group.calls } else { 0.0 }
}

fn both(
    base: &Group,
    head: &Group,
    matched_by: MatchedBy,
    match_reason: Option<String>,
    floors: &Floors,
) -> KernelChange {
    let delta_ns = head.total_ns.saturating_sub(base.total_ns);
    // More calls at the old length, then all calls at the new one.
    let from_calls_ns = ((head.calls - base.calls) * mean(base)).round() as i64;
    let from_length_ns = delta_ns.saturating_sub(from_calls_ns);
    let least = noise::share(base.total_ns, floors.gpu_pct);
    let noise_ns = (DEVIATIONS * (base.variance + head.variance).sqrt()).max(least).ceil() as i64;
    let length_is_real = from_length_ns.saturating_abs() > noise_ns || is_doubled(mean(base), mean(head));
    // A number of calls has no noise of its own, but a few more are no news.
    let calls_are_real = from_calls_ns.unsigned_abs() as f64 > least || is_doubled(base.calls, head.calls);
    let status = match (length_is_real, calls_are_real) {
        (false, false) => KernelStatus::Same,
        (_, true) if !length_is_real || from_calls_ns.unsigned_abs() > from_length_ns.unsigned_abs() => {
            if from_calls_ns > 0 {
                KernelStatus::MoreCalls
            } else {
                KernelStatus::FewerCalls
            }
        }
        _ if from_length_ns > 0 => KernelStatus::Slower,
        _ => KernelStatus::Faster,
    };
    KernelChange {
        short_name: head.short_name.clone(),
        family: head.family,
        matched_by,
        match_reason,
        base: Some(side(base)),
        head: Some(side(head)),
        delta_ns,
        from_calls_ns,
        from_length_ns,
        noise_ns,
        status,
    }
}

fn single(group: &Group, added: bool) -> KernelChange {
    let delta_ns = if added { group.total_ns } else { group.total_ns.saturating_neg() };
    KernelChange {
        short_name: group.short_name.clone(),
        family: group.family,
        matched_by: MatchedBy::Nothing,
        match_reason: None,
        base: (!added).then(|| side(group)),
        head: added.then(|| side(group)),
        delta_ns,
        from_calls_ns: delta_ns,
        from_length_ns: 0,
        noise_ns: (DEVIATIONS * group.variance.sqrt()).ceil() as i64,
        status: if added { KernelStatus::Added } else { KernelStatus::Gone },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, each_ns: i64, calls: u64, spread: i64) -> Kernel {
        Kernel {
            name: name.into(),
            family: crate::Family::Gemm,
            total_ns: each_ns * calls as i64,
            calls,
            min_ns: Some(each_ns - spread),
            max_ns: Some(each_ns + spread),
            ..Kernel::default()
        }
    }

    fn change(base: Kernel, head: Kernel) -> KernelChange {
        let found = changes((&[base], 1), (&[head], 1), None, &Floors::default());
        assert_eq!(found.len(), 1);
        let change = found.into_iter().next().unwrap();
        assert_eq!(change.from_calls_ns + change.from_length_ns, change.delta_ns);
        change
    }

    #[test]
    fn longer_calls_and_more_calls_are_told_apart() {
        let slower = change(kernel("k", 1000, 64, 50), kernel("k", 1100, 64, 50));
        assert_eq!((slower.status, slower.from_calls_ns), (KernelStatus::Slower, 0));
        let more = change(kernel("k", 1000, 64, 50), kernel("k", 1000, 80, 50));
        assert_eq!((more.status, more.from_calls_ns), (KernelStatus::MoreCalls, 16_000));
        let traded = change(kernel("k", 1000, 64, 50), kernel("k", 500, 70, 50));
        assert_eq!(traded.status, KernelStatus::Faster);
    }

    #[test]
    fn a_change_inside_the_spread_is_none() {
        let wide = change(kernel("k", 1000, 4, 400), kernel("k", 1100, 4, 400));
        assert_eq!(wide.status, KernelStatus::Same);
        let once = change(kernel("k", 1000, 1, 0), kernel("k", 1040, 1, 0));
        assert_eq!(once.status, KernelStatus::Same, "noise of a single call is assumed");
        let doubled = change(kernel("k", 1000, 4, 900), kernel("k", 2000, 4, 900));
        assert_eq!(doubled.status, KernelStatus::Slower, "no noise makes it the same");
    }

    #[test]
    fn one_long_call_is_not_the_noise_of_the_others() {
        let odd = |each_ns| {
            let median_ns = Some(each_ns);
            Kernel { max_ns: Some(100_000), median_ns, ..kernel("k", each_ns, 64, 10) }
        };
        assert_eq!(change(odd(1000), odd(1200)).status, KernelStatus::Slower);
    }

    #[test]
    fn kernels_inside_graphs_recorded_whole_are_not_added() {
        let eager = kernel("sort", 1000, 8, 10);
        let node = [kernel("sort", 1000, 80, 10), kernel("gemm", 5000, 64, 10)];
        let statuses = |whole| -> Vec<KernelStatus> {
            let base = std::slice::from_ref(&eager);
            let found = changes((base, 1), (&node, 1), whole, &Floors::default());
            found.iter().map(|change| change.status).collect()
        };
        assert_eq!(statuses(None), [KernelStatus::Added, KernelStatus::MoreCalls]);
        assert_eq!(statuses(Some(SideName::Base)), [KernelStatus::InGraph; 2]);
    }
}
