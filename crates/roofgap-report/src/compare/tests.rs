use super::*;
use crate::json;
use crate::text::TextOptions;
use roofgap_analyze::compare::{Comparison, Gate, Side, SideFacts, compare};
use roofgap_analyze::{Analysis, Options, analyze};
use std::path::PathBuf;

fn real() -> Analysis {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/h200/llama4.sqlite.gz");
    let mut analysis = analyze(&roofgap_trace::read(&[path]).unwrap().trace, &Options::default()).analysis;
    for source in &mut analysis.sources {
        source.path = "llama4.sqlite".into();
    }
    analysis
}

/// Two kernels of decode a fifth longer behind idle time, one of them with another tile size in its name; one kernel new.
fn slower(base: &Analysis) -> Analysis {
    let mut head = base.clone();
    let decode = head.stages.iter_mut().find(|stage| stage.name == "decode").unwrap();
    let mut added = 0;
    for kernel in decode.kernels.iter_mut().take(2) {
        let more = kernel.total_ns / 5;
        kernel.total_ns += more;
        kernel.min_ns = kernel.min_ns.map(|ns| ns + ns / 5);
        kernel.max_ns = kernel.max_ns.map(|ns| ns + ns / 5);
        added += more;
    }
    decode.kernels[0].name = decode.kernels[0].name.replace("64x8", "128x8");
    decode.kernels[0].short_name = decode.kernels[0].name.clone();
    let mut new = decode.kernels[1].clone();
    (new.name, new.short_name) = ("<b>|`new`*_kernel".into(), "<b>|`new`*_kernel".into());
    (new.family, new.total_ns, new.calls) = (Default::default(), 50_000, 8);
    added += new.total_ns;
    decode.kernels.push(new);
    decode.kernel_ns = decode.kernel_ns.map(|ns| ns + added);
    decode.busy_ns = decode.busy_ns.map(|ns| ns + added);
    decode.idle.as_mut().unwrap().launch_ns -= added;
    head
}

fn comparison(gates: &str) -> Comparison {
    let base = real();
    let head = slower(&base);
    between(&base, &head, gates)
}

fn between(base: &Analysis, head: &Analysis, gates: &str) -> Comparison {
    let facts =
        |title: &str| SideFacts { title: title.into(), mode: Some("deep".into()), ..SideFacts::default() };
    let (old, new) = (facts("20260101-000000"), facts("20260102-000000"));
    let gates: Vec<Gate> = gates.split_terminator(',').map(|gate| gate.parse().unwrap()).collect();
    let side = |analysis, facts| Side { analysis, facts };
    compare(side(base, &old), side(head, &new), &gates)
}

/// The page of a comparison, without findings.
fn page_of(comparison: &Comparison) -> String {
    let analysis = Analysis::default();
    html(comparison, [Shown { analysis: &analysis, page: None }; 2])
}

#[test]
fn text_says_what_changed() {
    insta::assert_snapshot!(text(
        &comparison("5%,decode.wall=3%"),
        TextOptions { kernels: 5, ..TextOptions::default() }
    ));
}

#[test]
fn markdown_fits_a_pull_request() {
    let text = markdown(&comparison("5%"));
    insta::assert_snapshot!(text);
    assert!(!text.contains("<b>"), "names never become markup");
}

#[test]
fn nothing_changed_is_said_in_a_line() {
    let analysis = real();
    let same = between(&analysis, &analysis, "0%");
    let shown = text(&same, TextOptions::default());
    assert!(shown.starts_with("no change of stage times beyond the noise\n"), "{shown}");
    assert!(markdown(&same).contains("## roofgap: no change of stage times beyond the noise"));
    assert!(page_of(&same).contains("<h1>no change of stage times beyond the noise</h1>"));
}

#[test]
fn other_hardware_comes_before_everything() {
    let base = real();
    let mut head = base.clone();
    head.devices[0].name = Some("NVIDIA L4".into());
    let shown = text(&between(&base, &head, "5%"), TextOptions::default());
    assert!(shown.starts_with("NOT COMPARABLE: different gpu"), "{shown}");
}

#[test]
fn different_tokens_are_compared_by_step_and_token() {
    let (mut base, mut head) = (real(), real());
    let counts = |tokens| roofgap_analyze::PhaseCounts { context: Some(0), generation: Some(tokens) };
    for (side, tokens) in [(&mut base, 8), (&mut head, 16)] {
        let decode = side.stages.iter_mut().find(|stage| stage.name == "decode").unwrap();
        decode.tokens = Some(counts(tokens));
        decode.token_ns = Some(decode.elapsed_ns() / tokens as i64);
    }
    let comparison = between(&base, &head, "5%");
    let words =
        "NOT COMPARABLE: different decode.tokens. by step and token: decode: per token -50.0 % better";
    let shown = text(&comparison, TextOptions::default());
    assert!(shown.starts_with(&format!("{words}\n")), "{shown}");
    assert!(shown.contains("no breakdown of the change: different decode.tokens"), "{shown}");
    assert!(markdown(&comparison).contains("## roofgap: NOT COMPARABLE: different decode.tokens"));
    assert!(page_of(&comparison).contains(&format!("<h1>{words}</h1>")));
    assert!(json::pretty(&comparison).contains("\"basis\": \"step_and_token\""));
}

#[test]
fn the_page_stands_alone() {
    let page = page_of(&comparison("5%"));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("broken"));
    assert_eq!(page.matches("<script").count(), 1, "only the script of the page itself");
    let (_, script) = page.split_once("<script>").unwrap();
    let (script, _) = script.split_once("</script>").unwrap();
    use sha2::Digest;
    let hash = roofgap_base::text::base64(&sha2::Sha256::digest(script.as_bytes()));
    assert!(page.contains(&format!("script-src 'sha256-{hash}'")));
    for outside in ["<b>|", "http:", "https:", "stylesheet", "@import", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
    let opened = page.matches("<table").count();
    assert_eq!(opened, page.matches("</table>").count());
}

#[test]
fn the_page_names_other_hardware_first() {
    let base = real();
    let mut head = base.clone();
    let alarm = |page: &str| page.contains("<h1>NOT COMPARABLE: different gpu");
    assert!(!alarm(&page_of(&between(&base, &head, "5%"))));
    head.devices[0].name = Some("NVIDIA L4".into());
    assert!(alarm(&page_of(&between(&base, &head, "5%"))));
}

#[test]
fn a_huge_comparison_still_fits() {
    let base = real();
    let mut head = base.clone();
    for stage in &mut head.stages {
        for i in 0..3000 {
            let mut kernel = stage.kernels[0].clone();
            kernel.name = format!("{}{i}", "k".repeat(300));
            kernel.short_name = kernel.name.clone();
            kernel.family = Default::default();
            stage.kernels.push(kernel);
        }
    }
    assert!(markdown(&between(&base, &head, "5%")).chars().count() <= 60_000);
}

#[test]
fn json_holds_all_of_it() {
    let comparison = comparison("5%");
    let back: Comparison = serde_json::from_str(&json::pretty(&comparison)).unwrap();
    assert_eq!(back.schema, "roofgap.comparison/1");
    assert_eq!(back.verdict(), comparison.verdict());
    assert_eq!(back.stages[0].kernels.len(), comparison.stages[0].kernels.len());
}

#[test]
fn kernels_of_one_side_alone_are_not_called_gone() {
    let base = real();
    let mut head = base.clone();
    head.kernels.clear();
    for stage in &mut head.stages {
        (stage.kernel_ns, stage.busy_ns, stage.idle) = (None, None, None);
        stage.kernels.clear();
    }
    let comparison = between(&base, &head, "5%");
    let shown = text(&comparison, TextOptions::default());
    assert!(!shown.contains("gone"), "{shown}");
}

#[test]
fn differences_follow_what_they_are_about() {
    let base = real();
    let shown = text(&between(&base, &base, "5%"), TextOptions::default());
    let lines: Vec<&str> = shown.lines().take(3).collect();
    assert!(
        lines[1].starts_with("base 20260101-000000, head ")
            && lines[2].starts_with("  unknown on both sides: "),
        "{shown}"
    );
}

#[test]
fn a_side_that_was_recorded_in_part_is_named_first() {
    let (base, mut head) = (real(), real());
    decode(&mut head).coverage = Some(Default::default());
    let headline = headline(&between(&base, &head, ""));
    assert!(headline.starts_with("NOT COMPARABLE: different decode.coverage. "), "{headline}");
}

fn decode(analysis: &mut Analysis) -> &mut roofgap_analyze::Stage {
    analysis.stages.iter_mut().find(|stage| stage.name == "decode").unwrap()
}

/// The same fixture with another time and number of idle nanoseconds of decode.
fn changed(change: impl Fn(&mut roofgap_analyze::Stage)) -> (String, Comparison) {
    let base = real();
    let mut head = base.clone();
    change(decode(&mut head));
    let comparison = between(&base, &head, "");
    (text(&comparison, TextOptions::default()), comparison)
}

/// A stage whose rows point in different directions is not called better.
#[test]
fn a_stage_is_called_what_its_rows_say() {
    let (_, comparison) = changed(|stage| {
        stage.wall_ns = stage.wall_ns * 8 / 10;
        stage.busy_ns = stage.busy_ns.map(|ns| ns * 2);
    });
    assert_eq!(headline(&comparison), "decode: GPU busy +100.0 % worse, wall -20.0 % better");
    let (shown, comparison) = changed(|stage| {
        let steps = stage.steps.as_mut().unwrap();
        steps.each_ns[3] += 30_000_000;
        stage.wall_ns += 30_000_000;
    });
    assert_eq!(headline(&comparison), "decode: wall +41.9 % unclear");
    assert!(shown.contains("step 4 of the head is an outlier: 38."), "{shown}");
}

#[test]
fn other_models_and_recordings_come_in_the_first_sentence() {
    let (mut base, mut head) = (real(), real());
    head.sources[0].format = "kineto".into();
    let shown = text(&between(&base, &head, ""), TextOptions::default());
    assert!(shown.starts_with("CAUTION: different timeline. no change of stage"), "{shown}");
    let model =
        |name: &str| Some(roofgap_analyze::WorkloadInfo { model: Some(name.into()), ..Default::default() });
    (base.workload, head.workload) = (model("llama"), model("qwen"));
    let comparison = between(&base, &head, "");
    let first = "NOT COMPARABLE: different model, timeline. ";
    assert!(text(&comparison, TextOptions::default()).starts_with(first));
    assert!(headline(&comparison).starts_with(first));
    assert!(markdown(&comparison).contains("\n## roofgap: NOT COMPARABLE: different model"));
}

#[test]
fn kernels_of_whole_graphs_are_not_called_added() {
    let mut base = real();
    let head = base.clone();
    let graph = roofgap_analyze::GraphRow { launches: 8, total_ns: 1, ..Default::default() };
    base.graphs = vec![graph.clone()];
    let stage = decode(&mut base);
    stage.graphs = vec![graph];
    stage.kernels.truncate(3);
    let shown = text(&between(&base, &head, ""), TextOptions::default());
    assert!(
        shown.starts_with("CAUTION: different graphs. ")
            && shown.contains("graphs: 8 launches recorded whole against 0 launches"),
        "{shown}"
    );
    assert!(!shown.contains(" gone ") && !shown.contains(" added "), "{shown}");
}

/// A finding on one side only is gone or new, and a page has its link.
#[test]
fn findings_of_one_side_are_listed() {
    let base = real();
    let mut head = base.clone();
    let gone = head.findings.remove(0);
    let page = PathBuf::from("runs/1/report.html");
    let shown = [Shown { analysis: &base, page: Some(&page) }, Shown { analysis: &head, page: None }];
    let page = html(&between(&base, &head, ""), shown);
    assert!(
        page.contains(&format!("<h2>Findings that are gone</h2><ul><li><b>{}</b> ", gone.title)),
        "{page}"
    );
    assert!(!page.contains("New findings") && page.contains("<a href=\"runs/1/report.html\">"));
}
