//! The page that compares two captures: `compare OUT BASE HEAD`.

use roofgap_analyze::compare::{CompareOptions, Side, SideFacts, compare};
use roofgap_analyze::{Analyzed, Options, analyze};
use roofgap_report::compare::{Shown, html};
use roofgap_trace::Trace;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = || paths.next().ok_or("name the page, the base and the head");
    let (out, base, head) = (next()?, next()?, next()?);
    let analysis = |path: &PathBuf| -> Result<(Trace, Analyzed), Box<dyn std::error::Error>> {
        let input = roofgap_trace::read(std::slice::from_ref(path))?;
        let analyzed = analyze(&input.trace, &Options::default());
        Ok((input.trace, analyzed))
    };
    let facts = |path: &PathBuf| SideFacts {
        title: path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        ..SideFacts::default()
    };
    let (old, new) = (analysis(&base)?, analysis(&head)?);
    let (old_facts, new_facts) = (facts(&base), facts(&head));
    let comparison = compare(
        Side { analysis: &old.1.analysis, facts: &old_facts },
        Side { analysis: &new.1.analysis, facts: &new_facts },
        &CompareOptions::default(),
    );
    let shown = [&old, &new].map(|(trace, analyzed)| Shown {
        analysis: &analyzed.analysis,
        timeline: Some((trace, &analyzed.stages)),
        page: None,
    });
    std::fs::write(out, html(&comparison, &shown))?;
    Ok(())
}
