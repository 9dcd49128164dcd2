//! The parts of a demangled function name.

/// The parts of a function's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// All but the return type.
    pub signature: &'a str,
    /// Name with namespaces and template arguments.
    pub whole: &'a str,
    /// Namespaces before the name, with the `::` at their end.
    pub outer: &'a str,
    /// Name alone.
    pub base: &'a str,
    /// Template arguments with their brackets; empty without any.
    pub arguments: &'a str,
    /// Call parameters with their parentheses; empty without any.
    pub parameters: &'a str,
}

/// Removes unnamed namespaces, control characters and what compilers append to a name.
pub fn clean(name: &str) -> String {
    let name = name.replace("<unnamed>::", "").replace("(anonymous namespace)::", "");
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let name = name.trim();
    let name = name.strip_suffix("[clone .kd]").unwrap_or(name).trim_end();
    name.strip_suffix(".kd").unwrap_or(name).to_owned()
}

/// Returns whether the `>` at `at` is a comparison in a template argument, as in `enable_if<T2>(int)0&&T1::value, void>` of nsys: a
/// number follows it, or a cast and a number.
fn compares(name: &str, at: usize) -> bool {
    let after = name.get(at + 1..).unwrap_or_default();
    let operand = match after.strip_prefix('(') {
        Some(cast) => cast.split_once(')').map_or("", |(_, value)| value),
        None => after,
    };
    operand.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

impl<'a> Parts<'a> {
    /// Splits a clean name.
    pub fn of(name: &'a str) -> Self {
        let mut open: Vec<char> = Vec::new();
        // Positions at depth 0: where the name starts, its last part starts, its arguments start, and its parameters start.
        let (mut start, mut last, mut arguments, mut end) = (0, 0, None, name.len());
        for (at, c) in name.char_indices() {
            let outside = open.is_empty();
            match c {
                '(' if outside => {
                    end = at;
                    break;
                }
                // A template; `operator<` has no arguments.
                '<' => {
                    if outside {
                        arguments.get_or_insert(at);
                    }
                    open.push(c);
                }
                '(' | '[' | '{' => open.push(c),
                '>' if open.last() == Some(&'<') && !compares(name, at) => {
                    open.pop();
                }
                ')' | ']' | '}' => {
                    while let Some(opened) = open.pop() {
                        if opened != '<' {
                            break;
                        }
                    }
                }
                ' ' if outside && !name[at..].trim_start().starts_with(['(', '<']) => {
                    (start, last, arguments) = (at + 1, at + 1, None);
                }
                ':' if outside && name[..at].ends_with(':') => {
                    (last, arguments) = (at + 1, None);
                }
                _ => {}
            }
        }
        let base_end = arguments.unwrap_or(end);
        Self {
            signature: &name[start..],
            whole: name[start..end].trim(),
            outer: &name[start..last],
            base: name[last..base_end].trim(),
            arguments: name[base_end..end].trim(),
            parameters: &name[end..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn real_names() {
        for (name, outer, base, arguments) in [
            (
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
                "at::native::",
                "reduce_kernel",
                "<512, 1, at::native::ReduceOp<float> >",
            ),
            (
                "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type \
                 vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)",
                "vllm::",
                "fused_add_rms_norm_kernel",
                "<c10::BFloat16, 8>",
            ),
            (
                "std::enable_if<T2>(int)0&&vllm::_typeConvert<T1>::exists, void>::type \
                 vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8, (bool)1>(T1 *, long, T1 *)",
                "vllm::",
                "fused_add_rms_norm_kernel",
                "<c10::BFloat16, (int)8, (bool)1>",
            ),
            ("f<int>(int) const", "", "f", "<int>"),
            (
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 7>(T12)",
                "internal::gemvx::",
                "kernel",
                "<int, 7>",
            ),
            ("void ns::Pool<int>::run<2>(float *)", "ns::Pool<int>::", "run", "<2>"),
            ("memcpy32_post", "", "memcpy32_post", ""),
            ("unsigned long long count(int)", "", "count", ""),
            ("void cut<int, std::array<cha", "", "cut", "<int, std::array<cha"),
            ("aiter::fmha_fwd_hd128_bf16_rtz.kd", "aiter::", "fmha_fwd_hd128_bf16_rtz", ""),
            ("", "", "", ""),
        ] {
            let clean = clean(name);
            let parts = Parts::of(&clean);
            assert_eq!((parts.outer, parts.base, parts.arguments), (outer, base, arguments), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_split(name in "[a-z:<>() {}\\[\\]é,]{0,60}") {
            let parts = Parts::of(&name);
            prop_assert!(name.contains(parts.whole) && name.contains(parts.base));
        }
    }
}
