//! `roofgap explain`: says what a finding means, how it was computed and how to fix it, and derives it for a capture.

use super::analyze::exporter;
use super::answer;
use crate::printer::Printer;
use crate::reading::open;
use roofgap_analyze::findings::{RULES, Rule, explain, fix};
use roofgap_analyze::knobs::of_finding;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::numbers::counted;
use roofgap_report::{Derivation, DerivationRow, Screen, columns, count, derivations, time};
use roofgap_runs::open::Overrides;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

pub fn run(finding: Option<&str>, inputs: &[PathBuf], printer: &Printer) -> Result<Exit, Error> {
    let Some(finding) = finding else {
        let documents: Vec<Value> = RULES.iter().map(document).collect();
        let rows = RULES.iter().map(|rule| [rule.id.to_owned(), rule.remedy.to_owned()]);
        return answer(&documents, |_, screen| columns(["finding", "remedy"], rows, screen), printer);
    };
    let rule = explain(finding).ok_or_else(|| {
        let known = || RULES.iter().map(|rule| rule.id);
        let word = finding.to_ascii_lowercase();
        let close: Vec<&str> = known().filter(|id| id.contains(&word)).collect();
        let hint = match close.is_empty() {
            true => format!("the findings are {}", known().collect::<Vec<_>>().join(", ")),
            false => format!("did you mean {}?", close.join(", ")),
        };
        Error::new(format!("no finding {finding:?}; {hint}"))
    })?;
    if inputs.is_empty() {
        return answer(&document(rule), |_, screen| page(finding, rule, screen), printer);
    }
    let opened = open(inputs, &Overrides::default(), &exporter(None), printer)?;
    let derived = derivations(opened.bundle(), finding);
    if derived.is_empty() {
        let mut ids: Vec<&str> = opened.analysis.findings.iter().map(|finding| finding.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        let others = if ids.is_empty() { "it has no findings".to_owned() } else { ids.join(", ") };
        return Err(Error::new(format!("the capture has no finding {finding}; it has: {others}")));
    }
    let text = |derived: &Vec<Derivation<'_>>, screen| {
        let parts: Vec<String> = derived.iter().map(|finding| derivation(finding, rule, screen)).collect();
        parts.join("\n")
    };
    answer(&derived, text, printer)?;
    Ok(if opened.unreadable.is_empty() { Exit::Done } else { Exit::Partial })
}

fn document(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "remedy": rule.remedy,
        "meaning": rule.meaning,
        "computed": rule.computed,
        "fix": rule.fix,
        "disproof": rule.disproof,
        "confidence": rule.confidence,
        "links": rule.links,
        "knobs": of_finding(rule.id)
            .map(|knob| json!({"id": knob.id, "title": knob.title, "applies": knob.applies}))
            .collect::<Vec<Value>>(),
    })
}

fn page(finding: &str, rule: &Rule, screen: Screen) -> String {
    let mut out = format!("{}\n", screen.bold(finding));
    for (title, part) in [
        ("What it means", rule.meaning),
        ("How it was computed", rule.computed),
        ("How to fix it", fix(finding).unwrap_or(rule.fix)),
        ("What would disprove it", rule.disproof),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n{}", screen.bold(title));
        let _ = writeln!(out, "{}", screen.wrapped(part, 0));
    }
    let mut knobs = of_finding(rule.id).peekable();
    if knobs.peek().is_some() {
        let _ = writeln!(out, "\n{}", screen.bold("What `roofgap try` can change"));
    }
    for knob in knobs {
        let line = format!("{}: {}. Applies: {}.", knob.id, knob.title, knob.applies);
        let _ = writeln!(out, "{}", screen.wrapped(&line, 2));
    }
    if !rule.links.is_empty() {
        let _ = writeln!(out, "\n{}", screen.bold("Read more"));
        for link in &rule.links {
            let _ = writeln!(out, "{link}");
        }
    }
    out
}

/// Shows the terms of a bound, the rows that they come from, and what to do.
fn derivation(derived: &Derivation<'_>, rule: &Rule, screen: Screen) -> String {
    let finding = derived.finding;
    let mut out = format!("{}\n\n", screen.bold(&screen.wrapped(&finding.title, 0)));
    let _ = writeln!(out, "{}\n", screen.wrapped(rule.computed, 0));
    let signed = |ns: i64| if ns < 0 { format!("- {}", time(-ns)) } else { format!("+ {}", time(ns)) };
    let terms = finding.terms.iter().map(|term| [term.what.clone(), signed(term.ns)]);
    let share = format!("= {} ({:.1} %)", time(finding.bound_ns), finding.bound_pct);
    let bound = ["upper bound on the saving".to_owned(), share];
    out.push_str(&columns(["term", "time>"], terms.chain([bound]), screen));
    let line = format!("{}; wrong if: {}", finding.confidence.as_str(), finding.disproof);
    let _ = writeln!(out, "{}", screen.wrapped(&line, 0));
    if let Some(of) = derived.of {
        let _ = writeln!(
            out,
            "\n{}",
            screen.bold(&format!("{}, {} in all", counted(derived.count as u64, of), time(derived.total_ns)))
        );
        let at = |row: &DerivationRow| row.at_ns.map_or_else(String::new, time);
        let cells = |row: &DerivationRow| [row.name.clone(), count(row.calls), time(row.ns), at(row)];
        let names = [of, "number>", "in all>", "longest at>"];
        out.push_str(&columns(names, derived.rows.iter().map(cells), screen));
    }
    let _ = writeln!(out, "\n{}\n{}", screen.bold("What to do"), screen.wrapped(&finding.action, 0));
    if !finding.knobs.is_empty() {
        let _ = writeln!(out, "`roofgap try RUN {}` measures it on a recorded run", finding.id);
    }
    out
}
