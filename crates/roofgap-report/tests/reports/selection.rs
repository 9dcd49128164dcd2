//! Reports of one stage.

use crate::fixtures::{PLAIN, made};
use roofgap_report::Selection;
use roofgap_report::text::{self, TextOptions};

/// Stages that the user left out do not lie outside the stages.
#[test]
fn a_single_stage_says_nothing_of_the_others() {
    let selection = Selection {
        stage: Some("decode".into()),
        ..Selection::default()
    };
    let part = selection.of(&made(PLAIN).analysis);
    let outside = "outside the stages: ";
    assert!(text::render(&part, TextOptions::default()).contains(outside));
    let only = TextOptions {
        stages_only: true,
        ..TextOptions::default()
    };
    let shown = text::render(&part, only);
    assert!(
        !shown.contains(outside) && shown.contains("Kernels of decode"),
        "{shown}"
    );
}
