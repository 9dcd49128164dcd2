//! The change of each kernel.
//!
//! The kernels of the two sides are matched by name first, in the form in which tools agree. What is left is paired where it does
//! the same kind of work and its name differs in numbers only (a tile size), or where it runs as often for a similar time: a library
//! that picks another variant renames its kernel, and to call that "one gone, one added" would hide what happened.

use super::comparison::{KernelChange, KernelSide, KernelStatus};
use super::noise::{self, DEVIATIONS, GPU_PCT, is_doubled};
use crate::counters::canonical;
use crate::names::{Family, distinct_short_names};
use crate::result::Kernel;
use crate::timeline::Grouped;
use rustc_hash::FxHashSet;
use std::cmp::Reverse;

/// Compares kernels, each with the number of instances, by instance, largest change first.
pub fn changes(sides: [(&[Kernel], u64); 2]) -> Vec<KernelChange> {
    fn full_name(change: &KernelChange) -> &str {
        change.head.as_ref().or(change.base.as_ref()).map_or("", |side| &side.name)
    }
    let mut changes = pair(sides.map(|(kernels, instances)| groups(kernels, instances)));
    let (mut taken, mut shared) = (FxHashSet::default(), FxHashSet::default());
    for KernelChange { short_name, .. } in &changes {
        if !taken.insert(short_name.clone()) {
            shared.insert(short_name.clone());
        }
    }
    let alike = changes.iter().filter(|change| shared.contains(&change.short_name));
    let short_names = distinct_short_names(alike.map(full_name), &taken - &shared);
    for change in &mut changes {
        if let Some(short_name) = short_names.get(full_name(change)) {
            change.short_name.clone_from(short_name);
        }
    }
    changes.sort_by(|a, b| {
        (b.delta_ns.unsigned_abs(), &a.short_name).cmp(&(a.delta_ns.unsigned_abs(), &b.short_name))
    });
    changes
}

/// Noise of the sum of all kernels: they move apart from one another.
pub fn noise_of_sum(changes: &[KernelChange]) -> f64 {
    changes.iter().map(|change| (change.noise_ns as f64).powi(2)).sum::<f64>().sqrt()
}

/// The kernels of one name, all devices together, of one instance.
struct Group<'a> {
    kernel: &'a Kernel,
    total_ns: i64,
    calls: f64,
    /// Variance of the total.
    variance: f64,
}

impl Group<'_> {
    fn add(&mut self, total_ns: i64, calls: f64, variance: f64) {
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.calls += calls;
        self.variance += variance;
    }

    fn mean_ns(&self) -> f64 {
        if self.calls > 0.0 { self.total_ns as f64 / self.calls } else { 0.0 }
    }

    fn side(&self) -> KernelSide {
        let Self { kernel, total_ns, calls, .. } = *self;
        KernelSide { name: kernel.name.clone(), total_ns, calls, mean_ns: self.mean_ns().round() as i64 }
    }

    /// Returns the kind of work. Matrix by matrix and matrix by vector are one: a library moves between them.
    fn kind(&self) -> Family {
        if self.kernel.family == Family::Gemv { Family::Gemm } else { self.kernel.family }
    }
}

/// Kernels by canonical name, largest first; totals by instance.
fn groups(kernels: &[Kernel], instances: u64) -> Vec<Group<'_>> {
    let mut groups: Grouped<String, Group<'_>> = Grouped::default();
    for kernel in kernels {
        let key = canonical(&kernel.name);
        let group = groups.entry(key, || Group { kernel, total_ns: 0, calls: 0.0, variance: 0.0 });
        group.add(kernel.total_ns, kernel.calls as f64, noise::of_kernel(kernel));
    }
    for group in &mut groups.items {
        group.total_ns = by_instance(group.total_ns, instances);
        group.calls /= instances.max(1) as f64;
        group.variance /= (instances.max(1) as f64).powi(2);
    }
    groups.items.sort_by_key(|group| Reverse(group.total_ns));
    groups.items
}

/// A sum over instances as that of one, rounded.
pub fn by_instance(total: i64, instances: u64) -> i64 {
    match i64::try_from(instances) {
        Ok(n) if n > 1 => (total as f64 / n as f64).round() as i64,
        _ => total,
    }
}

/// Compares a kernel.
fn change(base: Option<&Group<'_>>, head: Option<&Group<'_>>, renamed: bool) -> Option<KernelChange> {
    let named = head.or(base)?.kernel;
    let total = |side: Option<&Group<'_>>| side.map_or(0, |group| group.total_ns);
    let delta_ns = total(head).saturating_sub(total(base));
    let variance: f64 = [base, head].into_iter().flatten().map(|group| group.variance).sum();
    let mut noise = DEVIATIONS * variance.sqrt();
    let status = match (base, head) {
        (Some(base), Some(head)) => {
            let least = noise::share(base.total_ns as f64, GPU_PCT);
            noise = noise.max(least);
            // More calls at the old length, then all calls at the new one.
            let of_calls = (head.calls - base.calls) * base.mean_ns();
            let of_length = delta_ns as f64 - of_calls;
            let length_is_real = of_length.abs() > noise.ceil() || is_doubled(base.mean_ns(), head.mean_ns());
            // A number of calls has no noise of its own, but a few more are no news.
            let calls_are_real = of_calls.abs() > least || is_doubled(base.calls, head.calls);
            match (length_is_real, calls_are_real) {
                (false, false) => KernelStatus::Same,
                (_, true) if !length_is_real || of_calls.abs() > of_length.abs() => match of_calls > 0.0 {
                    true => KernelStatus::MoreCalls,
                    false => KernelStatus::FewerCalls,
                },
                _ if of_length > 0.0 => KernelStatus::Slower,
                _ => KernelStatus::Faster,
            }
        }
        (None, _) => KernelStatus::Added,
        (_, None) => KernelStatus::Gone,
    };
    Some(KernelChange {
        short_name: named.short_name.clone(),
        family: named.family,
        renamed,
        base: base.map(Group::side),
        head: head.map(Group::side),
        delta_ns,
        noise_ns: noise.ceil() as i64,
        status,
    })
}

/// Pairs the kernels of two sides: by name, then those that differ in numbers only, then those in a like place.
fn pair(sides: [Vec<Group<'_>>; 2]) -> Vec<KernelChange> {
    let mut changes = Vec::new();
    let sides = join(sides, |group| canonical(&group.kernel.name), false, &mut changes);
    // A library may pick more variants on one side than on the other: then all of them together are one kernel.
    let variants = |group: &Group<'_>| {
        let name = canonical(&group.kernel.name);
        let words = name.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
        let mut words: Vec<&str> = words.collect();
        words.sort_unstable();
        if words.is_empty() { name } else { format!("{} {}", group.kind(), words.join(" ")) }
    };
    let sides = join(sides, variants, true, &mut changes);
    let place = |group: &Group<'_>| match group.kernel.family {
        // Kernels of these families come in dozens with as many calls: only the name tells them apart.
        Family::Elementwise | Family::CopyLayout | Family::Other => canonical(&group.kernel.name),
        _ => format!("{} {}", group.kind(), group.calls),
    };
    for [bases, heads] in by_key(sides, place) {
        for at in 0..bases.len().max(heads.len()) {
            let (base, head) = (bases.get(at), heads.get(at));
            let times = base.zip(head).map(|(base, head)| [base.total_ns as f64, head.total_ns as f64]);
            if times.is_some_and(|[a, b]| a.min(b) >= LIKE_TIME * a.max(b)) {
                changes.extend(change(base, head, true));
            } else {
                changes.extend(change(base, None, false).into_iter().chain(change(None, head, false)));
            }
        }
    }
    changes
}

/// Least ratio of the times of two kernels in a like place.
const LIKE_TIME: f64 = 0.4;

/// Groups the kernels of each side by a key, largest first.
fn by_key<'a>(sides: [Vec<Group<'a>>; 2], key: impl Fn(&Group<'a>) -> String) -> Vec<[Vec<Group<'a>>; 2]> {
    let mut by_key: Grouped<String, [Vec<Group<'a>>; 2]> = Grouped::default();
    for (side, groups) in sides.into_iter().enumerate() {
        for group in groups {
            by_key.entry(key(&group), Default::default)[side].push(group);
        }
    }
    by_key.items
}

/// Compares the groups whose key is on both sides, those of a side together under the name of the largest. Returns the others.
fn join<'a>(
    sides: [Vec<Group<'a>>; 2],
    key: impl Fn(&Group<'a>) -> String,
    renamed: bool,
    changes: &mut Vec<KernelChange>,
) -> [Vec<Group<'a>>; 2] {
    let mut left = [Vec::new(), Vec::new()];
    for mut pair in by_key(sides, key) {
        if let [[base, bases @ ..], [head, heads @ ..]] = pair.each_mut().map(Vec::as_mut_slice) {
            for (first, others) in [(&mut *base, bases), (&mut *head, heads)] {
                others.iter().for_each(|other| first.add(other.total_ns, other.calls, other.variance));
            }
            changes.extend(change(Some(base), Some(head), renamed));
        } else {
            left.iter_mut().zip(pair).for_each(|(left, groups)| left.extend(groups));
        }
    }
    left.iter_mut().for_each(|left| left.sort_by_key(|group| Reverse(group.total_ns)));
    left
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
        let found = changes([(&[base], 1), (&[head], 1)]);
        assert_eq!(found.len(), 1);
        found.into_iter().next().unwrap()
    }

    #[test]
    fn longer_calls_and_more_calls_are_told_apart() {
        let slower = change(kernel("k", 1000, 64, 50), kernel("k", 1100, 64, 50));
        assert_eq!(slower.status, KernelStatus::Slower);
        let more = change(kernel("k", 1000, 64, 50), kernel("k", 1000, 80, 50));
        assert_eq!((more.status, more.delta_ns), (KernelStatus::MoreCalls, 16_000));
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

    /// The head of the one pair of kernels with different names.
    fn renamed(base: &[Kernel], head: &[Kernel]) -> KernelSide {
        let [pair] = &pairs(base, head)[..] else { panic!("one pair") };
        assert!(pair.renamed && pair.base.is_some());
        pair.head.clone().unwrap()
    }

    #[test]
    fn tools_that_print_a_name_differently_agree() {
        let base = [kernel("void at::native::f<(int)4>(int, T2)", "elementwise", 10, 1)];
        let head = [kernel("void f<4>(int)", "elementwise", 12, 1)];
        let found = pairs(&base, &head);
        assert!(found.len() == 1 && !found[0].renamed);
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
            assert!(pair.renamed, "{pair:?}");
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
        let head = renamed(&base, &head);
        assert_eq!(
            (head.total_ns, head.calls, head.name.as_str()),
            (900, 64.0, "nvjet_sm90_tst_128x8_v_bz_TNT")
        );
        // The number of calls may differ by any factor: it is the same kernel.
        let few = [kernel("triton_poi_fused_add_3", "elementwise", 90, 9)];
        let many = [kernel("triton_poi_fused_add_7", "elementwise", 1000, 100)];
        renamed(&few, &many);
    }

    #[test]
    fn another_library_in_the_same_place_is_paired() {
        let base = [kernel("nvjet_sm90_tst_64x8_TNT", "gemm", 900, 64)];
        let head = [kernel("cutlass_80_wmma_tensorop_bf16", "gemm", 1200, 64)];
        assert_eq!(renamed(&base, &head).name, "cutlass_80_wmma_tensorop_bf16");
    }

    #[test]
    fn kernels_in_a_like_place_are_paired_by_size() {
        let base = ["one_1", "two", "one_2"].into_iter().zip([900, 500, 300]);
        let head = ["red", "green", "blue"].into_iter().zip([910, 510, 310]);
        let [base, head] = [base.collect::<Vec<_>>(), head.collect()]
            .map(|side| side.into_iter().map(|(name, ns)| kernel(name, "gemm", ns, 8)).collect::<Vec<_>>());
        assert!(pairs(&base, &head).iter().all(|pair| pair.delta_ns == 10));
    }

    #[test]
    fn unlike_kernels_stay_apart() {
        let base = [kernel("add_kernel", "elementwise", 900, 64), kernel("sort", "sampling", 5, 1)];
        let head = [kernel("mul_silu", "elementwise", 900, 64), kernel("flash", "attention", 5, 1)];
        let found = pairs(&base, &head);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|pair| pair.base.is_none() || pair.head.is_none()));
    }

    #[test]
    fn totals_are_those_of_one_instance() {
        let kernels = [kernel("k", "gemm", 180, 6), kernel("k", "gemm", 181, 1)];
        let groups = groups(&kernels, 3);
        assert_eq!((groups[0].total_ns, groups[0].calls), (120, 7.0 / 3.0));
        // A deviation of 3 and of 181 / 60 in the sum of three instances.
        let variance = (9.0 + (181.0_f64 / 60.0).powi(2)) / 9.0;
        assert!((groups[0].variance - variance).abs() < 1e-9, "{}", groups[0].variance);
    }
}
