use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};

const HEADER: &str =
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name";

fn read_bytes(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    crate::read(&[file.path().to_path_buf()]).map(|input| input.trace)
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

#[test]
fn broken_tables_are_refused() {
    for (text, what) in [
        (String::new(), "found an empty file"),
        ("a,b\n1,2\n".into(), "found text beginning with \"a,b\""),
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
    assert!(find(&fixture("h200/llama4_cuda_gpu_kern_sum.csv.gz")).is_some());
    assert!(find(&fixture("kernel-summary/printed.csv.gz")).is_some());
    for other in
        ["h200/llama4_cuda_api_sum.csv.gz", "h200/llama4_nvtx_kern_sum.csv.gz", "ncu/mt_basic_raw.csv.gz"]
    {
        assert!(find(&fixture(other)).is_none(), "{other}");
    }
    assert!(find("SQLite format 3\0").is_none());
}

#[test]
fn every_unit_is_exact() {
    assert_eq!(TimeUnit(0).ns("1373559"), Some(1_373_559));
    assert_eq!(TimeUnit(0).ns("1,373,559"), Some(1_373_559));
    assert_eq!(TimeUnit(3).ns("1373.559"), Some(1_373_559));
    assert_eq!(TimeUnit(6).ns("1,373.5590"), Some(1_373_559_000));
    assert_eq!(TimeUnit(9).ns("9007199.254740993"), Some(9_007_199_254_740_993));
    assert_eq!(TimeUnit(9).ns("1e-9"), Some(1));
    assert_eq!(TimeUnit(3).tenths("10.6885"), Some(10_688.5));
    for text in ["", "x", "-1", "1,37", "1,3733,559", "1e30", "n/a"] {
        assert_eq!(TimeUnit(0).ns(text), None, "{text}");
    }
}

#[test]
fn missing_digits_are_noticed() {
    assert!(TimeUnit(9).is_rounded("0.0014"));
    assert!(TimeUnit(6).is_rounded("1.3736"));
    assert!(!TimeUnit(3).is_rounded("1373.559"));
    assert!(!TimeUnit(0).is_rounded("1373559"));
}

#[test]
fn headers_of_several_releases() {
    for header in [
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
        "Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),GridXYZ,BlockXYZ,Name",
        "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\r\n",
        "\"Time(%)\",\"Total Time (ns)\",\"Instances\",\"Average\",\"Minimum\",\"Maximum\",\"Name\"",
    ] {
        let columns = Columns::parse(header.trim_end()).expect(header);
        assert_eq!((columns.share, columns.total.0, columns.instances), (Some(0), 1, 2), "{header}");
        assert_eq!(columns.name, header.split(',').count() - 1);
        assert!(columns.min.is_some() && columns.max.is_some());
    }
}

#[test]
fn other_summaries_are_not_kernel_summaries() {
    for header in [
        "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
        "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Category,Operation",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range",
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name",
        "Time (%),Total Time,Instances,Name",
        "",
    ] {
        assert_eq!(Columns::parse(header), None, "{header}");
    }
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
