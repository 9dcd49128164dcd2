//! Our numbers against those of `nsys stats` for the same captures: equal, to the nanosecond.

use flate2::read::GzDecoder;
use roofgap_analyze::{Analysis, Options, Pattern, StageKind, StageRule, StageSet, analyze, violations};
use roofgap_trace::Trace;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/h200").join(name)
}

fn trace(name: &str) -> Trace {
    roofgap_trace::read(&[fixture(&format!("{name}.sqlite.gz"))]).expect("the fixture reads").trace
}

/// Rows of a CSV of `nsys stats`, by column name.
fn stats(capture: &str, report: &str) -> Vec<BTreeMap<String, String>> {
    let file = File::open(fixture(&format!("{capture}_{report}.csv.gz"))).expect("the fixture is there");
    let mut reader = csv::Reader::from_reader(GzDecoder::new(file));
    let header = reader.headers().unwrap().clone();
    let rows: Vec<_> = reader
        .records()
        .map(|row| header.iter().map(String::from).zip(row.unwrap().iter().map(String::from)).collect())
        .collect();
    assert!(!rows.is_empty());
    rows
}

fn int(row: &BTreeMap<String, String>, column: &str) -> i64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is {:?}", row[column]))
}

/// nsys writes medians with one decimal; ours are rounded to whole nanoseconds.
fn rounded(row: &BTreeMap<String, String>, column: &str) -> i64 {
    row[column].parse::<f64>().unwrap().round() as i64
}

const CAPTURES: [&str; 2] = ["llama4", "dsocr2"];

#[test]
fn kernel_totals_equal_nsys() {
    for capture in CAPTURES {
        let analysis = analyze(&trace(capture), &Options::default()).analysis;
        let expected = stats(capture, "cuda_gpu_kern_sum");
        assert_eq!(analysis.kernels.len(), expected.len(), "{capture}");
        let ours: BTreeMap<&str, _> = analysis.kernels.iter().map(|k| (k.name.as_str(), k)).collect();
        for row in &expected {
            let kernel = ours[row["Name"].as_str()];
            assert_eq!(kernel.total_ns, int(row, "Total Time (ns)"), "{capture} {}", kernel.name);
            assert_eq!(kernel.calls as i64, int(row, "Instances"), "{capture} {}", kernel.name);
            let mean: f64 = row["Avg (ns)"].parse().unwrap();
            assert!((kernel.mean_ns as f64 - mean).abs() <= 0.55, "{capture} {}", kernel.name);
            assert_eq!(kernel.median_ns, Some(rounded(row, "Med (ns)")), "{capture} {}", kernel.name);
            assert_eq!(kernel.min_ns, Some(int(row, "Min (ns)")), "{capture} {}", kernel.name);
            assert_eq!(kernel.max_ns, Some(int(row, "Max (ns)")), "{capture} {}", kernel.name);
        }
        let total: i64 = expected.iter().map(|r| int(r, "Total Time (ns)")).sum();
        assert_eq!(analysis.totals.kernel_ns, total);
    }
}

#[test]
fn copies_and_sets_equal_nsys() {
    for capture in CAPTURES {
        let analysis = analyze(&trace(capture), &Options::default()).analysis;
        let rows = stats(capture, "cuda_gpu_mem_time_sum");
        let sum = |word: &str| -> i64 {
            rows.iter().filter(|r| r["Operation"].contains(word)).map(|r| int(r, "Total Time (ns)")).sum()
        };
        assert_eq!(analysis.totals.memcpy_ns, Some(sum("memcpy")), "{capture}");
        assert_eq!(analysis.totals.memset_ns, Some(sum("memset")), "{capture}");
    }
}

/// Every range of the capture as a stage of its own, warm-ups included.
fn every_range_a_stage(trace: &Trace) -> (Options, Analysis) {
    let plain = analyze(
        trace,
        &Options { stages: StageSet { stages: Vec::new(), warmup: Vec::new() }, ..Options::default() },
    )
    .analysis;
    let stages = plain.ranges.iter().map(|r| {
        let pattern = format!("{}@{}", r.domain, r.name);
        let patterns = vec![Pattern::parse(&pattern).unwrap()];
        StageRule {
            name: pattern,
            kind: StageKind::Custom,
            patterns,
            requested: true,
            steps: Vec::new(),
            notes: Vec::new(),
        }
    });
    (
        Options { stages: StageSet { stages: stages.collect(), warmup: Vec::new() }, ..Options::default() },
        plain,
    )
}

#[test]
fn kernels_of_every_range_equal_nsys() {
    for capture in CAPTURES {
        let trace = trace(capture);
        let (options, _) = every_range_a_stage(&trace);
        let analysis = analyze(&trace, &options).analysis;
        let mut checked = 0;
        for row in stats(capture, "nvtx_kern_sum") {
            let Some((domain, name)) = row["NVTX Range"].split_once(':') else {
                continue;
            };
            let stage = analysis.stages.iter().find(|s| s.name == format!("{domain}@{name}"));
            let stage = stage.unwrap_or_else(|| panic!("{capture}: no stage for {domain}:{name}"));
            let kernel = stage.kernels.iter().find(|k| k.name == row["Kernel Name"]);
            let kernel =
                kernel.unwrap_or_else(|| panic!("{capture} {name}: no kernel {}", row["Kernel Name"]));
            assert_eq!(kernel.calls as i64, int(&row, "Kern Inst"), "{capture} {name} {}", kernel.name);
            assert_eq!(kernel.total_ns, int(&row, "Total Time (ns)"), "{capture} {name} {}", kernel.name);
            assert_eq!(kernel.median_ns, Some(rounded(&row, "Med (ns)")), "{capture} {name} {}", kernel.name);
            checked += 1;
        }
        let ours: usize = analysis.stages.iter().map(|s| s.kernels.len()).sum();
        assert_eq!(ours, checked, "{capture}: nothing that nsys does not have");
    }
}

#[test]
fn projected_times_of_every_range_equal_nsys() {
    for capture in CAPTURES {
        let trace = trace(capture);
        let (options, plain) = every_range_a_stage(&trace);
        let analysis = analyze(&trace, &options).analysis;
        for row in stats(capture, "nvtx_gpu_proj_sum") {
            let (domain, name) = row["Range"].split_once(':').unwrap_or(("", &row["Range"]));
            let stage = analysis
                .stages
                .iter()
                .find(|s| s.name == format!("{domain}@{name}"))
                .expect("the stage is there");
            assert_eq!(stage.projected_ns, Some(int(&row, "Total Proj Time (ns)")), "{capture} {name}");
            assert_eq!(stage.wall_ns, int(&row, "Total Range Time (ns)"), "{capture} {name}");
            assert_eq!(stage.instances as i64, int(&row, "Range Instances"), "{capture} {name}");
            assert_eq!(stage.launch_count as i64, int(&row, "Total GPU Ops"), "{capture} {name}");
            let range = plain
                .ranges
                .iter()
                .find(|r| r.domain == domain && r.name == name)
                .expect("the range is there");
            assert_eq!(range.projected_ns, int(&row, "Total Proj Time (ns)"), "{capture} {name}");
            assert_eq!(range.wall_ns, int(&row, "Total Range Time (ns)"), "{capture} {name}");
        }
    }
}

#[test]
fn stages_of_the_captures() {
    let check = |capture: &str, stage: &str, kernels: u64, kernel_ns: i64, wall_ns: i64| {
        let analysis = analyze(&trace(capture), &Options::default()).analysis;
        let stage = analysis.stages.iter().find(|s| s.name == stage).expect("the stage is there").clone();
        assert_eq!(
            (stage.kernel_count, stage.kernel_ns, stage.wall_ns),
            (kernels, Some(kernel_ns), wall_ns),
            "{capture}"
        );
        let idle = stage.idle.expect("there is GPU work");
        assert_eq!(idle.total_ns(), stage.projected_ns.unwrap() - stage.busy_ns.unwrap(), "{capture}");
        assert!(stage.busy_ns <= stage.projected_ns);
        stage
    };
    let decode = check("dsocr2", "decode", 7208, 17_863_193, 239_255_440);
    let idle = decode.idle.unwrap();
    assert!(idle.launch_ns * 10 > idle.total_ns() * 9, "the CPU is the reason: {idle:?}");
    assert_eq!(decode.steps.as_ref().map(|s| (s.count, s.launches_per_step)), Some((8, Some(957.0))));
    let prefill = check("dsocr2", "prefill", 2321, 20_271_242, 81_996_460);
    let notes: Vec<_> = prefill.notes.iter().map(|n| (n.name.as_str(), n.instances)).collect();
    assert_eq!(notes, [("sam", 1), ("vision_encoder", 1), ("projector", 1)], "the warm-up's are left out");
    check("llama4", "decode", 1496, 4_048_308, 71_624_335);
    check("llama4", "prefill", 183, 766_846, 9_256_239);
}

#[test]
fn captures_without_a_gpu_have_stages_and_no_gpu_numbers() {
    for version in ["2022.4.2", "2023.4.4"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../fixtures/nsys-versions/nsys-{version}-cpu-nvtx.sqlite.gz"));
        let trace = roofgap_trace::read(&[path]).expect("the fixture reads").trace;
        let analysis = analyze(&trace, &Options::default()).analysis;
        assert!(!analysis.ranges.is_empty(), "{version}");
        let decode = analysis.stages.iter().find(|s| s.name == "decode").expect("decode is there");
        assert!(decode.wall_ns > 0);
        assert_eq!(
            (decode.busy_ns, decode.kernel_ns, decode.projected_ns, decode.idle),
            (None, None, None, None)
        );
        assert!(analysis.sources[0].tool_version.as_deref().unwrap().starts_with(&version[..4]), "{version}");
    }
}

/// The checks of the analysis hold for every capture of the repository, alone and with its counters.
#[test]
fn no_fixture_contradicts_itself() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let folders = std::fs::read_dir(root).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut analysed = 0;
    for path in files.map(|file| file.unwrap().path()) {
        let Ok(input) = roofgap_trace::read(std::slice::from_ref(&path)) else {
            continue;
        };
        let options = Options { counters: input.counters, ..Options::default() };
        let analysis = analyze(&input.trace, &options).analysis;
        assert_eq!(violations(&analysis), Vec::<String>::new(), "{}", path.display());
        assert!(analysis.losses.iter().all(|loss| loss.id != "inconsistent_numbers"));
        analysed += 1;
    }
    assert!(analysed > 20, "{analysed}");
}
