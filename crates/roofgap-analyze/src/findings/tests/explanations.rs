//! Every rule explains its findings.

use crate::findings::rule::TEXT;
use crate::findings::{RULES, Rule, explain};
use std::collections::BTreeSet;

#[test]
fn every_finding_is_explained() {
    for rule in RULES.iter() {
        let id = rule.id.replace('*', "occupancy");
        let found: Vec<&str> = RULES.iter().filter(|rule| rule.is_about(&id)).map(|rule| rule.id).collect();
        assert_eq!(found, [rule.id], "one rule for an id");
        assert_eq!(explain(&id).map(|rule| rule.id), Some(rule.id));
        let parts = [rule.remedy, rule.meaning, rule.computed, rule.fix, rule.disproof];
        assert!(parts.iter().all(|part| !part.is_empty()), "{id}");
        assert!(rule.links.iter().all(|link| link.starts_with("https://")), "{id}");
    }
}

#[test]
fn the_text_has_a_section_for_every_rule_and_no_other() {
    let titles = |mark| TEXT.lines().filter_map(move |line: &str| line.strip_prefix(mark));
    assert!(titles("## ").eq(RULES.iter().map(|rule| rule.id)));
    let parts = |rule: &Rule| 5 + usize::from(!rule.links.is_empty()) + usize::from(!rule.actions.is_empty());
    assert_eq!(titles("### ").count(), RULES.iter().map(parts).sum::<usize>(), "a part that is not read");
    let listed = RULES.iter().map(|rule| rule.links.len() + rule.actions.len());
    assert_eq!(titles("- ").count(), listed.sum::<usize>(), "a line that is not read");
}

#[test]
fn the_rules_use_the_actions_of_the_text_and_no_others() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/findings/rules");
    let mut used = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let code = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let calls = code.split("view.action(\"").skip(1);
        used.extend(calls.map(|call| call.split('"').next().unwrap().to_owned()));
    }
    let known: Vec<&str> = RULES.iter().flat_map(|rule| &rule.actions).map(|(case, _)| *case).collect();
    assert_eq!(used.len(), known.len(), "a case of two rules");
    assert_eq!(used, known.into_iter().map(str::to_owned).collect());
}
