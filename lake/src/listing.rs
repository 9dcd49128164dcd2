//! The files of a lake, and which of them count.
//!
//! A file of one run counts if the run is in `runs` and no merged file beside it has the run. A merged file counts unless another one
//! beside it has all of its runs. Both matter only while `add` or `compact` runs, and after one was killed.

use std::collections::{BTreeMap, HashMap, HashSet};

use parquet::file::metadata::ParquetMetaData;

use crate::LakeError;
use crate::layout::{FileName, TableFile};
use crate::store::Store;
use crate::tables::batch::KEYS_ENTRY;
use crate::tables::rows::{ErrorRow, RunRow};
use crate::tables::{Record as _, TABLES, Table};

/// A merged file and its runs.
#[derive(Debug, Clone)]
pub struct Merged {
    /// Path below the lake.
    pub path: String,
    /// Keys of its runs.
    pub keys: HashSet<String>,
}

/// The files of one table in one partition.
#[derive(Debug, Clone, Default)]
pub struct Folder {
    /// Keys of the runs with a file of their own, and its path.
    pub single: BTreeMap<String, String>,
    /// Merged files.
    pub merged: Vec<Merged>,
    /// Files that do not belong there.
    pub foreign: Vec<String>,
    /// Temporary files.
    pub temporary: Vec<String>,
}

impl Folder {
    /// Tells whether a merged file has a run.
    pub fn merged_has(&self, key: &str) -> bool {
        self.merged.iter().any(|merged| merged.keys.contains(key))
    }

    /// Tells whether another merged file has all runs of one. Of equal ones the first counts.
    fn is_superseded(&self, at: usize) -> bool {
        let Some(own) = self.merged.get(at) else {
            return false;
        };
        let supersedes = |(other, merged): (usize, &Merged)| {
            let larger =
                merged.keys.len() > own.keys.len() || (merged.keys.len() == own.keys.len() && other < at);
            other != at && larger && own.keys.is_subset(&merged.keys)
        };
        self.merged.iter().enumerate().any(supersedes)
    }

    /// Returns the merged files that count.
    pub fn current(&self) -> impl Iterator<Item = &Merged> {
        let merged = self.merged.iter().enumerate();
        merged.filter(|(at, _)| !self.is_superseded(*at)).map(|(_, merged)| merged)
    }
}

/// The files of a lake by table and partition.
#[derive(Debug, Default)]
pub struct Listing {
    tables: BTreeMap<&'static str, BTreeMap<String, Folder>>,
    /// Size of each file, bytes.
    sizes: HashMap<String, u64>,
}

/// Times that a lake is listed again because `compact` changes it.
const TRIES: usize = 5;

impl Listing {
    /// Lists a lake. Footers are read only in partitions with more than one file of a table. With `all`, all are read, and one that is
    /// not readable is left to the caller: its file has no keys.
    pub fn read(store: &Store, all: bool) -> Result<Self, LakeError> {
        for _ in 0..TRIES {
            match Self::read_once(store, all) {
                // `compact` replaced a merged file meanwhile.
                Err(error) if error.is_gone() => {}
                read => return read,
            }
        }
        Err(LakeError::Changed)
    }

    fn read_once(store: &Store, all: bool) -> Result<Self, LakeError> {
        let mut sizes = HashMap::new();
        let mut tables = BTreeMap::new();
        let mut unread = Vec::new();
        let mut mixed = HashSet::new();
        for table in TABLES {
            let mut folders: BTreeMap<String, Folder> = BTreeMap::new();
            for entry in store.list(table.name)? {
                let Some(file) = TableFile::parse(&entry.path, &table) else {
                    continue;
                };
                sizes.insert(entry.path, entry.bytes);
                let folder = folders.entry(file.partition.clone()).or_default();
                match file.name {
                    FileName::Run { key } => {
                        folder.single.insert(key, file.path);
                        mixed.insert(file.partition);
                    }
                    FileName::Merged => {
                        if !folder.merged.is_empty() {
                            mixed.insert(file.partition.clone());
                        }
                        folder.merged.push(Merged { path: file.path.clone(), keys: HashSet::new() });
                        unread.push((table.name, file.partition, file.path));
                    }
                    FileName::Temporary => folder.temporary.push(file.path),
                    FileName::Foreign => folder.foreign.push(file.path),
                }
            }
            tables.insert(table.name, folders);
        }
        let mut listing = Self { tables, sizes };
        for (table, partition, path) in unread {
            if all || mixed.contains(&partition) {
                match listing.read_keys(store, table, &partition, &path) {
                    Err(LakeError::Parquet { .. }) if all => {}
                    read => read?,
                }
            }
        }
        Ok(listing)
    }

    fn read_keys(
        &mut self,
        store: &Store,
        table: &str,
        partition: &str,
        path: &str,
    ) -> Result<(), LakeError> {
        let Some(folder) = self.tables.get_mut(table).and_then(|folders| folders.get_mut(partition)) else {
            return Ok(());
        };
        let footer = store.footer(path)?;
        if let Some(merged) = folder.merged.iter_mut().find(|merged| merged.path == path) {
            merged.keys = keys(&footer);
        }
        Ok(())
    }

    /// Returns the folders of a table by partition.
    pub fn folders(&self, table: &Table) -> impl Iterator<Item = (&String, &Folder)> {
        self.tables.get(table.name).into_iter().flatten()
    }

    /// Returns the folder of a table and partition.
    pub fn folder(&self, table: &Table, partition: &str) -> Option<&Folder> {
        self.tables.get(table.name)?.get(partition)
    }

    /// Returns the keys of the runs of a partition that are in the lake.
    pub fn runs(&self, partition: &str) -> HashSet<&str> {
        let folder = self.folder(&RunRow::TABLE, partition);
        let single = folder.into_iter().flat_map(|folder| folder.single.keys());
        let merged =
            folder.into_iter().flat_map(|folder| folder.merged.iter().flat_map(|merged| &merged.keys));
        single.chain(merged).map(String::as_str).collect()
    }

    /// Returns the size of a file, bytes.
    pub fn size(&self, path: &str) -> u64 {
        self.sizes.get(path).copied().unwrap_or_default()
    }

    /// Returns the files that count, by path, with their sizes.
    pub fn visible(&self) -> BTreeMap<String, u64> {
        let mut visible = BTreeMap::new();
        for table in &TABLES {
            for (partition, folder) in self.folders(table) {
                let runs = if folder.single.is_empty() { HashSet::new() } else { self.runs(partition) };
                let counts = |key: &str| table.name == ErrorRow::TABLE.name || runs.contains(key);
                let single = folder.single.iter();
                let single = single.filter(|(key, _)| !folder.merged_has(key) && counts(key));
                let paths = single.map(|(_, path)| path);
                let paths = paths.chain(folder.current().map(|merged| &merged.path));
                visible.extend(paths.map(|path| (path.clone(), self.size(path))));
            }
        }
        visible
    }
}

/// Returns the runs of a merged file by its footer.
pub fn keys(footer: &ParquetMetaData) -> HashSet<String> {
    let entries = footer.file_metadata().key_value_metadata();
    let entry = entries.into_iter().flatten().find(|entry| entry.key == KEYS_ENTRY);
    let text = entry.and_then(|entry| entry.value.as_deref()).unwrap_or_default();
    text.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(path: &str, keys: &[&str]) -> Merged {
        Merged { path: path.to_owned(), keys: keys.iter().map(|key| (*key).to_owned()).collect() }
    }

    #[test]
    fn a_run_counts_once_whatever_was_merged() {
        let single = |keys: &[&str], table: &str| {
            let path = |key: &&str| ((*key).to_owned(), format!("{table}/{key}"));
            keys.iter().map(path).collect()
        };
        let runs = Folder {
            single: single(&["a", "b", "c"], "runs"),
            merged: vec![merged("runs/1", &["a"]), merged("runs/2", &["a", "b"])],
            ..Folder::default()
        };
        let stages = Folder {
            single: single(&["a", "c", "d"], "stages"),
            merged: vec![merged("stages/1", &["a"]), merged("stages/2", &["a"])],
            temporary: vec!["stages/.x".to_owned()],
            ..Folder::default()
        };
        let folders = |folder: Folder| BTreeMap::from([("p".to_owned(), folder)]);
        let listing = Listing {
            tables: BTreeMap::from([("runs", folders(runs)), ("stages", folders(stages))]),
            sizes: HashMap::from([("runs/c".to_owned(), 7)]),
        };
        let visible = listing.visible();
        assert_eq!(visible.get("runs/c"), Some(&7));
        let visible: Vec<String> = visible.into_keys().collect();
        // `d` is not in `runs`, `a` and `b` are merged, and of two equal merged files one counts.
        assert_eq!(visible, ["runs/2", "runs/c", "stages/1", "stages/c"]);
    }
}
