//! The reports in `docs/examples` are those that this version writes.

use crate::support::{ROOFGAP, listing, root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lists the files of the examples, relative to their folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let inside = |path: PathBuf| path.strip_prefix(folder).unwrap().to_path_buf();
    let files = listing(folder).into_iter().map(|(path, ..)| path);
    files.filter(|path| path.is_file()).map(inside).collect()
}

#[test]
fn the_examples_are_current() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("bash")
        .arg("scripts/examples.sh")
        .arg(folder.path())
        .env("ROOFGAP", ROOFGAP)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let kept = root().join("docs/examples");
    let mut expected = files(&kept);
    expected.retain(|path| path != Path::new("README.md"));
    assert_eq!(files(folder.path()), expected, "run scripts/examples.sh");
    for path in &expected {
        let same =
            std::fs::read(folder.path().join(path)).unwrap() == std::fs::read(kept.join(path)).unwrap();
        assert!(same, "{} is not current; run scripts/examples.sh", path.display());
    }
}

/// The cells of the tables of a document by heading, first cell of the row and column.
fn cells(text: &str) -> BTreeMap<[String; 3], String> {
    let (mut found, mut heading, mut columns) = (BTreeMap::new(), String::new(), Vec::new());
    for line in text.lines() {
        if let Some(title) = line.strip_prefix('#') {
            heading = title.trim_start_matches('#').trim().to_owned();
        }
        let Some(row) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            columns.clear();
            continue;
        };
        let row: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        match columns.is_empty() {
            true => columns = row,
            false => {
                found.extend(
                    columns.iter().zip(&row).skip(1).map(|(column, cell)| {
                        ([heading.clone(), row[0].clone(), column.clone()], cell.clone())
                    }),
                )
            }
        }
    }
    found
}

/// Numbers that stand in two files of an example are the same, and nothing that a reader sees is empty or endless.
#[test]
fn the_files_of_an_example_agree() {
    let mut compared = 0;
    for folder in std::fs::read_dir(root().join("docs/examples")).unwrap().map(|entry| entry.unwrap().path())
    {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let [report, summary] = ["report.md", "stakeholder_summary.md"].map(read);
        let (of_report, of_summary) = (cells(&report), cells(&summary));
        // The environment is words, shorter in the summary.
        for (key, value) in of_summary.iter().filter(|(key, _)| key[0] != "Environment") {
            let other = of_report.get(key);
            assert!(
                other.is_none_or(|other| other == value),
                "{}: {key:?}: {value}, {other:?}",
                folder.display()
            );
            compared += usize::from(other.is_some());
        }
        let first = summary.split("\n## ").next().unwrap().lines().filter(|line| line.contains(" takes "));
        for line in first.filter(|line| !line.starts_with('#')) {
            assert!(report.contains(line), "{}: not in report.md: {line}", folder.display());
            compared += 1;
        }
        for text in [&report, &summary] {
            let long = text.lines().find(|line| line.len() > 2_000);
            assert_eq!(long, None, "{}", folder.display());
            let empty = text.split("\n## ").skip(1).find(|section| section.trim().lines().count() < 2);
            assert_eq!(empty, None, "{}", folder.display());
        }
        if !folder.join("session.json").is_file() {
            continue;
        }
        assert!(folder.join("report.html").is_file(), "{}", folder.display());
        assert!(
            read("inputs.yaml").lines().count() > 2,
            "{}: neither files nor what was made",
            folder.display()
        );
        let has_cache = read("config.yaml").contains("kv_cache: true");
        assert!(
            !has_cache || !report.contains("[context-recomputed]"),
            "{}: it has a KV cache",
            folder.display()
        );
    }
    assert!(compared > 20, "{compared}");
}
