//! The page that compares two captures: `compare OUT BASE HEAD`.

use roofgap_analyze::compare::{Side, SideFacts, compare};
use roofgap_analyze::{Analysis, Options, analyze};
use roofgap_report::compare::{Shown, html};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = || paths.next().ok_or("name the page, the base and the head");
    let (out, base, head) = (next()?, next()?, next()?);
    let analysis = |path: &PathBuf| -> Result<Analysis, Box<dyn std::error::Error>> {
        let input = roofgap_trace::read(std::slice::from_ref(path))?;
        Ok(analyze(&input.trace, &Options::default()).analysis)
    };
    let facts = |path: &PathBuf| SideFacts {
        title: path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        ..SideFacts::default()
    };
    let (old, new) = (analysis(&base)?, analysis(&head)?);
    let (old_facts, new_facts) = (facts(&base), facts(&head));
    let comparison =
        compare(Side { analysis: &old, facts: &old_facts }, Side { analysis: &new, facts: &new_facts }, &[]);
    std::fs::write(out, html(&comparison, [&old, &new].map(|analysis| Shown { analysis, page: None })))?;
    Ok(())
}
