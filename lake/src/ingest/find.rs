//! Finds inputs in folders.

use std::path::{Path, PathBuf};

use roofgap_runs::open::is_run;
use roofgap_trace::{Sniffed, SourceFormat};

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
        } else if is_input(path) {
            found.push(path.clone());
        }
    }
}

/// Tells whether a file is a timeline, or should be one by its name. The export of a report may be beside it.
fn is_input(path: &Path) -> bool {
    let hidden = path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    let is_export = |export: PathBuf| export != path && export.is_file();
    let is_exported = || ["sqlite", "sqlite.gz"].iter().any(|end| is_export(path.with_extension(end)));
    match Sniffed::in_folder(path).filter(|_| !hidden) {
        Some(Ok(file)) if file.format == SourceFormat::NsysReport => !is_exported(),
        Some(Ok(file)) => file.format.is_timeline(),
        // One that cannot be read is an error, not another kind of file.
        Some(Err(_)) => true,
        None => false,
    }
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
