//! Folded stacks: complete, nested, with the time of every operation.

use crate::fixtures::{Case, PLAIN, fixture, made};
use roofgap_report::export::{save_folded, save_folded_idle};
use roofgap_report::{ExportError, json, markdown, page, text};

fn folded(case: &Case) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stacks.txt");
    save_folded(case.bundle(), &path).unwrap();
    std::fs::read_to_string(path).unwrap()
}

/// Sums the durations of all operations of a trace.
fn operations_ns(case: &Case) -> i64 {
    let ops = &case.trace.ops;
    (0..ops.len()).map(|row| ops.duration(row)).sum()
}

#[test]
fn stacks_are_the_ranges_around_a_launch() {
    insta::assert_snapshot!(folded(&made(PLAIN)));
}

#[test]
fn every_operation_counts_once() {
    for name in
        ["h200/llama4.sqlite.gz", "h200/llama4.kineto.json.gz", "vllm/vllm_dense_graph.kineto.json.gz"]
    {
        let case = fixture(&[name]);
        let sum: i64 =
            folded(&case).lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap()).sum();
        assert_eq!(sum, operations_ns(&case), "{name}");
    }
}

/// Returns the frames of the first stack with a frame.
fn stack_with(text: &str, frame: &str) -> Vec<String> {
    let stacks = text.lines().map(|line| line.rsplit_once(' ').unwrap().0.split(';'));
    let mut stacks = stacks.map(|frames| frames.map(str::to_owned).collect::<Vec<_>>());
    stacks.find(|frames| frames.iter().any(|name| name == frame)).unwrap()
}

#[test]
fn operators_stand_between_ranges_and_kernels() {
    let text = folded(&fixture(&["h200/llama4.kineto.json.gz"]));
    let frames = stack_with(&text, "aten::mm");
    assert_eq!(frames[..3], ["aten::linear", "aten::matmul", "aten::mm"]);
    assert!(frames[3].starts_with("nvjet"), "{frames:?}");
    assert_eq!(frames.len(), 4);
}

#[test]
fn names_cannot_break_a_line() {
    let case = made(["a;b", "x", "y"]);
    let text = folded(&case);
    assert!(text.contains("LLM@prefill;a:b 5000"), "{text}");
    assert_eq!(text.lines().count(), folded(&made(PLAIN)).lines().count());
}

#[test]
fn totals_have_no_stacks() {
    let case = fixture(&["h200/llama4_cuda_gpu_kern_sum.csv.gz"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stacks.txt");
    let error = save_folded(case.bundle(), &path).unwrap_err();
    assert!(matches!(error, ExportError::Nothing { .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn idle_time_has_the_stacks_of_the_cpu() {
    let case = fixture(&["h200/planted.kineto.json.gz"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idle.txt");
    save_folded_idle(case.bundle(), &path).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let sum = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap()).sum::<i64>();
    let idle: Vec<i64> = case.analysis.stages.iter().map(|stage| stage.host_idle.unwrap().idle_ns).collect();
    assert_eq!(sum, idle.iter().sum::<i64>());
    let frames = stack_with(&text, "collect (planted.py:13)");
    assert_eq!(frames[0], case.analysis.stages[0].name);
    let place = frames.iter().position(|frame| frame == "main (planted.py:27)").unwrap();
    assert_eq!(frames[place + 1..], ["step (planted.py:19)", "collect (planted.py:13)", "collect"]);
    let error = save_folded_idle(fixture(&["h200/llama4.sqlite.gz"]).bundle(), &folder.path().join("none"));
    assert!(matches!(error, Err(ExportError::Nothing { .. })), "{error:?}");
}

#[test]
fn lines_of_the_cpu_are_in_every_report() {
    let case = fixture(&["h200/planted.kineto.json.gz"]);
    let text = text::render(&case.analysis, text::TextOptions::default());
    let is_row = |line: &str| line.contains("collect (planted.py:13)") && line.contains("garbage_collection");
    assert!(text.lines().any(is_row), "{text}");
    let page = page::render(case.bundle());
    for document in [&markdown::report(case.bundle()), &page, &json::pretty(&case.analysis)] {
        assert!(document.contains("planted.py"), "{document}");
    }
    assert!(page.contains("id=\"host\"") && text.contains("without a sample"));
    assert!(!page::render(made(PLAIN).bundle()).contains("id=\"host\""));
}
