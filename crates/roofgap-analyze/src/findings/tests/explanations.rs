//! Every rule explains its findings.

use crate::findings::{RULES, explain};

#[test]
fn every_finding_is_explained() {
    for rule in RULES {
        let id = rule.id.replace('*', "occupancy");
        let found: Vec<&str> = RULES.iter().filter(|rule| rule.is_about(&id)).map(|rule| rule.id).collect();
        assert_eq!(found, [rule.id], "one rule for an id");
        assert_eq!(explain(&id).map(|rule| rule.id), Some(rule.id));
        let parts = [rule.remedy, rule.meaning, rule.computed, rule.fix, rule.disproof];
        assert!(parts.iter().all(|part| !part.is_empty()), "{id}");
        assert!(rule.links.iter().all(|link| link.starts_with("https://")), "{id}");
    }
}
