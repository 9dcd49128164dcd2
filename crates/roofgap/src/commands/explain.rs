//! `roofgap explain`: says what a finding means, how it was computed and how to fix it.

use super::answer;
use crate::args::Format;
use crate::printer::Printer;
use roofgap_analyze::findings::{Explanation, explain, explanations};
use roofgap_analyze::knobs::of_finding;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_report::Screen;
use serde_json::{Value, json};
use std::fmt::Write;

pub fn run(finding: Option<&str>, format: Format, printer: &Printer) -> Result<Exit, Error> {
    let screen = printer.screen();
    let Some(finding) = finding else {
        let all: Vec<&Explanation> = explanations().collect();
        let documents: Vec<Value> = all.iter().map(|text| document(text)).collect();
        answer(&documents, |_| list(&all, screen), format, printer)?;
        return Ok(Exit::Done);
    };
    let text = explain(finding).ok_or_else(|| {
        let known: Vec<&str> = explanations().map(|text| text.id).collect();
        Error::new(format!("no finding {finding:?}; the findings are {}", known.join(", ")))
    })?;
    answer(&document(text), |_| page(finding, text, screen), format, printer)?;
    Ok(Exit::Done)
}

fn document(text: &Explanation) -> Value {
    json!({
        "id": text.id,
        "remedy": text.remedy,
        "meaning": text.meaning,
        "computed": text.computed,
        "fix": text.fix,
        "links": text.links,
        "knobs": of_finding(text.id)
            .map(|knob| json!({"id": knob.id, "title": knob.title, "applies": knob.applies}))
            .collect::<Vec<Value>>(),
    })
}

/// Lists every finding with its remedy.
fn list(all: &[&Explanation], screen: Screen) -> String {
    let rows = all.iter().map(|text| [text.id.to_owned(), text.remedy.to_owned()]);
    roofgap_report::columns(["finding", "remedy"], rows, screen)
}

fn page(finding: &str, text: &Explanation, screen: Screen) -> String {
    let mut out = format!("{}\n", screen.bold(finding));
    for (title, part) in
        [("What it means", text.meaning), ("How it was computed", text.computed), ("How to fix it", text.fix)]
    {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n{}", screen.bold(title));
        let _ = writeln!(out, "{}", screen.wrapped(part, 0));
    }
    let mut knobs = of_finding(text.id).peekable();
    if knobs.peek().is_some() {
        let _ = writeln!(out, "\n{}", screen.bold("What `roofgap try` can change"));
    }
    for knob in knobs {
        let line = format!("{}: {}. Applies: {}.", knob.id, knob.title, knob.applies);
        let _ = writeln!(out, "{}", screen.wrapped(&line, 2));
    }
    if !text.links.is_empty() {
        let _ = writeln!(out, "\n{}", screen.bold("Read more"));
        for link in text.links {
            let _ = writeln!(out, "{link}");
        }
    }
    out
}
