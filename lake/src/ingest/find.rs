//! Finds inputs in folders.

use std::path::{Path, PathBuf};

use roofgap_runs::open::{CAPTURES, is_report, is_run};
use roofgap_trace::{SourceFormat, detect};

/// Lists the inputs below the paths, without duplicates, in order. A path that is no folder is an input as it is. In folders, run
/// directories and timelines are inputs. With `join`, a folder that was named is one input, whose captures are ranks of one job.
pub fn inputs(paths: &[PathBuf], join: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() && !is_run(path) && !join {
            search(path, &mut found);
        } else {
            found.push(path.clone());
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found
}

fn search(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        // Reading it as an input reports the error.
        found.push(folder.to_owned());
        return;
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in &paths {
        // A link to a folder may lead back up.
        let is_folder = path.is_dir() && !path.is_symlink();
        if path.is_dir() && is_run(path) {
            found.push(path.clone());
        } else if is_folder {
            search(path, found);
        } else if is_input(path) && !is_exported(path) {
            found.push(path.clone());
        }
    }
}

/// Tells whether a file in a folder is a capture.
fn is_input(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with('.') || !path.is_file() || !CAPTURES.iter().any(|ending| name.ends_with(ending)) {
        return false;
    }
    // A text may be anything. Another capture that cannot be read is an error, not another kind of file.
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let is_text = plain.ends_with(".json") || plain.ends_with(".csv");
    // Totals may be those of a timeline beside them.
    let is_capture = |format: SourceFormat| format.is_timeline() && format != SourceFormat::KernelSummary;
    !is_text || detect(path).is_ok_and(is_capture)
}

/// Tells whether the export of a report is beside it.
fn is_exported(path: &Path) -> bool {
    let is_export = |extension| {
        let export = path.with_extension(extension);
        *path != export && export.is_file()
    };
    (is_export("sqlite") || is_export("sqlite.gz")) && is_report(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_with_its_export_is_one_input() {
        let folder = tempfile::tempdir().unwrap();
        let report = b"NVIDIA Tegra Profiler Report 2025.1";
        let files: [(&str, &[u8]); 5] = [
            ("a.nsys-rep", report),
            ("a.sqlite", b""),
            ("b.nsys-rep", report),
            ("b.sqlite.gz", b""),
            ("c.nsys-rep", report),
        ];
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let found = inputs(&[folder.path().to_owned()], false);
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["a.sqlite", "b.sqlite.gz", "c.nsys-rep"]);
    }
}
