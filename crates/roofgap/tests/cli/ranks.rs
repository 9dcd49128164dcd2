//! Several ranks of a job as one analysis.

use crate::support::{fixture, ok, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Writes a PyTorch trace of a rank: a kernel of `compute` µs and an all-reduce that ends at the same time on all ranks, three times.
fn write_rank(path: &Path, rank: Option<u32>, compute: u32) {
    write_rank_of(path, rank, 3, compute);
}

fn write_rank_of(path: &Path, rank: Option<u32>, world_size: u32, compute: u32) {
    let mut events = Vec::new();
    for step in 0..3 {
        let begin = 1_000 + 500 * step;
        for (number, name, start, end) in [
            (1, "flash_fwd_kernel", begin, begin + compute),
            (2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)", begin + compute, begin + 400),
        ] {
            let correlation = 10 * step + number;
            events.push(format!(
                r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": {}, "dur": 1,
                    "args": {{"correlation": {correlation}}}}},
                   {{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {start}, "dur": {},
                    "args": {{"device": 0, "stream": 7, "correlation": {correlation}}}}}"#,
                begin - 10 + number,
                end - start
            ));
        }
    }
    let job = match rank {
        Some(rank) => format!(r#""distributedInfo": {{"rank": {rank}, "world_size": {world_size}}}, "#),
        None => String::new(),
    };
    let text = format!("{{{job}\"traceEvents\": [{}]}}", events.join(", "));
    std::fs::write(path, text).unwrap();
}

fn analysis(args: &[&str]) -> Value {
    let mut all = vec!["analyze", "--format=json"];
    all.extend(args);
    serde_json::from_str(&ok(all).stdout).unwrap()
}

/// Writes two ranks whose names do not tell them.
fn two(folder: &Path) -> [PathBuf; 2] {
    let paths = ["a.json", "b.json"].map(|name| folder.join(name));
    write_rank(&paths[0], Some(1), 300);
    write_rank(&paths[1], Some(0), 100);
    paths
}

#[test]
fn a_folder_of_ranks_is_one_analysis() {
    let folder = tempfile::tempdir().unwrap();
    two(folder.path());
    std::fs::write(folder.path().join("notes.txt"), "not a capture").unwrap();
    let folder = folder.path().to_str().unwrap();
    let lowest = analysis(&[folder]);
    assert_eq!(lowest["job"]["shown_rank"], 0);
    assert_eq!(lowest["job"]["missing"], serde_json::json!([2]));
    assert_eq!(lowest["totals"]["kernel_ns"], 1_200_000);
    let ranks = lowest["ranks"].as_array().unwrap();
    assert_eq!((&ranks[0]["rank"], &ranks[1]["rank"]), (&Value::from(0), &Value::from(1)));
    assert_eq!(ranks[0]["waited_ns"], 3 * 200_000);
    assert_eq!(ranks[1]["waited_for_ns"], 3 * 200_000);
    assert_eq!((&ranks[0]["told_by"], &ranks[0]["clock_error_ns"]), (&"trace".into(), &0.into()));
    let late = &lowest["job"]["stragglers"][0];
    assert_eq!((&late["rank"], &late["kernel"]), (&1.into(), &"flash_fwd_kernel".into()));
    let other = analysis(&["--rank=1", folder]);
    assert_eq!(other["job"]["shown_rank"], 1);
    assert_eq!(other["ranks"], lowest["ranks"]);
    assert!(other["sources"][0]["path"].as_str().unwrap().ends_with("a.json"));
    let text = ok(["analyze", folder, "--full"]).stdout;
    for words in
        ["rank: 0 of 3 ranks; 2 given", "Ranks that others wait for", "1 of 3 ranks were not given: 2"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn file_names_tell_ranks_as_a_last_resort() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["trace_rank-4.json", "trace_rank-2.json"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| write_rank(path, None, 200));
    let paths = paths.each_ref().map(|path| path.to_str().unwrap());
    let joined = analysis(&paths);
    let ranks = joined["ranks"].as_array().unwrap();
    let seen: Vec<(&Value, &Value, &Value)> =
        ranks.iter().map(|rank| (&rank["rank"], &rank["told_by"], &rank["world_size"])).collect();
    let by_name = Value::from("file_name");
    assert_eq!(seen, [(&2.into(), &by_name, &Value::Null), (&4.into(), &by_name, &Value::Null)]);
    let matched = &joined["job"]["collectives"][0];
    assert_eq!((&matched["matched_by"], &matched["group"]), (&"order".into(), &Value::Null));
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_has_the_events_of_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    two(&traces);
    let out = folder.path().join("tables");
    ok(["export", "parquet", "--events", traces.to_str().unwrap(), "--to", out.to_str().unwrap()]);
    let files = |table: &str| -> Vec<String> {
        let date = std::fs::read_dir(out.join(table)).unwrap().next().unwrap().unwrap().path();
        let names = std::fs::read_dir(date).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let [run] = files("runs").try_into().unwrap();
    let key = run.strip_suffix(".parquet").unwrap();
    assert_eq!(files("launches"), ["0", "1"].map(|rank| format!("{key}-{rank}.parquet")));
    assert_eq!(files("ranks"), [run]);
}

#[test]
fn timelines_that_are_no_ranks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = two(folder.path());
    let c = folder.path().join("c.json");
    write_rank(&c, None, 200);
    let d = folder.path().join("d.json");
    write_rank(&d, None, 200);
    let e = folder.path().join("e.json");
    write_rank_of(&e, Some(2), 8, 200);
    for (paths, words) in [
        ([&a, &e], "their jobs have 3 and 8 ranks"),
        ([&c, &d], "nothing tells that they are ranks of one job"),
        ([&a, &a], "both are of rank 1"),
    ] {
        let refused = run(["analyze".as_ref(), paths[0].as_os_str(), paths[1].as_os_str()]);
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("a second timeline"), "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    let absent = run(["analyze".as_ref(), "--rank=7".as_ref(), a.as_os_str(), b.as_os_str()]);
    assert_eq!(absent.status, Some(2), "{}", absent.stderr);
    assert!(absent.stderr.contains("not among the ranks given (0, 1)"), "{}", absent.stderr);
    let partial = run(["analyze".as_ref(), a.as_os_str(), b.as_os_str(), c.as_os_str()]);
    assert_eq!(partial.status, Some(3), "{}", partial.stderr);
    assert!(partial.stderr.contains("c.json: neither the capture nor its file name tells its rank"));
}

#[test]
fn a_folder_has_a_timeline_and_its_counters() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        ("h200/llama4.sqlite.gz", "timeline.sqlite.gz"),
        ("ncu/llama4_light_raw_base.csv.gz", "counters.csv.gz"),
        // Totals of the same timeline, which are left out.
        ("h200/llama4_cuda_gpu_kern_sum.csv.gz", "kernels.csv.gz"),
    ];
    for (from, to) in names {
        std::fs::copy(fixture(from), folder.path().join(to)).unwrap();
    }
    let analysis = analysis(&[folder.path().to_str().unwrap()]);
    let mut sources: Vec<&str> = analysis["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| source["format"].as_str().unwrap())
        .collect();
    sources.sort_unstable();
    assert_eq!(sources, ["ncu-raw-csv", "nsys-sqlite"]);
    assert!(!analysis["counters"].as_array().unwrap().is_empty());
}
