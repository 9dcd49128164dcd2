//! The place of a lake: a folder or a prefix of an object store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use roofgap_collect::file::write_atomic;

use crate::error::LakeError;
use crate::layout::MARKER;
use crate::tables::SCHEMA;

/// A lake.
#[derive(Debug)]
pub struct Store {
    address: String,
    place: Place,
    runtime: tokio::runtime::Runtime,
}

/// Paths are below the lake in both cases.
#[derive(Debug)]
enum Place {
    Folder(PathBuf),
    Objects(Arc<dyn ObjectStore>),
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
        let store = Self::at(address)?;
        match store.schema()? {
            Some(()) => Ok(store),
            None => Err(LakeError::NotALake {
                address: address.to_owned(),
            }),
        }
    }

    /// Opens a lake, or creates it.
    pub fn create(address: &str) -> Result<Self, LakeError> {
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
        let place = if address.contains("://") {
            Place::Objects(objects(address)?)
        } else {
            Place::Folder(PathBuf::from(address))
        };
        Ok(Self {
            address: address.trim_end_matches('/').to_owned(),
            place,
            runtime,
        })
    }

    /// Checks the schema of the lake; `None` where there is no lake.
    fn schema(&self) -> Result<Option<()>, LakeError> {
        let bytes = match self.read(MARKER) {
            Err(LakeError::Store { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            read => read?,
        };
        let marker: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let found = marker
            .get("schema")
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default();
        if found == SCHEMA {
            return Ok(Some(()));
        }
        Err(LakeError::Schema {
            address: self.address.clone(),
            found: found.to_owned(),
        })
    }

    /// Returns the address of a path.
    pub fn address(&self, path: &str) -> String {
        format!("{}/{path}", self.address)
    }

    /// Lists the files below a path, by name.
    pub fn list(&self, below: &str) -> Result<Vec<Entry>, LakeError> {
        let mut found = Vec::new();
        let listed = match &self.place {
            Place::Folder(root) => walk(root, below, &mut found),
            Place::Objects(store) => self.list_objects(store.as_ref(), below, &mut found),
        };
        listed.map_err(|source| LakeError::store("list", self.address(below), source))?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn list_objects(&self, store: &dyn ObjectStore, below: &str, found: &mut Vec<Entry>) -> io::Result<()> {
        use futures::TryStreamExt as _;
        let prefix = object_store::path::Path::from(below);
        let objects: Vec<_> = self.runtime.block_on(store.list(Some(&prefix)).try_collect())?;
        found.extend(objects.into_iter().map(|object| Entry {
            path: object.location.to_string(),
            bytes: object.size,
        }));
        Ok(())
    }

    /// Reads a file.
    pub fn read(&self, path: &str) -> Result<Bytes, LakeError> {
        let read = match &self.place {
            Place::Folder(root) => std::fs::read(root.join(path)).map(Bytes::from),
            Place::Objects(store) => self
                .runtime
                .block_on(async { store.get(&path.into()).await?.bytes().await })
                .map_err(io::Error::from),
        };
        read.map_err(|source| LakeError::store("read", self.address(path), source))
    }

    /// Reads the footer of a Parquet file.
    pub fn footer(&self, path: &str) -> Result<ParquetMetaData, LakeError> {
        let unreadable = |source| LakeError::Parquet {
            path: self.address(path),
            source,
        };
        let footer = match &self.place {
            Place::Folder(root) => {
                let file = std::fs::File::open(root.join(path));
                let file = file.map_err(|source| LakeError::store("read", self.address(path), source))?;
                ParquetMetaDataReader::new().parse_and_finish(&file)
            }
            Place::Objects(_) => ParquetMetaDataReader::new().parse_and_finish(&self.read(path)?),
        };
        footer.map_err(unreadable)
    }

    /// Tells whether a file exists.
    pub fn exists(&self, path: &str) -> Result<bool, LakeError> {
        let found = match &self.place {
            Place::Folder(root) => std::fs::metadata(root.join(path)).map(|_| ()),
            Place::Objects(store) => {
                let head = self.runtime.block_on(store.head(&path.into()));
                head.map(|_| ()).map_err(io::Error::from)
            }
        };
        match found {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(LakeError::store("look for", self.address(path), source)),
        }
    }

    /// Writes a file. Readers see all of it or nothing.
    pub fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), LakeError> {
        let written = match &self.place {
            Place::Folder(root) => put_file(&root.join(path), &bytes),
            Place::Objects(store) => {
                let (path, bytes) = (path.into(), PutPayload::from(bytes));
                self.runtime
                    .block_on(store.put(&path, bytes))
                    .map(|_| ())
                    .map_err(io::Error::from)
            }
        };
        written.map_err(|source| LakeError::store("write", self.address(path), source))
    }

    /// Writes a file unless it exists; `false` where it does.
    pub fn put_new(&self, path: &str, bytes: Vec<u8>) -> Result<bool, LakeError> {
        let objects = self.objects()?;
        let payload = PutPayload::from(bytes.clone());
        let written = self
            .runtime
            .block_on(objects.put_opts(&path.into(), payload, PutMode::Create.into()));
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
        let removed = match &self.place {
            Place::Folder(root) => std::fs::remove_file(root.join(path)),
            Place::Objects(store) => {
                let path = path.into();
                self.runtime
                    .block_on(store.delete(&path))
                    .map_err(io::Error::from)
            }
        };
        match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(LakeError::store("remove", self.address(path), source))
            }
            _ => Ok(()),
        }
    }

    /// Returns the lake as an object store, for the query engine.
    pub fn objects(&self) -> Result<Arc<dyn ObjectStore>, LakeError> {
        match &self.place {
            Place::Folder(root) => {
                let local = LocalFileSystem::new_with_prefix(root);
                let local = local.map_err(|source| LakeError::store("open", self.address.clone(), source))?;
                Ok(Arc::new(local))
            }
            Place::Objects(store) => Ok(Arc::clone(store)),
        }
    }
}

#[cfg(feature = "s3")]
fn objects(address: &str) -> Result<Arc<dyn ObjectStore>, LakeError> {
    use object_store::aws::AmazonS3Builder;
    use object_store::prefix::PrefixStore;
    let wrong = || LakeError::Address {
        address: address.to_owned(),
    };
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
    Err(LakeError::Address {
        address: address.to_owned(),
    })
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
            Ok(facts) => found.push(Entry {
                path,
                bytes: facts.len(),
            }),
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
