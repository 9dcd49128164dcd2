//! Reports of one stage.

use crate::fixtures::{PLAIN, made};
use roofgap_report::Selection;
use roofgap_report::text::{self, TextOptions};

/// Stages that the user left out do not lie outside the stages, and tables of the whole trace are left out.
#[test]
fn a_single_stage_says_nothing_of_the_others() {
    let selection = Selection { stage: Some("decode".into()), ..Selection::default() };
    let part = selection.of(&made(PLAIN).analysis);
    let of_the_trace = ["outside the stages: ", "\nCopies\n"];
    let all = text::render(&part, TextOptions::default());
    assert!(of_the_trace.iter().all(|part| all.contains(part)), "{all}");
    let only = TextOptions { stages_only: true, ..TextOptions::default() };
    let shown = text::render(&part, only);
    assert!(!of_the_trace.iter().any(|part| shown.contains(part)), "{shown}");
    assert!(shown.contains("Kernels of decode"), "{shown}");
}
