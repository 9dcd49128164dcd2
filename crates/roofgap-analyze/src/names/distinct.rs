//! Short names that differ for different kernels.

use super::family::is_word;
use super::short::{MOST, Parts, clean, fit, readable, short_name};
use crate::counters::canonical;
use crate::result::{Analysis, Kernel};
use roofgap_base::text::cut;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

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
