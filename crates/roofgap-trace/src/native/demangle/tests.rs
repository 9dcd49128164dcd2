//! Against names that nsys demangled itself.

use super::demangle;
use proptest::prelude::*;
use std::io::Read;
use std::path::Path;

fn pairs() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/native/kernel-names.tsv.gz");
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_kernel_is_called_as_nsys_calls_it() {
    let text = pairs();
    let mut checked = 0;
    for line in text.lines() {
        let (mangled, wanted) = line.split_once('\t').unwrap();
        let got = demangle(mangled).unwrap_or_else(|| mangled.to_owned());
        assert_eq!(got, wanted);
        checked += 1;
    }
    assert!(checked > 100);
}

#[test]
fn parts_of_the_language_that_torch_does_not_use() {
    for (mangled, wanted) in [
        ("_Z3addPfS_i", "add(float *, float *, int)"),
        ("_Z1fPFviE", "f(void (*)(int))"),
        ("_Z1fPPFviE", "f(void (**)(int))"),
        ("_Z1fRA4_i", "f(int (&)[4])"),
        ("_Z1fPKPKc", "f(const char *const *)"),
        ("_ZN1a1bC1Ev", "a::b::b()"),
        ("_ZNK1a1bcvbEv", "a::b::operator bool() const"),
        ("_Z1gIJidEEvDpT_", "void g<int, double>(T1...)"),
        ("_Z1hILb1EEvv", "void h<(bool)1>()"),
        ("_ZL6kernelPf", "kernel(float *)"),
        ("_Z1kILi4EEv12_GLOBAL__N_1", "void k<(int)4>(<unnamed>)"),
    ] {
        assert_eq!(demangle(mangled).as_deref().unwrap_or(""), wanted, "{mangled}");
    }
}

#[test]
fn expressions_and_functions_among_template_arguments() {
    for (mangled, wanted) in [
        (
            "_ZN4vllm25fused_add_rms_norm_kernelIN3c108BFloat16ELi8ELb1EEENSt9enable_ifIXaagtT0_Li0Esr4vllm12_typeConvertIT_\
             EE6existsEvE4typeEPS4_lS7_PKS4_fii",
            "std::enable_if<T2>(int)0&&vllm::_typeConvert<T1>::exists, void>::type \
             vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8, (bool)1>(T1 *, long, T1 *, const T1 *, float, int, int)",
        ),
        (
            "_ZN4vllm18act_and_mul_kernelIN3c108BFloat16E14__nv_bfloat162XadL_ZNS_11silu_kernelIS2_EET_RKS5_fEEXadL_ZNS_18pa\
             cked_silu_kernelIS3_EES5_S7_fEELb1ELb1ELb0ELb0EEEvPS5_PS6_ifff",
            "void vllm::act_and_mul_kernel<c10::BFloat16, __nv_bfloat162, &vllm::silu_kernel<c10::BFloat16>, \
             &vllm::packed_silu_kernel<__nv_bfloat162>, (bool)1, (bool)1, (bool)0, (bool)0>(T1 *, const T1 *, int, float, \
             float, float)",
        ),
        ("_Z1fIiEN1aIXntsr1bIT_EE1cEE1dEv", "a<!b<T1>::c>::d f<int>()"),
    ] {
        assert_eq!(demangle(mangled).as_deref().unwrap_or(""), wanted, "{mangled}");
    }
}

#[test]
fn what_is_not_mangled_or_not_understood_stays() {
    for name in ["nvjet_sm90_tst_64x8", "", "_Z", "_ZN", "_ZTV3foo", "_Z99x", "_Z1fS5_", "_Z1fv.kd"] {
        assert_eq!(demangle(name), None, "{name}");
    }
}

proptest! {
    #[test]
    fn no_name_makes_it_fail(rest in "[NZSTIEKPRLJXFAMUDtalijv0-9_]{0,80}") {
        let _ = demangle(&format!("_Z{rest}"));
    }

    #[test]
    fn references_back_cannot_make_it_grow_without_end(depth in 1usize..60) {
        // Each argument list names the one before it twice.
        let mut name = String::from("_Z1fI1xIiiE");
        for at in 0..depth {
            let back = char::from_digit(at as u32 % 36, 36).unwrap().to_ascii_uppercase();
            name.push_str(&format!("1xIS{back}_S{back}_E"));
        }
        name.push_str("Evv");
        if let Some(text) = demangle(&name) {
            prop_assert!(text.len() < 1 << 20);
        }
    }
}
