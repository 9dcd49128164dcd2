//! Real counters against a real timeline, against third-party pages, and against ncu's own lists.

use super::join::{Roofline, TimelineKernel};
use super::readings::Work;
use crate::gpu::{Arch, SCALAR, WorkKind, scalar_metric};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

use roofgap_trace::ncu::{self, CounterSet, Unit};

use super::*;
use crate::stages::StageSet;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> Vec<u8> {
    let path = repository().join("fixtures/ncu").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    if name.ends_with(".gz") {
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("a gz file");
    } else {
        std::io::BufReader::new(file).read_to_end(&mut bytes).expect("a file");
    }
    bytes
}

fn raw(name: &str) -> CounterSet {
    ncu::raw::read(fixture(name).as_slice()).expect("a raw page")
}

/// What `ncu --query-metrics` lists for a chip.
fn listed(chip: &str) -> BTreeSet<(String, String)> {
    let text = String::from_utf8(fixture("query_metrics_ncu2024.csv")).expect("text");
    let rows = text.lines().filter_map(|line| line.strip_prefix(chip)?.strip_prefix(','));
    rows.filter_map(|row| {
        let mut cells = row.split(',');
        Some((cells.next()?.to_owned(), cells.nth(1)?.to_owned()))
    })
    .collect()
}

const CHIPS: [(&str, (u8, u8)); 6] = [
    ("gv100", (7, 0)),
    ("tu102", (7, 5)),
    ("ga100", (8, 0)),
    ("ga102", (8, 6)),
    ("ad102", (8, 9)),
    ("gh100", (9, 0)),
];

#[test]
fn every_metric_asked_for_exists_on_the_chip() {
    for (chip, capability) in CHIPS {
        let listed: BTreeSet<String> = listed(chip).into_iter().map(|(name, _)| name).collect();
        assert!(listed.len() > 40, "{chip}");
        let arch = Arch::with_capability(capability).expect("a known architecture");
        let tensor = Arch::tensor_counters(Some(arch)).map(|counter| counter.metric.to_owned());
        // The packed instructions are Blackwell's.
        let scalar = SCALAR.iter().take(9).map(|(operation, ..)| scalar_metric(operation));
        for metric in light_metrics(Some(capability)).into_iter().chain(tensor).chain(scalar) {
            let base = metric.split('.').next().unwrap_or_default();
            assert!(listed.contains(base), "{base} on {chip}");
        }
    }
}

#[test]
fn units_by_name_are_the_listed_ones() {
    for (chip, _) in CHIPS {
        for (name, unit) in listed(chip) {
            let rollup = if unit == "%" { ".avg.pct_of_peak_sustained_elapsed" } else { ".sum" };
            let listed = ncu::unit::Scaled::parse(&unit).expect("a unit").unit;
            assert_eq!(ncu::unit_of(&format!("{name}{rollup}")), Some(listed), "{name} on {chip}");
        }
    }
}

#[test]
fn no_tensor_operation_is_counted_twice() {
    for (chip, capability) in CHIPS {
        let arch = Arch::with_capability(capability).expect("a known architecture");
        let names: Vec<&str> = Arch::tensor_counters(Some(arch)).map(|counter| counter.metric).collect();
        for name in &names {
            // A name with more words behind it is a part of the shorter one.
            let part_of = names
                .iter()
                .find(|other| name.strip_prefix(**other).is_some_and(|rest| rest.starts_with('_')));
            assert_eq!(part_of, None, "{name} on {chip}");
        }
    }
}

#[test]
fn what_was_asked_on_hopper_is_what_the_rows_need() {
    let set = raw("llama4_light_raw_base.csv.gz");
    let joined = join(std::slice::from_ref(&set), &Timeline::default(), &StageSet::default(), None);
    for measured in &joined.measured {
        let row = &measured.row;
        assert!(row.duration_ns.is_some() && row.flops.is_some() && row.bound.is_some(), "{row:?}");
        assert!(row.dram_bytes.is_some() && row.occupancy_pct.is_some() && row.timeline_ratio.is_none());
    }
    assert_eq!(joined.measured.iter().map(|m| m.row.samples).sum::<u64>(), 46);
    let stages: BTreeSet<_> = joined.measured.iter().filter_map(|m| m.row.stage.clone()).collect();
    assert_eq!(stages, BTreeSet::from(["decode".to_owned(), "prefill".to_owned()]));
}

#[test]
fn the_lm_head_of_a_decode_step_by_hand() {
    // 2048 x 32000 bf16 weights are 131.07 MB; the tile is 8 wide, so 8 columns are computed for one token.
    let set = raw("llama4_light_raw_base.csv.gz");
    let gpu = crate::gpu::lookup("NVIDIA H200", Some((9, 0)), None).expect("in the table");
    let joined = join(std::slice::from_ref(&set), &Timeline::default(), &StageSet::default(), Some(gpu));
    let head = joined
        .measured
        .iter()
        .find(|m| {
            m.row.kernel == "nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT"
                && m.row.stage.as_deref() == Some("decode")
        })
        .expect("the lm_head");
    let row = &head.row;
    assert_eq!(row.grid, [2, 63, 1]);
    assert_eq!(row.dram_bytes, Some(131_099_904 + 2_444_544));
    assert_eq!(row.flops, Some(1_056_964_608));
    assert!((row.intensity.expect("an intensity") - 7.9147).abs() < 1e-3);
    assert!((row.achieved_flops_per_s.expect("a rate") - 1_056_964_608.0 / 36_544e-9).abs() < 1.0);
    // 126 blocks are fewer than 132 multiprocessors, but the memory is at its roof.
    assert_eq!(head.bound, Some(Bound::Dram));
    let point = Roofline::from_readings(&head.readings, gpu).expect("a point");
    assert!(point.roof.ends_with("GB/s"), "{}", point.roof);
    assert!((point.reached_pct - 76.0).abs() < 2.5, "{}", point.reached_pct);
}

#[test]
fn one_report_three_ways_gives_the_same_rows() {
    let stages = StageSet { warmup: Vec::new(), ..StageSet::default() };
    let native = ncu::rep::read(fixture("mt_basic.ncu-rep.gz").as_slice()).expect("a report");
    let page = raw("mt_basic_raw_base.csv.gz");
    let details = ncu::details::read(fixture("mt_basic_details.csv.gz").as_slice()).expect("a details page");
    let rows = |set: CounterSet| join(&[set], &Timeline::default(), &stages, None).measured;
    let (native, page, details) = (rows(native), rows(page), rows(details));
    assert_eq!(native.len(), 2);
    for ((a, b), c) in native.iter().zip(&page).zip(&details) {
        for other in [b, c] {
            assert_eq!(
                (a.bound, &a.row.stage, a.row.grid, a.row.samples),
                (other.bound, &other.row.stage, other.row.grid, other.row.samples)
            );
            let near =
                |x: Option<f64>, y: Option<f64>| (x.expect("a value") - y.expect("a value")).abs() < 0.01;
            assert!(near(a.row.sm_pct, other.row.sm_pct) && near(a.row.dram_pct, other.row.dram_pct));
        }
        let said =
            |m: &Measured| m.advice.iter().map(|a| (a.rule.clone(), a.text.clone())).collect::<Vec<_>>();
        assert_eq!(said(a), said(c));
        assert!(!a.advice.is_empty());
        assert!(b.advice.is_empty());
        assert_eq!(a.row.flops, None);
        assert!(a.row.reason.contains("no counter of work was collected"));
    }
    assert_eq!(
        native.iter().map(|m| m.row.stage.as_deref()).collect::<Vec<_>>(),
        [Some("prefill"), Some("decode")]
    );
}

#[test]
fn pages_of_one_report_are_not_more_samples() {
    let stages = StageSet { warmup: Vec::new(), ..StageSet::default() };
    let details = ncu::details::read(fixture("mt_basic_details.csv.gz").as_slice()).expect("a details page");
    let native = ncu::rep::read(fixture("mt_basic.ncu-rep.gz").as_slice()).expect("a report");
    let joined = join(&[raw("mt_basic_raw.csv.gz"), details, native], &Timeline::default(), &stages, None);
    assert_eq!(joined.measured.iter().map(|m| m.row.samples).collect::<Vec<_>>(), [5, 1]);
    assert!(joined.measured.iter().all(|m| !m.advice.is_empty()));
}

#[test]
fn launches_in_a_warm_up_are_shown_and_in_no_stage() {
    let native = ncu::rep::read(fixture("mt_basic.ncu-rep.gz").as_slice()).expect("a report");
    let joined = join(&[native], &Timeline::default(), &StageSet::default(), None);
    assert!(joined.measured.iter().all(|m| m.row.stage.is_none() && m.row.reason.contains("warm-up")));
}

fn kernel(stage: &str, name: &str, grid: [u32; 3], median_ns: f64) -> TimelineKernel {
    TimelineKernel {
        stage: Some(stage.to_owned()),
        name: name.to_owned(),
        shape: Some((grid, [256, 1, 1])),
        median_ns,
        calls: 10,
        total_ns: (median_ns * 10.0) as i64,
    }
}

#[test]
fn the_join_is_by_name_shape_and_stage() {
    let stages = StageSet { warmup: Vec::new(), ..StageSet::default() };
    let set = raw("mt_basic_raw_base.csv.gz");
    let timeline = Timeline::new(vec![
        kernel("prefill", "void burn<(int)200>(float *, int)", [4096, 1, 1], 10_000.0),
        kernel("decode", "void burn<(int)200>(float *, int)", [4096, 1, 1], 90_000.0),
        kernel("decode", "void burn<(int)20>(float *, int)", [4095, 1, 1], 5_000.0),
    ]);
    let joined = join(&[set], &timeline, &stages, None);
    let [first, second] = joined.measured.as_slice() else { panic!("two rows: {:?}", joined.measured) };
    assert_eq!((first.row.samples, first.matched, first.representative), (5, true, Some(true)));
    assert_eq!(first.row.kernel, "void burn<(int)200>(float *, int)");
    assert!(first.row.timeline_ratio.is_some_and(|ratio| (1.0..1.2).contains(&ratio)));
    assert_eq!(first.timeline_total_ns, 100_000);
    assert!(!second.matched);
    assert!(
        second.row.reason.contains("not in the timeline with this grid and block"),
        "{}",
        second.row.reason
    );
    assert_eq!(second.row.timeline_ratio, None);
    assert_eq!(joined.losses.count(roofgap_trace::LossKind::CounterUnmatched), 1);
}

#[test]
fn other_behaviour_under_ncu_is_flagged() {
    let stages = StageSet { warmup: Vec::new(), ..StageSet::default() };
    let set = raw("mt_basic_raw_base.csv.gz");
    let timeline =
        Timeline::new(vec![kernel("prefill", "void burn<(int)200>(float *, int)", [4096, 1, 1], 3_000.0)]);
    let joined = join(&[set], &timeline, &stages, None);
    let first = &joined.measured[0];
    assert_eq!((first.matched, first.representative), (true, Some(false)));
    assert!(first.row.reason.contains("not representative"), "{}", first.row.reason);
}

#[test]
fn a_stage_unknown_to_ncu_comes_from_the_timeline() {
    let mut set = raw("mt_basic_raw_base.csv.gz");
    set.launches.iter_mut().for_each(|launch| launch.nvtx.clear());
    let timeline =
        Timeline::new(vec![kernel("decode", "void burn<(int)200>(float *, int)", [4096, 1, 1], 10_000.0)]);
    let joined = join(&[set], &timeline, &StageSet::default(), None);
    assert_eq!(joined.measured[0].row.stage.as_deref(), Some("decode"));
    assert_eq!(joined.measured[1].row.stage, None);
}

fn timeline(name: &str) -> Timeline {
    let path = repository().join("fixtures/h200").join(name);
    let trace = roofgap_trace::read(&[path]).expect("a capture").trace;
    Timeline::of_stages(&trace, &crate::analyze(&trace, &crate::Options::default()).stages)
}

#[test]
fn counters_of_a_model_meet_its_timeline() {
    let timeline = timeline("llama4.sqlite.gz");
    let decode: u64 =
        timeline.kernels.iter().filter(|k| k.stage.as_deref() == Some("decode")).map(|k| k.calls).sum();
    assert_eq!(decode, 1496);
    let set = raw("llama4_light_raw_base.csv.gz");
    let gpu = crate::gpu::lookup("NVIDIA H200", Some((9, 0)), None).expect("in the table");
    let joined = join(&[set], &timeline, &StageSet::default(), Some(gpu));
    assert_eq!(joined.measured.len(), 46);
    assert!(joined.measured.iter().all(|m| m.matched && m.row.timeline_ratio.is_some()));
    assert_eq!(joined.losses.iter().count(), 0);
    // What lasts behaves alike under both tools; launches of a microsecond or two take longer under ncu.
    for m in &joined.measured {
        let long = m.timeline_total_ns > 6000 * m.timeline_calls as i64;
        assert!(!long || m.representative == Some(true), "{} {:?}", m.row.kernel, m.row.timeline_ratio);
    }
    let flagged: Vec<&Measured> =
        joined.measured.iter().filter(|m| m.representative == Some(false)).collect();
    assert!(flagged.len() > 10 && flagged.iter().all(|m| m.row.reason.contains("not representative")));
    // ncu's own share of the DRAM peak and the table's bandwidth are two ways to one number.
    for m in joined.measured.iter().filter(|m| m.row.dram_pct.is_some_and(|pct| pct > 20.0)) {
        let point = Roofline::from_readings(&m.readings, gpu).filter(|point| point.roof.ends_with("GB/s"));
        let Some(point) = point else {
            continue;
        };
        assert!((point.reached_pct - m.row.dram_pct.unwrap_or(0.0)).abs() < 1.0, "{}", m.row.kernel);
    }
    let decode: Vec<&Measured> =
        joined.measured.iter().filter(|m| m.row.stage.as_deref() == Some("decode")).collect();
    assert_eq!(decode[0].row.kernel, "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT");
    assert_eq!((decode[0].bound, decode[0].timeline_calls), (Some(Bound::Dram), 64));
}

#[test]
fn counters_of_another_run_are_shown_unmatched() {
    let joined = join(
        &[raw("llama4_light_raw_base.csv.gz")],
        &timeline("dsocr2.sqlite.gz"),
        &StageSet::default(),
        None,
    );
    assert_eq!(joined.measured.iter().map(|m| m.row.samples).sum::<u64>(), 46);
    let unmatched = joined.measured.iter().filter(|m| !m.matched).count() as u64;
    assert!(unmatched > 20);
    assert_eq!(joined.losses.count(roofgap_trace::LossKind::CounterUnmatched), unmatched);
    assert!(
        joined.measured.iter().filter(|m| !m.matched).all(|m| m.row.reason.contains("not in the timeline"))
    );
}

#[test]
fn tables_get_the_shape_with_the_most_time() {
    let timeline = timeline("llama4.sqlite.gz");
    let joined = join(&[raw("llama4_light_raw_base.csv.gz")], &timeline, &StageSet::default(), None);
    let name = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT";
    let kernel = |name: &str| crate::result::Kernel { name: name.to_owned(), ..Default::default() };
    let mut table = [kernel(name), kernel("unheard of")];
    attach(&mut table, &joined, Some("decode"));
    assert_eq!(table[0].counters.as_ref().map(|row| row.grid), Some([4, 8, 1]));
    assert!(table[1].counters.is_none());
    attach(&mut table, &joined, Some("prefill"));
    assert!(table[0].counters.is_none());
}

#[test]
fn forms_are_as_distinct_as_names_and_a_framework_trace_has_the_same() {
    let mut forms = BTreeSet::new();
    for capture in ["llama4.sqlite.gz", "dsocr2.sqlite.gz"] {
        let timeline = timeline(capture);
        let names: BTreeSet<&str> = timeline.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let own: BTreeSet<String> = names.iter().map(|name| canonical(name)).collect();
        assert_eq!(own.len(), names.len(), "{capture}");
        if capture.starts_with("llama4") {
            forms = own;
        }
    }
    let file =
        std::fs::File::open(repository().join("fixtures/h200/llama4.kineto.json.gz")).expect("a trace");
    let trace: serde_json::Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let kernels =
        events.iter().filter(|event| event["cat"] == "kernel").filter_map(|event| event["name"].as_str());
    let kineto: BTreeSet<String> = kernels.map(canonical).collect();
    let strange: Vec<&String> = kineto.difference(&forms).collect();
    assert!(kineto.len() > 25);
    assert!(strange.is_empty(), "{strange:#?}");
}

#[test]
fn a_part_and_its_whole_are_not_added() {
    let page = "\"ID\",\"Process ID\",\"Kernel Name\",\"sm__ops_path_tensor_src_fp8.sum\",\"sm__ops_path_tensor_src_fp8_dst_fp32.sum\",\"sm__ops_path_tensor_src_bf16_dst_fp32.sum\"\n\
                \"\",\"\",\"\",\"\",\"\",\"\"\n\
                \"0\",\"7\",\"gemm\",\"1,000\",\"600\",\"20\"\n";
    let set = ncu::raw::read(page.as_bytes()).expect("a page");
    let work = Work::from_launch(&set, &set.launches[0]).expect("work");
    assert_eq!(work.flops(), Some(1020.0));
    assert_eq!(work.main_kind(), Some(WorkKind::TensorFp8));
}

#[test]
fn operations_of_each_tensor_instruction_count_where_their_sum_was_not_collected() {
    let page = "\"ID\",\"Process ID\",\"Kernel Name\",\"CC\",\"sm__ops_path_tensor_op_utcqmma_src_fp8_dst_fp32_sparsity_off.sum\",\"sm__ops_path_tensor_op_utcqmma_src_fp8_dst_fp32_sparsity_on.sum\",\"sm__ops_path_tensor_src_bf16_dst_fp32.sum\"\n\
                \"\",\"\",\"\",\"\",\"\",\"\",\"\"\n\
                \"0\",\"7\",\"gemm\",\"10.3\",\"1,000\",\"40\",\"0\"\n";
    let set = ncu::raw::read(page.as_bytes()).expect("a page");
    let work = Work::from_launch(&set, &set.launches[0]).expect("work");
    assert_eq!((work.flops(), work.main_kind()), (Some(1040.0), Some(WorkKind::TensorFp8)));
}

#[test]
fn tensor_work_without_its_counter_is_unknown_not_small() {
    let page = "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"CC\",\"sm__inst_executed_pipe_tensor.sum\",\"sm__sass_thread_inst_executed_op_ffma_pred_on.sum\",\"gpu__time_duration.sum\"\n\
                \"\",\"\",\"\",\"\",\"\",\"\",\"inst\",\"inst\",\"ns\"\n\
                \"0\",\"7\",\"gemm\",\"(128, 1, 1)\",\"(64, 1, 1)\",\"9.0\",\"65,536\",\"1,000\",\"5,000\"\n";
    let set = ncu::raw::read(page.as_bytes()).expect("a page");
    assert_eq!(set.value(&set.launches[0], "gpu__time_duration.sum", Unit::NANOSECOND), Some(5000.0));
    let joined = join(&[set], &Timeline::default(), &StageSet::default(), None);
    let row = &joined.measured[0].row;
    assert_eq!((row.flops, row.intensity, row.bound.clone()), (None, None, None));
    assert!(row.reason.contains("tensor instructions ran"), "{}", row.reason);
}

#[test]
fn a_native_capture_names_kernels_as_nsys_does_but_for_the_spelling() {
    let path = repository().join("fixtures/native/kernel-names.tsv.gz");
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("a file");
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("a gz file");
    for line in text.lines() {
        let (mangled, nsys) = line.split_once('\t').expect("two names");
        let own = roofgap_trace::native::demangle(mangled).unwrap_or_else(|| mangled.to_owned());
        assert_eq!(canonical(&own), canonical(nsys));
        assert_eq!(crate::family(&own), crate::family(nsys));
    }
    assert!(text.lines().count() > 100);
}
