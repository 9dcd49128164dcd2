//! An object store with the files that counted when the lake was opened.
//!
//! The engine lists files for each query. `add` and `compact` may change them between two lists, and an answer must not mix the two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// The files of a lake that count, by path, with their sizes. Queries only read.
#[derive(Debug)]
pub struct VisibleFiles {
    pub inner: Arc<dyn ObjectStore>,
    pub files: BTreeMap<String, u64>,
}

impl VisibleFiles {
    /// Returns the files below a path.
    fn below(&self, prefix: Option<&Path>) -> Vec<ObjectMeta> {
        let prefix = prefix.map(|path| format!("{path}/")).filter(|path| path != "/");
        let prefix = prefix.unwrap_or_default();
        let files = self.files.range(prefix.clone()..);
        files
            .take_while(|(path, _)| path.starts_with(&prefix))
            .map(|(path, bytes)| ObjectMeta {
                location: Path::from(path.as_str()),
                // A file of a lake never changes.
                last_modified: Default::default(),
                size: *bytes,
                e_tag: None,
                version: None,
            })
            .collect()
    }
}

impl fmt::Display for VisibleFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

/// Refuses an operation that changes a lake.
fn refused(operation: &str) -> object_store::Error {
    let (operation, implementer) = (operation.to_owned(), "a query".to_owned());
    object_store::Error::NotImplemented { operation, implementer }
}

#[async_trait::async_trait]
impl ObjectStore for VisibleFiles {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(refused("put"))
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(refused("put"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        locations.map(|_| Err(refused("delete"))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter(self.below(prefix).into_iter().map(Ok)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let depth = prefix.map_or(0, |path| path.parts().count());
        let mut folders = BTreeSet::new();
        let mut objects = Vec::new();
        for meta in self.below(prefix) {
            let parts: Vec<_> = meta.location.parts().take(depth + 2).collect();
            if parts.len() > depth + 1 {
                folders.insert(parts.into_iter().take(depth + 1).collect::<Path>());
            } else {
                objects.push(meta);
            }
        }
        Ok(ListResult { common_prefixes: folders.into_iter().collect(), objects })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(refused("copy"))
    }
}
