//! The change of each kernel.
//!
//! The kernels of the two sides are matched by name first, in the form in which tools agree. What is left is paired where it does
//! the same kind of work and its name differs in numbers only (a tile size), or where it runs as often with a similar name or time: a
//! library that picks another variant renames its kernel, and to call that "one gone, one added" would hide what happened.

use super::comparison::{KernelChange, KernelSide, KernelStatus, MatchedBy, SideName};
use super::noise::{self, DEVIATIONS, GPU_PCT, is_doubled};
use crate::counters::canonical;
use crate::names::{Family, distinct_short_names};
use crate::result::{GraphRow, Kernel};
use crate::timeline::Grouped;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Returns the side that alone recorded CUDA graphs whole, so that their kernels are on the other side only.
pub fn whole_graphs(base: &[GraphRow], head: &[GraphRow]) -> Option<SideName> {
    match (base.is_empty(), head.is_empty()) {
        (false, true) => Some(SideName::Base),
        (true, false) => Some(SideName::Head),
        _ => None,
    }
}

/// Compares kernels, each with the number of instances, by instance, largest change first. `whole` is the side that alone recorded
/// CUDA graphs whole.
pub fn changes(base: (&[Kernel], u64), head: (&[Kernel], u64), whole: Option<SideName>) -> Vec<KernelChange> {
    use KernelStatus::{Added, FewerCalls, Gone, InGraph, MoreCalls};
    let mut changes = pair([base, head].map(|(kernels, instances)| groups(kernels, instances)));
    for change in &mut changes {
        if let (Some(SideName::Base), Added | MoreCalls) | (Some(SideName::Head), Gone | FewerCalls) =
            (whole, change.status)
        {
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
    fn full_name(change: &KernelChange) -> &str {
        change.head.as_ref().or(change.base.as_ref()).map_or("", |side| &side.name)
    }
    let mut sharing: FxHashMap<&str, Vec<&str>> = FxHashMap::default();
    for change in changes.iter() {
        sharing.entry(&change.short_name).or_default().push(full_name(change));
    }
    let taken = sharing.keys().map(|name| (*name).to_owned()).collect();
    let shared = sharing.into_values().filter(|names| names.len() > 1).flatten();
    let distinct = distinct_short_names(shared, taken);
    for change in changes {
        if let Some(short_name) = distinct.get(full_name(change)) {
            change.short_name.clone_from(short_name);
        }
    }
}

/// Noise of the sum of all kernels: they move apart from one another.
pub fn noise_of_sum(changes: &[KernelChange]) -> f64 {
    changes.iter().map(|change| (change.noise_ns as f64).powi(2)).sum::<f64>().sqrt()
}

/// The kernels of one canonical name, all devices together, of one instance.
struct Group {
    key: String,
    short_name: String,
    family: Family,
    name: String,
    total_ns: i64,
    calls: f64,
    /// Variance of the total.
    variance: f64,
}

impl Group {
    fn of(kernel: &Kernel, key: String) -> Self {
        Self {
            key,
            short_name: kernel.short_name.clone(),
            family: kernel.family,
            name: kernel.name.clone(),
            total_ns: kernel.total_ns,
            calls: kernel.calls as f64,
            variance: noise::of_kernel(kernel),
        }
    }

    fn add(&mut self, other: &Self) {
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.calls += other.calls;
        self.variance += other.variance;
    }

    fn mean_ns(&self) -> f64 {
        if self.calls > 0.0 { self.total_ns as f64 / self.calls } else { 0.0 }
    }

    fn side(&self) -> KernelSide {
        let Self { total_ns, calls, .. } = *self;
        KernelSide { name: self.name.clone(), total_ns, calls, mean_ns: self.mean_ns().round() as i64 }
    }

    /// Returns the words of the name without its numbers.
    fn words(&self) -> Vec<&str> {
        let words = self.key.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
        let mut words: Vec<&str> = words.collect();
        words.sort_unstable();
        words
    }

    /// Returns the kind of work. Matrix by matrix and matrix by vector are one: a library moves between them.
    fn kind(&self) -> Family {
        if self.family == Family::Gemv { Family::Gemm } else { self.family }
    }
}

/// Kernels by canonical name, largest first; totals by instance.
fn groups(kernels: &[Kernel], instances: u64) -> Vec<Group> {
    let mut groups: Grouped<String, Option<Group>> = Grouped::default();
    for kernel in kernels {
        let key = canonical(&kernel.name);
        let one = Group::of(kernel, key.clone());
        match groups.entry(key, || None) {
            Some(group) => group.add(&one),
            group => *group = Some(one),
        }
    }
    let mut groups: Vec<Group> = groups.items.into_iter().flatten().collect();
    for group in &mut groups {
        group.total_ns = by_instance(group.total_ns, instances);
        group.calls /= instances.max(1) as f64;
        group.variance /= (instances.max(1) as f64).powi(2);
    }
    groups.sort_by_key(|group| Reverse(group.total_ns));
    groups
}

/// A sum over instances as that of one, rounded.
pub fn by_instance(total: i64, instances: u64) -> i64 {
    match i64::try_from(instances) {
        Ok(n) if n > 1 => (total as f64 / n as f64).round() as i64,
        _ => total,
    }
}

/// Compares a kernel; `reason` says why two names are taken for one.
fn change(base: Option<&Group>, head: Option<&Group>, reason: Option<String>) -> Option<KernelChange> {
    let named = head.or(base)?;
    let total = |side: Option<&Group>| side.map_or(0, |group| group.total_ns);
    let delta_ns = total(head).saturating_sub(total(base));
    let variance: f64 = [base, head].into_iter().flatten().map(|group| group.variance).sum();
    let mut noise = DEVIATIONS * variance.sqrt();
    let mut from_calls_ns = delta_ns;
    let (status, matched_by) = match (base, head) {
        (Some(base), Some(head)) => {
            let least = noise::share(base.total_ns as f64, GPU_PCT);
            noise = noise.max(least);
            // More calls at the old length, then all calls at the new one.
            from_calls_ns = ((head.calls - base.calls) * base.mean_ns()).round() as i64;
            let from_length_ns = delta_ns.saturating_sub(from_calls_ns);
            let [of_calls, of_length] = [from_calls_ns, from_length_ns].map(|ns| ns.unsigned_abs() as f64);
            let length_is_real = of_length > noise.ceil() || is_doubled(base.mean_ns(), head.mean_ns());
            // A number of calls has no noise of its own, but a few more are no news.
            let calls_are_real = of_calls > least || is_doubled(base.calls, head.calls);
            let status = match (length_is_real, calls_are_real) {
                (false, false) => KernelStatus::Same,
                (_, true) if !length_is_real || of_calls > of_length => match from_calls_ns > 0 {
                    true => KernelStatus::MoreCalls,
                    false => KernelStatus::FewerCalls,
                },
                _ if from_length_ns > 0 => KernelStatus::Slower,
                _ => KernelStatus::Faster,
            };
            (status, if reason.is_some() { MatchedBy::FamilyAndPlace } else { MatchedBy::Name })
        }
        (None, _) => (KernelStatus::Added, MatchedBy::Nothing),
        (_, None) => (KernelStatus::Gone, MatchedBy::Nothing),
    };
    Some(KernelChange {
        short_name: named.short_name.clone(),
        family: named.family,
        matched_by,
        match_reason: reason,
        base: base.map(Group::side),
        head: head.map(Group::side),
        delta_ns,
        from_calls_ns,
        from_length_ns: delta_ns.saturating_sub(from_calls_ns),
        noise_ns: noise.ceil() as i64,
        status,
    })
}

/// The most kernels of a side that are searched for other names: beyond it the small ones stay unpaired.
const MOST_SEARCHED: usize = 512;

/// Pairs the kernels of two sides: by name, then those that differ in numbers only, then those that are alike.
fn pair(sides: [Vec<Group>; 2]) -> Vec<KernelChange> {
    let mut changes = Vec::new();
    let sides = join(sides, |group| group.key.clone(), |_, _| None, &mut changes);
    // A library may pick more variants on one side than on the other: then all of them together are one kernel.
    let variants = |group: &Group| match group.words() {
        words if words.is_empty() => group.key.clone(),
        words => format!("{} {}", group.kind(), words.join(" ")),
    };
    let reason = |[base, head]: [&Group; 2], counts: [usize; 2]| {
        let variants = match counts {
            [1, 1] => String::new(),
            [bases, heads] => format!("{bases} and {heads} variants, "),
        };
        Some(format!("the names differ in numbers only, {variants}{}", calls_of(base, head)))
    };
    let [gone, added] = join(sides, variants, reason, &mut changes);
    let [gone_words, added_words] =
        [&gone, &added].map(|groups| groups.iter().take(MOST_SEARCHED).map(Group::words).collect::<Vec<_>>());
    let mut candidates = Vec::new();
    for (b, (base, base_words)) in gone.iter().zip(&gone_words).enumerate() {
        for (h, (head, head_words)) in added.iter().zip(&added_words).enumerate() {
            let alike = likeness(base, head, similarity(base_words, head_words));
            candidates.extend(alike.map(|(score, why)| (score, b, h, why)));
        }
    }
    // The best pair first, each group once.
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
    let mut gone: Vec<Option<&Group>> = gone.iter().map(Some).collect();
    let mut added: Vec<Option<&Group>> = added.iter().map(Some).collect();
    for (_, b, h, why) in candidates {
        if gone[b].is_some() && added[h].is_some() {
            changes.extend(change(gone[b].take(), added[h].take(), Some(why)));
        }
    }
    changes.extend(gone.into_iter().filter_map(|group| change(group, None, None)));
    changes.extend(added.into_iter().filter_map(|group| change(None, group, None)));
    changes
}

/// Compares the groups whose key is on both sides, those of a side together under the name of the largest. Returns the others.
fn join(
    sides: [Vec<Group>; 2],
    key: impl Fn(&Group) -> String,
    reason: impl Fn([&Group; 2], [usize; 2]) -> Option<String>,
    changes: &mut Vec<KernelChange>,
) -> [Vec<Group>; 2] {
    let mut by_key: Grouped<String, [Vec<Group>; 2]> = Grouped::default();
    for (side, groups) in sides.into_iter().enumerate() {
        for group in groups {
            by_key.entry(key(&group), Default::default)[side].push(group);
        }
    }
    let mut left = [Vec::new(), Vec::new()];
    for mut pair in by_key.items {
        let counts = pair.each_ref().map(Vec::len);
        if let [[base, bases @ ..], [head, heads @ ..]] = pair.each_mut().map(Vec::as_mut_slice) {
            bases.iter().for_each(|other| base.add(other));
            heads.iter().for_each(|other| head.add(other));
            changes.extend(change(Some(base), Some(head), reason([base, head], counts)));
        } else {
            left.iter_mut().zip(pair).for_each(|(left, groups)| left.extend(groups));
        }
    }
    left
}

/// Returns the likeness of two kernels with different names, and the reason; `None` where they do not match.
fn likeness(base: &Group, head: &Group, names: f64) -> Option<(f64, String)> {
    let ratio = |a: f64, b: f64| if a.max(b) > 0.0 { a.min(b) / a.max(b) } else { 1.0 };
    let calls = ratio(base.calls, head.calls);
    let time = ratio(base.total_ns as f64, head.total_ns as f64);
    // Kernels of these families come in dozens with as many calls: only the name tells them apart.
    let name_only = matches!(base.family, Family::Elementwise | Family::CopyLayout | Family::Other);
    let (family, times) = (base.family, || calls_of(base, head));
    let why = if base.kind() != head.kind() {
        return None;
    } else if names >= 0.7 && calls >= 0.8 {
        format!("both {family}, names {:.0} % alike, {}", 100.0 * names, times())
    } else if !name_only && calls >= 0.95 && time >= 0.4 {
        format!("both {family}, {}, time within {:.0} %", times(), 100.0 * (1.0 - time))
    } else {
        return None;
    };
    Some((2.0 * names + calls + time, why))
}

fn calls_of(base: &Group, head: &Group) -> String {
    let [base, head] =
        [base, head].map(|group| format!("{:.*}", usize::from(group.calls.fract() != 0.0), group.calls));
    format!("{base} and {head} calls")
}

/// Words in common, of all words of both; each list is sorted.
fn similarity(a: &[&str], b: &[&str]) -> f64 {
    let (mut i, mut j, mut common) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        common += usize::from(x == y);
        (i, j) = (i + usize::from(x <= y), j + usize::from(x >= y));
    }
    2.0 * common as f64 / (a.len() + b.len()).max(1) as f64
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
        let found = changes((&[base], 1), (&[head], 1), None);
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
            let found = changes((base, 1), (&node, 1), whole);
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
        pair([groups(base, 1), groups(head, 1)])
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
        let groups = groups(&[kernel("k", "gemm", 180, 6), kernel("k", "gemm", 181, 1)], 3);
        assert_eq!((groups[0].total_ns, groups[0].calls), (120, 7.0 / 3.0));
        // A deviation of 3 and of 181 / 60 in the sum of three instances.
        let variance = (9.0 + (181.0_f64 / 60.0).powi(2)) / 9.0;
        assert!((groups[0].variance - variance).abs() < 1e-9, "{}", groups[0].variance);
    }
}
