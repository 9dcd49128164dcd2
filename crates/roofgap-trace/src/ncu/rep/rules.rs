//! Results of ncu's rules for a launch.

use super::super::model::{Rule, RuleKind, Speedup, SpeedupScope};
use super::super::protobuf::{Fields, Malformed, Wire};
use super::report::Report;

impl Report {
    pub fn rule(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let (mut name, mut section, mut body) = (String::new(), String::new(), None);
        for field in Fields::of(message) {
            match field? {
                (1, value) => name = value.text().unwrap_or_default(),
                (3, Wire::Bytes(value)) => body = Some(value),
                (4, value) => section = value.text().unwrap_or_default(),
                _ => {}
            }
        }
        let Some(body) = body else { return Ok(()) };
        for item in Fields::of(body) {
            let (1, Wire::Bytes(item)) = item? else { continue };
            let (mut text, mut kind, mut speedup) = (None, RuleKind::Info, None);
            for field in Fields::of(item) {
                match field? {
                    (1, Wire::Bytes(message)) => {
                        for field in Fields::of(message) {
                            match field? {
                                (1, value) => text = value.text(),
                                (2, Wire::Varint(value)) => kind = rule_kind(value),
                                _ => {}
                            }
                        }
                    }
                    (10, Wire::Bytes(message)) => speedup = read_speedup(message)?,
                    _ => {}
                }
            }
            if let Some(text) = text {
                let (name, section) = (name.clone(), section.clone());
                let launch = self.set.launches.len();
                self.set.rules.push(Rule {
                    launch,
                    section,
                    name,
                    kind,
                    text: without_links(&text),
                    speedup,
                });
            }
        }
        Ok(())
    }
}

fn rule_kind(value: u64) -> RuleKind {
    match value {
        1 => RuleKind::Ok,
        2 => RuleKind::Warning,
        3 => RuleKind::Error,
        4 => RuleKind::Optimization,
        _ => RuleKind::Info,
    }
}

fn read_speedup(message: &[u8]) -> Result<Option<Speedup>, Malformed> {
    let (mut scope, mut percent) = (None, None);
    for field in Fields::of(message) {
        match field? {
            (1, Wire::Varint(1)) => scope = Some(SpeedupScope::Local),
            (1, Wire::Varint(2)) => scope = Some(SpeedupScope::Global),
            (2, Wire::Fixed64(bits)) => {
                percent = Some(f64::from_bits(bits)).filter(|value| value.is_finite())
            }
            _ => {}
        }
    }
    Ok(scope.zip(percent).map(|(scope, percent)| Speedup { scope, percent }))
}

/// Formats `@section:Id:Words@` and `@url:Words:address@` as the pages do: the words, then the address in parentheses.
fn without_links(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let inside = from.strip_prefix('@').unwrap_or(from);
        let link = inside.split_once('@').and_then(|(link, after)| Some((link_words(link)?, after)));
        match link {
            Some((words, after)) => {
                out.push_str(&words);
                rest = after;
            }
            None => {
                out.push('@');
                rest = inside;
            }
        }
    }
    out.push_str(rest);
    out
}

fn link_words(link: &str) -> Option<String> {
    let (kind, rest) = link.split_once(':')?;
    match kind {
        "section" | "source" | "metric" => rest.split_once(':').map(|(_, words)| words.to_owned()),
        "url" => rest.split_once(':').map(|(words, address)| format!("{words} ({address})")),
        _ => None,
    }
}
