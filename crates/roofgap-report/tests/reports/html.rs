//! The page without a browser: what is there, what is said to be missing, how large it is.

use crate::fixtures::{Case, PLAIN, fixture, made};
use roofgap_report::{Bundle, page};

fn page(case: &Case) -> String {
    page::render(case.bundle())
}

#[test]
fn a_real_capture_is_small_and_complete() {
    let page = page(&fixture(&["h200/dsocr2.sqlite.gz"]));
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    for part in [
        "NVIDIA H200",
        "launch-bound",
        "Steps of decode",
        "id=\"kernel-table\"",
        "No roofline: ",
        "Show decode in the timeline",
        "<h3>Inputs</h3>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for absent in ["http://", "https://", "src=", "{{"] {
        assert!(!page.contains(absent), "{absent}");
    }
}

#[test]
fn findings_come_first_with_their_evidence_drawn() {
    let page = page(&fixture(&["h200/dsocr2.sqlite.gz"]));
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("id=\"findings\"") < at("id=\"stages\""));
    assert!(at("savings overlap") < at("class=\"findings\""));
    assert!(page.contains("Outlined: the longest gap, "));
    assert!(page.contains("<b>Do: </b>"));
    let flame = &page[at("class=\"flame\"")..];
    assert!(flame.contains("LLM@decode_step"));
}

#[test]
fn the_policy_allows_this_script_only() {
    let page = page(&made(PLAIN));
    let (_, script) = page.split_once("<script>(").unwrap();
    let (script, _) = script.split_once("</script>").unwrap();
    use sha2::Digest;
    let hash = sha2::Sha256::digest(format!("({script}"));
    let (_, policy) = page.split_once("script-src 'sha256-").unwrap();
    let (stated, _) = policy.split_once('\'').unwrap();
    assert_eq!(decode(stated), hash.to_vec());
    assert!(page.contains("default-src 'none'"));
}

fn decode(text: &str) -> Vec<u8> {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = text
        .bytes()
        .filter(|b| *b != b'=')
        .flat_map(|b| {
            let value = letters.iter().position(|l| *l == b).unwrap() as u8;
            (0..6).rev().map(move |i| (value >> i) & 1)
        })
        .collect();
    bits.chunks_exact(8).map(|c| c.iter().fold(0, |v, bit| v << 1 | bit)).collect()
}

#[test]
fn roofs_and_dots_stand_where_counters_are() {
    let page = page(&fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]));
    assert!(page.matches("<circle ").count() > 10);
    assert!(page.contains("DRAM 4.81 TB/s"));
    // Names of roofs stand on the dots, and the source of a compute roof says nothing about caches.
    let name = page.find(">bf16 989.40 TFLOP/s</text>").unwrap();
    assert!(name > page.find("<circle ").unwrap());
    assert!(page.contains("Kernels without floating-point work, by DRAM traffic"));
    let (_, hints) = page.split_once("A dot is one kernel and launch shape").unwrap();
    let (hints, _) = hints.split_once("</p>").unwrap();
    assert_eq!(hints.matches("L2").count(), 1, "{hints}");
}

#[test]
fn what_is_missing_is_said() {
    let summary = fixture(&["h200/llama4_cuda_gpu_kern_sum.csv.gz"]);
    let shown = page(&summary);
    assert!(shown.contains("No timeline: a summary table holds totals"));
    assert!(shown.contains("No stages: "));
    let case = made(PLAIN);
    let without = page::render(Bundle { trace: None, ..case.bundle() });
    assert!(without.contains("No timeline: the capture was not kept"));
    let counters = page(&fixture(&["ncu/llama2_roofline_raw.csv.gz"]));
    assert!(counters.contains("Measured by ncu: 40 launches") && counters.contains("<circle "));
}
