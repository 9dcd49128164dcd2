//! An object store without the files that do not count.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// The files of a lake that count. Queries only read.
#[derive(Debug)]
pub(super) struct VisibleFiles {
    pub(super) inner: Arc<dyn ObjectStore>,
    pub(super) hidden: Arc<HashSet<String>>,
}

impl fmt::Display for VisibleFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

#[async_trait::async_trait]
impl ObjectStore for VisibleFiles {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(object_store::Error::NotImplemented {
            operation: "put".to_owned(),
            implementer: "a query".to_owned(),
        })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(object_store::Error::NotImplemented {
            operation: "put".to_owned(),
            implementer: "a query".to_owned(),
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let refused = |_| {
            Err(object_store::Error::NotImplemented {
                operation: "delete".to_owned(),
                implementer: "a query".to_owned(),
            })
        };
        locations.map(refused).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let hidden = Arc::clone(&self.hidden);
        let counts = move |meta: &Result<ObjectMeta>| {
            let hides = meta
                .as_ref()
                .is_ok_and(|meta| hidden.contains(meta.location.as_ref()));
            std::future::ready(!hides)
        };
        self.inner.list(prefix).filter(counts).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        listed
            .objects
            .retain(|meta| !self.hidden.contains(meta.location.as_ref()));
        Ok(listed)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(object_store::Error::NotImplemented {
            operation: "copy".to_owned(),
            implementer: "a query".to_owned(),
        })
    }
}
