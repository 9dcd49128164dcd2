//! Questions about a lake: the query engine over its tables.
//!
//! - [`saved`]: saved queries and their parameters;
//! - [`answer`]: rows in the formats of the command.

pub mod answer;
pub mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use datafusion::datasource::MemTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use object_store::path::Path as StorePath;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult,
};
use url::Url;

use crate::LakeError;
use crate::listing::Listing;
use crate::store::Store;
use crate::tables::{PARTITIONS, TABLES, Table, batch};

/// Address of the lake inside of the engine.
const ROOT: &str = "lake://lake";

/// The rows of an answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Columns.
    pub schema: SchemaRef,
    /// Rows.
    pub batches: Vec<RecordBatch>,
}

/// A query engine with the tables of a lake.
pub struct Engine {
    context: SessionContext,
    runtime: tokio::runtime::Runtime,
}

impl Engine {
    /// Opens the tables of a lake. `prices` is a CSV file with the columns `gpu` and `price_per_hour`.
    pub fn open(store: &Store, prices: Option<&Path>) -> Result<Self, LakeError> {
        let files =
            VisibleFiles { inner: Arc::clone(&store.objects), files: Listing::read(store, false)?.visible() };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let config = SessionConfig::new().with_information_schema(true);
        let context = SessionContext::new_with_config(config);
        let root = Url::parse(ROOT).map_err(|error| DataFusionError::External(Box::new(error)))?;
        context.register_object_store(&root, Arc::new(files));
        for table in &TABLES {
            context.register_table(table.name, Arc::new(listing_table(table)?))?;
        }
        context.register_table("prices", Arc::new(price_table(prices)?))?;
        Ok(Self { context, runtime: runtime.map_err(LakeError::Runtime)? })
    }

    /// Answers a query. Statements that write are errors.
    pub fn query(&self, sql: &str) -> Result<Answer, LakeError> {
        let options =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let rows = self.runtime.block_on(async {
            let frame = self.context.sql_with_options(sql, options).await?;
            let schema = Arc::new(frame.schema().as_arrow().clone());
            let batches = frame.collect().await?;
            // The plan may know more about nulls than the query text does.
            let schema = batches.first().map_or(schema, RecordBatch::schema);
            Ok::<_, DataFusionError>(Answer { schema, batches })
        });
        Ok(rows?)
    }
}

/// Describes the files of a table to the engine.
fn listing_table(table: &Table) -> Result<ListingTable, DataFusionError> {
    let partitions = PARTITIONS.map(|(name, kind)| {
        let kind = match kind {
            "DATE" => DataType::Date32,
            _ => DataType::Utf8,
        };
        (name.to_owned(), kind)
    });
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
        .with_file_extension(".parquet")
        .with_table_partition_cols(partitions.to_vec());
    let url = ListingTableUrl::parse(format!("{ROOT}/{}/", table.name))?;
    let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(view_schema(table));
    ListingTable::try_new(config)
}

/// Returns the schema of a table as it is read: text as views, which are faster to compare; null where an older file has no column.
fn view_schema(table: &Table) -> SchemaRef {
    let written = batch::schema(table);
    let field = |field: &Arc<Field>| {
        let kind = match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            other => other.clone(),
        };
        Field::new(field.name(), kind, true)
    };
    Arc::new(Schema::new(written.fields().iter().map(field).collect::<Vec<_>>()))
}

/// Reads the table of prices; it is empty without a file.
fn price_table(path: Option<&Path>) -> Result<MemTable, LakeError> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("gpu", DataType::Utf8, true),
        Field::new("price_per_hour", DataType::Float64, true),
    ]));
    let mut batches = Vec::new();
    if let Some(path) = path {
        let file = std::fs::File::open(path);
        let file = file.map_err(|source| LakeError::store("read", path.display().to_string(), source))?;
        let rows = ReaderBuilder::new(Arc::clone(&schema)).with_header(true).build(file)?;
        batches = rows.collect::<Result<_, _>>()?;
    }
    Ok(MemTable::try_new(schema, vec![batches])?)
}

/// The files of a lake that count, by path, with their sizes. Queries only read.
#[derive(Debug)]
struct VisibleFiles {
    inner: Arc<dyn ObjectStore>,
    files: BTreeMap<String, u64>,
}

impl VisibleFiles {
    /// Returns the files below a path.
    fn below(&self, prefix: Option<&StorePath>) -> Vec<ObjectMeta> {
        let prefix = prefix.map(|path| format!("{path}/")).filter(|path| path != "/");
        let prefix = prefix.unwrap_or_default();
        let files = self.files.range(prefix.clone()..);
        files
            .take_while(|(path, _)| path.starts_with(&prefix))
            .map(|(path, bytes)| ObjectMeta {
                location: StorePath::from(path.as_str()),
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
    async fn put_opts(&self, _: &StorePath, _: PutPayload, _: PutOptions) -> StoreResult<PutResult> {
        Err(refused("put"))
    }

    async fn put_multipart_opts(
        &self,
        _: &StorePath,
        _: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        Err(refused("put"))
    }

    async fn get_opts(&self, location: &StorePath, options: GetOptions) -> StoreResult<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &StorePath, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, StoreResult<StorePath>>,
    ) -> BoxStream<'static, StoreResult<StorePath>> {
        locations.map(|_| Err(refused("delete"))).boxed()
    }

    fn list(&self, prefix: Option<&StorePath>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        stream::iter(self.below(prefix).into_iter().map(Ok)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&StorePath>) -> StoreResult<ListResult> {
        let depth = prefix.map_or(0, |path| path.parts().count());
        let mut folders = BTreeSet::new();
        let mut objects = Vec::new();
        for meta in self.below(prefix) {
            let parts: Vec<_> = meta.location.parts().take(depth + 2).collect();
            if parts.len() > depth + 1 {
                folders.insert(parts.into_iter().take(depth + 1).collect::<StorePath>());
            } else {
                objects.push(meta);
            }
        }
        Ok(ListResult { common_prefixes: folders.into_iter().collect(), objects })
    }

    async fn copy_opts(&self, _: &StorePath, _: &StorePath, _: CopyOptions) -> StoreResult<()> {
        Err(refused("copy"))
    }
}
