//! Inputs made to do harm: they cost no more than their size explains, and their text reaches no terminal as it is.

use crate::support::{ROOFGAP, Run, fixture, ok, packed, roofgap, run, unpacked};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the binary with at most this much CPU time, s, and address space, kB.
fn limited(seconds: u32, kilobytes: u32, args: &[&str]) -> Run {
    let script = format!("ulimit -t {seconds}; ulimit -v {kilobytes}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, ROOFGAP]).args(args);
    command.output().unwrap().into()
}

fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// An event of a PyTorch trace; times in µs.
fn event(category: &str, name: &str, (tid, start, length): (u64, u64, u64), args: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{},"tid":{tid},"ts":{start},"dur":{length},"args":{{{args}}}}}"#,
        if category == "kernel" { 0 } else { 9 },
    )
}

/// A PyTorch trace with a launch and a kernel every 10 µs, and what `more` adds for each.
fn trace(count: u64, more: impl Fn(u64, &mut Vec<String>)) -> String {
    let mut events = Vec::new();
    for at in 0..count {
        let call = format!(r#""correlation":{}"#, at + 1);
        events.push(event("cuda_runtime", "cudaLaunchKernel", (9, 10 * at + 2, 1), &call));
        more(at, &mut events);
    }
    format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, events.join(",\n"))
}

fn kernel(at: u64, name: &str, stream: u64) -> String {
    let args = format!(r#""correlation":{},"device":0,"stream":{stream}"#, at + 1);
    event("kernel", name, (stream, 10 * at + 4, 5), &args)
}

/// Writes every output of an analysis under a limit of CPU time that only linear work can keep.
fn analyses_in_linear_time(trace: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = put(folder.path(), "trace.json", trace);
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (out, perfetto, parquet) = (place("out"), place("perfetto.json"), place("parquet"));
    let path = path.to_str().unwrap();
    let mut commands = vec![
        vec!["analyze", path, "--format=json", "--out", &out],
        vec!["export", "perfetto", path, "--out", &perfetto],
    ];
    if cfg!(feature = "parquet") {
        commands.push(vec!["export", "parquet", "--events", path, "--to", &parquet]);
    }
    for args in commands {
        let run = limited(150, 4_000_000, &args);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
    }
}

#[test]
fn many_kernel_names_and_streams() {
    analyses_in_linear_time(&trace(4_000, |at, events| {
        events.push(kernel(at, &format!("kernel_{at}<{at}>"), 100 + at));
    }));
}

/// Ranges that overlap are steps too, and each is a new set of enclosing ranges.
#[test]
fn many_ranges_that_overlap() {
    for name in ["decode_step", "decode"] {
        analyses_in_linear_time(&trace(40_000, |at, events| {
            events.push(kernel(at, "k", 7));
            events.push(event("user_annotation", name, (9, 10 * at, 200_000), ""));
        }));
    }
}

/// Each instance has one step; the step after it is in another instance.
#[test]
fn many_instances_of_one_step() {
    analyses_in_linear_time(&trace(40_000, |at, events| {
        events.push(kernel(at, "k", 7));
        events.push(event("user_annotation", "decode", (9, 10 * at, 9), ""));
        events.push(event("user_annotation", "decode_step", (9, 10 * at + 1, 7), ""));
    }));
}

/// A finished run of a program that does nothing.
fn finished_run(base: &Path) -> PathBuf {
    let place = format!("artifacts.stage2_dir='{}'", base.display());
    ok(["profile", "--quiet", &place, "runner=unwatched", "--", "true"]);
    let mut runs = std::fs::read_dir(base).unwrap().map(|entry| entry.unwrap().path());
    runs.find(|path| path.join("session.json").is_file()).unwrap()
}

/// Pipes and devices in the place of every file that is read: each command ends.
#[cfg(target_os = "linux")]
#[test]
fn pipes_and_devices_in_a_run_directory() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("runs");
    let run_dir = finished_run(&base);
    let dir = format!("--dir={}", base.display());
    let path = run_dir.to_str().unwrap();
    for name in [
        "session.json",
        "config.yaml",
        "env.json",
        "metrics.json",
        "baseline/workload.json",
        "nsys/run.sqlite",
        "nsys/run.sqlite.gz",
        "native/1.rgcap",
        "torch/operators.json",
        "ncu/decode_raw.csv",
    ] {
        let file = run_dir.join(name);
        let kept = std::fs::read(&file).ok();
        for device in [true, false] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            _ = std::fs::remove_file(&file);
            if device {
                std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
            } else {
                let made = Command::new("mkfifo").arg(&file).status().unwrap();
                assert!(made.success());
            }
            for args in [
                &["analyze", path][..],
                &["analyze", file.to_str().unwrap()],
                &["runs", "list", &dir],
                &["runs", "show", path, &dir],
                &["compare", path, path],
                &["compare", file.to_str().unwrap(), path],
                &["report", path, &dir],
            ] {
                // A command that waits for the pipe is ended by `timeout`, with status 124.
                let script = r#"ulimit -v 4000000; exec timeout 60 "$0" "$@""#;
                let mut command = Command::new("sh");
                command.args(["-c", script, ROOFGAP]).args(args);
                let run: Run = command.output().unwrap().into();
                let ended = matches!(run.status, Some(0 | 2 | 3 | 4));
                assert!(ended, "{args:?} with {name}: {:?} {}", run.status, run.stderr);
                assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
            }
        }
        std::fs::remove_file(&file).unwrap();
        if let Some(bytes) = kept {
            std::fs::write(&file, bytes).unwrap();
        }
    }
}

/// Unpacking fails in the middle, because the copy exceeds the limit of a file.
#[cfg(target_os = "linux")]
#[test]
fn an_analysis_that_ends_early_leaves_no_unpacked_copy() {
    let folder = tempfile::tempdir().unwrap();
    let input = fixture("h200/llama4.sqlite.gz");
    let script = r#"ulimit -f 200; exec "$0" analyze "$1""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, ROOFGAP]).arg(&input);
    let output = command.env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("cannot unpack it") && told.contains("File too large"), "{told}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // The same input is read from its copy, and the copy goes at the end.
    let run: Run = roofgap(["analyze".as_ref(), input.as_os_str()])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A title change, a cleared screen, hidden and coloured text, the one-character form of a sequence, and changes of the writing direction.
const ESCAPES: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[8m\u{1b}[31m\u{9b}31m\u{202e}\u{2066}\u{200f}\u{8}";

fn is_harmful(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && !"\n\t".contains(c)
}

/// Checks that a terminal shows both streams as text.
fn is_inert(run: &Run) {
    for text in [&run.stdout, &run.stderr] {
        assert_eq!(text.chars().find(|c| is_harmful(*c)), None, "{text:?}");
    }
}

fn json_escapes() -> String {
    let mut out = String::new();
    for c in ESCAPES.chars() {
        write!(out, "\\u{:04x}", u32::from(c)).unwrap();
    }
    out
}

/// Runs all outputs of an input; the reports on disk are inert too.
fn analysis_is_inert(path: &Path) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let path = path.to_str().unwrap();
    is_inert(&run(["analyze", path, "--format=json"]));
    is_inert(&run(["compare", path, path]));
    let run = run(["analyze", path, "--full", "--out", &out, "--verbose"]);
    is_inert(&run);
    if run.status == Some(0) {
        for name in ["report.md", "kernels.md", "operators.md", "stakeholder_summary.md", "report.html"] {
            let text = std::fs::read_to_string(Path::new(&out).join(name)).unwrap();
            assert_eq!(text.chars().find(|c| is_harmful(*c)), None, "{name}");
        }
    }
    run
}

#[test]
fn escapes_in_a_pytorch_trace() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("k{}", json_escapes());
    let text = trace(20, |at, events| {
        events.push(kernel(at, &name, 7));
        events.push(event("user_annotation", &name, (9, 10 * at, 9), ""));
        events.push(event("cpu_op", &name, (9, 10 * at + 1, 8), ""));
    });
    let run = analysis_is_inert(&put(folder.path(), "trace.json", text));
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("]0;title"), "{}", run.stdout);
}

#[test]
fn escapes_in_an_nsys_export() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(folder.path(), "x.sqlite", unpacked("h200/llama4.sqlite.gz"));
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute("UPDATE StringIds SET value = value || ?1", [ESCAPES]).unwrap();
    for (table, column) in [("META_DATA_EXPORT", "value"), ("TARGET_INFO_GPU", "name")] {
        let sql = format!("UPDATE {table} SET {column} = {column} || ?1");
        assert!(database.execute(&sql, [ESCAPES]).unwrap() > 0, "{table}");
    }
    drop(database);
    assert_eq!(analysis_is_inert(&path).status, Some(0));
    // The tables of a database of another program are listed.
    let other = folder.path().join("y.sqlite");
    let database = rusqlite::Connection::open(&other).unwrap();
    let sql = format!("CREATE TABLE \"a{ESCAPES}\" (x INT)");
    database.execute_batch(&sql).unwrap();
    drop(database);
    let refused = analysis_is_inert(&other);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("]0;title"), "{}", refused.stderr);
}

#[test]
fn escapes_in_tables_of_nsys_and_ncu() {
    let folder = tempfile::tempdir().unwrap();
    for (name, word) in [
        ("ncu/mt_basic_raw.csv.gz", "burn"),
        ("ncu/mt_basic_details.csv.gz", "burn"),
        ("h200/llama4_cuda_gpu_kern_sum.csv.gz", "void"),
    ] {
        let text = String::from_utf8(unpacked(name)).unwrap();
        assert!(text.contains(word), "{name}");
        let text = text.replace(word, &format!("{word}{ESCAPES}"));
        let run = analysis_is_inert(&put(folder.path(), "table.csv", text));
        assert_eq!(run.status, Some(0), "{name}: {}", run.stderr);
    }
    // A cell that is quoted in an error.
    let text = format!("Time (%),Total Time (ns),Instances,Name\n1,{ESCAPES},1,k\n");
    is_inert(&run(["analyze".as_ref(), put(folder.path(), "cell.csv", text).as_os_str()]));
    let notes = put(folder.path(), "notes.txt", ESCAPES);
    is_inert(&run(["analyze".as_ref(), notes.as_os_str()]));
}

#[test]
fn escapes_in_file_names_arguments_and_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("a{ESCAPES}.json");
    let path = put(folder.path(), &name, trace(5, |at, events| events.push(kernel(at, "k", 7))));
    assert_eq!(analysis_is_inert(&path).status, Some(0));
    let broken = put(folder.path(), &format!("b{ESCAPES}.gz"), packed(b"nothing"));
    is_inert(&run(["analyze".as_ref(), broken.as_os_str()]));
    for args in [
        ["analyze", "--no-such-option", &name],
        ["analyze", "--format", &name],
        [&name, "x", "y"],
        ["runs", "show", &name],
        ["config", "show", &format!("runner={name}")],
        ["config", "show", &format!("+{name}=1")],
        ["compare", &name, &name],
        ["analyze", "--stage", &name],
    ] {
        let run = run(args);
        is_inert(&run);
        assert_ne!(run.status, Some(101), "{}", run.stderr);
    }
    let presets = folder.path().join("presets");
    std::fs::create_dir_all(presets.join("runner")).unwrap();
    put(&presets.join("runner"), "x.yaml", format!("\"k{}\": 1\n", json_escapes()));
    let dir = format!("--config-dir={}", presets.display());
    is_inert(&run(["config", "show", &dir, "runner=x"]));
    is_inert(&run(["config", "list", &dir]));
}

/// A profiler that answers with escapes is shown as text.
#[cfg(unix)]
#[test]
fn escapes_in_the_version_of_a_tool() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\nprintf 'NVIDIA Nsight Systems version 2025.5.1\\033[2J\\033]0;title\\007\\n'\n";
    for tool in ["nsys", "ncu"] {
        let path = put(folder.path(), tool, script);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![folder.path().to_path_buf()];
    folders.extend(std::env::split_paths(&path));
    for format in ["text", "json"] {
        let mut command = roofgap(["doctor", "--format", format]);
        command.env("PATH", std::env::join_paths(&folders).unwrap());
        is_inert(&command.output().unwrap().into());
    }
}

/// Numbers whose sums overflow: an error or a result, no panic.
#[test]
fn numbers_whose_sums_overflow() {
    let folder = tempfile::tempdir().unwrap();
    let head = "Time (%),Total Time (ns),Instances,Name\n";
    let calls = format!("{head}50.0,10,18446744073709551615,a\n50.0,10,18446744073709551615,b\n");
    let half = i64::MAX / 2;
    let times = format!("{head}33.3,{half},1,a\n33.3,{half},1,b\n33.3,{half},1,c\n");
    // Durations of ncu: some launches of 285 years each.
    let page = String::from_utf8(unpacked("ncu/mt_basic_raw.csv.gz")).unwrap();
    let column = |line: &str| line.split("\",\"").position(|cell| cell == "gpu__time_duration.sum");
    let duration = page.lines().find_map(column).unwrap();
    let lines = page.lines().map(|line| {
        let mut cells: Vec<&str> = line.split("\",\"").collect();
        if cells.get(duration).is_some_and(|cell| cell.parse::<f64>().is_ok()) {
            cells[duration] = "9000000000000000";
        }
        cells.join("\",\"")
    });
    let page = lines.collect::<Vec<_>>().join("\n");
    assert!(page.contains("\"9000000000000000\""));
    let operator = |name: &str| {
        format!(r#"{{"name":"{name}","calls":18446744073709551615,"self_cpu_ns":1,"total_cpu_ns":1}}"#)
    };
    let account = format!(
        r#"{{"schema":"roofgap.workload/1","repeats":[{{"warmup":false,"stages":[{{"name":"decode","wall_ns":5}}]}}],
            "operators":[{},{}]}}"#,
        operator("a"),
        operator("a")
    );
    for (name, text, refused) in [
        ("calls.csv", calls, "the sum of times or launches overflows"),
        ("times.csv", times, "the sum of times or launches overflows"),
        ("account.json", account, "18446744073709551615 is no possible count of `calls`"),
    ] {
        let run = run(["analyze".as_ref(), put(folder.path(), name, text).as_os_str()]);
        assert_eq!(run.status, Some(2), "{name}: {}", run.stderr);
        assert!(run.stderr.contains(refused), "{name}: {}", run.stderr);
    }
    let copies = trace(4, |at, events| {
        events.push(kernel(at, "k", 7));
        let args = format!(r#""correlation":{},"device":0,"stream":7,"bytes":{}"#, 100 + at, i64::MAX);
        let name = "Memcpy DtoH (Device -> Pageable)";
        events.push(event("gpu_memcpy", name, (7, 10 * at + 9, 1), &args).replace("\"pid\":9", "\"pid\":0"));
        events.push(event("user_annotation", "decode", (9, 10 * at, 9), ""));
    });
    // A copy of 8 EiB and a launch of 285 years are losses.
    for (name, text, loss) in
        [("copies.json", copies, "value_out_of_range"), ("page.csv", page, "counter_malformed")]
    {
        let run = run(["analyze".as_ref(), "--full".as_ref(), put(folder.path(), name, text).as_os_str()]);
        assert_eq!(run.status, Some(0), "{name}: {}", run.stderr);
        assert!(run.stdout.contains(loss), "{name}: {}", run.stdout);
    }
}
