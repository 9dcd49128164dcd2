//! Every id of a finding has an explanation.

use crate::findings::{explain, explanations};
use std::path::Path;

/// Collects the ids that the rules in a folder give to `FindingBuilder`.
fn ids_in(folder: &Path, ids: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the folder of the rules") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            ids_in(&path, ids);
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("source text");
        for call in ["FindingBuilder::new(", "FindingBuilder::summed("] {
            for (at, _) in source.match_indices(call) {
                let argument = source[at + call.len()..].trim_start();
                if let Some(id) = argument.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                    ids.push(id.to_owned());
                }
            }
        }
    }
}

#[test]
fn every_finding_is_explained() {
    let mut ids = vec!["profiler-overhead".to_owned(), "ncu-occupancy".to_owned()];
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/findings/rules");
    ids_in(&rules, &mut ids);
    assert!(ids.len() > 20, "{ids:?}");
    for id in &ids {
        assert!(explain(id).is_some(), "{id} has no explanation");
    }
    for text in explanations() {
        assert!(ids.iter().any(|id| text.is_about(id)), "{} is no finding", text.id);
        let parts = [text.remedy, text.meaning, text.computed, text.fix];
        assert!(parts.iter().all(|part| !part.is_empty()), "{}", text.id);
        assert!(text.links.iter().all(|link| link.starts_with("https://")), "{}", text.id);
    }
}
