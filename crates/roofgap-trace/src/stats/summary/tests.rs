use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};

const HEADER: &str =
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name";

fn read_bytes(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut trace = Trace::default();
    read(file.path(), &mut trace).map(|()| trace)
}

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut text = String::new();
    let mut unpacked = roofgap_base::file::Unpacked::open(&folder.join(name)).unwrap();
    unpacked.read_to_string(&mut text).unwrap();
    text
}

/// Name, total, calls, median, shortest and longest of each kernel.
type Row = (String, i64, u64, Option<f64>, Option<i64>, Option<i64>);

fn rows(trace: &Trace) -> Vec<Row> {
    let row = |k: &KernelTotal| {
        (trace.names.get(k.name).to_owned(), k.total_ns, k.calls, k.median_ns, k.min_ns, k.max_ns)
    };
    trace.kernel_totals.iter().map(row).collect()
}

#[test]
fn a_real_summary() {
    for (file, kernels, launches, total) in [
        ("h200/llama4_cuda_gpu_kern_sum.csv.gz", 48, 3_490, 11_924_276),
        ("h200/dsocr2_cuda_gpu_kern_sum.csv.gz", 118, 21_722, 103_104_426),
    ] {
        let text = fixture(file);
        let trace = read_bytes(text.as_bytes()).unwrap();
        assert_eq!(trace.kernel_totals.len(), kernels, "{file}");
        assert_eq!(trace.kernel_totals.iter().map(|k| k.calls).sum::<u64>(), launches, "{file}");
        assert_eq!(trace.kernel_totals.iter().map(|k| k.total_ns).sum::<i64>(), total, "{file}");
        assert_eq!(trace.losses.count(LossKind::SummaryOnly), kernels as u64);
        assert_eq!(trace.losses.iter().count(), 1, "{:?}", trace.losses);
    }
}

#[test]
fn a_longest_launch_below_the_shortest_is_a_loss() {
    let read = |times: &str| {
        let trace = read_bytes(format!("{HEADER}\n100.0,6000,2,3000.0,{times},0.0,a\n").as_bytes()).unwrap();
        let (_, total, calls, median, min, max) = rows(&trace).remove(0);
        assert_eq!((total, calls), (6_000, 2));
        (median, min, max, trace.losses.count(LossKind::ValueOutOfRange))
    };
    assert_eq!(read("3000.0,2000,4000"), (Some(3_000.0), Some(2_000), Some(4_000), 0));
    // The longest below the shortest, the median beyond both, and a mean that is not between them.
    for times in ["3000.0,4000,2000", "5000.0,2000,4000", "3500.0,3500,4000", "1500.0,1000,2000"] {
        assert_eq!(read(times), (None, None, None, 1), "{times}");
    }
}

#[test]
fn every_way_to_print_the_same_capture_gives_the_same() {
    let plain = read_bytes(fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz").as_bytes()).unwrap();
    let titled = read_bytes(fixture("kernel-summary/printed.csv.gz").as_bytes()).unwrap();
    assert_eq!(rows(&plain), rows(&titled));
    let microseconds = read_bytes(fixture("kernel-summary/microseconds.csv.gz").as_bytes()).unwrap();
    assert_eq!(rows(&plain), rows(&microseconds));
    let without_median = |trace: &Trace| {
        let mut rows = rows(trace);
        rows.iter_mut().for_each(|row| row.3 = None);
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        rows
    };
    let by_shape = read_bytes(fixture("kernel-summary/grid_block.csv.gz").as_bytes()).unwrap();
    assert_eq!(without_median(&plain), without_median(&by_shape));
    assert!(by_shape.kernel_totals.iter().any(|k| k.median_ns.is_none()));
}

/// Long names are cut, everything else is the same.
#[test]
fn text_in_columns_has_the_same_totals() {
    let plain = read_bytes(fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz").as_bytes()).unwrap();
    let cut: Vec<KernelTotal> = plain
        .kernel_totals
        .iter()
        .copied()
        .filter(|k| plain.names.get(k.name).chars().count() > 100)
        .collect();
    for file in ["nsys-stats/llama4_default.txt.gz", "nsys-stats/llama4_table.txt.gz"] {
        let text = read_bytes(fixture(file).as_bytes()).unwrap();
        let sums = |trace: &Trace| {
            let totals = &trace.kernel_totals;
            (totals.iter().map(|k| k.total_ns).sum::<i64>(), totals.iter().map(|k| k.calls).sum::<u64>())
        };
        assert_eq!(sums(&plain), sums(&text), "{file}");
        assert_eq!(text.losses.count(LossKind::NameCut), cut.len() as u64, "{file}");
        let short = |trace: &Trace| -> Vec<Row> {
            rows(trace).into_iter().filter(|row| row.0.chars().count() < 100).collect()
        };
        assert!(short(&text).len() > 10, "{file}");
        assert_eq!(short(&plain), short(&text), "{file}");
    }
    let whole = read_bytes(fixture("nsys-stats/llama4_nolimit.txt.gz").as_bytes()).unwrap();
    assert_eq!(rows(&plain), rows(&whole));
    assert_eq!(whole.losses.iter().count(), 1, "{:?}", whole.losses);
}

#[test]
fn seconds_are_rounded_and_it_says_so() {
    let trace = read_bytes(fixture("kernel-summary/seconds.csv.gz").as_bytes()).unwrap();
    let first = trace.kernel_totals[0];
    assert_eq!((first.total_ns, first.calls, first.min_ns), (1_400_000, 128, None));
    assert_eq!(trace.losses.count(LossKind::TimeRounded), trace.kernel_totals.len() as u64);
}

#[test]
fn a_summary_that_lost_rows_says_so() {
    let text = fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz");
    let half: String = text.split_inclusive('\n').take(10).collect();
    let trace = read_bytes(half.as_bytes()).unwrap();
    assert_eq!(trace.kernel_totals.len(), 9);
    assert_eq!(trace.losses.count(LossKind::CaptureCut), 1);
}

/// Wherever in its first half a summary is cut, it is refused or says that rows are missing.
#[test]
fn a_summary_cut_in_a_row_is_refused() {
    let text = fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz");
    let header = text.find('\n').unwrap() + 1;
    for end in (header + 1..text.len() / 2).step_by(3) {
        match read_bytes(&text.as_bytes()[..end]) {
            Err(ReadError::Damaged { .. }) => {}
            Err(other) => panic!("at {end}: {other}"),
            Ok(trace) => {
                assert!(text[..end].ends_with('\n'), "a row cut at {end} is read");
                assert_eq!(trace.losses.count(LossKind::CaptureCut), 1, "at {end}");
            }
        }
    }
}

#[test]
fn tables_after_it_are_left_alone() {
    let text = format!(
        "\n ** CUDA GPU Kernel Summary (gpukernsum):\n\n{HEADER}\r\n100.0,\"1,200\",2,600.0,600.0,500,700,1.0,\"a, b\"\r\n\r\n\
         Time (%),Total Time (ns),Num Calls,Name\r\n100.0,5,1,cudaFree\r\n"
    );
    let trace = read_bytes(text.as_bytes()).unwrap();
    assert_eq!(rows(&trace), [("a, b".to_owned(), 1200, 2, Some(600.0), Some(500), Some(700))]);
}

/// As the first releases wrote them: without a median, and with spaces after the commas.
#[test]
fn spaces_around_cells_do_not_count() {
    let text = "Time(%), Total Time (ns), Instances, Average, Minimum, Maximum, Name\n 100.0, 1200, 2, 600.0, 500, 700, k\n";
    let trace = read_bytes(text.as_bytes()).unwrap();
    assert_eq!(rows(&trace), [("k".to_owned(), 1200, 2, None, Some(500), Some(700))]);
}

/// `nsys stats` without a choice of reports prints the ranges and the calls first, as many as there are.
#[test]
fn tables_before_it_are_passed_over() {
    let row = "0.1,\"1,200\",2,600.0,600.0,500,700,1.0,PushPop,a range with a name of its own\n";
    let before = format!(
        "Processing [a.sqlite] with [reports/nvtx_sum.py]... \n\
         Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range\n{}\n",
        row.repeat(3000)
    );
    let text = format!("{before}{HEADER}\n100.0,1200,2,600.0,600.0,500,700,1.0,k\n\n");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let input = crate::read(&[file.path().to_path_buf()]).unwrap();
    assert_eq!(rows(&input.trace), [("k".to_owned(), 1200, 2, Some(600.0), Some(500), Some(700))]);
}

#[test]
fn broken_tables_are_refused() {
    for (text, what) in [
        (String::new(), "found an empty file"),
        ("a,b\n1,2\n".into(), "found `a,b`"),
        (HEADER.into(), "the table has no rows"),
        (format!("{HEADER}\n1.0,5\n"), "row 1: 2 fields, the header 9"),
        (format!("{HEADER}\n100.0,x,2,1,1,1,1,1,k\n"), "row 1: `x` is not a time"),
        (format!("{HEADER}\n100.0,5,0,1,1,1,1,1,k\n"), "row 1: `0` is not a number of launches"),
        (format!("{HEADER}\n100.0,5,1,1,1,1,1,1,\"k"), "a quote is not closed"),
        (
            format!("{HEADER}\n50.0,4611686018427387903,1,1,1,1,1,1,k\n")
                + &"50.0,4611686018427387903,1,1,1,1,1,1,k\n".repeat(2),
            "sum of times or launches overflows",
        ),
        (
            format!(
                "{HEADER}\n50.0,4611686018427387903,1,1,1,1,1,1,k\n50.0,4611686018427387903,1,1,1,1,1,1,l\n"
            ),
            "row 2: the sum of times or launches overflows",
        ),
        (
            format!("{HEADER}\n50.0,1,18446744073709551615,1,1,1,1,1,k\n50.0,1,1,1,1,1,1,1,l\n"),
            "row 1: the sum of times or launches overflows",
        ),
    ] {
        let error = read_bytes(text.as_bytes()).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn it_is_told_by_its_head() {
    assert!(looks_like(fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz").as_bytes()));
    assert!(looks_like(fixture("kernel-summary/printed.csv.gz").as_bytes()));
    for other in
        ["h200/llama4_cuda_api_sum.csv.gz", "h200/llama4_nvtx_kern_sum.csv.gz", "ncu/mt_basic_raw.csv.gz"]
    {
        assert!(!looks_like(fixture(other).as_bytes()), "{other}");
    }
    assert!(!looks_like(b"SQLite format 3\0"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_bytes_are_answered(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut text = fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz").into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = read_bytes(&text);
        let _ = read_bytes(&text[..cut.index(text.len())]);
    }
}
