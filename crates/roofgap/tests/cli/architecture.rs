//! What ARCHITECTURE.md says about crates and files is true.

use crate::support::root;
use std::collections::BTreeSet;
use std::path::Path;

/// Rows of the table below a header, as cells without backticks.
fn table<'a>(document: &'a str, header: &str) -> Vec<Vec<&'a str>> {
    let (_, rest) =
        document.split_once(header).unwrap_or_else(|| panic!("ARCHITECTURE.md has no table {header}"));
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Crates of this workspace that a manifest names as dependencies of the product.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap();
    let (_, section) = text.split_once("\n[dependencies]\n").unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.strip_prefix("roofgap-"))
        .map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn crates_use_what_the_table_allows() {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = table(&document, "| crate | owns | may use |");
    let mut listed = BTreeSet::new();
    for row in &rows {
        let name = row[0].trim_matches('`').trim_end_matches('/');
        // A folder of runs may have the name of a crate.
        let own = root().join(name);
        let folder = if own.join("Cargo.toml").is_file() { own } else { root().join("crates").join(name) };
        let allowed = row[2].split(", ").filter(|name| *name != "nothing").map(str::to_owned).collect();
        assert_eq!(dependencies(&folder.join("Cargo.toml")), allowed, "{name}");
        listed.insert(folder);
    }
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let all: BTreeSet<_> = crates.chain([root().join("testkit")]).collect();
    assert_eq!(listed, all);
}

/// Every path of the table of owners exists. `a/{b,c}.rs` names several.
#[test]
fn owners_exist() {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = table(&document, "| question | owner |");
    assert!(rows.len() > 40, "{}", rows.len());
    for row in rows {
        for path in row[1].split('`').skip(1).step_by(2).filter(|path| path.contains('/')) {
            let (start, rest) = path.split_once('{').unwrap_or((path, "}"));
            let (names, end) = rest.split_once('}').unwrap();
            for name in names.split(',') {
                let path = format!("{start}{name}{end}");
                let found =
                    [root().join(&path), root().join("crates").join(&path)].iter().any(|path| path.exists());
                assert!(found, "{path}, which answers: {}", row[0]);
            }
        }
    }
}

/// Every test that the threat model names exists.
#[test]
fn the_tests_of_the_threat_model_exist() {
    fn add(folder: &Path, functions: &mut BTreeSet<String>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.ends_with("target") {
                add(&path, functions);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let tests = text.split("#[test]").skip(1).filter_map(|rest| rest.split_once("fn "));
                functions.extend(tests.filter_map(|(_, rest)| Some(rest.split_once('(')?.0.to_owned())));
            }
        }
    }
    let mut functions = BTreeSet::new();
    ["crates", "testkit"].iter().for_each(|folder| add(&root().join(folder), &mut functions));
    let document = std::fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let rows = table(&document, "| command | from | not trusted to | test |");
    for command in ["analyze", "profile", "watch", "serve", "mcp", "scrub"] {
        assert!(rows.iter().any(|row| row[0].trim_matches('`') == command), "{command} is missing");
    }
    for row in &rows {
        assert!(row[3].contains('`'), "{row:?} names no test");
        for test in row[3].split('`').skip(1).step_by(2) {
            assert!(functions.contains(test), "docs/threat-model.md names {test}, which is no test");
        }
    }
}
