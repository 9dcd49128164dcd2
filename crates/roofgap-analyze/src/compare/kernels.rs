//! The change of each kernel.
//!
//! The kernels of the two sides are matched by name first, in the form in which tools agree. What is left is paired where it does the same kind of work and its name differs in
//! numbers only (a tile size), or where it runs as often with a similar name or time: a library that picks another variant renames
//! its kernel, and to call that "one gone, one added" would hide what happened.

use super::comparison::{KernelChange, KernelSide, KernelStatus, MatchedBy, SideName};
use super::noise::{self, DEVIATIONS, Floors, is_doubled};
use crate::counters::canonical;
use crate::names::{Family, distinct_short_names};
use crate::result::{Analysis, GraphRow, Kernel, Stage};
use crate::timeline::Grouped;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

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
    let groups = |side: (&[Kernel], u64)| groups(side.0, side.1, |kernel| noise::of_kernel(kernel, floors));
    let mut changes = pair(groups(base), groups(head), floors);
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

/// Compares a kernel that both sides have; `match_reason` says why two names are taken for one.
fn both(base: &Group, head: &Group, match_reason: Option<String>, floors: &Floors) -> KernelChange {
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
        matched_by: if match_reason.is_some() { MatchedBy::FamilyAndPlace } else { MatchedBy::Name },
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

/// The kernels of one canonical name, all devices together, of one instance.
#[derive(Debug, Clone)]
struct Group {
    name: String,
    short_name: String,
    family: Family,
    total_ns: i64,
    calls: f64,
    /// Variance of the total.
    variance: f64,
    key: String,
}

/// Kernels by canonical name, in the order given; totals by instance.
fn groups(kernels: &[Kernel], instances: u64, variance: impl Fn(&Kernel) -> f64) -> Vec<Group> {
    let instances = instances.max(1);
    let mut groups: Grouped<String, Group> = Grouped::default();
    for kernel in kernels {
        let key = canonical(&kernel.name);
        let group = groups.entry(key.clone(), || Group {
            name: kernel.name.clone(),
            short_name: kernel.short_name.clone(),
            family: kernel.family,
            total_ns: 0,
            calls: 0.0,
            variance: 0.0,
            key,
        });
        group.total_ns = group.total_ns.saturating_add(kernel.total_ns);
        group.calls += kernel.calls as f64 / instances as f64;
        group.variance += variance(kernel) / (instances as f64 * instances as f64);
    }
    for group in &mut groups.items {
        group.total_ns = by_instance(group.total_ns, instances);
    }
    groups.items
}

/// A sum over instances as that of one, rounded.
pub fn by_instance(total: i64, instances: u64) -> i64 {
    match i64::try_from(instances) {
        Ok(n) if n > 1 => (total as f64 / n as f64).round() as i64,
        _ => total,
    }
}

/// Pairs the kernels of two sides: by name, then those that differ in numbers only, then those that are alike.
fn pair(base: Vec<Group>, head: Vec<Group>, floors: &Floors) -> Vec<KernelChange> {
    let mut changes = Vec::new();
    let mut by_key: FxHashMap<String, Group> =
        head.iter().map(|group| (group.key.clone(), group.clone())).collect();
    let mut gone = Vec::new();
    for group in base {
        match by_key.remove(&group.key) {
            Some(other) => changes.push(both(&group, &other, None, floors)),
            None => gone.push(group),
        }
    }
    let added = head.into_iter().filter(|group| by_key.contains_key(&group.key)).collect();
    let (gone, added) =
        variants(gone, added, |base, head, why| changes.push(both(base, head, Some(why), floors)));
    let skeletons = |groups: &[Group]| -> Vec<Vec<String>> {
        groups.iter().take(MOST_SEARCHED).map(|g| skeleton(&g.key)).collect()
    };
    let (gone_names, added_names) = (skeletons(&gone), skeletons(&added));
    let mut candidates = Vec::new();
    for (b, (base, base_name)) in gone.iter().zip(&gone_names).enumerate() {
        for (h, (head, head_name)) in added.iter().zip(&added_names).enumerate() {
            if let Some((score, why)) = likeness(base, head, similarity(base_name, head_name)) {
                candidates.push((score, b, h, why));
            }
        }
    }
    // The best pair first, each group once.
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
    let (mut gone_taken, mut added_taken) = (vec![false; gone.len()], vec![false; added.len()]);
    for (_, b, h, why) in candidates {
        if !gone_taken[b] && !added_taken[h] {
            (gone_taken[b], added_taken[h]) = (true, true);
            changes.push(both(&gone[b], &added[h], Some(why), floors));
        }
    }
    for (groups, taken, is_added) in [(gone, gone_taken, false), (added, added_taken, true)] {
        let left = groups.iter().zip(taken).filter(|(_, taken)| !taken);
        changes.extend(left.map(|(group, _)| single(group, is_added)));
    }
    changes
}

/// The most kernels of a side that are searched for other names: beyond it the small ones stay unpaired.
const MOST_SEARCHED: usize = 512;

/// Pairs kernels of one kind whose names differ in numbers only, such as a tile size. A library may pick more variants on one side than
/// on the other: then all of them together are one kernel. Returns what is left of both sides.
fn variants(
    gone: Vec<Group>,
    added: Vec<Group>,
    mut paired: impl FnMut(&Group, &Group, String),
) -> (Vec<Group>, Vec<Group>) {
    let mut of_words: BTreeMap<(&'static str, Vec<String>), [Vec<Group>; 2]> = BTreeMap::new();
    for (side, groups) in [gone, added].into_iter().enumerate() {
        for group in groups {
            let lists = of_words.entry((kind(group.family).as_str(), skeleton(&group.key))).or_default();
            lists[side].push(group);
        }
    }
    let (mut gone, mut added) = (Vec::new(), Vec::new());
    for ((_, words), [mut base, mut head]) in of_words {
        if words.is_empty() || base.is_empty() || head.is_empty() {
            gone.append(&mut base);
            added.append(&mut head);
            continue;
        }
        let counts = (base.len(), head.len());
        if let (Some(base), Some(head)) = (merged(base), merged(head)) {
            let variants = match counts {
                (1, 1) => String::new(),
                (bases, heads) => format!("{bases} and {heads} variants, "),
            };
            let calls = format!("{} and {} calls", round(base.calls), round(head.calls));
            paired(&base, &head, format!("the names differ in numbers only, {variants}{calls}"));
        }
    }
    for list in [&mut gone, &mut added] {
        list.sort_by_key(|group| std::cmp::Reverse(group.total_ns));
    }
    (gone, added)
}

/// Adds up the variants of a kernel under the name of the one with the most time.
fn merged(groups: Vec<Group>) -> Option<Group> {
    let total: i64 = groups.iter().fold(0, |sum, group| sum.saturating_add(group.total_ns));
    let calls = groups.iter().map(|group| group.calls).sum();
    let variance = groups.iter().map(|group| group.variance).sum();
    let largest = groups.into_iter().max_by_key(|group| group.total_ns)?;
    Some(Group { total_ns: total, calls, variance, ..largest })
}

/// Returns the likeness of two kernels with different names, and the reason; `None` where they do not match.
fn likeness(base: &Group, head: &Group, names: f64) -> Option<(f64, String)> {
    let ratio = |a: f64, b: f64| if a.max(b) > 0.0 { a.min(b) / a.max(b) } else { 1.0 };
    let calls = ratio(base.calls, head.calls);
    let time = ratio(base.total_ns as f64, head.total_ns as f64);
    if kind(base.family) != kind(head.family) {
        return None;
    }
    // Kernels of these families come in dozens with as many calls: only the name tells them apart.
    let name_only = matches!(base.family, Family::Elementwise | Family::CopyLayout | Family::Other);
    let times = format!("{} and {} calls", round(base.calls), round(head.calls));
    let why = if names >= 0.7 && calls >= 0.8 {
        format!("both {}, names {:.0} % alike, {times}", base.family, 100.0 * names)
    } else if !name_only && calls >= 0.95 && time >= 0.4 {
        format!("both {}, {times}, time within {:.0} %", base.family, 100.0 * (1.0 - time))
    } else {
        return None;
    };
    Some((2.0 * names + calls + time, why))
}

/// Matrix by matrix and matrix by vector are one kind: a library moves between them.
fn kind(family: Family) -> Family {
    if family == Family::Gemv { Family::Gemm } else { family }
}

fn round(calls: f64) -> String {
    if calls.fract() == 0.0 { format!("{calls:.0}") } else { format!("{calls:.1}") }
}

/// The words of a name without its numbers.
fn skeleton(key: &str) -> Vec<String> {
    let words = key.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    words.sort_unstable();
    words
}

/// Words in common, of all words of both; each list is sorted.
fn similarity(a: &[String], b: &[String]) -> f64 {
    let (mut i, mut j, mut common) = (0, 0, 0usize);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        match x.cmp(y) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                common += 1;
                i += 1;
                j += 1;
            }
        }
    }
    let all = a.len() + b.len();
    if all == 0 { 0.0 } else { 2.0 * common as f64 / all as f64 }
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

#[cfg(test)]
mod pair_tests {
    use super::*;

    fn kernel(name: &str, family: &str, total_ns: i64, calls: u64) -> Kernel {
        Kernel {
            name: name.into(),
            short_name: name.into(),
            family: Family::named(family).unwrap(),
            total_ns,
            calls,
            ..Kernel::default()
        }
    }

    fn pairs(base: &[Kernel], head: &[Kernel]) -> Vec<KernelChange> {
        pair(groups(base, 1, |_| 0.0), groups(head, 1, |_| 0.0), &Floors::default())
    }

    /// The one pair of kernels with different names, and the reason to pair them.
    fn renamed(base: &[Kernel], head: &[Kernel]) -> (KernelSide, KernelSide, String) {
        let [pair] = &pairs(base, head)[..] else { panic!("one pair") };
        assert_eq!(pair.matched_by, MatchedBy::FamilyAndPlace);
        (pair.base.clone().unwrap(), pair.head.clone().unwrap(), pair.match_reason.clone().unwrap())
    }

    #[test]
    fn tools_that_print_a_name_differently_agree() {
        let base = [kernel("void at::native::f<(int)4>(int, T2)", "elementwise", 10, 1)];
        let head = [kernel("void f<4>(int)", "elementwise", 12, 1)];
        let found = pairs(&base, &head);
        assert_eq!((found.len(), found[0].matched_by), (1, MatchedBy::Name));
    }

    #[test]
    fn another_tile_size_is_a_new_name_of_the_same_kernel() {
        let base = [
            kernel("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "gemm", 900, 64),
            kernel("nvjet_sm90_tst_32x64_64x16_4x1_v_bz_NNT", "gemm", 400, 32),
        ];
        let head = [
            kernel("nvjet_sm90_tst_128x8_64x16_4x1_v_bz_TNT", "gemm", 990, 64),
            kernel("nvjet_sm90_tst_16x64_64x16_4x1_v_bz_NNT", "gemm", 410, 32),
        ];
        let found = pairs(&base, &head);
        for pair in &found {
            assert_eq!(pair.base.as_ref().unwrap().calls, pair.head.as_ref().unwrap().calls);
            assert!(pair.match_reason.as_ref().unwrap().contains("numbers only"), "{pair:?}");
        }
        assert_eq!(found.len(), 2);
    }

    /// A library that picks several tile sizes in place of one, and calls them as often in all.
    #[test]
    fn variants_that_differ_in_numbers_are_one_kernel() {
        let base = [kernel("nvjet_sm90_tst_64x8_v_bz_TNT", "gemm", 900, 64)];
        let head = [
            kernel("nvjet_sm90_tst_128x8_v_bz_TNT", "gemm", 700, 48),
            kernel("nvjet_sm90_tst_32x8_v_bz_TNT", "gemm", 150, 12),
            kernel("nvjet_sm90_tst_16x8_v_bz_TNT", "gemm", 50, 4),
        ];
        let (_, head, why) = renamed(&base, &head);
        assert_eq!(
            (head.total_ns, head.calls, head.name.as_str()),
            (900, 64.0, "nvjet_sm90_tst_128x8_v_bz_TNT")
        );
        assert_eq!(why, "the names differ in numbers only, 1 and 3 variants, 64 and 64 calls");
        // The number of calls may differ by any factor: it is the same kernel.
        let few = [kernel("triton_poi_fused_add_3", "elementwise", 90, 9)];
        let many = [kernel("triton_poi_fused_add_7", "elementwise", 1000, 100)];
        renamed(&few, &many);
    }

    #[test]
    fn another_library_in_the_same_place_is_paired_and_said_so() {
        let base = [kernel("nvjet_sm90_tst_64x8_TNT", "gemm", 900, 64)];
        let head = [kernel("cutlass_80_wmma_tensorop_bf16", "gemm", 1200, 64)];
        assert!(renamed(&base, &head).2.contains("both gemm"));
    }

    #[test]
    fn unlike_kernels_stay_apart() {
        let base = [kernel("add_kernel", "elementwise", 900, 64), kernel("sort", "sampling", 5, 1)];
        let head = [kernel("mul_silu", "elementwise", 900, 64), kernel("flash", "attention", 5, 1)];
        let found = pairs(&base, &head);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|pair| pair.matched_by == MatchedBy::Nothing));
    }

    #[test]
    fn totals_are_those_of_one_instance() {
        let groups = groups(&[kernel("k", "gemm", 30, 6), kernel("k", "gemm", 31, 6)], 3, |_| 9.0);
        assert_eq!((groups[0].total_ns, groups[0].calls), (20, 4.0));
        assert_eq!(groups[0].variance, 2.0);
    }
}
