//! The time of stages: one clock, one meaning and one sum in every report.

use crate::fixtures::{Case, PLAIN, fixture, made};
use roofgap_analyze::{About, ForeignWork, Mfu, StageKind};
use roofgap_report::{markdown, page, text};

fn render(case: &Case) -> String {
    text::render(&case.analysis, text::TextOptions::default())
}

/// Reads the table of stages from the text: its headings, then a row for each stage.
fn table(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("stage ")) {
        let row = cells(line);
        if rows.first().is_some_and(|first| first.len() != row.len()) {
            break;
        }
        rows.push(row);
    }
    rows
}

/// Returns the number in a column of a row.
fn number(table: &[Vec<String>], row: usize, column: &str) -> Option<f64> {
    let at = table[0].iter().position(|name| name == column)?;
    Some(table[row][at].replace(',', "").parse().unwrap())
}

#[test]
fn the_parts_of_a_stage_add_up_to_its_time() {
    for name in [
        "h200/llama4.sqlite.gz",
        "h200/dsocr2.sqlite.gz",
        "vllm/vllm_dense_graph.sqlite.gz",
        "vllm/vllm_dense_graph.kineto.json.gz",
    ] {
        let shown = render(&fixture(&[name]));
        let table = table(&shown);
        assert!(table.len() > 1, "{shown}");
        for row in 1..table.len() {
            let time = number(&table, row, "time ms").or_else(|| number(&table, row, "wall ms"));
            let parts = [
                "GPU busy ms",
                "idle: launch ms",
                "sync ms",
                "copy ms",
                "other ms",
                "outside ms",
                "queued ms",
                "other work ms",
                "shared ms",
            ];
            let sum: f64 = parts.iter().filter_map(|part| number(&table, row, part)).sum();
            let time = time.unwrap();
            assert!((sum - time).abs() <= time / 100.0, "{name}: {sum} of {time}\n{shown}");
        }
    }
}

#[test]
fn stages_of_an_engine_have_the_time_of_their_steps() {
    let case = fixture(&["vllm/vllm_dense_graph.sqlite.gz"]);
    let shown = render(&case);
    let table = table(&shown);
    let decode = table.iter().position(|row| row[0] == "decode").unwrap();
    let (time, wall) =
        (number(&table, decode, "time ms").unwrap(), number(&table, decode, "CPU wall ms").unwrap());
    assert!((time - 81.7).abs() < 0.1 && (wall - 40.992).abs() < 1e-9, "{shown}");
    let busy = number(&table, decode, "GPU busy ms").unwrap() / time;
    let stated = number(&table, decode, "busy %").unwrap();
    assert!((100.0 * busy - stated).abs() < 0.1, "{shown}");
    let summary = markdown::stakeholder_summary(case.bundle());
    let rows: Vec<&str> = summary.lines().filter(|line| line.starts_with("| decode ")).collect();
    assert!(rows.len() == 1 && rows[0].contains("|    23 |   3.55"), "{summary}");
    let page = page::render(case.bundle());
    let (_, card) = page.split_once("</i>decode</h3>").unwrap();
    let (card, _) = card.split_once("</article>").unwrap();
    assert!(card.contains("<dt>Time</dt><dd>81.7 ms"), "{card}");
    let (_, bar) = page.split_once("<span class=\"bar-name\">decode <b>81.7 ms</b></span>").unwrap();
    assert!(bar[..120].contains("width:100.000%"), "{}", &bar[..120]);
}

#[test]
fn ranges_that_hold_their_work_have_one_time() {
    let shown = render(&made(PLAIN));
    assert!(shown.contains("  wall ms  GPU busy ms"), "{shown}");
    assert!(!shown.contains("time ms") && !shown.contains("Time is"), "{shown}");
}

/// Makes a case whose first stage ran on two GPUs.
fn on_two_devices() -> Case {
    let mut case = made(PLAIN);
    let stage = &mut case.analysis.stages[0];
    (stage.devices_per_instance, stage.device_count) = (2.0, 2);
    stage.busy_ns = Some(14_000_000);
    stage.wall_ns = 10_000_000;
    let mut twin = case.analysis.kernels[0].clone();
    twin.device = Some(1);
    case.analysis.kernels.insert(1, twin);
    case
}

#[test]
fn times_on_several_gpus_mean_the_same_everywhere() {
    let case = on_two_devices();
    let meaning = "GPU busy and idle times are averages over the GPUs of a stage";
    for report in [render(&case), markdown::report(case.bundle()), page::render(case.bundle())] {
        assert!(report.contains("7.000") && !report.contains("14.000"), "{report}");
        assert!(report.contains(meaning), "{report}");
    }
    assert!(!render(&made(PLAIN)).contains(meaning));
}

#[test]
fn rows_of_several_gpus_name_theirs() {
    let case = on_two_devices();
    let page = page::render(case.bundle());
    assert!(page.contains("data-key=\"device\">GPU</th>"), "{page}");
    assert!(page.contains("\"devices\":true"), "{page}");
    let page = page::render(made(PLAIN).bundle());
    assert!(!page.contains("data-key=\"device\""), "{page}");
}

#[test]
fn every_finding_shows_its_id() {
    let case = fixture(&["h200/dsocr2.sqlite.gz"]);
    let (shown, report) = (render(&case), markdown::report(case.bundle()));
    let page = page::render(case.bundle());
    assert!(case.analysis.findings.len() > 1);
    for finding in case.analysis.findings.iter().filter(|finding| finding.part_of.is_none()).take(5) {
        let does = if finding.saves.is_some() { "" } else { "saves at most " };
        let id = format!(" [{}] {does}", finding.id);
        assert!(shown.contains(&id), "{id}{shown}");
        assert!(report.replace('\\', "").contains(&id), "{id}{report}");
        assert!(page.contains(&format!("<code>{}</code>", finding.id)));
    }
}

#[test]
fn a_trace_without_stages_says_its_loop_and_why_mfu_is_missing() {
    let case = fixture(&["h200/llama4.kineto.json.gz"]);
    let stage = &case.analysis.stages[0];
    assert_eq!((stage.kind, stage.name.as_str()), (StageKind::Loop, "loop"));
    let why = case.analysis.reason(&About::StageMfu(stage.name.clone()));
    assert!(why.is_some_and(|why| why.contains("prefill")), "{why:?}");
    let page = page::render(case.bundle());
    assert!(!page.contains("\">unknown</small>") && !page.contains("% of all)"));
    let shown = render(&case);
    assert!(shown.contains("[launch-bound] the loop of 8 repetitions of 187 launches: "), "{shown}");
}

#[test]
fn a_thread_is_named_once() {
    let mut case = fixture(&["vllm/vllm_dense_graph.kineto.json.gz"]);
    let mut work = ForeignWork::default();
    (work.kernel_count, work.thread_kernel_count) = (3, 2);
    work.thread = Some("2183 (VLLM::EngineCor)".to_owned());
    case.analysis.stages[0].foreign = Some(work);
    let shown = render(&case);
    assert!(shown.contains("2 of them launched by thread 2183 (VLLM::EngineCor)"), "{shown}");
}

#[test]
fn operators_outside_the_stages_are_announced() {
    let case = fixture(&["h200/llama4.kineto.json.gz"]);
    let report = markdown::report(case.bundle());
    let (_, operators) = report.split_once("## Operators\n\n").unwrap();
    assert!(operators.contains("all recorded calls, also those outside the stages"), "{operators}");
}

#[test]
fn a_page_without_stages_has_no_section_for_them() {
    let page = page::render(fixture(&["ncu/mt_basic_raw.csv.gz"]).bundle());
    assert!(!page.contains("href=\"#stages\""));
}

#[test]
fn a_small_share_reads_the_same_in_text_and_page() {
    let mut case = made(PLAIN);
    case.analysis.stages[1].mfu = Some(Mfu { by_wall_pct: 0.0071, ..Mfu::default() });
    assert!(render(&case).contains("0.0071"));
    assert!(page::render(case.bundle()).contains("<dd>0.0071 %</dd>"));
}

#[test]
fn one_launch_is_no_plural() {
    let mut case = made(PLAIN);
    let steps = case.analysis.stages[1].steps.as_mut().unwrap();
    steps.launches_per_step = Some(1.0);
    assert!(render(&case).contains(", 1 launch per step"));
}
