//! Names that try to be markup, in every format.

use crate::fixtures::{Case, made};
use roofgap_report::{json, markdown, page, text};

const SCRIPT: &str = "</script><script>alert(`1`)</script>";

fn cases() -> Vec<Case> {
    let long = "very_long_name_".repeat(334);
    let list = [
        ["a|b", "`code` <b>bold</b>", "line one\nline two\r\n| x | y |"],
        [SCRIPT, "<img src=x onerror=alert(1)>", "]]><!--"],
        [long.as_str(), "\u{202e}\u{2028}\u{0}\u{1b}[31mred", "{{script}} \\u003c \" onload=\"x"],
    ];
    list.into_iter().map(made).collect()
}

/// Pipes of a line that are not escaped.
fn pipes(line: &str) -> usize {
    let bytes = line.as_bytes();
    let escaped = |i: usize| bytes[..i].iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1;
    (0..bytes.len()).filter(|&i| bytes[i] == b'|' && !escaped(i)).count()
}

#[test]
fn markdown_keeps_its_tables() {
    for case in cases() {
        let bundle = case.bundle();
        for document in [
            markdown::kernels(bundle),
            markdown::operators(bundle),
            markdown::report(bundle),
            markdown::stakeholder_summary(bundle),
        ] {
            let lower = document.to_lowercase();
            for tag in ["<script", "<img", "<b>", "<!--"] {
                assert!(!lower.contains(tag), "{tag} in {document}");
            }
            assert!(!document.chars().any(|c| c.is_control() && c != '\n'), "a control character");
            let mut columns = None;
            for line in document.lines() {
                if !line.starts_with('|') {
                    columns = None;
                    continue;
                }
                let here = pipes(line);
                assert_eq!(*columns.get_or_insert(here), here, "{line}");
                assert!(line.chars().count() < 600, "{line}");
            }
        }
    }
}

#[test]
fn text_keeps_its_lines() {
    for case in cases() {
        let shown = text::render(&case.analysis, text::TextOptions::default());
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown}");
    }
}

#[test]
fn json_gives_the_names_back() {
    for case in cases() {
        let shown = json::pretty(&case.analysis);
        let value: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let first = value["kernels"][0]["name"].as_str().unwrap();
        assert_eq!(first, case.analysis.kernels[0].name);
    }
}

#[test]
fn html_has_no_markup_but_its_own() {
    let tags = |page: &str| {
        let page = page.to_lowercase();
        ["<script", "</script", "<img", "<!--", "<b>bold", "onerror=", "onload="]
            .map(|t| page.matches(t).count())
    };
    let plain = made(crate::fixtures::PLAIN);
    let expected = tags(&page::render(plain.bundle()));
    for case in cases() {
        let page = page::render(case.bundle());
        let mut found = tags(&page);
        // As text of an attribute or an element they are there, but never behind an open tag.
        found[5] = 0;
        found[6] = 0;
        assert_eq!(found, expected);
        assert!(!page.contains("\" onload=\""));
        assert!(!page.contains('\u{0}') && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
        assert!(page.lines().all(|l| !l.contains("very_long_name_".repeat(200).as_str())));
    }
}
