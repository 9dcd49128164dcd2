//! Matches the kernels of the two sides.
//!
//! Names first, in the form in which tools agree. What is left is paired where it does the same kind of work and its name differs in
//! numbers only (a tile size), or where it runs as often with a similar name or time: a library that picks another variant renames
//! its kernel, and to call that "one gone, one added" would hide what happened.

use crate::counters::canonical;
use crate::names::Family;
use crate::result::Kernel;
use crate::timeline::Grouped;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The kernels of one canonical name, all devices together, of one instance.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: String,
    pub short_name: String,
    pub family: Family,
    pub total_ns: i64,
    pub calls: f64,
    /// Variance of the total.
    pub variance: f64,
    key: String,
}

/// Kernels by canonical name, in the order given; totals by instance.
pub fn groups(kernels: &[Kernel], instances: u64, variance: impl Fn(&Kernel) -> f64) -> Vec<Group> {
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

/// The way in which two groups were matched.
#[derive(Debug)]
pub enum Pair {
    /// The same name.
    Named(Group, Group),
    /// Another name; why they are taken for one.
    Renamed(Group, Group, String),
    /// On the base only.
    Gone(Group),
    /// On the head only.
    Added(Group),
}

/// Pairs the kernels of two sides.
pub fn pair(base: Vec<Group>, head: Vec<Group>) -> Vec<Pair> {
    let positions: FxHashMap<String, usize> =
        head.iter().enumerate().map(|(at, group)| (group.key.clone(), at)).collect();
    let mut head: Vec<Option<Group>> = head.into_iter().map(Some).collect();
    let mut pairs = Vec::new();
    let mut gone = Vec::new();
    for group in base {
        match positions.get(&group.key).and_then(|at| head[*at].take()) {
            Some(other) => pairs.push(Pair::Named(group, other)),
            None => gone.push(group),
        }
    }
    pairs.extend(renamed(gone, head.into_iter().flatten().collect()));
    pairs
}

/// The most kernels of a side that are searched for other names: beyond it the small ones stay unpaired.
const MOST_SEARCHED: usize = 512;

fn renamed(gone: Vec<Group>, added: Vec<Group>) -> Vec<Pair> {
    let (mut pairs, gone, added) = variants(gone, added);
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
    let options = |list: Vec<Group>| -> Vec<Option<Group>> { list.into_iter().map(Some).collect() };
    let (mut gone, mut added) = (options(gone), options(added));
    for (_, b, h, why) in candidates {
        if let (Some(base), Some(head)) = (&gone[b], &added[h]) {
            pairs.push(Pair::Renamed(base.clone(), head.clone(), why));
            (gone[b], added[h]) = (None, None);
        }
    }
    pairs.extend(gone.into_iter().flatten().map(Pair::Gone));
    pairs.extend(added.into_iter().flatten().map(Pair::Added));
    pairs
}

/// Pairs kernels of one kind whose names differ in numbers only, such as a tile size. A library may pick more variants on one side than
/// on the other: then all of them together are one kernel. Returns what is left of both sides.
fn variants(gone: Vec<Group>, added: Vec<Group>) -> (Vec<Pair>, Vec<Group>, Vec<Group>) {
    let mut of_words: BTreeMap<(&'static str, Vec<String>), [Vec<Group>; 2]> = BTreeMap::new();
    for (side, groups) in [gone, added].into_iter().enumerate() {
        for group in groups {
            let lists = of_words.entry((kind(group.family).as_str(), skeleton(&group.key))).or_default();
            lists[side].push(group);
        }
    }
    let (mut pairs, mut gone, mut added) = (Vec::new(), Vec::new(), Vec::new());
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
            let why = format!("the names differ in numbers only, {variants}{calls}");
            pairs.push(Pair::Renamed(base, head, why));
        }
    }
    for list in [&mut gone, &mut added] {
        list.sort_by_key(|group| std::cmp::Reverse(group.total_ns));
    }
    (pairs, gone, added)
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

    fn pairs(base: &[Kernel], head: &[Kernel]) -> Vec<Pair> {
        pair(groups(base, 1, |_| 0.0), groups(head, 1, |_| 0.0))
    }

    #[test]
    fn tools_that_print_a_name_differently_agree() {
        let base = [kernel("void at::native::f<(int)4>(int, T2)", "elementwise", 10, 1)];
        let head = [kernel("void f<4>(int)", "elementwise", 12, 1)];
        assert!(matches!(&pairs(&base, &head)[..], [Pair::Named(..)]));
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
            let Pair::Renamed(a, b, why) = pair else {
                panic!("{pair:?}");
            };
            assert_eq!(a.calls, b.calls);
            assert!(why.contains("numbers only"), "{why}");
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
        let found = pairs(&base, &head);
        let [Pair::Renamed(_, head, why)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            (head.total_ns, head.calls, head.name.as_str()),
            (900, 64.0, "nvjet_sm90_tst_128x8_v_bz_TNT")
        );
        assert_eq!(why, "the names differ in numbers only, 1 and 3 variants, 64 and 64 calls");
        // The number of calls may differ by any factor: it is the same kernel.
        let few = [kernel("triton_poi_fused_add_3", "elementwise", 90, 9)];
        let many = [kernel("triton_poi_fused_add_7", "elementwise", 1000, 100)];
        assert!(matches!(&pairs(&few, &many)[..], [Pair::Renamed(..)]));
    }

    #[test]
    fn another_library_in_the_same_place_is_paired_and_said_so() {
        let base = [kernel("nvjet_sm90_tst_64x8_TNT", "gemm", 900, 64)];
        let head = [kernel("cutlass_80_wmma_tensorop_bf16", "gemm", 1200, 64)];
        let found = pairs(&base, &head);
        assert!(matches!(&found[..], [Pair::Renamed(_, _, why)] if why.contains("both gemm")));
    }

    #[test]
    fn unlike_kernels_stay_apart() {
        let base = [kernel("add_kernel", "elementwise", 900, 64), kernel("sort", "sampling", 5, 1)];
        let head = [kernel("mul_silu", "elementwise", 900, 64), kernel("flash", "attention", 5, 1)];
        let found = pairs(&base, &head);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|p| matches!(p, Pair::Gone(_) | Pair::Added(_))));
    }

    #[test]
    fn totals_are_those_of_one_instance() {
        let groups = groups(&[kernel("k", "gemm", 30, 6), kernel("k", "gemm", 31, 6)], 3, |_| 9.0);
        assert_eq!((groups[0].total_ns, groups[0].calls), (20, 4.0));
        assert_eq!(groups[0].variance, 2.0);
    }
}
