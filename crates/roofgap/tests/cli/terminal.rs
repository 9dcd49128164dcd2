//! Terminals of 80 and 120 columns: width, colours and progress.

use crate::support::{ROOFGAP, can_run, ok, roofgap, root, run};
use std::process::{Command, Stdio};

const CAPTURE: [&str; 2] = ["fixtures/h200/llama4.sqlite.gz", "fixtures/ncu/llama4_light_raw_base.csv.gz"];
const VLLM: &str = "fixtures/vllm/vllm_dense_graph.sqlite.gz";

/// Runs the binary at 80 columns and checks that it succeeds and that its lines fit.
fn narrow(args: &[&str]) -> String {
    at_width(80, args)
}

fn at_width(columns: usize, args: &[&str]) -> String {
    let output = roofgap(args).env("COLUMNS", columns.to_string()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_fits(&text, columns);
    text
}

/// Checks that no line is longer than a terminal, except for one that is a single word, such as an address.
fn assert_fits(text: &str, columns: usize) {
    for line in text.lines() {
        let fits = line.chars().count() <= columns || !line.trim().contains(' ');
        assert!(fits, "{} columns: {line}", line.chars().count());
    }
}

/// Returns the cells of the rows of a table as numbers, by the names of its columns; a cell without a number is 0.
fn numbers(text: &str, columns: &[&str]) -> Vec<Vec<f64>> {
    let (at, heading) =
        text.lines().enumerate().find(|(_, line)| columns.iter().all(|name| line.contains(name))).unwrap();
    let ends: Vec<usize> = columns.iter().map(|name| heading.find(name).unwrap() + name.len()).collect();
    let cell = |row: &str, end: usize| -> Option<f64> {
        row.get(..end)?.split(' ').next_back()?.replace(',', "").parse().ok()
    };
    // The first line without a number is below the table.
    let rows = text.lines().skip(at + 1).take_while(|row| cell(row, ends[0]).is_some());
    rows.map(|row| ends.iter().map(|end| cell(row, *end).unwrap_or(0.0)).collect()).collect()
}

/// Runs the binary on a terminal of 80 columns; `None` without Python.
fn on_a_terminal(args: &[&str], environment: &[(&str, &str)]) -> Option<String> {
    let python = Command::new("python3").arg("--version").output();
    if !can_run(python.is_ok(), "python3 is not installed") {
        return None;
    }
    let mut command = Command::new("python3");
    command
        .arg(root().join("crates/roofgap/tests/cli/on_terminal.py"))
        .arg(ROOFGAP)
        .args(args)
        .current_dir(root())
        .stdin(Stdio::null())
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{args:?}: {text}");
    Some(text.replace("\r\n", "\n"))
}

/// Removes styles.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&rest[..at]);
        let end = rest[at..].find('m').unwrap_or(0);
        rest = &rest[at + end + 1..];
    }
    out + rest
}

#[test]
fn an_analysis_fits_into_80_columns() {
    insta::assert_snapshot!(narrow(&["analyze", CAPTURE[0], CAPTURE[1], "--top=6"]));
}

/// The first screen fits into a terminal of 24 lines with the line that `--out` adds, for captures of every kind.
#[test]
fn the_first_screen_fits_into_24_lines() {
    insta::assert_snapshot!(narrow(&["analyze", CAPTURE[0], CAPTURE[1]]));
    let inputs = [
        "fixtures/h200/dsocr2.sqlite.gz",
        VLLM,
        "fixtures/ncu/llama2_roofline_raw.csv.gz",
        "fixtures/h200/llama4_cuda_gpu_kern_sum.csv.gz",
        "fixtures/h200/llama4.kineto.json.gz",
    ];
    for input in inputs {
        let text = narrow(&["analyze", input]);
        assert!(text.lines().count() <= 22, "{text}");
        // What one types into `explain` is never cut.
        let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("   [")).collect();
        assert!(
            ids.iter().all(|line| line.contains(']')) && !(ids.is_empty() && text.contains("1. ")),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

/// The first finding of every fixture is said in whole clauses, on two lines at most.
#[test]
fn the_first_finding_is_not_cut() {
    let folders = ["h200", "ncu", "nsys-report", "vllm"].map(|folder| root().join("fixtures").join(folder));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut seen = 0;
    for path in files.map(|file| file.unwrap().path().display().to_string()) {
        let output = roofgap(["analyze", &path, "--format=json"]).output().unwrap();
        let analysis: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let Some(title) = analysis["findings"][0]["title"].as_str() else { continue };
        seen += 1;
        for columns in [80, 120] {
            let text = at_width(columns, &["analyze", &path]);
            assert!(text.lines().count() <= 24, "{text}");
            let lines: Vec<&str> = text
                .lines()
                .skip_while(|line| !line.starts_with("1. "))
                .take_while(|line| !line.starts_with("   ["))
                .collect();
            let said = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
            let rest = title
                .strip_prefix(said.trim_start_matches("1. "))
                .unwrap_or_else(|| panic!("{path}: {said}"));
            assert!(
                lines.len() <= 2 && (rest.is_empty() || rest.starts_with([',', ':', ';'])),
                "{path}: {said}"
            );
        }
    }
    assert!(seen > 15, "{seen} fixtures have findings");
}

/// The main answers at 120 columns; the first screen is as short as at 80.
#[test]
fn answers_fit_into_120_columns() {
    let wide = |args: &[&str]| at_width(120, args);
    let first = wide(&["analyze", CAPTURE[0], CAPTURE[1]]);
    assert!(first.lines().count() <= 24, "{first}");
    insta::assert_snapshot!("first_screen_120", first);
    insta::assert_snapshot!("analysis_120", wide(&["analyze", CAPTURE[0], CAPTURE[1], "--top=6"]));
    insta::assert_snapshot!("engine_120", wide(&["analyze", VLLM, "--show=summary,findings,stages,serving"]));
    insta::assert_snapshot!("explain_capture_120", wide(&["explain", "launch-bound", CAPTURE[0]]));
    let kineto = "fixtures/h200/llama4.kineto.json.gz";
    insta::assert_snapshot!("comparison_120", wide(&["compare", CAPTURE[0], kineto, "--top=5"]));
}

/// What a table shows of the time of a stage adds up to it at any width.
#[test]
fn the_times_of_a_stage_add_up() {
    for (columns, parts) in [
        (80, &["GPU busy ms", "idle ms", "rest ms"] as &[&str]),
        (200, &["GPU busy ms", "idle: launch ms", "sync ms", "copy ms", "other ms", "outside ms"]),
    ] {
        for (input, time) in [(CAPTURE[0], "wall ms"), (VLLM, "time ms")] {
            let text = at_width(columns, &["analyze", input, "--show=stages"]);
            let rows = numbers(&text, &[&[time], parts].concat());
            assert!(rows.len() >= 2, "{text}");
            for row in rows {
                let sum: f64 = row[1..].iter().sum();
                assert!((sum - row[0]).abs() <= 0.005 + row[0] / 100.0, "{sum} of {}: {text}", row[0]);
            }
        }
    }
}

#[test]
fn sections_are_shown_by_name() {
    let text = narrow(&["analyze", CAPTURE[0], "--show=kernels"]);
    assert!(text.contains("Kernels of prefill") && !text.contains("What to do first"), "{text}");
    let wrong = crate::support::run(["analyze", CAPTURE[0], "--show=kernles"]);
    assert_eq!(wrong.status, Some(2));
    let known = "no section kernles; the sections are summary, incident, findings, tried, stages";
    assert!(wrong.stderr.contains(known), "{}", wrong.stderr);
    // One that is known and empty is an answer.
    let text = narrow(&["analyze", CAPTURE[0], "--show=layers,copies,losses"]);
    assert!(text.contains("\nno layers: ") && text.contains("\nno losses: the capture has none"), "{text}");
}

#[test]
fn lines_of_the_cpu_are_shown_for_a_stage_and_explained() {
    let planted = "fixtures/h200/planted.kineto.json.gz";
    let text = narrow(&["analyze", planted, "--stage=locked=locked", "--show=host"]);
    let is_planted = |line: &str| line.contains("locked (plan") && line.contains("_thread.lock");
    assert!(text.lines().any(is_planted), "{text}");
    let one = narrow(&["explain", "idle-lock"]);
    assert!(one.contains("Python's global lock") && !one.contains("gc.freeze"), "{one}");
}

#[test]
fn one_stage_fits_into_80_columns() {
    let args = [
        "analyze",
        CAPTURE[0],
        CAPTURE[1],
        "--only=decode",
        "--kernel=nvjet|elementwise",
        "--sort=calls",
        "--top=4",
    ];
    insta::assert_snapshot!(narrow(&args));
}

#[test]
fn counters_alone_fit_into_80_columns() {
    insta::assert_snapshot!(narrow(&["analyze", "fixtures/ncu/llama2_roofline_raw.csv.gz", "--top=5"]));
}

#[test]
fn a_comparison_fits_into_80_columns() {
    let text = narrow(&[
        "compare",
        "fixtures/h200/llama4.sqlite.gz",
        "fixtures/h200/llama4.kineto.json.gz",
        "--top=5",
    ]);
    insta::assert_snapshot!(text);
}

#[test]
fn explanations_fit_into_80_columns() {
    insta::assert_snapshot!("explain", narrow(&["explain", "launch-bound"]));
    insta::assert_snapshot!("explain_all", narrow(&["explain"]));
    let derived = narrow(&["explain", "gaps-between-steps", VLLM]);
    assert!(
        derived.contains("\nWhat to do\n") && derived.contains("up to 1.1 times the median"),
        "{derived}"
    );
}

#[test]
fn commands_that_describe_the_machine_fit_into_80_columns() {
    let empty = tempfile::tempdir().unwrap();
    let dir = format!("--dir={}", empty.path().display());
    for args in [
        &["doctor"] as &[&str],
        &["config", "list"],
        &["capture"],
        &["runs", "list", &dir],
        &["runs", "prune", "--dry-run", &dir],
    ] {
        narrow(args);
    }
}

#[test]
fn a_pipe_gets_whole_lines() {
    let text = ok(["analyze", CAPTURE[0], "--top=6"]).stdout;
    assert!(text.lines().any(|line| line.chars().count() > 120), "{text}");
    assert!(text.contains("sync ms  copy ms  other ms"), "{text}");
}

#[test]
fn a_terminal_gets_colours_and_its_width() {
    let Some(text) = on_a_terminal(&["analyze", CAPTURE[0]], &[]) else {
        return;
    };
    assert!(text.contains("\x1b[33mlaunch-bound\x1b[0m"), "{text:?}");
    assert!(text.contains("\x1b[1mStages\x1b[0m"), "{text:?}");
    assert_fits(&bare(&text), 80);
    for (args, environment) in [
        (&["analyze", CAPTURE[0]] as &[&str], &[("NO_COLOR", "1")] as &[(&str, &str)]),
        (&["analyze", CAPTURE[0], "--color=never"], &[]),
    ] {
        let plain = on_a_terminal(args, environment).unwrap();
        assert!(!plain.contains('\x1b'), "{plain:?}");
        assert_eq!(plain, bare(&text));
    }
    let piped = ok(["analyze", CAPTURE[0], "--color=always"]).stdout;
    assert!(piped.contains("\x1b[33mlaunch-bound"), "{piped:?}");
}

#[test]
fn a_comparison_colours_better_and_worse() {
    let compared =
        ["compare", "fixtures/h200/llama4.sqlite.gz", "fixtures/h200/dsocr2.sqlite.gz", "--color=always"];
    let text = run(compared).stdout;
    assert!(text.contains("\x1b[31m") || text.contains("\x1b[32m"), "{text:?}");
}

#[test]
fn large_inputs_have_a_bar() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.json");
    let note = "x".repeat(33_000);
    let event = |at: u32| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":{},\"dur\":2,\
             \"args\":{{\"device\":0,\"stream\":7,\"note\":\"{note}\"}}}}",
            10 * at
        )
    };
    let events: Vec<String> = (0..1000).map(event).collect();
    let trace = format!("{{\"schemaVersion\":1,\"traceEvents\":[{}]}}", events.join(",\n"));
    std::fs::write(&path, trace).unwrap();
    let args = ["analyze", path.to_str().unwrap()];
    if let Some(text) = on_a_terminal(&args, &[]) {
        assert!(text.contains("reading [") && text.contains(" of 33."), "{text:?}");
    }
    // A small input has none.
    if let Some(text) = on_a_terminal(&["analyze", CAPTURE[0]], &[]) {
        assert!(!text.contains("reading ["), "{text:?}");
    }
}

#[cfg(feature = "embedded")]
#[test]
fn a_session_numbers_its_phases_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("artifacts.stage2_dir='{}'", folder.path().display());
    let args = [
        "profile",
        "workload.size=nano",
        "workload.tokens=3",
        "workload.prompt_tokens=4",
        "workload.repeats=1",
        "workload.warmup=0",
        &dir,
    ];
    if let Some(text) = on_a_terminal(&args, &[]) {
        for part in ["1 of 8: preflight", "2 of 8: baseline", "8 of 8: report", "baseline: \x1b[32mok\x1b[0m"]
        {
            assert!(text.contains(part), "no {part} in {text:?}");
        }
    }
}
