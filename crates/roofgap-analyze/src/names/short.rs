//! A kernel name that a person can read in a table, and the parts of the demangled name that it is made of.

use super::family::{is_word, words_of};
use crate::counters::canonical;
use crate::result::{Analysis, Kernel};
use roofgap_base::text::cut;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// The most characters a short name has.
pub const MOST: usize = 60;

/// Shortens a demangled kernel name: no return type, namespaces, template or call arguments; for a generic kernel the operation it
/// carries in brackets.
///
/// ```
/// use roofgap_analyze::short_name;
/// let name = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::CUDAFunctor_add<c10::BFloat16>, \
///             std::array<char *, (unsigned long)3>>(int, T2, T3)";
/// assert_eq!(short_name(name), "vectorized_elementwise_kernel[add]");
/// ```
pub fn short_name(name: &str) -> String {
    let clean = clean(name);
    fit(&readable(&clean), MOST)
}

/// Returns the short name of a clean name, of any length.
pub fn readable(clean: &str) -> String {
    let Parts { outer, base, arguments, .. } = Parts::split(clean);
    if base.is_empty() {
        return clean.to_owned();
    }
    let says_nothing = base.eq_ignore_ascii_case("kernel") || base == "Kernel2" || base == "device_kernel";
    let wrapped = match base {
        "_kernel_agent" | "kernel_agent" => algorithm(arguments).or_else(|| detail(arguments)),
        _ => is_word("generic", base).then(|| detail(arguments)).flatten(),
    };
    match wrapped {
        Some(detail) if says_nothing => detail,
        Some(detail) => format!("{base}[{detail}]"),
        None if base.eq_ignore_ascii_case("kernel") && !outer.is_empty() => {
            // Alone it says nothing; its namespace does.
            let inner = Parts::split(outer.trim_end_matches(':')).base;
            format!("{inner}::{base}")
        }
        None => base.to_owned(),
    }
}

/// The algorithm of Thrust that an agent is part of, by the namespace of the agent: `__merge_sort`.
fn algorithm(arguments: &str) -> Option<String> {
    let words = arguments.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let mut namespaces =
        words.filter(|word| word.starts_with("__") && !word.starts_with("__nv_") && *word != "__half");
    let first = namespaces.next()?;
    // A loop says nothing; its body may be another algorithm.
    let text = match first {
        "__parallel_for" => namespaces.find(|word| *word != first)?,
        _ => first,
    };
    let text = text.trim_start_matches('_');
    (!text.is_empty()).then(|| text.to_owned())
}

/// The operation inside the template arguments of a generic kernel.
fn detail(arguments: &str) -> Option<String> {
    if arguments.contains("GroupProblemShape") {
        return Some("cutlass_grouped_gemm".into());
    }
    if arguments.contains("cublasGemvParams") {
        return Some("cublas_gemv".into());
    }
    let mut words = arguments.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let telling = |word: &&str| {
        !is_word("wrapper", word)
            && (words_of("telling beginning").any(|start| word.starts_with(start))
                || words_of("telling ending").any(|end| word.ends_with(end))
                || word.contains("Functor")
                || word.ends_with("Ops") && word.len() > 3)
    };
    let mut word = words
        .clone()
        .find(telling)
        .or_else(|| words.any(|word| word == "GemmUniversal").then_some("cutlass_gemm"))?;
    for suffix in words_of("lost ending") {
        word = word.strip_suffix(suffix).unwrap_or(word);
    }
    for prefix in words_of("lost beginning") {
        word = word.strip_prefix(prefix).unwrap_or(word);
    }
    (!word.is_empty()).then(|| word.to_owned())
}

/// Least characters of a kernel before the operation in brackets.
const LEAST_BASE: usize = 12;

/// Shortens a readable name to a number of characters. The operation in brackets at its end is kept, if there is room.
pub fn fit(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    let operation = name.rfind('[').filter(|_| name.ends_with(']'));
    let split = operation.and_then(|at| {
        let (base, operation) = (name.get(..at)?, name.get(at..)?);
        let room = most.checked_sub(operation.chars().count())?;
        (room >= LEAST_BASE).then(|| format!("{}{operation}", cut(base, room)))
    });
    split.unwrap_or_else(|| cut(name, most))
}

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
    pub fn split(name: &'a str) -> Self {
        let mut open: Vec<char> = Vec::new();
        // Number of each kind in `open`, so that no closing bracket is searched for in vain.
        let mut inside = [0usize; 4];
        let kind = |c| match c {
            '(' | ')' => 0,
            '[' | ']' => 1,
            '{' | '}' => 2,
            _ => 3,
        };
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
                    inside[kind(c)] += 1;
                }
                '(' | '[' | '{' => {
                    open.push(c);
                    inside[kind(c)] += 1;
                }
                '>' if open.last() == Some(&'<') && !compares(name, at) => {
                    open.pop();
                    inside[kind(c)] -= 1;
                }
                // ncu leaves out the bracket before an inner lambda.
                ')' | ']' | '}' => {
                    let left = inside[kind(c)].saturating_sub(1);
                    while inside[kind(c)] > left
                        && let Some(opened) = open.pop()
                    {
                        inside[kind(opened)] -= 1;
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

/// The most characters of what tells two kernels apart, and as many as it has beside a long name.
const MOST_DETAIL: usize = 32;
const LEAST_DETAIL: usize = 20;

/// Length from which on a word is split at its underscores.
const LONG_WORD: usize = 24;

/// The most words of a name that are compared.
const MOST_WORDS: usize = 256;

/// Short names of the kernels of an analysis; different kernels have different ones.
#[derive(Debug, Default)]
pub struct ShortNames {
    by_name: FxHashMap<String, String>,
    /// By the form in which tools agree.
    by_canonical: FxHashMap<String, String>,
}

impl ShortNames {
    /// Takes the short names of the kernels and names the measured kernels that the timeline does not hold.
    pub fn of(analysis: &Analysis) -> Self {
        let pair = |kernel: &Kernel| (kernel.name.clone(), kernel.short_name.clone());
        let mut names = Self { by_name: analysis.kernels.iter().map(pair).collect(), ..Self::default() };
        if analysis.counters.is_empty() {
            return names;
        }
        for kernel in &analysis.kernels {
            let canonical = names.by_canonical.entry(canonical(&kernel.name));
            canonical.or_insert_with(|| kernel.short_name.clone());
        }
        let measured = analysis.counters.iter().map(|row| row.kernel.as_str());
        let others = measured.filter(|name| names.find(name).is_none());
        let taken = analysis.kernels.iter().map(|kernel| kernel.short_name.clone());
        let others = distinct_short_names(others, taken.collect());
        names.by_name.extend(others);
        names
    }

    /// Returns the short name of a kernel.
    pub fn get(&self, name: &str) -> String {
        self.find(name).map_or_else(|| short_name(name), str::to_owned)
    }

    fn find(&self, name: &str) -> Option<&str> {
        let known = self.by_name.get(name);
        let known = known.or_else(|| {
            // Without counters, every name is that of the timeline.
            let canonical = (!self.by_canonical.is_empty()).then(|| canonical(name))?;
            self.by_canonical.get(&canonical)
        });
        known.map(String::as_str)
    }
}

/// Returns the short name of each kernel name, none of which is in `taken`. Where kernels would share one, the words in which they
/// differ are appended.
pub fn distinct_short_names<'a>(
    names: impl IntoIterator<Item = &'a str>,
    taken: FxHashSet<String>,
) -> FxHashMap<String, String> {
    let mut groups: BTreeMap<String, BTreeMap<&str, String>> = BTreeMap::new();
    for name in names {
        let clean = clean(name);
        let short = fit(&readable(&clean), MOST);
        groups.entry(short).or_default().insert(name, clean);
    }
    let mut suffixes = Suffixes(taken.into_iter().map(|name| (name, 1)).collect());
    let alone = |group: &BTreeMap<&str, String>| group.len() == 1;
    let mut names_by_kernel = FxHashMap::default();
    for (short, group) in groups.iter().filter(|(_, group)| alone(group)) {
        let distinct = suffixes.distinct(short, "");
        names_by_kernel.extend(group.keys().map(|name| ((*name).to_owned(), distinct.clone())));
    }
    for group in groups.values().filter(|group| !alone(group)) {
        for ((name, clean), detail) in group.iter().zip(differences(&compared(group.values()))) {
            let readable = readable(clean);
            let left = MOST.saturating_sub(readable.chars().count() + 2);
            let detail = match detail.as_str() {
                "" => String::new(),
                detail => format!("<{}>", cut(detail, left.clamp(LEAST_DETAIL, MOST_DETAIL))),
            };
            let distinct = suffixes.distinct(&readable, &detail);
            names_by_kernel.insert((*name).to_owned(), distinct);
        }
    }
    names_by_kernel
}

/// Names that are in use, with the last number appended to each.
struct Suffixes(FxHashMap<String, u32>);

impl Suffixes {
    /// Appends `suffix` to a name and, where the result is in use, a number.
    fn distinct(&mut self, name: &str, suffix: &str) -> String {
        let with = |suffix: &str| {
            let room = MOST.saturating_sub(suffix.chars().count());
            format!("{}{suffix}", fit(name, room))
        };
        let first = with(suffix);
        let mut distinct = first.clone();
        let mut number = self.0.get(&first).copied().unwrap_or(0);
        while self.0.contains_key(&distinct) {
            number += 1;
            distinct = with(&format!("{suffix}#{number}"));
        }
        self.0.insert(distinct.clone(), 1);
        self.0.insert(first, number.max(1));
        distinct
    }
}

/// Splits a name into the words that may differ: parts of the name itself, then template arguments and parameters.
fn words(clean: &str) -> Vec<&str> {
    let parts = Parts::split(clean);
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let rest = [parts.arguments, parts.parameters, parts.outer];
    let rest = rest
        .into_iter()
        .flat_map(|text| text.split(move |c| !in_word(c)).filter(|word| !word.is_empty()))
        .flat_map(|word| {
            let long = word.len() > LONG_WORD && !is_word("empty", word);
            word.split(move |c| long && c == '_').filter(|part| !part.is_empty())
        });
    parts.base.split('_').chain(rest).take(MOST_WORDS).collect()
}

/// Returns the words of each name in the order in which they are compared: those that tell something, then at the same positions of
/// every list the others.
fn compared<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Vec<&'a str>> {
    let split = names.map(|clean| {
        let empty = |word: &&str| is_word("empty", word);
        words(clean).into_iter().partition::<Vec<_>, _>(|word| !empty(word))
    });
    let split: Vec<(Vec<&str>, Vec<&str>)> = split.collect();
    let longest = split.iter().map(|(telling, _)| telling.len()).max().unwrap_or(0);
    let join = |(mut telling, empty): (Vec<&'a str>, Vec<&'a str>)| {
        telling.resize(longest, "");
        telling.extend(empty);
        telling
    };
    split.into_iter().map(join).collect()
}

/// Shortens a word that tells kernels apart: the operation of a functor is in the name already.
fn brief(word: &str) -> &str {
    match word.strip_prefix("CUDAFunctor") {
        Some(rest) => rest.split('_').next().unwrap_or(""),
        None => match word.strip_suffix("Functor") {
            Some(rest) if !rest.is_empty() => rest,
            _ => word,
        },
    }
}

/// Returns for each list the words at the fewest positions, from the left, that tell all lists apart.
fn differences(lists: &[Vec<&str>]) -> Vec<String> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let mut class = vec![0u32; lists.len()];
    let mut classes = 1;
    let mut chosen = Vec::new();
    for at in 0..longest {
        if classes == lists.len() {
            break;
        }
        let mut numbers: FxHashMap<(u32, &str), u32> = FxHashMap::default();
        let refined: Vec<u32> = lists
            .iter()
            .zip(&class)
            .map(|(list, &class)| {
                let next = numbers.len() as u32;
                *numbers.entry((class, list.get(at).copied().unwrap_or(""))).or_insert(next)
            })
            .collect();
        if numbers.len() > classes {
            classes = numbers.len();
            class = refined;
            chosen.push(at);
        }
    }
    let of = |list: &Vec<&str>| {
        let words = chosen.iter().filter_map(|&at| list.get(at).copied());
        words.map(brief).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(",")
    };
    lists.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn brackets_that_nothing_opened_are_passed_over() {
        let name = format!("f{}{}", "<".repeat(400_000), ")".repeat(400_000));
        assert_eq!(Parts::split(&name).base, "f");
        assert_eq!(Parts::split("a::f<[(<]>::g(int)").base, "g");
        assert_eq!(Parts::split("f<g)>(int)").parameters, "(int)");
    }

    #[test]
    fn real_names() {
        let real = [
            (
                "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
                "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
            ),
            ("void internal::gemvx::kernel<int, int, __nv_bfloat16, float, 0, 1>(T12)", "gemvx::kernel"),
            (
                "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>(T1::Params)",
                "FlashAttnFwdSm90",
            ),
            (
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, float, false, 7>(T12)",
                "gemvx::kernel",
            ),
            (
                "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)",
                "fused_add_rms_norm_kernel",
            ),
            ("void gemvNSP_kernel<__nv_bfloat16, 1, 32, 4, 1024>(T1)", "gemvNSP_kernel"),
            (
                "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)2>, 4>(T1 *)",
                "CatArrayBatchedCopy",
            ),
            (
                "at::native::<unnamed>::masked_scatter_size_check(const long *, const bool *, long)",
                "masked_scatter_size_check",
            ),
            (
                "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
                "elementwise_kernel[Mul]",
            ),
            (
                "void at::native::vectorized_elementwise_kernel<(int)8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)::[lambda() (instance 2)]>(int)",
                "vectorized_elementwise_kernel[Gelu]",
            ),
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}>(int)",
                "vectorized_elementwise_kernel[silu]",
            ),
            (
                "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int>>(T3)",
                "reduce_kernel[Mean]",
            ),
            (
                "void at::native::reduce_kernel<(int)128, (int)4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator ()(at::TensorIterator &)::[lambda(float, float) (instance 1)]>, unsigned int>>(T3)",
                "reduce_kernel[sum]",
            ),
            (
                "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)",
                "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
            ),
            (
                "void <unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(const c10::Scalar &)::[lambda() (instance 1)]>(T1)",
                "elementwise_kernel_with_index[arange]",
            ),
            (
                "void unrolled_elementwise_kernel<direct_copy_kernel_cuda(TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() lambda() (instance 7)]::operator ()() lambda(float) (instance 1)], array<char *, 2>, 4>(int, T1, T2)",
                "unrolled_elementwise_kernel[direct_copy]",
            ),
            (
                "enable_if<!T7, void>::type kernel<int, int, __nv_bfloat16, 0, cublasGemvParamsEx<int, float>>(T12)",
                "cublas_gemv",
            ),
            ("triton_poi_fused_add_mul_silu_3", "triton_poi_fused_add_mul_silu_3"),
            (
                "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__merge_sort::MergeAgent<int*, int*, long, cudf::row_lexicographic_comparator<false> >, bool>(bool)",
                "_kernel_agent[merge_sort]",
            ),
            (
                "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<thrust::cuda_cub::__fill::functor<int*, int>, long>, thrust::cuda_cub::__fill::functor<int*, int>, long>(long)",
                "_kernel_agent[fill]",
            ),
            (
                "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<cudf::reduce_functor<int>, long>, long>(long)",
                "_kernel_agent[reduce]",
            ),
            (
                "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::normal_and_transform<float> >(long)",
                "distribution_elementwise_grid_stride_…[normal_and_transform]",
            ),
            ("", ""),
        ];
        for (name, expected) in real {
            assert_eq!(short_name(name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_short_line(name in ".{0,300}") {
            let short = short_name(&name);
            prop_assert!(short.chars().count() <= MOST);
            prop_assert!(!short.chars().any(char::is_control));
        }
    }

    #[test]
    fn real_names_are_split() {
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
            let parts = Parts::split(&clean);
            assert_eq!((parts.outer, parts.base, parts.arguments), (outer, base, arguments), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_split(name in "[a-z:<>() {}\\[\\]é,]{0,60}") {
            let parts = Parts::split(&name);
            prop_assert!(name.contains(parts.whole) && name.contains(parts.base));
        }
    }

    fn short(names: &[&str]) -> Vec<String> {
        let found = distinct_short_names(names.iter().copied(), FxHashSet::default());
        names.iter().map(|name| found[*name].clone()).collect()
    }

    #[test]
    fn kernels_differ_by_their_template_arguments() {
        assert_eq!(
            short(&[
                "void gemvNSP_kernel<float, float, 1, 16, 4, 1024>(T1)",
                "void gemvNSP_kernel<float, float, 1, 32, 4, 1024>(T1)",
                "void gemv2T_kernel_val<int, float, 128>(T1)",
            ]),
            ["gemvNSP_kernel<16>", "gemvNSP_kernel<32>", "gemv2T_kernel_val"]
        );
        assert_eq!(
            short(&[
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int)",
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>, std::array<char*, 1ul> >(int)",
                "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<long>, std::array<char*, 1ul> >(int)",
            ]),
            [
                "vectorized_elementwise_kernel[Fill]<4,int>",
                "vectorized_elementwise_kernel[Fill]<4,long>",
                "vectorized_elementwise_kernel[Fill]<2,long>",
            ]
        );
    }

    #[test]
    fn the_operation_stays_readable() {
        let elementwise = |functor: &str| {
            format!(
                "void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, at::detail::Array<char*, 3> >(int)"
            )
        };
        let names = [
            elementwise("CUDAFunctor_add<float>"),
            elementwise("CUDAFunctorOnSelf_add<float>"),
            elementwise("CUDAFunctorOnSelf_add<c10::BFloat16>"),
            elementwise("AUnaryFunctor<float, float, bool, at::native::CompareEqFunctor<float> >"),
            elementwise(
                "BinaryFunctor<c10::BFloat16, c10::BFloat16, bool, at::native::CompareEqFunctor<c10::BFloat16> >",
            ),
        ];
        assert_eq!(
            short(&names.each_ref().map(String::as_str)),
            [
                "vectorized_elementwise_kernel[add]<float>",
                "vectorized_elementwise_kernel[add]<OnSelf,float>",
                "vectorized_elementwise_kernel[add]<OnSelf,BFloat16>",
                "vectorized_elementwise_kernel[CompareEq]<AUnary>",
                "vectorized_elementwise_kernel[CompareEq]<Binary>",
            ]
        );
        let random = "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, \
                      at::native::templates::cuda::normal_and_transform<TYPE, float> >(long)";
        let names = ["c10::BFloat16", "float"].map(|kind| random.replace("TYPE", kind));
        assert_eq!(
            short(&names.each_ref().map(String::as_str)),
            [
                "distribution_elementwise_gr…[normal_and_transform]<BFloat16>",
                "distribution_elementwise_grid_…[normal_and_transform]<float>",
            ]
        );
    }

    #[test]
    fn words_that_say_nothing_differ_last() {
        let kernel = |wrapper: &str, kind: &str| {
            format!(
                "void at::native::elementwise_kernel<128, 4, at::native::{wrapper}<at::native::CUDAFunctor_add<{kind}> >(int)>(int)"
            )
        };
        let names = [
            kernel("gpu_kernel_impl_nocast", "c10::BFloat16"),
            kernel("gpu_kernel_impl_nocast", "float"),
            kernel("gpu_kernel_impl", "double"),
        ];
        assert_eq!(
            short(&names.each_ref().map(String::as_str)),
            [
                "elementwise_kernel[add]<BFloat16>",
                "elementwise_kernel[add]<float>",
                "elementwise_kernel[add]<double>",
            ]
        );
        // Where nothing else differs, they do.
        let names = [kernel("gpu_kernel_impl_nocast", "float"), kernel("gpu_kernel_impl", "float")];
        assert_eq!(
            short(&names.each_ref().map(String::as_str)),
            ["elementwise_kernel[add]<gpu_kernel_impl_nocast>", "elementwise_kernel[add]<gpu_kernel_impl>",]
        );
    }

    #[test]
    fn long_words_differ_by_their_parts() {
        let names = [2, 8].map(|align| {
            let kernel =
                format!("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align{align}");
            format!("void cutlass::Kernel<{kernel}>({kernel}::Params)")
        });
        assert_eq!(
            short(&names.each_ref().map(String::as_str)),
            [
                "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x3…<align2>",
                "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x3…<align8>",
            ]
        );
    }

    #[test]
    fn names_cut_to_the_same_text_differ_by_what_was_cut() {
        let names = [
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x16x128_MI16x16x1_SN_LDSB0_AFC1_AG0_AFEM1",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x16x128_MI16x16x1_SN_LDSB1_AFC1_AG0_AFEM1",
        ];
        let shortened = short(&names);
        assert_eq!(
            shortened,
            [
                "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x1…<LDSB0>",
                "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x1…<LDSB1>",
            ]
        );
        assert!(shortened.iter().all(|name| name.chars().count() == MOST));
    }

    #[test]
    fn kernels_differ_even_where_their_words_do_not() {
        let names = ["void f<int>(T1 *)", "void f<int>(T1 &)", "void f<int, 2>(T1 *)"];
        let found: FxHashSet<String> = short(&names).into_iter().collect();
        assert_eq!(found.len(), names.len());
        let twice = distinct_short_names(["f(int)", "f(int)"], FxHashSet::default());
        assert_eq!(twice["f(int)"], "f", "the same kernel twice keeps its name");
    }

    #[test]
    fn a_name_made_distinct_is_not_that_of_another_kernel() {
        let names = ["void f<16>(T1)", "void f<32>(T1)", "g<16>", "f[<16>]"];
        let found: FxHashSet<String> = short(&names).into_iter().collect();
        assert_eq!(found.len(), names.len());
        let taken: FxHashSet<String> = ["f".to_owned()].into_iter().collect();
        assert_eq!(distinct_short_names(["void f<16>(T1)"], taken)["void f<16>(T1)"], "f#2");
    }

    #[test]
    fn measured_kernels_have_the_name_of_their_row_in_the_timeline() {
        let kernel = |name: &str, short: &str| Kernel {
            name: name.into(),
            short_name: short.into(),
            ..Kernel::default()
        };
        let row = |name: &str| crate::result::CounterRow { kernel: name.into(), ..Default::default() };
        let analysis = Analysis {
            kernels: vec![
                kernel("void ns::f<(int)4>(int)", "f<4>"),
                kernel("void ns::f<(int)8>(int)", "f<8>"),
            ],
            counters: vec![row("void f<8>(int)"), row("void f<16>(int)"), row("void f<32>(int)")],
            ..Analysis::default()
        };
        let names = ShortNames::of(&analysis);
        let shown: Vec<String> = analysis.counters.iter().map(|row| names.get(&row.kernel)).collect();
        assert_eq!(shown, ["f<8>", "f<16>", "f<32>"]);
        assert_eq!(names.get("void ns::f<(int)4>(int)"), "f<4>");
        assert_eq!(names.get("elsewhere()"), "elsewhere");
    }
}
