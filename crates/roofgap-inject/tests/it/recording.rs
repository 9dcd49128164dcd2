//! What a program does is recorded: all of it, with other settings, and for a long time.

use crate::support::{RANGES, SYNCS, built, read, run};
use roofgap_wire::{Ending, WindowCause, older_segment};

#[test]
fn a_program_that_ends_in_order_is_recorded_whole() {
    let run = run("exit", &[]);
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("done\n", ""));
    let capture = run.capture();
    let names: Vec<(&str, u32, bool)> = capture.kernels.iter().map(|k| (k.0.as_str(), k.1, k.2)).collect();
    assert_eq!(
        names,
        [
            ("kernel_a", 1, false),
            ("kernel_b", 2, false),
            ("kernel_a", 3, false),
            ("kernel_b", 1, false),
            ("kernel_a", 2, true),
            ("kernel_c", 9, false),
            ("kernel_c", 9, false),
            ("graph_kernel", 4, false),
            ("graph_kernel", 4, false),
            ("graph_kernel", 4, false),
        ]
    );
    assert_eq!(capture.kernels.iter().map(|k| k.3).filter(|&node| node > 0).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(!capture.calls.iter().any(|name| name.contains("GetDevice")), "{:?}", capture.calls);
    assert_eq!(capture.copies, [(1, 4096), (10, 4097)]);
    assert_eq!((capture.sets, capture.graphs), (vec![4098], 0));
    assert_eq!(capture.syncs, SYNCS);
    for name in ["cudaEventRecord", "cudaStreamWaitEvent"] {
        assert!(capture.calls.iter().any(|call| call.contains(name)), "{:?}", capture.calls);
    }
    assert_eq!(capture.devices, ["Stand-in H200"]);
    assert_eq!(capture.ranges, RANGES);
    assert_eq!((capture.started, capture.ended), (vec!["@request".to_string()], 1));
    assert_eq!(capture.marks, ["@done"]);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
    assert_eq!(capture.ending, Some(Ending::Complete { how: 1 }));
}

#[test]
fn copies_and_graph_nodes_can_be_left_out() {
    let run = run("exit", &[("ROOFGAP_NATIVE_COPIES", "0"), ("ROOFGAP_NATIVE_GRAPH", "graph")]);
    let capture = run.capture();
    assert!(capture.copies.is_empty() && capture.sets.is_empty());
    assert_eq!((capture.graphs, capture.kernels.len()), (1, 7));
}

#[test]
fn an_older_cupti_has_its_calls_timed_in_callbacks() {
    let built = built();
    let cupti = built.old_cupti.to_str().unwrap();
    let run = run("exit", &[("CUPTI_LIBRARY", cupti)]);
    let capture = run.capture();
    let launches = |name: &str| capture.calls.iter().filter(|call| call.contains(name)).count();
    // Reading the capture has found the call of every kernel; the driver's part of a runtime launch is not one more.
    assert_eq!(capture.kernels.len(), 10);
    assert_eq!((launches("cudaLaunchKernel"), launches("cuLaunchKernel")), (6, 1));
    assert_eq!(launches("GetDevice"), 0);
    assert_eq!((capture.syncs.as_slice(), launches("cuEventRecord")), (&SYNCS[..], 0));
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
}

#[test]
fn without_a_folder_nothing_happens() {
    let absent = run("exit", &[("ROOFGAP_NATIVE_DIR", "")]);
    assert!(absent.status.success());
    assert_eq!((absent.stdout.as_str(), absent.stderr.as_str()), ("done\n", ""));
    assert!(absent.files().is_empty());
    let nowhere = run("exit", &[("ROOFGAP_NATIVE_DIR", "/nowhere/at/all")]);
    assert!(nowhere.status.success());
    assert_eq!((nowhere.stdout.as_str(), nowhere.stderr.as_str()), ("done\n", ""));
}

#[test]
fn a_program_that_never_touches_cuda_is_left_alone() {
    let run = run("nothing", &[]);
    assert!(run.status.success());
    assert_eq!(run.stdout, "done\n");
    assert!(run.files().is_empty());
}

#[test]
fn annotations_alone_are_recorded() {
    let run = run("nvtx-only", &[]);
    let capture = run.capture();
    assert_eq!(capture.ranges, RANGES);
    assert!(capture.kernels.is_empty() && capture.losses.is_empty());
    assert_eq!(capture.ending, Some(Ending::Complete { how: 1 }));
}

#[test]
fn the_place_in_a_distributed_job_is_recorded() {
    let run = run(
        "nvtx-only",
        &[("RANK", "3"), ("WORLD_SIZE", "8"), ("SLURM_PROCID", "not a number"), ("HF_TOKEN", "4711")],
    );
    let capture = run.capture();
    let has = |name: &str| capture.launcher.iter().any(|(known, _)| known == name);
    assert!(capture.launcher.contains(&("RANK".to_owned(), 3)));
    assert!(capture.launcher.contains(&("WORLD_SIZE".to_owned(), 8)));
    assert!(!has("SLURM_PROCID") && !has("HF_TOKEN"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(capture.host, host.trim());
}

#[test]
fn work_alone_is_recorded() {
    let run = run("cuda-only", &[]);
    let capture = run.capture();
    assert_eq!(capture.kernels.len(), 10);
    assert!(capture.ranges.is_empty());
    assert_eq!(capture.threads.len(), 1, "the thread that started CUDA is known");
}

#[test]
fn threads_come_and_go() {
    let run = run("threads", &[]);
    let capture = run.capture();
    assert_eq!(capture.ranges.iter().filter(|range| *range == "@worker").count(), 40 * 8 * 50);
    assert_eq!(capture.threads.len(), 1 + 40 * 8);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
}

#[test]
fn many_launches_lose_nothing() {
    let run = run("many", &[]);
    let capture = run.capture();
    assert_eq!((capture.kernels.len(), capture.calls.len()), (100_000, 100_000));
    assert_eq!(capture.ranges.len(), 2_000);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
}

#[test]
fn a_continuous_capture_suits_older_readers() {
    let run = run("exit", &[]);
    let capture = run.capture();
    assert_eq!((capture.version, capture.edges.len()), (1, 0));
    assert_eq!(capture.without_call, 0);
}

#[test]
fn other_settings_have_the_same_kernels() {
    let expected: Vec<(String, u32)> = {
        let run = run("exit", &[]);
        run.capture().kernels.into_iter().map(|k| (k.0, k.1)).collect()
    };
    for settings in [
        [("ROOFGAP_NATIVE_BUFFER_KB", "8"), ("ROOFGAP_NATIVE_BUFFERS", "4")],
        [("ROOFGAP_NATIVE_HARDWARE", "1"), ("STANDIN_HARDWARE", "1")],
    ] {
        let run = run("exit", &settings);
        assert!(run.status.success(), "{settings:?}");
        let capture = run.capture();
        let kernels: Vec<(String, u32)> = capture.kernels.iter().map(|k| (k.0.clone(), k.1)).collect();
        assert_eq!(kernels, expected, "{settings:?}");
        assert_eq!(capture.without_call, 0, "{settings:?}");
        assert!(capture.losses.is_empty(), "{settings:?}: {:?}", capture.losses);
    }
    let refused = run("exit", &[("ROOFGAP_NATIVE_HARDWARE", "1")]);
    let capture = refused.capture();
    assert!(capture.losses["cupti.hardware_refused"].1.starts_with("kernels are timed as usual: "));
    assert_eq!(capture.kernels.len(), 10);
}

#[test]
fn only_the_last_events_are_kept() {
    // By size: the whole capture has several MB. When a segment ends by time depends on the load of the machine.
    let settings = [("ROOFGAP_NATIVE_LAST_MS", "3600000"), ("ROOFGAP_NATIVE_MAX_MB", "1")];
    let run = run("many", &settings);
    assert!(run.status.success());
    let sizes = run.files().into_iter().map(|path| path.metadata().unwrap().len());
    let bytes: u64 = sizes.sum();
    // Half of the limit in each file, and the frame that exceeds it.
    assert!(bytes < 2 << 20, "{bytes}");
    let files = run.files();
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(files[1], older_segment(&files[0]));
    let (new, old) = (read(&files[0]), read(&files[1]));
    let kernels = new.kernels.len() + old.kernels.len();
    assert!(kernels < 100_000, "{kernels}");
    // Each file can be read by itself.
    for capture in [&new, &old] {
        assert!(capture.kernels.iter().all(|kernel| kernel.0 == "kernel_many"));
        assert_eq!(capture.version, 2);
        assert_eq!(capture.edges.first(), Some(&(true, WindowCause::Begin)));
    }
    assert_eq!(new.ending, Some(Ending::Complete { how: 1 }));
}

#[test]
fn a_long_program_is_accounted_for_in_flat_memory() {
    let small = [("ROOFGAP_NATIVE_BUFFER_KB", "64"), ("ROOFGAP_NATIVE_BUFFERS", "8")];
    let length = [("SOAK_LAUNCHES", "200000"), ("SOAK_WINDOW", "20000"), ("ROOFGAP_NATIVE_DORMANT", "1")];
    let settings: Vec<(&str, &str)> = small.into_iter().chain(length).collect();
    let run = run("soak", &settings);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let mut numbers = run.stdout.split_whitespace().map(|word| word.parse::<i64>().unwrap());
    let (recorded, grown) = (numbers.next().unwrap(), numbers.next().unwrap());
    let capture = run.capture();
    let count = |id: &str| capture.losses.get(id).map_or(0, |loss| loss.0);
    // A kernel and its call are two records; CUPTI drops what finds no buffer, and counts it.
    let written = capture.kernels.len() + capture.calls.len();
    assert_eq!(written as u64 + count("cupti.dropped"), 2 * recorded as u64);
    assert_eq!(recorded, 100_000);
    assert!(grown < 16 << 10, "{grown} KiB");
    assert_eq!(capture.edges.len(), 11);
    assert_eq!(capture.ending, Some(Ending::Complete { how: 1 }));
}
