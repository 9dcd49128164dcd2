//! One form for the names that tools print differently.
//!
//! The same kernel is `void at::native::f<(int)4, std::array<char *, (unsigned long)2>>(int, T2)` to nsys,
//! `void at::f<4, std::array<char *, 2>>(int, T2)` or `void f<4, array<char *, 2>>(int, T2)` to ncu, depending on its
//! version, and `void at::native::f<4, std::array<char*, 2ul>>(int, ...)` to a framework's profiler. What all keep are
//! the last part of every qualified name, and the template arguments.

use crate::names::Parts;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Canonical names, each computed once.
#[derive(Default)]
pub struct CanonicalNames<'a>(FxHashMap<&'a str, Rc<str>>);

impl<'a> CanonicalNames<'a> {
    /// Returns the canonical form of a name.
    pub fn of(&mut self, name: &'a str) -> Rc<str> {
        Rc::clone(self.0.entry(name).or_insert_with(|| canonical(name).into()))
    }
}

/// The form of a kernel's name in which tools agree.
///
/// ```
/// use roofgap_analyze::counters::canonical;
/// let nsys = "void at::native::f<(int)4, std::array<char *, (unsigned long)2>>(int, T2)";
/// assert_eq!(canonical(nsys), canonical("void f<4, array<char *, 2>>(int, T2)"));
/// assert_ne!(canonical(nsys), canonical("void f<8, array<char *, 2>>(int, T2)"));
/// ```
#[must_use]
pub fn canonical(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    // A comma separates as what it replaces did; one version of ncu drops the first bracket.
    let plain = name.replace("<unnamed>::", ",").replace("unnamed>::", ",");
    let mut rest = Parts::of(&plain).signature;
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

#[cfg(test)]
mod tests {
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
