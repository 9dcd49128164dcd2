//! Counters without a timeline: devices, kernels, verdicts, ncu's own rules and findings.

use roofgap_analyze::{About, Analysis, KernelOrigin, Options, analyze};
use roofgap_trace::{Trace, ncu};
use std::path::PathBuf;

fn fixture(names: &[&str]) -> Analysis {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let paths: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    let input = roofgap_trace::read(&paths).expect("the fixtures read");
    let options = Options { counters: input.counters, ..Options::default() };
    analyze(&input.trace, &options).analysis
}

#[test]
fn a_report_names_its_device_and_judges_each_kernel() {
    let analysis = fixture(&["ncu/mt_basic.ncu-rep.gz"]);
    let [device] = analysis.devices.as_slice() else { panic!("{:?}", analysis.devices) };
    assert_eq!(device.name.as_deref(), Some("NVIDIA H200"));
    assert_eq!((device.id, device.sms), (0, Some(132)));
    assert_eq!(analysis.totals.from, KernelOrigin::Counters);
    assert_eq!((analysis.totals.kernel_count, analysis.totals.busy_ns), (6, None));
    let [first, second] = analysis.kernels.as_slice() else { panic!("{:?}", analysis.kernels) };
    assert_eq!((first.calls, second.calls), (5, 1));
    assert!(first.min_ns <= first.median_ns && first.median_ns <= first.max_ns);
    assert_eq!(analysis.totals.kernel_ns, first.total_ns + second.total_ns);
    let bound = |at: usize| analysis.kernels[at].counters.as_ref().unwrap().bound.clone();
    assert_eq!(bound(0).as_deref(), Some("compute-bound"));
    assert_eq!(bound(1).as_deref(), Some("latency-bound"));
    let why = analysis.reason(&About::Kernels).unwrap();
    assert!(why.contains("as ncu measured them"), "{why}");
    assert!(!why.contains("no GPU work"), "{why}");
    assert!(analysis.reason(&About::Stages).unwrap().contains("no timeline"));
}

#[test]
fn rules_of_ncu_are_one_row_per_kernel_and_rule() {
    let analysis = fixture(&["ncu/mt_basic.ncu-rep.gz", "ncu/mt_basic_details.csv.gz"]);
    let rules = &analysis.ncu_rules;
    assert!(!rules.is_empty());
    for rule in rules {
        let kernel = &rule.kernel;
        assert!(kernel.contains("burn"), "{kernel}");
        assert!((1..=5).contains(&rule.launches), "{rule:?}");
        assert!(!rule.text.is_empty() && !rule.section.is_empty());
        let same = |other: &&roofgap_analyze::NcuRule| (&other.kernel, &other.rule) == (kernel, &rule.rule);
        assert_eq!(rules.iter().filter(same).count(), 1, "{rule:?}");
    }
    let kinds: Vec<&str> = rules.iter().map(|rule| rule.kind.as_str()).collect();
    let mut sorted = kinds.clone();
    sorted.sort_by_key(|kind| ["optimization", "warning", "info"].iter().position(|k| k == kind));
    assert_eq!(kinds, sorted);
    // A raw page has no rules.
    assert!(fixture(&["ncu/mt_basic_raw.csv.gz"]).ncu_rules.is_empty());
}

#[test]
fn findings_come_from_the_measured_launches_alone() {
    let analysis = fixture(&["ncu/llama4_light_raw_base.csv.gz"]);
    let ids: Vec<&str> = analysis.findings.iter().map(|f| f.id.as_str()).collect();
    for id in ["memory-below-roof", "small-kernels"] {
        assert!(ids.contains(&id), "{ids:?}");
    }
    let total = analysis.totals.kernel_ns;
    for finding in &analysis.findings {
        assert_eq!(finding.stage, None, "{}", finding.title);
        assert!(finding.title.contains("measured launches"), "{}", finding.title);
        assert!(finding.bound_ns <= total);
        let share = 100.0 * finding.bound_ns as f64 / total as f64;
        assert!((finding.bound_pct - share).abs() < 1e-9);
    }
    // Gaps, waits and streams are not visible to ncu.
    for id in ["launch-bound", "sync-in-step", "host-copies"] {
        assert!(!ids.contains(&id), "{ids:?}");
    }
    let details = fixture(&["ncu/llama2_roofline_details.csv.gz"]);
    assert_eq!((&details.devices[0].name, details.devices[0].sms), (&None, Some(132)));
    assert!(details.findings.iter().any(|f| f.id.starts_with("ncu-")));
}

#[test]
fn a_timeline_keeps_its_own_kernels_and_stages() {
    let analysis = fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    assert_eq!(analysis.totals.from, KernelOrigin::Timeline);
    assert_eq!(analysis.reason(&About::Kernels), None);
    assert!(analysis.findings.iter().all(|finding| finding.stage.is_some()));
    let summary = fixture(&["h200/llama4_cuda_gpu_kern_sum.csv.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    assert_eq!(summary.totals.from, KernelOrigin::Summary);
    assert_eq!(summary.devices[0].name.as_deref(), Some("NVIDIA H200"));
}

#[test]
fn instructions_tell_the_use_of_compute_where_the_whole_was_not_collected() {
    let page = r#""ID","Process ID","Kernel Name","Block Size","Grid Size","CC","gpu__time_duration.sum","sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed","sm__inst_issued.avg.pct_of_peak_sustained_elapsed","sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed"
"","","","","","","ns","%","%","%"
"0","7","decode","(128, 1, 1)","(4096, 1, 1)","10.0","600000","72.4","72.4","51.0"
"#;
    let set = ncu::raw::read(page.as_bytes()).expect("the page reads");
    let options = Options { counters: vec![set], ..Options::default() };
    let analysis = analyze(&Trace::default(), &options).analysis;
    assert_eq!(analysis.counters[0].sm_pct, Some(72.4));
    assert_eq!(analysis.findings[0].id, "pipe-bound");
    assert!(analysis.findings[0].title.contains("the number of instructions"));
}

#[test]
fn launches_without_a_duration_have_no_times() {
    let page = r#""ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","","","","","","","","","","%"
"0","7","a.out","127.0.0.1","gemm","1","7","(128, 1, 1)","(4096, 1, 1)","0","9.0","91.5"
"#;
    let set = ncu::raw::read(page.as_bytes()).expect("the page reads");
    let options = Options { counters: vec![set], ..Options::default() };
    let analysis = analyze(&Trace::default(), &options).analysis;
    assert!(analysis.kernels.is_empty() && analysis.findings.is_empty());
    assert_eq!(analysis.counters[0].bound.as_deref(), Some("compute-bound"));
    assert_eq!(analysis.devices[0].compute_capability.as_deref(), Some("9.0"));
    let why = analysis.reason(&About::Kernels).unwrap();
    assert!(why.contains("gpu__time_duration.sum"), "{why}");
}
