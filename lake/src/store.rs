//! The place of a lake: a folder or a prefix of an object store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use roofgap_base::file::write_atomic;

use crate::LakeError;
use crate::layout::MARKER;
use crate::tables::SCHEMA;

/// Bytes that are read from the end of an object for its footer at first.
const FOOTER: u64 = 64 << 10;

/// A lake.
#[derive(Debug)]
pub struct Store {
    address: String,
    /// Files below the lake.
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Folder of the lake; `None` for one in an object store.
    folder: Option<PathBuf>,
    runtime: tokio::runtime::Runtime,
}

/// A file of a lake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path below the lake, with `/`.
    pub path: String,
    /// Size, bytes.
    pub bytes: u64,
}

impl Store {
    /// Opens a lake that exists.
    pub fn open(address: &str) -> Result<Self, LakeError> {
        let missing = || {
            let hint = format!("`roofgap lake add RUN --to {address}` creates one");
            LakeError::Usage(format!("{address} is not a lake: it has no {MARKER}; {hint}"))
        };
        if !address.contains("://") && !Path::new(address).is_dir() {
            return Err(missing());
        }
        let store = Self::at(address)?;
        store.schema()?.ok_or_else(missing).map(|()| store)
    }

    /// Opens a lake, or creates it.
    pub fn create(address: &str) -> Result<Self, LakeError> {
        if !address.contains("://") {
            let created = std::fs::create_dir_all(address);
            created.map_err(|source| LakeError::store("create", address, source))?;
        }
        let store = Self::at(address)?;
        if store.schema()?.is_none() {
            store.put(MARKER, format!("{{\"schema\": \"{SCHEMA}\"}}\n").into_bytes())?;
        }
        Ok(store)
    }

    fn at(address: &str) -> Result<Self, LakeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(LakeError::Runtime)?;
        let folder = (!address.contains("://")).then(|| PathBuf::from(address));
        let objects = match &folder {
            Some(folder) => Arc::new(
                LocalFileSystem::new_with_prefix(folder)
                    .map_err(|source| LakeError::store("open", address, source))?,
            ),
            None => objects(address)?,
        };
        Ok(Self { address: address.trim_end_matches('/').to_owned(), objects, folder, runtime })
    }

    /// Checks the schema of the lake; `None` where there is no lake.
    fn schema(&self) -> Result<Option<()>, LakeError> {
        let bytes = match self.read(MARKER) {
            Err(error) if error.is_gone() => return Ok(None),
            read => read?,
        };
        let marker: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let found = marker.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
        if found == SCHEMA {
            return Ok(Some(()));
        }
        let reads = format!("this version of roofgap-lake reads {SCHEMA}");
        Err(LakeError::Usage(format!("{} has the schema {found:?}, and {reads}", self.address)))
    }

    /// Returns the address of a path.
    pub fn address(&self, path: &str) -> String {
        format!("{}/{path}", self.address)
    }

    /// Lists the files below a path, by name.
    pub fn list(&self, below: &str) -> Result<Vec<Entry>, LakeError> {
        use futures::TryStreamExt as _;
        let mut found = Vec::new();
        let listed = match &self.folder {
            Some(root) => walk(root, below, &mut found),
            None => {
                let prefix = object_store::path::Path::from(below);
                let entry =
                    |object: ObjectMeta| Entry { path: object.location.to_string(), bytes: object.size };
                let objects = self.objects.list(Some(&prefix)).map_ok(entry).try_collect();
                self.runtime.block_on(objects).map(|objects| found = objects).map_err(io::Error::from)
            }
        };
        listed.map_err(|source| LakeError::store("list", self.address(below), source))?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Reads a file.
    pub fn read(&self, path: &str) -> Result<Bytes, LakeError> {
        let read = self.runtime.block_on(async { self.objects.get(&path.into()).await?.bytes().await });
        read.map_err(|source| LakeError::store("read", self.address(path), source))
    }

    /// Reads the footer of a Parquet file.
    pub fn footer(&self, path: &str) -> Result<ParquetMetaData, LakeError> {
        footer_from_end(|bytes| self.read_end(path, bytes))?
            .map_err(|source| LakeError::Parquet { path: self.address(path), source })
    }

    /// Reads the last bytes of an object, and its size.
    fn read_end(&self, path: &str, bytes: u64) -> Result<(Bytes, u64), LakeError> {
        let options = GetOptions { range: Some(GetRange::Suffix(bytes)), ..GetOptions::default() };
        let read = self.runtime.block_on(async {
            let found = self.objects.get_opts(&path.into(), options).await?;
            let size = found.meta.size;
            Ok::<_, object_store::Error>((found.bytes().await?, size))
        });
        match read {
            // An object without bytes has no end.
            Err(error) if !matches!(error, object_store::Error::NotFound { .. }) => {
                let whole = self.read(path)?;
                let size = whole.len() as u64;
                Ok((whole, size))
            }
            read => read.map_err(|source| LakeError::store("read", self.address(path), source)),
        }
    }

    /// Tells whether a file exists.
    pub fn exists(&self, path: &str) -> Result<bool, LakeError> {
        match self.runtime.block_on(self.objects.head(&path.into())) {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(LakeError::store("look for", self.address(path), source)),
        }
    }

    /// Writes a file. Readers see all of it or nothing.
    pub fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), LakeError> {
        let written = match &self.folder {
            Some(root) => put_file(&root.join(path), &bytes),
            None => {
                let put = self.runtime.block_on(self.objects.put(&path.into(), PutPayload::from(bytes)));
                put.map(|_| ()).map_err(io::Error::from)
            }
        };
        written.map_err(|source| LakeError::store("write", self.address(path), source))
    }

    /// Writes a file unless it exists; `false` where it does.
    pub fn put_new(&self, path: &str, bytes: Vec<u8>) -> Result<bool, LakeError> {
        let payload = PutPayload::from(bytes.clone());
        let written =
            self.runtime.block_on(self.objects.put_opts(&path.into(), payload, PutMode::Create.into()));
        match written {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            // Some stores cannot do this, such as folders without hard links.
            Err(_) if self.exists(path)? => Ok(false),
            Err(_) => self.put(path, bytes).map(|()| true),
        }
    }

    /// Removes a file. One that is gone already is no error.
    pub fn delete(&self, path: &str) -> Result<(), LakeError> {
        match self.runtime.block_on(self.objects.delete(&path.into())) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(LakeError::store("remove", self.address(path), source)),
        }
    }
}

/// Reads a footer with a function that returns the last bytes of a file and its size.
fn footer_from_end(
    mut read: impl FnMut(u64) -> Result<(Bytes, u64), LakeError>,
) -> Result<Result<ParquetMetaData, ParquetError>, LakeError> {
    let mut wanted = FOOTER;
    loop {
        let (end, size) = read(wanted)?;
        let mut reader = ParquetMetaDataReader::new();
        match reader.try_parse_sized(&end, size) {
            Err(ParquetError::NeedMoreData(needed)) if needed as u64 > wanted => wanted = needed as u64,
            parsed => return Ok(parsed.and_then(|()| reader.finish())),
        }
    }
}

#[cfg(feature = "s3")]
fn objects(address: &str) -> Result<Arc<dyn ObjectStore>, LakeError> {
    use object_store::aws::AmazonS3Builder;
    use object_store::prefix::PrefixStore;
    let wrong = || LakeError::Usage(format!("{address}: give a folder or s3://BUCKET/PREFIX"));
    let rest = address.strip_prefix("s3://").ok_or_else(wrong)?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(wrong());
    }
    // Region, endpoint and credentials come from the usual AWS_ variables.
    let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
    let store = store.map_err(|source| LakeError::store("open", address, source))?;
    let prefix = prefix.trim_matches('/');
    if prefix.is_empty() {
        return Ok(Arc::new(store));
    }
    Ok(Arc::new(PrefixStore::new(store, prefix)))
}

#[cfg(not(feature = "s3"))]
fn objects(address: &str) -> Result<Arc<dyn ObjectStore>, LakeError> {
    let why = "this roofgap-lake was built without the feature s3";
    Err(LakeError::Usage(format!("{address}: give a folder; {why}")))
}

fn put_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    write_atomic(path, bytes)
}

/// Lists files below a folder; a missing folder is empty.
fn walk(root: &Path, below: &str, found: &mut Vec<Entry>) -> io::Result<()> {
    let entries = match std::fs::read_dir(root.join(below)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // A name that is not UTF-8 is not ours.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = format!("{below}/{name}");
        match entry.metadata() {
            Ok(facts) if facts.is_dir() => walk(root, &path, found)?,
            Ok(facts) => found.push(Entry { path, bytes: facts.len() }),
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Record as _;
    use crate::tables::batch;
    use crate::tables::rows::ErrorRow;

    /// Makes a file with rows and keys, and reads its footer from the end. Returns its size and the sizes that were read.
    fn read_footer(rows: u64, keys: usize) -> (u64, Vec<u64>) {
        let row = |at: u64| {
            let noise = format!("{:x}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_pow(3));
            let row = ErrorRow { source: noise.as_str().into(), ..ErrorRow::default() };
            row.cells()
        };
        let table = ErrorRow::TABLE;
        let rows = batch::batch(&table, (1..=rows).map(row).collect()).unwrap();
        let keys: Vec<String> = (0..keys).map(|key| format!("{key:032x}")).collect();
        let file = Bytes::from(batch::parquet(&table, std::slice::from_ref(&rows), Some(&keys)).unwrap());
        let mut sizes = Vec::new();
        let footer = footer_from_end(|bytes| {
            let end = file.slice(file.len().saturating_sub(bytes as usize)..);
            sizes.push(end.len() as u64);
            Ok((end, file.len() as u64))
        });
        let footer = footer.unwrap().unwrap();
        assert_eq!(footer.file_metadata().num_rows(), rows.num_rows() as i64);
        assert_eq!(crate::listing::keys(&footer).len(), keys.len());
        (file.len() as u64, sizes)
    }

    #[test]
    fn a_footer_is_read_without_the_rows() {
        let (size, read) = read_footer(40_000, 3);
        assert!(size > 2 * FOOTER, "{size}");
        assert_eq!(read, [FOOTER]);
        // Keys of many runs make it longer.
        let (size, read) = read_footer(40_000, 4000);
        assert_eq!(read.len(), 2);
        assert!(read[1] < size - FOOTER, "{read:?} of {size}");
        let (size, read) = read_footer(1, 1);
        assert_eq!(read, [size]);
    }

    #[test]
    fn a_damaged_file_has_no_footer() {
        let damaged = footer_from_end(|_| Ok((Bytes::from_static(b"PAR1 and no more"), 16)));
        assert!(damaged.unwrap().is_err());
        let empty = footer_from_end(|_| Ok((Bytes::new(), 0)));
        assert!(empty.unwrap().is_err());
    }

    #[test]
    fn a_file_is_new_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path().to_str().unwrap()).unwrap();
        assert!(store.put_new("_keys/00/a.place", b"first".to_vec()).unwrap());
        assert!(!store.put_new("_keys/00/a.place", b"second".to_vec()).unwrap());
        assert_eq!(store.read("_keys/00/a.place").unwrap(), b"first".as_slice());
        // Nothing else is left.
        assert_eq!(store.list("_keys").unwrap().len(), 1);
    }
}
