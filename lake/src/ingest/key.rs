//! The key of an input: a hash of its content.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use roofgap_base::file::{Unpacked, copy_hashed, hash_file};
use roofgap_base::text::hex;
use roofgap_runs::open::is_run;
use roofgap_runs::run_dir::layout::stored;
use roofgap_runs::run_dir::{Layout, SessionRecord};
use roofgap_trace::Sniffed;
use sha2::{Digest, Sha256};

use crate::tables::SCHEMA;

/// Hashes an input with the project and the labels that it is added with. Compressing a file does not change the key.
pub fn key(input: &Path, project: &str, labels: &BTreeMap<String, String>) -> io::Result<String> {
    let mut hash = Hash::new();
    hash.add(SCHEMA);
    hash.add(project);
    for (name, value) in labels {
        hash.add(name);
        hash.add(value);
    }
    if is_run(input) {
        add_run(&mut hash, input)?;
    } else if input.is_dir() {
        for path in captures(input)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            hash.add(name.strip_suffix(".gz").unwrap_or(&name));
            hash.add(&content(&path)?);
        }
    } else {
        hash.add(&content(input)?);
    }
    Ok(hash.finish())
}

/// Returns the key of an input whose content cannot be read.
pub fn key_of_path(input: &Path, project: &str) -> String {
    let mut hash = Hash::new();
    hash.add(SCHEMA);
    hash.add(project);
    hash.add(&input.to_string_lossy());
    hash.finish()
}

/// Adds the files that the analysis of a run reads. Reports, which can be written again, do not count.
fn add_run(hash: &mut Hash, run: &Path) -> io::Result<()> {
    let layout = Layout::of(run);
    match SessionRecord::read(run) {
        Ok(record) => {
            hash.add(&record.run_id);
            hash.add(&record.started);
            hash.add(record.finished.as_deref().unwrap_or_default());
        }
        // The load fails with the same error.
        Err(_) => hash.add(&content(&layout.session())?),
    }
    let mut files = vec![
        layout.config(),
        layout.environment(),
        layout.baseline_account(),
        layout.nsys_sqlite(),
        layout.nsys_account(),
        layout.native_account(),
        layout.torch_account(),
        layout.ncu_raw(),
        layout.ncu_details(),
    ];
    files.extend(layout.native_captures());
    for file in files {
        let name = file.strip_prefix(run).unwrap_or(&file).to_string_lossy().into_owned();
        if let Some(path) = stored(file) {
            hash.add(name.strip_suffix(".gz").unwrap_or(&name));
            hash.add(&content(&path)?);
        }
    }
    Ok(())
}

/// Lists the captures of a job.
fn captures(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.retain(|path| matches!(Sniffed::in_folder(path), Some(Ok(_))));
    paths.sort();
    Ok(paths)
}

/// Hashes the content of a file, unpacked.
fn content(path: &Path) -> io::Result<String> {
    // A damaged archive still has a key.
    let unpacked = copy_hashed(&mut Unpacked::open(path)?, &mut io::sink());
    Ok(unpacked.or_else(|_| hash_file(path))?.sha256)
}

/// SHA-256 of a list of texts.
struct Hash(Sha256);

impl Hash {
    fn new() -> Self {
        Self(Sha256::new())
    }

    fn add(&mut self, text: &str) {
        // With their lengths, two lists never hash alike.
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    fn finish(self) -> String {
        hex(&self.0.finalize()).chars().take(32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_content_project_and_labels_make_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("a.json");
        std::fs::write(&plain, "{}").unwrap();
        let packed = folder.path().join("b.json.gz");
        let mut gz = flate2::write::GzEncoder::new(
            std::fs::File::create(&packed).unwrap(),
            flate2::Compression::fast(),
        );
        gz.write_all(b"{}").unwrap();
        gz.finish().unwrap();
        let none = BTreeMap::new();
        let one = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let first = key(&plain, "p", &none).unwrap();
        assert!(crate::layout::is_key(&first), "{first}");
        assert_eq!(first, key(&packed, "p", &none).unwrap());
        assert_ne!(first, key(&plain, "q", &none).unwrap());
        assert_ne!(first, key(&plain, "p", &one).unwrap());
        std::fs::write(&plain, "{ }").unwrap();
        assert_ne!(first, key(&plain, "p", &none).unwrap());
        assert!(key(&folder.path().join("missing"), "p", &none).is_err());
    }
}
