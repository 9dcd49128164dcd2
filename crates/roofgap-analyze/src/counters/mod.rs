//! Hardware counters joined with the timeline: the launch they belong to, the work they count, the limit of each kernel.

pub(crate) mod alone;

mod join;
mod readings;
mod sampled;

pub(crate) use join::{Joined, Measured, Timeline, attach, join, merge, roofs, roofs_alone};
pub use readings::light_metrics;
pub(crate) use readings::{Bound, BusiestPipe, NEAR_ROOF_PCT, Pipe, SAME_PCT, SHARED_PCT};
pub(crate) use sampled::{DeviceOps, Groups, Limits, Overlap, add as add_sampled, overlaps};

use crate::names::Parts;
use crate::result::NcuRule;
use crate::timeline::Grouped;
use roofgap_trace::ncu::{CounterSet, Rule, RuleKind, SpeedupScope};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::rc::Rc;

/// Canonical names, each computed once.
#[derive(Default)]
struct CanonicalNames<'a>(FxHashMap<&'a str, Rc<str>>);

impl<'a> CanonicalNames<'a> {
    /// Returns the canonical form of a name.
    fn form(&mut self, name: &'a str) -> Rc<str> {
        Rc::clone(self.0.entry(name).or_insert_with(|| canonical(name).into()))
    }
}

/// The form of a kernel's name in which tools agree.
///
/// The same kernel is `void at::native::f<(int)4, std::array<char *, (unsigned long)2>>(int, T2)` to nsys,
/// `void at::f<4, std::array<char *, 2>>(int, T2)` or `void f<4, array<char *, 2>>(int, T2)` to ncu, depending on its
/// version, and `void at::native::f<4, std::array<char*, 2ul>>(int, ...)` to a framework's profiler. What all keep are
/// the last part of every qualified name, and the template arguments.
///
/// ```
/// use roofgap_analyze::counters::canonical;
/// let nsys = "void at::native::f<(int)4, std::array<char *, (unsigned long)2>>(int, T2)";
/// assert_eq!(canonical(nsys), canonical("void f<4, array<char *, 2>>(int, T2)"));
/// assert_ne!(canonical(nsys), canonical("void f<8, array<char *, 2>>(int, T2)"));
/// ```
pub fn canonical(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    // A comma separates as what it replaces did; one version of ncu drops the first bracket.
    let plain = name.replace("<unnamed>::", ",").replace("unnamed>::", ",");
    let mut rest = Parts::split(&plain).signature;
    while let Some(first) = rest.chars().next() {
        if first == '(' {
            let (inside, after) = group(rest);
            // Parameters and casts differ between tools; which lambda of a function is meant does not.
            if let Some(number) = inside.trim().strip_prefix("instance ") {
                push(&mut out, number.trim());
            }
            rest = after;
        } else if first.is_ascii_digit() {
            let (number, after) = take(rest, |c| c.is_ascii_alphanumeric());
            push(&mut out, number.trim_end_matches(['u', 'l', 'U', 'L']));
            rest = after;
        } else if first.is_alphabetic() || first == '_' {
            let (word, after) = take(rest, |c| c.is_alphanumeric() || c == '_' || c == '$');
            match word {
                _ if after.starts_with("::") => {}
                "const" | "void" | "operator" => {}
                "true" => push(&mut out, "1"),
                "false" => push(&mut out, "0"),
                word => push(&mut out, word),
            }
            rest = after;
        } else {
            let negative = first == '-' && rest.chars().nth(1).is_some_and(|next| next.is_ascii_digit());
            if negative {
                push(&mut out, "-");
            }
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// Splits `text`, which begins with a parenthesis, into its inside and the rest.
fn group(text: &str) -> (&str, &str) {
    let mut depth = 0usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return (text.get(1..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    (text.get(1..).unwrap_or_default(), "")
}

fn take(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !keep(c)).unwrap_or(text.len());
    text.split_at(end)
}

fn push(out: &mut String, word: &str) {
    if word.is_empty() {
        return;
    }
    if !out.is_empty() && !out.ends_with('-') {
        out.push(' ');
    }
    out.push_str(word);
}

/// Collects the results of ncu's rules: one row per kernel and rule, suggestions first, largest estimate first. The text is
/// that of the launch with the largest estimate.
pub(crate) fn rules(sets: &[CounterSet]) -> Vec<NcuRule> {
    let mut forms = CanonicalNames::default();
    let mut rows: Grouped<_, (NcuRule, FxHashSet<usize>)> = Grouped::default();
    for set in sets {
        for rule in &set.rules {
            let launch = set.launches.get(rule.launch);
            let Some((launch, result)) =
                launch.and_then(|launch| Some((launch, result(&launch.kernel, rule)?)))
            else {
                continue;
            };
            let key = (forms.form(&launch.kernel), rule.name.as_str());
            let (row, launches) = rows.entry(key, || (result.clone(), FxHashSet::default()));
            launches.insert(rule.launch);
            if result.speedup_pct > row.speedup_pct {
                *row = result;
            }
        }
    }
    let counted =
        |(row, launches): (NcuRule, FxHashSet<usize>)| NcuRule { launches: launches.len() as u64, ..row };
    let mut rows: Vec<NcuRule> = rows.items.into_iter().map(counted).collect();
    rows.sort_by(|a, b| {
        let order = |row: &NcuRule| (Reverse(row.kind == "optimization"), Reverse(row.kind == "warning"));
        order(a)
            .cmp(&order(b))
            .then_with(|| estimate(b).total_cmp(&estimate(a)))
            .then_with(|| (&a.kernel, &a.rule).cmp(&(&b.kernel, &b.rule)))
    });
    rows
}

/// Returns the results for one launch that ask for a change, most to gain first. Only an estimate for the whole kernel counts.
fn advice(set: &CounterSet, launch: usize) -> Vec<NcuRule> {
    let asks = |rule: &&Rule| rule.kind == RuleKind::Optimization || rule.kind == RuleKind::Warning;
    let results = set.rules_of(launch).filter(asks).filter_map(|rule| result("", rule));
    let mut advice: Vec<NcuRule> = results
        .map(|result| NcuRule {
            speedup_pct: result.speedup_pct.filter(|_| result.speedup_of.as_deref() == Some("kernel")),
            ..result
        })
        .collect();
    advice.sort_by(|a, b| estimate(b).total_cmp(&estimate(a)));
    advice
}

fn estimate(row: &NcuRule) -> f64 {
    row.speedup_pct.unwrap_or(-1.0)
}

/// Describes a result; `None` for one that says nothing about the kernel.
fn result(kernel: &str, rule: &Rule) -> Option<NcuRule> {
    let kind = match rule.kind {
        RuleKind::Optimization => "optimization",
        RuleKind::Warning => "warning",
        RuleKind::Info => "info",
        RuleKind::Error | RuleKind::Ok => return None,
    };
    let of = |scope| match scope {
        SpeedupScope::Global => "kernel",
        SpeedupScope::Local => "part",
    };
    Some(NcuRule {
        kernel: kernel.to_owned(),
        launches: 0,
        rule: rule.name.clone(),
        section: rule.section.clone(),
        kind: kind.to_owned(),
        speedup_pct: rule.speedup.map(|speedup| speedup.percent),
        speedup_of: rule.speedup.map(|speedup| of(speedup.scope).to_owned()),
        text: rule.text.trim().to_owned(),
    })
}

#[cfg(test)]
mod name_tests {
    use super::*;

    const NSYS: &str = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::<unnamed>::silu_kernel(at::TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 6)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)";

    #[test]
    fn four_tools_one_name() {
        let ncu_2025_3 = "void at::vectorized_elementwise_kernel<8, at::<unnamed>::silu_kernel(at::TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 6)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)], std::array<char *, 2>>(int, T2, T3)";
        let ncu_2025_1 = "void vectorized_elementwise_kernel<8, unnamed>::silu_kernel(TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() lambda() (instance 6)]::operator ()() lambda(BFloat16) (instance 1)], array<char *, 2>>(int, T2, T3)";
        let kineto = "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#6}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#6}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>)";
        assert_eq!(
            canonical(NSYS),
            "vectorized_elementwise_kernel 8 silu_kernel lambda 1 lambda 6 lambda 1 array char 2"
        );
        for other in [ncu_2025_3, ncu_2025_1, kineto] {
            assert_eq!(canonical(NSYS), canonical(other));
        }
    }

    #[test]
    fn return_types_and_parameters_do_not_count() {
        let nsys = "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool)0, (int)7>(T13)";
        assert_eq!(canonical(nsys), canonical("enable_if<!T7, void>::type kernel<int, 0, 7>(T13)"));
        assert_eq!(
            canonical(nsys),
            canonical("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, false, 7>(P)")
        );
        let compared = "std::enable_if<T2>(int)0&&vllm::_typeConvert<T1>::exists, void>::type vllm::norm<c10::BFloat16, (int)8>(T1 *)";
        for other in [
            "enable_if<T2>0&&_typeConvert<T1>::exists, void>::type norm<BFloat16, 8>(T1 *)",
            "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::norm<c10::BFloat16, 8>(c10::BFloat16*)",
        ] {
            assert_eq!(canonical(compared), canonical(other));
        }
        assert_eq!(
            canonical("void cutlass::Kernel2<cutlass_80_x>(T1::Params)"),
            canonical("void Kernel2<cutlass_80_x>(Params)")
        );
        assert_eq!(
            canonical("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"),
            "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
        );
    }

    #[test]
    fn what_differs_stays_apart() {
        assert_ne!(canonical(NSYS), canonical(&NSYS.replace("(instance 6)", "(instance 7)")));
        assert_ne!(canonical(NSYS), canonical(&NSYS.replace("(int)8", "(int)4")));
        assert_ne!(canonical("f<(int)-2>()"), canonical("f<(int)2>()"));
        assert_eq!(canonical("f<(int)-2>()"), canonical("f<-2>()"));
    }

    #[test]
    fn nonsense_does_not_matter() {
        for name in ["", "(", ")))", "<<<>", "((((", "é<ü>(ß", "a::", "-"] {
            let _ = canonical(name);
        }
    }
}

/// Types that tests of other modules construct.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::readings::{Readings, Work};
    pub(crate) use crate::gpu::WorkKind;
}

#[cfg(test)]
mod tests;
